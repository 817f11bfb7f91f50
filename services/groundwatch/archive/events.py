"""The archive's table of events: every message of the streams that are archived, as its stream held it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from groundwatch.archive.messages import EVENTS_TABLE, Message, to_reads, to_table
from groundwatch.archive.table import ArchiveTable, Erasure, concerned
from groundwatch.runtime.delivery.streams import Read


class Events(ArchiveTable[Message]):
    """The table `events` of an archive."""

    spec = EVENTS_TABLE

    def to_table(self, rows: Sequence[Message]) -> pa.Table:
        return to_table(rows)

    def newest(self, stream: str, created: int) -> tuple[int, float] | None:
        """Sequence and time of the last message that is there of the stream created then."""
        snapshot = self.snapshot()
        data = snapshot.dataset()
        if data is None:
            return None
        files = [file for file in snapshot.files() if file.stream == stream]
        ends = {file.last for file in files if file.oldest <= created <= file.newest}
        for last in sorted(ends, reverse=True):
            here = (ds.field("stream") == stream) & (ds.field("created") == created)
            rows = data.to_table(columns=["sequence", "time"], filter=here & (ds.field("sequence") == last))
            if len(rows):
                return last, pc.cast(rows["time"], pa.int64())[0].as_py() / 1e6
        return None

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
