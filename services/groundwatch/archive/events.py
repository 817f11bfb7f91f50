"""The archive's table of events: every message of the streams that are archived, as its stream held it.

A row is a message with its bytes and its headers. The schema grows by rule: a new column goes to the end; a
column never changes its type.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from groundwatch.archive.table import ArchiveTable, Erasure, TableSpec, concerned
from groundwatch.events import tenant_of
from groundwatch.runtime.delivery.outcomes import superseded_by
from groundwatch.runtime.delivery.streams import Mark, Read
from groundwatch.topology import Address, parse_subject

EVENTS = "events"

_TEXT = pa.string()

SCHEMA: pa.Schema = pa.schema(
    [
        ("stream", _TEXT),
        ("created", pa.int64()),
        ("sequence", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        *((name, _TEXT) for name in ("run", "kind", "protocol", "key", "tenant", "subject")),
        ("headers", pa.map_(_TEXT, _TEXT)),
        ("data", pa.binary()),
        ("day", pa.date32()),
    ]
)
"""Columns. `created` tells which stream of the name `stream` it was (µs since the epoch), `sequence` the
message's place in it, `time` when the server stored it, `day` the day of that, UTC. `run`, `kind`, `protocol`
and `key` are what the subject says, `tenant` what the event says; null for bytes that are no event."""

EVENTS_TABLE = TableSpec(
    name=EVENTS, schema=SCHEMA, partition=("stream", "day"), created="created", batch=256
)

_NOWHERE = Address("", "", "")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its place: of the stream of the name `stream` that was created at `created`."""

    stream: str
    created: int
    read: Read

    @property
    def sequence(self) -> int:
        return self.read.sequence

    @property
    def address(self) -> Address:
        return parse_subject(self.read.subject) or _NOWHERE

    @property
    def run(self) -> str:
        return self.address.run

    @property
    def key(self) -> str:
        return self.address.key

    @property
    def day(self) -> date:
        return datetime.fromtimestamp(self.read.time, UTC).date()

    @property
    def supersedes(self) -> int:
        return superseded_by(self.read.subject, self.read.headers)


def to_table(messages: Sequence[Message]) -> pa.Table:
    """These messages, in their order."""
    addresses = [message.address for message in messages]
    values = {
        "stream": [message.stream for message in messages],
        "created": [message.created for message in messages],
        "sequence": [message.sequence for message in messages],
        "time": [round(message.read.time * 1e6) for message in messages],
        "run": [address.run for address in addresses],
        "kind": [address.kind for address in addresses],
        "protocol": [address.protocol for address in addresses],
        "key": [address.key for address in addresses],
        "tenant": [tenant_of(message.read.data) for message in messages],
        "subject": [message.read.subject for message in messages],
        "headers": [list(message.read.headers.items()) for message in messages],
        "data": [message.read.data for message in messages],
        "day": [message.day for message in messages],
    }
    return pa.Table.from_arrays([pa.array(values[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def to_reads(rows: pa.Table) -> list[Read]:
    """The messages of these rows, in their order; without their bytes where there is no such column."""
    micros = pc.cast(rows["time"], pa.int64()).to_pylist()
    bodies = rows["data"].to_pylist() if "data" in rows.column_names else [b""] * len(rows)
    return [
        Read(subject=subject, data=data or b"", headers=dict(headers or ()), sequence=sequence, time=at / 1e6)
        for sequence, at, subject, headers, data in zip(
            rows["sequence"].to_pylist(),
            micros,
            rows["subject"].to_pylist(),
            rows["headers"].to_pylist(),
            bodies,
            strict=True,
        )
    ]


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
        wanted = (ds.field("stream") == stream) & (ds.field("created") == created) & concerned(erasure)
        columns = ["sequence", "time", "subject", "headers", "data"]
        for batch in self.snapshot().scan(columns, wanted, self.spec.batch):
            if len(batch):
                yield to_reads(pa.Table.from_batches([batch]))
