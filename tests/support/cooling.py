"""Moving events of a real server into a real table of events, as the archive does, when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import write_deltalake

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.topology import parse_subject

TEXT = pa.string()
SCHEMA = pa.schema(
    [
        ("stream", TEXT),
        ("created", pa.int64()),
        ("sequence", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        *((name, TEXT) for name in ("run", "kind", "protocol", "key", "tenant", "subject")),
        ("headers", pa.map_(TEXT, TEXT)),
        ("data", pa.binary()),
        ("day", pa.date32()),
    ]
)


def write(url: str, stream: str, created: int, reads: Sequence[Read]) -> None:
    """Append one file with these."""
    rows = []
    for read in reads:
        address = parse_subject(read.subject)
        rows.append(
            {
                "stream": stream,
                "created": created,
                "sequence": read.sequence,
                "time": round(read.time * 1e6),
                "run": address.run if address else "",
                "kind": address.kind if address else "",
                "protocol": address.protocol if address else "",
                "key": address.key if address else "",
                "tenant": "default",
                "subject": read.subject,
                "headers": list(read.headers.items()),
                "data": read.data,
                "day": datetime.fromtimestamp(read.time, UTC).date(),
            }
        )
    write_deltalake(
        f"{url}/events", pa.Table.from_pylist(rows, SCHEMA), mode="append", partition_by=["stream", "day"]
    )


async def cool(bus: Bus, url: str, stream: str, last: int | None = None, *, files: int = 1) -> int:
    """Move everything up to sequence `last` from the stream into the table; how many events that were."""
    info = await bus.js.stream_info(stream)
    last = info.state.last_seq if last is None else last
    reads = [read async for read in read_stream(bus.js, stream, last_sequence=last)]
    size = max(1, -(-len(reads) // files))
    for start in range(0, len(reads), size):
        write(url, stream, round(info.created.timestamp() * 1e6), reads[start : start + size])
    await bus.js.purge_stream(stream, seq=last + 1)
    return len(reads)
