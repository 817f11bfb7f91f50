"""How a request ends: recorded, or refused with one exception that has its status over HTTP and over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from groundwatch.counting import TooLong
from groundwatch.errors import (
    GroundwatchError,
    HeldByOthers,
    InputError,
    TransientError,
    UnknownName,
    UsageError,
)
from groundwatch.runtime.telemetry.logs import logger

RETRY_AFTER = 5
"""Seconds after which somebody should come again, where nobody knows better."""

Reason = Literal[
    "malformed",
    "invalid",
    "too_large",
    "unknown_protocol",
    "image",
    "image_missing",
    "image_not_allowed",
    "image_not_fetched",
    "image_unavailable",
    "conflict",
    "erased",
    "other_tenant",
    "rate_limited",
    "backlog",
    "unavailable",
    "unconfirmed",
]
"""Why a response is not recorded: bounded, since it is a metric's label."""

OtherReason = Literal[
    "unauthenticated",
    "all_tenants",
    "not_for_tenants",
    "role",
    "elsewhere",
    "not_found",
    "slow",
    "deadline",
    "run_exists",
    "held",
    "over",
    "message_too_large",
    "media_type",
    "too_slow",
    "watchers",
    "streams",
    "comparisons",
    "internal",
]
"""Why anything else is refused."""


class Status(NamedTuple):
    """Over HTTP, and the name of the same over gRPC."""

    http: int
    grpc: str


STATUS: dict[str, Status] = {
    reason: status
    for status, reasons in (
        (Status(401, "UNAUTHENTICATED"), "unauthenticated"),
        (Status(403, "PERMISSION_DENIED"), "other_tenant all_tenants not_for_tenants role elsewhere"),
        (Status(404, "NOT_FOUND"), "not_found"),
        (Status(408, "DEADLINE_EXCEEDED"), "slow"),
        (Status(409, "ALREADY_EXISTS"), "conflict run_exists"),
        (Status(409, "FAILED_PRECONDITION"), "held over"),
        (Status(410, "FAILED_PRECONDITION"), "erased"),
        (Status(413, "INVALID_ARGUMENT"), "too_large"),
        (Status(413, "RESOURCE_EXHAUSTED"), "message_too_large"),
        (Status(415, "INVALID_ARGUMENT"), "media_type"),
        (
            Status(422, "INVALID_ARGUMENT"),
            "malformed invalid unknown_protocol image image_not_allowed image_not_fetched",
        ),
        (Status(422, "FAILED_PRECONDITION"), "image_missing"),
        (Status(429, "RESOURCE_EXHAUSTED"), "rate_limited"),
        (Status(503, "RESOURCE_EXHAUSTED"), "backlog too_slow watchers streams comparisons"),
        (Status(503, "UNAVAILABLE"), "image_unavailable unavailable unconfirmed"),
        (Status(500, "INTERNAL"), "internal"),
        (Status(504, "DEADLINE_EXCEEDED"), "deadline"),
    )
    for reason in reasons.split()
}


class Refused(GroundwatchError):
    """Raised for a request, and the value of one response of many that were sent together.

    `field` is the path of what is wrong in the request, `id` that of the response. `lasting`: trying again
    at once would end the same. `after` so many seconds it may be taken, where that is known. `left_out` is
    the reason for which a logged call does without what is wrong, if it can. `kept`: it is recorded all the
    same, as declined. `details` are told beside it.
    """

    def __init__(
        self,
        reason: Reason | OtherReason,
        message: str,
        *,
        field: str = "",
        id: str = "",
        lasting: bool = False,
        after: float = 0.0,
        left_out: str = "",
        kept: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.id = id
        self.lasting = lasting
        self.after = after
        self.left_out = left_out
        self.kept = kept
        self.details: dict[str, Any] = {}

    def but(self, **changes: Any) -> Refused:
        """The same with some of it changed, and without where it was raised: the frames that the exception
        leads to hold what was sent, so one that is held is held so, also by the frame that raises it."""
        same = {name: value for name, value in vars(self).items() if name != "details"}
        return Refused(**(same | changes))

    @property
    def status(self) -> Status:
        return STATUS[self.reason]

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least one, after which to send it again."""
        return max(1, math.ceil(self.after)) if self.reason == "rate_limited" else RETRY_AFTER

    def told(self) -> dict[str, str]:
        """What JSON says of it, alone or among others."""
        said = {"error": one_line(self.message), "reason": self.reason, "field": self.field, "id": self.id}
        return {name: value for name, value in said.items() if value}

    @property
    def passing(self) -> bool:
        """Whether it is not the request's fault: the same one may be sent again later."""
        return self.status.http in (429, 503)

    @property
    def unsure(self) -> bool:
        """Whether it may be recorded after all: it was sent, and the stream's word did not come back."""
        return self.reason == "unconfirmed"


T = TypeVar("T")


async def outcome_of(work: Awaitable[T]) -> T | Refused:
    """What it returns, or the refusal that it raises: of many, each ends by itself."""
    try:
        return await work
    except Refused as error:
        return error.but()


def refusal_of(error: Exception) -> Refused:
    """What is told of an error that somebody can do something about; any other is our own, and logged."""
    match error:
        case Refused():
            return error
        case UnknownName():
            return Refused("not_found", str(error))
        case HeldByOthers():
            return Refused("held", str(error))
        case TransientError():
            return Refused("unavailable", str(error))
        case UsageError():
            return Refused("invalid", str(error), field=next(iter(error.parameters), ""))
        case TooLong():
            return Refused("too_large", str(error))
        case InputError():
            return Refused("invalid", str(error))
    logger.error("gateway.bug", error=repr(error), exc_info=error)
    return Refused("internal", f"an error of the gateway, in its log: {type(error).__name__}")


def one_line(message: str) -> str:
    """Without line breaks or other control characters, and not endless."""
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())[:1000]


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stream holds the response: since now, or since an earlier time.

    `left_out` are the reasons for what it lacks of a logged call.
    """

    id: str
    status: Literal["recorded", "duplicate"]
    left_out: tuple[str, ...] = ()


ANSWER_SECONDS = 10.0
"""Longest wait for one thing. A request waits for two of them at most, which is less than a drain gives to
open requests (25 s): none is cut."""


@contextlib.asynccontextmanager
async def bounded(seconds: float = ANSWER_SECONDS, missing: str = "no answer") -> AsyncIterator[None]:
    """End the block after so many seconds. Raises `TransientError` then."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TransientError(f"{missing} within {seconds:g} s") from error
