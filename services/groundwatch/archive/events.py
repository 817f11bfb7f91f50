"""The archive's table of events: every message of the streams that are archived, as its stream held it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from groundwatch.archive.messages import EVENTS_TABLE, Message, to_reads, to_table
from groundwatch.archive.table import ArchiveTable, Erasure, concerned
from groundwatch.runtime.delivery.marks import Mark
from groundwatch.runtime.delivery.streams import Read


class Events(ArchiveTable[Message]):
    """The table `events` of an archive."""

    spec = EVENTS_TABLE

    def to_table(self, rows: Sequence[Message]) -> pa.Table:
        return to_table(rows)

    def creations(self, stream: str) -> set[int]:
        """When streams of this name were created of which something is there."""
        files = [file for file in self.snapshot().files() if file.stream == stream]
        return {created for file in files for created in (file.oldest, file.newest)}

    def newest(self, stream: str, created: int) -> Mark | None:
        """The last message that is there of the stream created then."""
        return next(iter(self.marks(stream, created, 1, sys.maxsize, 1)), None)

    def marks(self, stream: str, created: int, first: int, last: int, most: int) -> list[Mark]:
        """The last messages, with the last one first, of these sequences of the stream created then."""
        snapshot = self.snapshot()
        data = snapshot.dataset()
        files = [file for file in snapshot.files() if file.stream == stream]
        here = [file for file in files if file.oldest <= created <= file.newest and file.first <= last]
        sequence = ds.field("sequence")
        for file in sorted(here, key=lambda file: file.last, reverse=True):
            if data is None or file.last < first:
                break
            end = min(last, file.last)
            # Of several creations in one file nobody knows where each ends.
            begin = max(first, end - 10 * most) if file.oldest == file.newest else first
            rows = data.to_table(
                columns=["sequence", "time"],
                filter=(ds.field("stream") == stream)
                & (ds.field("created") == created)
                & (sequence >= begin)
                & (sequence <= end),
            )
            if len(rows):
                times = pc.cast(rows["time"], pa.int64()).to_pylist()
                found = sorted(zip(rows["sequence"].to_pylist(), times, strict=True), reverse=True)
                return [Mark(number, time / 1e6) for number, time in found[:most]]
        return []

    def concerned(self, erasure: Erasure, stream: str, created: int) -> Iterator[list[Read]]:
        """The messages of this stream that an erasure would remove, file by file."""
        data = self.snapshot().dataset()
        if data is None:
            return
        of_stream = (ds.field("stream") == stream) & (ds.field("created") == created)
        scanner = data.scanner(
            columns=["sequence", "time", "subject", "headers", "data"],
            filter=of_stream & concerned(erasure),
            batch_size=self.spec.batch,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
        )
        for batch in scanner.to_batches():
            if len(batch):
                yield to_reads(pa.Table.from_batches([batch]))
