"""What the archive has of a response or a tenant: events that are in a stream still, and those that left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from nats.js import JetStreamContext

from groundwatch.erasure.finding import Found, Stores, owner_key
from groundwatch.ledger.erasures import ErasureEntries
from groundwatch.runtime.delivery.streams import Read, position_of
from groundwatch.topology import COPIED, OUTCOMES, RESPONSES
from groundwatch.topology.partitions import kind_of, partition_of_stream, stream_in, streams_of_kind

if TYPE_CHECKING:
    from groundwatch.archive.events import Events
    from groundwatch.archive.table import Erasure as Order

TOGETHER = 256
"""Events that are held in memory at once."""

PORTION = 100_000
"""Responses that are told to the ledger at once."""


async def archived_events(events: Events, keys: Sequence[str], tenant: str = "") -> AsyncIterator[Found]:
    """Every event in the archive of these responses, or of a tenant where one is named.

    A stream that was made anew counts from 1 again: sequences of the old one are among them. Raises what the
    store raises.
    """
    pieces = _pieces(events, keys, tenant)
    while several := await asyncio.to_thread(next, pieces, None):
        for one in several:
            yield one


async def rows_in_archive(stores: Stores, keys: Iterable[str], tenant: str) -> int:
    """How many rows the archive has of these responses, or of a tenant."""
    tables = [table for table in (stores.archive, stores.events) if table is not None]
    if not tables:
        return 0
    from groundwatch.archive.table import Erasure as Order

    order = Order(keys=tuple(sorted(keys)), tenant=tenant)
    return sum([await asyncio.to_thread(table.count_concerned, order) for table in tables])


async def drop_from_archive(
    js: JetStreamContext,
    stores: Stores,
    keys: Iterable[str],
    *,
    tenant: str = "",
    last: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Remove all rows of these responses, or of a tenant, and have the archive leave out what it has yet to
    write of them; how many rows that were. The ledger has been told before: see `say_archived`."""
    tables = [table for table in (stores.archive, stores.events) if table is not None]
    if not tables:
        return 0
    from groundwatch.archive.table import Erasure as Order

    until = {}
    for stream in [name for kind in COPIED for name in streams_of_kind(kind, stores.partitions)]:
        position = await position_of(js, stream)
        until[position.created] = max(last.get(stream, 0), position.last)
    orders = [Order(keys=tuple(sorted(keys)), until=until)]
    if tenant:
        # The tenant's name stays in no order: what is not archived yet is named by its keys.
        orders.append(Order(tenant=tenant))
    removed = 0
    for table in tables:
        for order in orders:
            removed += await asyncio.to_thread(table.erase, order)
    return removed


async def say_erased(
    js: JetStreamContext, stores: Stores, ledger: ErasureEntries, keys: Iterable[str], tenant: str = ""
) -> None:
    """Tell the ledger that all goes that it has noted, with what the archive has of these responses, or of a
    tenant."""
    if stores.events is not None:
        from groundwatch.archive.table import Erasure as Order

        streams = [
            name for kind in (RESPONSES, OUTCOMES) for name in streams_of_kind(kind, stores.partitions)
        ]
        created = {stream: (await position_of(js, stream)).created for stream in streams}
        await say_archived(stores.events, ledger, Order(keys=tuple(sorted(keys)), tenant=tenant), created)
    await ledger.say()


async def say_archived(
    events: Events, ledger: ErasureEntries, order: Order, created: Mapping[str, int]
) -> None:
    """Tell the ledger what goes from the archive, each response together with its outcomes."""
    for stream in [name for name in created if kind_of(name) == RESPONSES]:
        beside = stream_in(OUTCOMES, partition_of_stream(stream))
        keys: list[str] = []
        async for read in _noted(events, ledger, order, stream, created):
            keys.append(owner_key(read))
            if len(keys) >= PORTION and beside in created:
                # A tenant has more than fits into memory.
                its = msgspec.structs.replace(order, keys=tuple(sorted(keys)), tenant="")
                async for _ in _noted(events, ledger, its, beside, created):
                    pass
                await ledger.say(keys)
                keys = []
    for stream in [name for name in created if kind_of(name) == OUTCOMES]:
        async for _ in _noted(events, ledger, order, stream, created):
            pass
    await ledger.say()


async def _noted(
    events: Events, ledger: ErasureEntries, order: Order, stream: str, created: Mapping[str, int]
) -> AsyncIterator[Read]:
    rows = events.concerned(order, stream, created[stream])
    while several := await asyncio.to_thread(next, rows, None):
        for read in several:
            ledger.note(stream, read)
            yield read


def _pieces(events: Events, keys: Sequence[str], tenant: str) -> Iterator[list[Found]]:
    from groundwatch.archive.table import Erasure as Order
    from groundwatch.archive.table import concerned

    data = events.snapshot().dataset()
    if data is None:
        return
    scanner = data.scanner(
        columns=["stream", "sequence", "subject", "key", "data"],
        filter=concerned(Order(keys=tuple(keys), tenant=tenant)),
        batch_size=TOGETHER,
        batch_readahead=0,
        fragment_readahead=0,
        use_threads=False,
    )
    for batch in scanner.to_batches():
        if several := [Found(**row) for row in batch.to_pylist()]:
            yield several
