"""How an attempt to record a response ended: values, because one line of many must not stop the others."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from groundwatch.errors import TransientError

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
"""Why a response was refused: bounded, since it is a metric's label."""

PASSING: frozenset[Reason] = frozenset(
    {"rate_limited", "backlog", "image_unavailable", "unavailable", "unconfirmed"}
)
"""Reasons that are not the response's fault: the same one may be sent again later."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stream holds the response: since now, or since an earlier time.

    `left_out` are the reasons for what it lacks of a logged call.
    """

    id: str
    status: Literal["recorded", "duplicate"]
    left_out: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The response was not recorded; where it is `unsure`, nobody knows.

    `field` is the path of what is wrong in it, if it is its fault. `lasting`: trying again at once would end
    the same. `after` so many seconds it may be taken, where that is known. `left_out` is the reason for
    which a logged call does without what is wrong, if it can.
    """

    reason: Reason
    message: str
    field: str = ""
    id: str = ""
    lasting: bool = False
    after: float = 0.0
    left_out: str = ""

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least one, after which to send it again."""
        return max(1, math.ceil(self.after)) if self.reason == "rate_limited" else RETRY_AFTER

    @property
    def passing(self) -> bool:
        return self.reason in PASSING

    @property
    def unsure(self) -> bool:
        """Whether it may be recorded after all: it was sent, and the stream's word did not come back."""
        return self.reason == "unconfirmed"


class OverRate(TransientError):
    """A tenant sends more than it may; `after` so many seconds the same is taken."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.after = refused.retry_after


ANSWER_SECONDS = 10.0
"""Longest wait for one thing. A request waits for two of them at most, which is less than a drain gives to
open requests (25 s): none is cut."""


@contextlib.asynccontextmanager
async def bounded() -> AsyncIterator[None]:
    """End the block after `ANSWER_SECONDS`. Raises `TransientError` then."""
    seconds = ANSWER_SECONDS
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TransientError(f"no answer within {seconds:g} s") from error
