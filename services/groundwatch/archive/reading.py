"""The outcome stream as rows: the archive's way in, and that of queries to what it has not yet."""

from collections.abc import AsyncIterator, Callable

import msgspec

from groundwatch.archive.rows import Row
from groundwatch.errors import UNDECODED
from groundwatch.events import ResponseScored
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.topology import HEADER_EXPECT_SEQUENCE, OUTCOMES, parse_subject, run_subjects

_DECODER = msgspec.json.Decoder(ResponseScored)


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where the outcome stream stands: `stream` names it by when it was created, µs since the epoch.

    A stream that was made anew counts from 1 again, and its sequences are not those of the old one.
    """

    stream: int
    first: int
    last: int


async def position_of(bus: Bus) -> Position:
    """Look at the stream. Raises what NATS raises."""
    info = await bus.js.stream_info(OUTCOMES)
    stream = round(info.created.timestamp() * 1e6) if info.created is not None else 0
    return Position(stream=stream, first=info.state.first_seq, last=info.state.last_seq)


def row_of(read: Read, stream: int) -> Row:
    """The outcome of a message, in the run and under the key that its subject says.

    Raises `errors.UNDECODED` for bytes that are none.
    """
    event = _DECODER.decode(read.data)
    address = parse_subject(read.subject)
    if address is not None and address.run != event.run:
        event = msgspec.structs.replace(event, run=address.run)
    expected = read.headers.get(HEADER_EXPECT_SEQUENCE, "0")
    return Row(
        event=event,
        key=address.key if address is not None else event.key,
        stream=stream,
        sequence=read.sequence,
        stored_at=read.time,
        supersedes=int(expected) if expected.isdigit() else 0,
    )


async def rows_after(
    bus: Bus,
    at: Position,
    position: int,
    *,
    run: str = "",
    on_unreadable: Callable[[Read, Exception], None] = lambda read, error: None,
) -> AsyncIterator[Row]:
    """Outcomes behind `position`, up to what the stream holds at `at`; of one run where it is named."""
    if position >= at.last:
        return
    subjects = (run_subjects("outcome", run or None),)
    reading = read_stream(
        bus.js, OUTCOMES, subjects=subjects, start_sequence=position + 1, last_sequence=at.last
    )
    async for read in reading:
        try:
            yield row_of(read, at.stream)
        except UNDECODED as error:
            on_unreadable(read, error)
