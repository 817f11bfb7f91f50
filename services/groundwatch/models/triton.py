"""The models that Triton serves, asked over gRPC: one client for all of them, and what it sent in our terms.

Faults end as those of an OpenAI-compatible endpoint do: what the input causes makes it unscored, what
passes is tried again within bounds and then handed back, what the operator must mend is handed back too.
A model that keeps failing is left alone for a while. The serving code says what the input is to blame for by
a slug in brackets at the head of its message; any other fault is the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from groundwatch.addresses import shown_address
from groundwatch.errors import MissingExtraError, RateLimited, TransientError, Unavailable, Unscorable, words
from groundwatch.events import Usage
from groundwatch.models.asking import CALL_HEADERS, CallKind, Calls, Fault, RetryPolicy
from groundwatch.models.replies import Detection, Text, encodable
from groundwatch.models.settings import OnCall, TritonSettings

if TYPE_CHECKING:
    from tritonclient.utils import InferenceServerException

T = TypeVar("T")

_DTYPES = {"MAX_TOKENS": "int32", "TEMPERATURE": "float32", "SEED": "int64", "STEPS": "int32"}
"""Of inputs that are numbers; all others are texts or bytes."""

WATCH_SECONDS = 5.0

FRESH_SECONDS = 30.0
"""For so long it is known who answers under a name: a server can load another checkpoint at any moment."""

_PNG = b"\x89PNG\r\n\x1a\n"
_ASKED = ("PROMPT_TEMPLATE", "PREFIX", "SYSTEM_PROMPT", "YES", "NO", "THRESHOLD", "MAX_OVERLAP", "MAX_BOXES")
"""Parameters of a served model that change what it is asked or tells."""


class TritonModels:
    """The served models; one client for each loop, for any number of tasks.

    Every call raises `Unscorable` (unreadable_image, prompt_too_long, not_finite, empty_reply,
    judge_rejected_request), `RateLimited`, `Unavailable` while the model is away, or `TransientError`.
    """

    def __init__(self, settings: TritonSettings, *, on_call: OnCall | None = None) -> None:
        try:
            self._numpy: Any = importlib.import_module("numpy")
            self._grpc: Any = importlib.import_module("tritonclient.grpc.aio")
        except ImportError as error:
            raise MissingExtraError("tritonclient", "triton") from error
        self.settings = settings
        self._on_call = on_call
        self._connected: Any = None
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._calls: dict[str, Calls] = {}
        self._identities: dict[str, ModelIdentity] = {}
        self._stale_at: dict[str, float] = {}
        self._whole: set[str] = set()
        """Verifiers that are known to ask each statement in a prompt of its own."""
        self._asking = asyncio.Lock()
        self._watched: dict[str, str] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def lvlm(
        self,
        images: Sequence[bytes],
        prompt: str,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        model: str = "",
    ) -> Text:
        """The answer of an LVLM (that of settings, or `model`) to `prompt` about `images`, greedy at 0."""
        inputs: dict[str, list[Any]] = {
            "PROMPT": [prompt],
            "MAX_TOKENS": [max_tokens],
            "TEMPERATURE": [temperature],
            "SEED": [seed],
        }
        if images:
            inputs["IMAGES"] = list(images)
        return await self._call(model or self.settings.lvlm, inputs, _read_text)

    async def verify(self, image: bytes | Sequence[bytes], statements: Sequence[str]) -> list[float]:
        """For each statement the probability that it holds for the image or images, in one request.

        Raises `Unavailable` where statements are asked in another way than until now, which makes another
        judge: what is in hand is begun anew.
        """
        if not statements:
            return []
        images = [image] if isinstance(image, bytes) else list(image)

        def read(result: Any) -> tuple[tuple[list[float], bool], Usage]:
            whole = result.as_numpy("WAY") is not None and blob(result, "WAY") == b"whole"
            return (probabilities(result, "P_YES", length=len(statements)), whole), _usage(result)

        name = self.settings.verifier
        before = name in self._whole
        found, whole = await self._call(name, {"IMAGES": images, "STATEMENTS": list(statements)}, read)
        (self._whole.add if whole else self._whole.discard)(name)
        if whole != before:
            raise Unavailable(f"on Triton {self.label(name)} answers now", retry_after=0.0)
        return found

    async def encode_image(self, image: bytes) -> list[float]:
        return await self._call(self.settings.image_encoder, {"IMAGE": [image]}, _read_vector)

    async def encode_text(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, all of one length."""
        name = self.settings.text_encoder
        return await asyncio.gather(*(self._call(name, {"TEXT": [one]}, _read_vector) for one in texts))

    async def detect(self, image: bytes, texts: Sequence[str]) -> tuple[Detection, ...]:
        """Where the image shows what each phrase names, in the order of phrases, the surest box first.

        A box is told for every phrase that fits it. No box of a phrase: it has none of the served model's
        least score.
        """
        if not texts:
            return ()
        return await self._call(
            self.settings.detector,
            {"IMAGE": [image], "TEXTS": list(texts)},
            lambda result: (detections(result, texts=len(texts)), Usage(calls=1)),
        )

    async def generate_image(self, prompt: str, *, seed: int = 0, steps: int = 0) -> bytes:
        """The PNG that the generator makes of `prompt`; `steps` 0: as many as the served model is set to."""
        inputs = {"PROMPT": [prompt], "SEED": [seed], "STEPS": [steps]}
        return await self._call(self.settings.generator, inputs, _read_png)

    def label(self, model: str) -> str:
        """Who answers under this name, as far as is known: a judgement carries the checkpoint, not the name.

        The name itself until `confirm` has found out.
        """
        label = self._identities[model].label if model in self._identities else model
        return f"{label}/whole" if model in self._whole else label

    async def confirm(self, *models: str) -> None:
        """Make sure that `label` says who answers.

        Raises `Unavailable` when it said something else until now, so that what is in hand is begun anew with
        who answers now, or when Triton does not tell.
        """
        before = [self.label(model) for model in models]
        for model in models:
            await self.identity(model)
        now = [self.label(model) for model in models]
        if before != now:
            why = f"on Triton {' and '.join(now)} answer now, not {' and '.join(before)}"
            raise Unavailable(why, retry_after=0.0)

    async def identity(self, model: str) -> ModelIdentity:
        """Which checkpoint answers under the served name `model`, as its repository states it.

        Raises `Unavailable` when Triton does not say: no event is to blame for that.
        """
        if time.monotonic() >= self._stale_at.get(model, 0.0):
            async with self._asking:
                if time.monotonic() >= self._stale_at.get(model, 0.0):
                    self._identities[model] = await self._identity(model)
                    self._stale_at[model] = time.monotonic() + FRESH_SECONDS
        return self._identities[model]

    async def _identity(self, model: str) -> ModelIdentity:
        calls = self._calls_to(model)
        calls.answered()
        try:
            answer = await self._ask_server("get_model_config", model)
        except TransientError as error:
            raise calls.away(error) from error
        found = {key: value.string_value for key, value in answer.config.parameters.items()}
        asked = "\n".join(f"{key}={found[key]}" for key in _ASKED if found.get(key))
        digest = found.get("WEIGHTS_SHA256", "")
        checkpoint = found.get("MODEL_ID", "") or model
        return ModelIdentity(
            name=model,
            # Where its folder lies is a machine's own affair; the digest tells which checkpoint it is.
            model_id=PurePath(checkpoint).name if digest else checkpoint,
            weights=digest or found.get("REVISION", ""),
            dtype=found.get("DTYPE", ""),
            prompt=hashlib.sha256(asked.encode()).hexdigest()[:12] if asked else "",
        )

    async def warm_up(self, *models: str) -> None:
        """Begin to watch the models, and ask who they are; one that does not say is a problem for later."""
        await self.watch(*models)
        for model in models:
            with contextlib.suppress(TransientError):
                await self.identity(model)

    async def ready(self, model: str = "") -> bool:
        """Whether Triton answers and, when one is named, the model is loaded."""
        try:
            # Not its own readiness: a server is unready as soon as any one of its models is.
            asked = ("is_model_ready", model) if model else ("is_server_live",)
            return bool(await self._ask_server(*asked))
        except TransientError:
            return False

    async def watch(self, *models: str) -> None:
        """Look every few seconds whether `models` are loaded, for `problems`."""
        self._watched |= dict.fromkeys(models, "not looked at yet")
        await self._look()
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="triton-watch")

    def problems(self) -> list[str]:
        """What keeps the watched models from answering; empty when nothing does."""
        found = [f"model '{name}': {why}" for name, why in self._watched.items() if why]
        found += [
            f"model '{name}' is left alone after faults: {calls.breaker.why}"
            for name, calls in self._calls.items()
            if calls.breaker.is_open and not self._watched.get(name)
        ]
        return [f"triton at {shown_address(self.settings.url)}: {what}" for what in found]

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        if self._connected is not None:
            await self._connected.close()
            self._connected = None

    async def _call(self, model: str, inputs: Mapping[str, Any], read: Callable[[Any], tuple[T, Usage]]) -> T:
        tensors = [self._tensor(name, values) for name, values in inputs.items()]
        calls = self._calls_to(model)
        (found, usage), seconds = await calls.persist(
            lambda: self._request(model, tensors, read), RetryPolicy(self.settings)
        )
        calls.record(CallKind.OK, seconds, usage)
        return found

    def _calls_to(self, model: str) -> Calls:
        if model not in self._calls:
            self._calls[model] = Calls(model, self.settings, slots=self._slots, on_call=self._on_call)
        return self._calls[model]

    async def _request(
        self, model: str, tensors: list[Any], read: Callable[[Any], tuple[T, Usage]]
    ) -> tuple[T, Usage] | Fault:
        from tritonclient.utils import InferenceServerException

        seconds = self.settings.timeout
        try:
            # Triton's own deadline, in microseconds, takes it out of the queue when we no longer wait.
            async with asyncio.timeout(seconds + 1.0):
                result = await self._client().infer(
                    model,
                    tensors,
                    client_timeout=seconds,
                    timeout=int(seconds * 1_000_000),
                    headers={**CALL_HEADERS.get()} or None,
                )
        except (InferenceServerException, TimeoutError) as error:
            return fault_of(error, whom=self._whom(model))
        if not result.get_response().outputs:
            return no_reply(whom=self._whom(model))
        try:
            return read(result)
        except Unscorable as error:
            return Fault(kind=CallKind(error.reason), error=error)
        except (BadReply, InferenceServerException, ValueError, IndexError) as error:
            return bad_reply(error, whom=self._whom(model))

    async def _ask_server(self, what: str, *arguments: str) -> Any:
        from tritonclient.utils import InferenceServerException

        seconds = min(self.settings.timeout, WATCH_SECONDS)
        try:
            async with asyncio.timeout(seconds + 1.0):
                return await getattr(self._client(), what)(*arguments, client_timeout=seconds)
        except (InferenceServerException, TimeoutError) as error:
            fault = fault_of(error, whom=self._whom(*arguments))
            raise TransientError(str(fault.error)) from error

    def _client(self) -> Any:
        if self._connected is None:
            settings = self.settings
            self._connected = self._grpc.InferenceServerClient(
                settings.url, ssl=settings.tls, root_certificates=settings.tls_ca or None
            )
        return self._connected

    def _tensor(self, name: str, values: Sequence[Any]) -> Any:
        """A tensor with a batch dimension of 1; texts and bytes become Triton's BYTES."""
        block = self._numpy.empty((1, len(values)), dtype=_DTYPES.get(name, object))
        block[0, :] = [encodable(one).encode() if isinstance(one, str) else one for one in values]
        kind = {"int32": "INT32", "int64": "INT64", "float32": "FP32"}.get(str(block.dtype), "BYTES")
        tensor = self._grpc.InferInput(name, list(block.shape), kind)
        tensor.set_data_from_numpy(block)
        return tensor

    def _whom(self, model: str = "") -> str:
        asked = f"model '{model}'" if model else "Triton"
        return f"{asked} at {shown_address(self.settings.url)}"

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._look()
            except Exception as error:
                # Whatever it is, looking goes on: what was last seen must not stand for ever.
                self._watched = dict.fromkeys(self._watched, f"cannot be looked at: {words(error)}")

    async def _look(self) -> None:
        for name in self._watched:
            loaded = await self.ready(name)
            self._watched[name] = "" if loaded else "not loaded" if await self.ready() else "no answer"


def _usage(result: Any) -> Usage:
    asked, told = array(result, "TOKENS", dtype="i", length=2).tolist()
    return Usage(calls=1, input_tokens=max(0, asked), output_tokens=max(0, told))


def _read_text(result: Any) -> tuple[Text, Usage]:
    usage = _usage(result)
    text = blob(result, "TEXT").decode("utf-8", "replace")
    if not text.strip():
        raise Unscorable(CallKind.EMPTY_REPLY)
    cut_off = blob(result, "FINISH_REASON") == b"length"
    return Text(text=text, usage=usage, cut_off=cut_off), usage


def _read_vector(result: Any) -> tuple[list[float], Usage]:
    return numbers(result, "EMBEDDING"), Usage(calls=1)


def _read_png(result: Any) -> tuple[bytes, Usage]:
    data = blob(result, "IMAGE")
    if not data.startswith(_PNG):
        raise BadReply("output IMAGE is no PNG")
    return data, Usage(calls=1)


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


def array(result: Any, name: str, *, dtype: str, length: int | None = None, row: tuple[int, ...] = ()) -> Any:
    """Output `name` without its batch dimension: values, or rows of this shape. Raises `BadReply`."""
    found = result.as_numpy(name)
    if found is None:
        raise BadReply(f"no output {name}")
    if found.ndim < 2 or found.shape[0] != 1 or found.shape[2:] != row:
        raise BadReply(
            f"output {name} has shape {list(found.shape)}, not [{', '.join(map(str, (1, 'n', *row)))}]"
        )
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


def detections(result: Any, *, texts: int) -> tuple[Detection, ...]:
    """Outputs of a detector that was asked for so many phrases.

    Raises `BadReply`, or `Unscorable` when they are not finite.
    """
    asked: list[int] = array(result, "TEXT_INDEX", dtype="i").tolist()
    boxes: list[list[float]] = array(result, "BOXES", dtype="f", length=len(asked), row=(4,)).tolist()
    if not asked:
        return ()
    scores = probabilities(result, "SCORES", length=len(asked))
    if not all(math.isfinite(edge) for box in boxes for edge in box):
        raise Unscorable(CallKind.NOT_FINITE, "output BOXES holds what is no number")
    if not all(0 <= x0 <= x1 <= 1 and 0 <= y0 <= y1 <= 1 for x0, y0, x1, y1 in boxes):
        raise BadReply("output BOXES holds a box that is not in the image")
    if not all(0 <= text < texts for text in asked):
        raise BadReply(f"output TEXT_INDEX names a phrase beyond the {texts} that were asked for")
    return tuple(
        Detection(text, (x0, y0, x1, y1), score)
        for text, (x0, y0, x1, y1), score in zip(asked, boxes, scores, strict=True)
    )


def blob(result: Any, name: str) -> bytes:
    """Output `name` as the bytes of its one element. Raises `BadReply`."""
    found = array(result, name, dtype="O", length=1)[0]
    if not isinstance(found, bytes):
        raise BadReply(f"output {name} holds no bytes")
    return found


def _passing(kind: CallKind, message: str, *, away: bool = False) -> Fault:
    return Fault(kind=kind, error=TransientError(message), passes=True, away=away)
