"""What the bucket of queues has of a response or a tenant: items, drafts, and queues of one tenant alone."""

import secrets
from collections.abc import AsyncIterator, Callable, Sequence

from nats.js import JetStreamContext

from groundwatch.events import tenant_of
from groundwatch.reviews.queues import REMOVED
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.topology import QUEUES_BUCKET

QUEUES = f"KV_{QUEUES_BUCKET}"
_FAMILY = f"$KV.{QUEUES_BUCKET}"


async def queued(js: JetStreamContext, keys: Sequence[str], tenant: str | None) -> AsyncIterator[Read]:
    """Items and drafts of responses by their keys, or all of a tenant, in all versions that there are."""
    if tenant is None:
        for key in keys:
            for pattern in (f"{_FAMILY}.item.*.{key}", f"{_FAMILY}.draft.*.{key}.*"):
                async for read in read_stream(js, QUEUES, subjects=(pattern,)):
                    yield read
        return
    theirs = set[str]()
    for kind in ("definition", "item"):
        async for read in read_stream(js, QUEUES, subjects=(f"{_FAMILY}.{kind}.>",)):
            if tenant_of(read.data) == tenant:
                theirs |= {key_in_queue(read)} - {""}
                yield read
    if theirs:
        async for read in read_stream(js, QUEUES, subjects=(f"{_FAMILY}.draft.>",)):
            if key_in_queue(read) in theirs:
                yield read


def key_in_queue(read: Read) -> str:
    """The response that an item or a draft is of."""
    parts = read.subject.split(".")
    return parts[4] if len(parts) > 4 else ""


async def queued_of(js: JetStreamContext, mine: Callable[[str, str | None], bool]) -> list[int]:
    """Items and drafts that are `mine`, by their response's key and tenant; a draft names no tenant."""
    found = []
    for kind in ("item", "draft"):
        async for read in read_stream(js, QUEUES, subjects=(f"{_FAMILY}.{kind}.>",)):
            if (key := key_in_queue(read)) and mine(key, tenant_of(read.data) if kind == "item" else None):
                found.append(read.sequence)
    return found


async def mark_removed(js: JetStreamContext) -> None:
    """Have gateways read anew which items there are."""
    bucket = await js.key_value(QUEUES_BUCKET)
    await bucket.put(REMOVED, secrets.token_hex(8).encode())
