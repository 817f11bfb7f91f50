"""Deleting messages so that their bytes are gone.

A purge leaves a message's bytes in the server's block files until the server happens to compact the block;
the deletion of a single message overwrites them at once (nats-server 2.15.1, seen in its files). So messages
are deleted one by one, many at a time.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice

import nats.js.errors
from nats.js import JetStreamContext

AT_ONCE = 64


async def overwrite(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
    """Delete messages with their bytes; how many were there. Raises what NATS raises."""
    rest, removed = iter(sequences), 0
    while several := list(islice(rest, AT_ONCE)):
        removed += sum(await asyncio.gather(*(_overwrite(js, stream, one) for one in several)))
    return removed


async def sequences_on(js: JetStreamContext, stream: str, subject: str) -> list[int]:
    """The sequences of all messages on a subject."""
    found, after = list[int](), 1
    while True:
        try:
            message = await js.get_msg(stream, after, subject=subject, next=True)
        except nats.js.errors.NotFoundError:
            return found
        assert message.seq is not None
        found.append(message.seq)
        after = message.seq + 1


async def _overwrite(js: JetStreamContext, stream: str, sequence: int) -> bool:
    try:
        return bool(await js.delete_msg(stream, sequence))
    except nats.js.errors.NotFoundError:
        return False
    except nats.js.errors.APIError as error:
        # "no message found": somebody else came first, or its age did.
        if error.err_code in (10037, 10043, 10057) or "no message found" in str(error.description):
            return False
        raise
