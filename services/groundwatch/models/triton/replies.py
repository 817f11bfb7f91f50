"""What Triton sent, in our terms: checked values, or a fault.

The serving code says what the input is to blame for by a slug in brackets at the head of its message; any
other fault is the server's and costs no event its score.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from groundwatch.errors import RateLimited, TransientError, Unscorable
from groundwatch.models.asking import CallKind, Fault

if TYPE_CHECKING:
    from tritonclient.utils import InferenceServerException

OF_THE_INPUT = (
    CallKind.UNREADABLE_IMAGE,
    CallKind.PROMPT_TOO_LONG,
    CallKind.NOT_FINITE,
    CallKind.JUDGE_REJECTED_REQUEST,
)
"""Slugs that make a response unscored: asking again would end the same way."""

_SLUG = re.compile(r"\[([a-z_]+)\] (.*)", re.DOTALL)
_DETAIL = 300
_PASSES = {
    "DEADLINE_EXCEEDED": (CallKind.TIMEOUT, "did not answer in time"),
    "UNAVAILABLE": (CallKind.UNREACHABLE, "is not available"),
    "CANCELLED": (CallKind.SERVER_ERROR, "dropped the request"),
    "ABORTED": (CallKind.SERVER_ERROR, "dropped the request"),
    "INTERNAL": (CallKind.SERVER_ERROR, "failed"),
    "UNKNOWN": (CallKind.SERVER_ERROR, "failed"),
}

_OF_THE_OPERATOR = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")


class BadReply(ValueError):
    """A reply that is not what the model's contract says."""


class ModelIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which model answers under a served name, as a judge's fingerprint needs it.

    `model_id` is the checkpoint's name or folder, `weights` a digest of its files or its commit on the hub
    (empty when the repository states neither), `prompt` a digest of the parameters that change what the
    model is asked.
    """

    name: str
    model_id: str
    weights: str = ""
    dtype: str = ""
    prompt: str = ""

    @property
    def label(self) -> str:
        """One name for all of it: `model_id@weights`, with the type of number and the prompt's digest."""
        weights = f"@{self.weights[:12]}" if self.weights else ""
        rest = "".join(f"/{part}" for part in (self.dtype, self.prompt) if part)
        return f"{self.model_id}{weights}{rest}"


def fault_of(error: InferenceServerException | TimeoutError, *, whom: str) -> Fault:
    """What a failed request means. `whom` says which model was asked where."""
    if isinstance(error, TimeoutError):
        return _passing(CallKind.TIMEOUT, f"{whom} did not answer in time")
    status = (error.status() or "UNKNOWN").rpartition(".")[2]
    text = (error.message() or "").strip()
    if slug := _SLUG.search(text):
        reason, detail = slug[1], slug[2][:_DETAIL]
        if reason in OF_THE_INPUT:
            return Fault(kind=CallKind(reason), error=Unscorable(reason, detail))
        if reason == "out_of_memory":
            return _passing(CallKind.SERVER_ERROR, f"{whom} ran out of memory: {detail}")
    text = text[:_DETAIL]
    if status == "RESOURCE_EXHAUSTED" or "queue size" in text:
        return Fault(kind=CallKind.RATE_LIMITED, error=RateLimited(f"{whom} is full: {text}"), passes=True)
    if status in _PASSES and "unknown model" not in text:
        kind, what = _PASSES[status]
        # One connection that broke may have broken over this request; one that nobody took did not.
        return _passing(kind, f"{whom} {what}: {text}", away="failed to connect" in text.casefold())
    # A Triton that was just started answers so for models that it has yet to load.
    unknown = status == "NOT_FOUND" or "unknown model" in text
    advice = "unless it is still loading, " if unknown else ""
    away = unknown or status in _OF_THE_OPERATOR
    why = f"{advice}check the settings and the model repository: {whom} answered {status}: {text}"
    return Fault(kind=CallKind.MISCONFIGURED, error=TransientError(why), away=away)


def bad_reply(error: Exception, *, whom: str) -> Fault:
    """A reply that cannot be read is the served model's fault: the operator must mend it."""
    why = f"check the model repository: {whom} sent a bad reply: {error}"
    return Fault(kind=CallKind.BAD_REPLY, error=TransientError(why))


def no_reply(*, whom: str) -> Fault:
    """Triton answers so when the model's process dies with a request in its hands."""
    return _passing(CallKind.SERVER_ERROR, f"{whom} died while it answered")


def array(result: Any, name: str, *, dtype: str, length: int | None = None) -> Any:
    """Output `name` without its batch dimension, as a flat array. Raises `BadReply`."""
    found = result.as_numpy(name)
    if found is None:
        raise BadReply(f"no output {name}")
    if found.ndim != 2 or found.shape[0] != 1:
        raise BadReply(f"output {name} has shape {list(found.shape)}, not [1, n]")
    if found.dtype.kind != dtype:
        raise BadReply(f"output {name} is {found.dtype}")
    if length is not None and found.shape[1] != length:
        raise BadReply(f"output {name} has {found.shape[1]} values for {length}")
    return found[0]


def numbers(result: Any, name: str, *, length: int | None = None) -> list[float]:
    """Output `name` as finite numbers. Raises `BadReply`, or `Unscorable` when they are not finite."""
    found: list[float] = array(result, name, dtype="f", length=length).tolist()
    if not found:
        raise BadReply(f"output {name} is empty")
    if not all(map(math.isfinite, found)):
        raise Unscorable(CallKind.NOT_FINITE, f"output {name} holds what is no number")
    return found


def probabilities(result: Any, name: str, *, length: int) -> list[float]:
    """Output `name` as probabilities. Raises `BadReply`, or `Unscorable` when they are not finite."""
    found = numbers(result, name, length=length)
    if not all(0.0 <= value <= 1.0 for value in found):
        raise BadReply(f"output {name} holds what is no probability")
    return found


def blob(result: Any, name: str) -> bytes:
    """Output `name` as the bytes of its one element. Raises `BadReply`."""
    found = array(result, name, dtype="O", length=1)[0]
    if not isinstance(found, bytes):
        raise BadReply(f"output {name} holds no bytes")
    return found


def _passing(kind: CallKind, message: str, *, away: bool = False) -> Fault:
    return Fault(kind=kind, error=TransientError(message), passes=True, away=away)
