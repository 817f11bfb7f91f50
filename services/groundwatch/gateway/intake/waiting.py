"""How long a caller waits for the streams."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from groundwatch.errors import TransientError

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
