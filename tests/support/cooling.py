"""Moving events of a real server into a real table of events, as the archive does, when a test says so."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.archive.events import Events, Message
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import Read, position_of, read_stream


def write(url: str, stream: str, created: int, reads: Sequence[Read]) -> None:
    """Write one file with these, of a table that has nothing of the stream behind them."""
    messages = [Message(stream=stream, created=created, read=read) for read in reads]
    table = Events(url)
    table.begin()
    table.add(messages, created=created, position=reads[-1].sequence, stream=stream)


async def cool(bus: Bus, url: str, stream: str, last: int | None = None, *, files: int = 1) -> int:
    """Move everything up to sequence `last` from the stream into the table; how many events that were."""
    at = await position_of(bus.js, stream)
    last = at.last if last is None else last
    reads = [read async for read in read_stream(bus.js, stream, last_sequence=last)]
    size = max(1, -(-len(reads) // files))
    for start in range(0, len(reads), size):
        write(url, stream, at.created, reads[start : start + size])
    await bus.js.purge_stream(stream, seq=last + 1)
    return len(reads)
