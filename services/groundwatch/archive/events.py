"""The archive's table of events: every message of the streams that are archived, as its stream held it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from groundwatch.archive.messages import EVENTS_TABLE, Message, to_reads, to_table
from groundwatch.archive.table import ArchiveTable, Erasure, concerned
from groundwatch.runtime.delivery.streams import Read


class Events(ArchiveTable[Message]):
    """The table `events` of an archive."""

    spec = EVENTS_TABLE

    def to_table(self, rows: Sequence[Message]) -> pa.Table:
        return to_table(rows)

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
