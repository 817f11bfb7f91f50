"""The streams as the ledger reads them."""

from collections.abc import AsyncGenerator, Sequence

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.runtime.delivery.streams import Read, last_message, read_stream


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream holds: which one it is (µs since the epoch), and up to which sequence it goes."""

    created: int
    last: int


class Streams:
    """Of one server."""

    def __init__(self, js: JetStreamContext) -> None:
        self.js = js

    def read(
        self, stream: str, *, subjects: Sequence[str], start_sequence: int, last_sequence: int
    ) -> AsyncGenerator[Read]:
        """Headers of every event with one of these sequences, in order."""
        return read_stream(
            self.js,
            stream,
            subjects=subjects,
            headers_only=True,
            start_sequence=start_sequence,
            last_sequence=last_sequence,
        )

    async def last(self, stream: str, subject: str) -> Read | None:
        """The last event on this subject; None where there is none."""
        return await last_message(self.js, stream, subject)

    async def next(self, stream: str, subject: str, sequence: int) -> Read | None:
        """The first event on this subject, which may have wildcards, at or behind a sequence."""
        try:
            found = await self.js.get_msg(stream, seq=sequence, subject=subject, next=True)
        except nats.js.errors.NotFoundError:
            return None
        return Read(
            subject=found.subject or "",
            data=found.data or b"",
            headers=dict(found.headers or {}),
            sequence=found.seq or 0,
            time=found.time.timestamp() if found.time is not None else 0.0,
        )

    async def extent(self, stream: str) -> Extent:
        """Raises what NATS raises."""
        info = await self.js.stream_info(stream)
        created = round(info.created.timestamp() * 1e6) if info.created is not None else 0
        return Extent(created=created, last=int(info.state.last_seq))
