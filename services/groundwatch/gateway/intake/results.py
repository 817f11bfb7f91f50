"""A response that is recorded, and how long anything is waited for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from groundwatch.errors import TransientError


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
