"""The archive's table of events: every message of the streams that are archived, as its stream held it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from groundwatch.archive.messages import EVENTS_TABLE, Message, to_table
from groundwatch.archive.table import ArchiveTable


class Events(ArchiveTable[Message]):
    """The table `events` of an archive."""

    spec = EVENTS_TABLE

    def to_table(self, rows: Sequence[Message]) -> pa.Table:
        return to_table(rows)
