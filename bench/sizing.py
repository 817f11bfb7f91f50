"""What each part needs for a rate of responses and the days that streams keep them: arithmetic alone.

`python -m bench sizing --rate 12 --days 3 --servers 3 --memory 8 --disk 100`, with GiB that each NATS server
has; days and servers are those of the settings when they are absent. Constants are measured; the comment at
each says by what. `docs/sizing.md` has the figures.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from groundwatch.archive.place import SWITCHED_OFF
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import load as load_settings
from groundwatch.runtime.stores.repeats import ENTRY_BYTES
from groundwatch.topology import BUCKETS, DAY, RESPONSES, STREAMS, stream

GB = 1e9

SUBJECTS = 4
"""Of a response: recorded, extracted, judged, outcome; one protocol each."""

SERVER_BASE = 150e6
"""`python -m bench memory`: 77 to 115 MB, the lines' values at no response."""

RESIDENT_BYTES = 700.0
"""For each response, once the server has given back what storing it took: from outside, 0.6 to 0.7 kB."""

PEAK_BYTES = 1_750.0
"""For each response, the most: `python -m bench memory`, 1.71 kB while they are stored at full speed, 1.41 kB
while an index is rebuilt after a kill −9; 1.1 to 1.6 kB from outside."""

DEDUPLICATION_BYTES = 129.0
"""For each message within its stream's window of ids: from outside, nats-server 2.12.2 and 2.15.1."""

STREAM_BYTES = 17_000.0
"""On disk for each response: 720 answers of the recorded demo, 10 facts an answer (docs/sizing.md)."""

PARTITION_BYTES = 1.6e6
"""Of memory for each further partition that a server has: `python -m bench partitions`."""

USABLE = 0.85
"""Of a server's memory and disk: GOMEMLIMIT and max_file_store of the chart stand there."""

GATEWAY_BYTES = 200e6
"""`python -m bench ingest` and `otlp`: 100 to 155 MB."""

AUDITOR_BASE = 100e6
AUDITOR_BYTES = 3.4
"""For each response that streams hold, the first time: `python -m bench audit`; 1.1 later."""

AUDITOR_ARCHIVE = 412e6
"""Where there is an archive, for reading it: `python -m bench cold`, 300 to 330 MB in all."""

ARCHIVE_BYTES = 1_500e6
"""`python -m bench cold`: 403 to 656 MB at the peak, with 34,000 to 635,000 events of five streams waiting,
1,295 and 1,357 MB with 6,000,000; `python -m bench archive`, outcomes alone: 267 to 342 MB."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Responses a second on the mean of a day, for how many days streams keep them, and on what.

    `image_bytes` are those of a response that no other one has; for `repeat_days` ids are known. What is
    `archived` leaves the streams after `archive.hot_days`. There are so many `partitions` of streams, which
    JetStream places evenly on the servers.
    """

    rate: float
    days: float
    servers: int = 1
    copies: int = 1
    image_bytes: float = 0.0
    cache_bytes: float = 0.0
    repeat_days: float = 0.0
    archived: bool = False
    partitions: int = 1

    @property
    def hosted(self) -> int:
        """Partitions of which a server has a copy, the most."""
        return min(self.partitions, math.ceil(self.partitions * self.copies / self.servers))

    @property
    def places(self) -> int:
        """Servers that have anything."""
        return self.copies if self.partitions == 1 else min(self.servers, self.partitions * self.copies)

    @property
    def share(self) -> float:
        """Of all responses, the part that such a server has."""
        return self.hosted / self.partitions

    @property
    def id_bytes(self) -> float:
        """Of the ids that a gateway knows, where there is an archive."""
        return self.rate * DAY * self.repeat_days * ENTRY_BYTES

    @property
    def responses(self) -> float:
        """That streams hold when the window is full."""
        return self.rate * DAY * self.days


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes. `nats_memory` and `nats_disk` are what each server is to be given, limits included.

    A stream lies whole on each server that has a copy. With one partition servers choose which, and any may
    have all of them.
    """

    responses: int
    nats_resident: int
    nats_peak: int
    nats_memory: int
    nats_disk: int
    disk_of_all: int
    gateway_memory: int
    gateway_disk: int
    auditor_memory: int
    archive_memory: int


def _server(load: Load) -> tuple[float, float, float]:
    """Bytes that each NATS server has in use, has at the most, and has on disk."""
    window = max(spec.duplicate_window for spec in STREAMS)
    always = SERVER_BASE + (load.hosted - 1) * PARTITION_BYTES
    always += load.rate * load.share * window * SUBJECTS * DEDUPLICATION_BYTES
    held = load.responses * load.share
    bounded = sum(spec.max_bytes for spec in STREAMS) + sum(spec.max_bytes for spec in BUCKETS)
    return (
        always + held * RESIDENT_BYTES,
        always + held * PEAK_BYTES,
        # Images are in one stream, whatever the partitions.
        bounded + load.cache_bytes + held * STREAM_BYTES + load.responses * load.image_bytes,
    )


def needs(load: Load) -> Needs:
    """What a load needs when its window is full."""
    resident, peak, disk = _server(load)
    return Needs(
        responses=math.ceil(load.responses),
        nats_resident=math.ceil(resident),
        nats_peak=math.ceil(peak),
        nats_memory=math.ceil(peak / USABLE),
        nats_disk=math.ceil(disk / USABLE),
        disk_of_all=math.ceil(disk / USABLE * load.places),
        gateway_memory=math.ceil(GATEWAY_BYTES),
        gateway_disk=math.ceil(load.id_bytes),
        auditor_memory=math.ceil(
            AUDITOR_BASE + load.responses * AUDITOR_BYTES + AUDITOR_ARCHIVE * load.archived
        ),
        archive_memory=math.ceil(ARCHIVE_BYTES),
    )


def most_days(load: Load, *, memory: float = math.inf, disk: float = math.inf) -> float:
    """The longest window that each server's memory and disk have room for; 0 where none has."""
    _, least_memory, least_disk = _server(msgspec.structs.replace(load, days=0.0))
    a_day = load.rate * DAY
    return max(
        0.0,
        min(
            (memory * USABLE - least_memory) / (a_day * load.share * PEAK_BYTES),
            (disk * USABLE - least_disk) / (a_day * (STREAM_BYTES * load.share + load.image_bytes)),
        ),
    )


def refusal(load: Load, *, memory: float = math.inf, disk: float = math.inf) -> str:
    """Why a load does not fit on servers with so many bytes each, and what to change; empty when it fits."""
    if load.copies > load.servers:
        return f"nats.replicas {load.copies} need as many NATS servers, not {load.servers}: add servers"
    found = needs(load)
    limits = {"memory": (found.nats_memory, memory), "disk": (found.nats_disk, disk)}
    short = {name: pair for name, pair in limits.items() if pair[0] > pair[1]}
    if not short:
        return ""
    needed = " and ".join(f"{shown(need)} of {name}" for name, (need, _) in short.items())
    given = " and ".join(shown(limit) for _, limit in short.values())
    days = math.floor(most_days(load, memory=memory, disk=disk) * 10) / 10
    window = "archive.hot_days" if load.archived else "archive.url, and archive.hot_days"
    fewer = f"set {window} to {days:g} at most, or " if days else ""
    return (
        f"{load.rate:g} responses a second for {load.days:g} days need {needed} on each NATS server, which "
        f"has {given}: {fewer}give each {needed}"
    )


def load_of(
    settings: Settings, rate: float, days: float | None, servers: int | None, image_bytes: float
) -> Load:
    """So many responses a second on what settings say: what is archived leaves the streams by itself."""
    archived = settings.archive.url not in ("", SWITCHED_OFF)
    kept = settings.archive.hot_days if archived else stream(RESPONSES).max_age / DAY
    return Load(
        rate=rate,
        days=days or kept,
        servers=servers or settings.nats.replicas,
        copies=settings.nats.replicas,
        image_bytes=image_bytes,
        cache_bytes=settings.cache.max_bytes,
        partitions=settings.nats.partitions,
        repeat_days=settings.archive.repeat_days if archived else 0,
        archived=archived,
    )


GIB = 2**30
_UNITS = {"TiB": 2**40, "GiB": GIB, "MiB": 2**20}


def shown(size: float) -> str:
    """A size for people, rounded up so that it suffices."""
    for unit, base in _UNITS.items():
        if size >= base:
            return f"{math.ceil(size / base * 10) / 10:.1f}".removesuffix(".0") + f" {unit}"
    return f"{math.ceil(size / 1024)} KiB"


async def measure(
    *, rate: int = 12, days: int = 0, servers: int = 0, image_bytes: int = 0, memory: int = 0, disk: int = 0
) -> dict[str, Any]:
    """What it needs, and why it does not fit."""
    load = load_of(load_settings(), rate, days or None, servers or None, image_bytes)
    why = refusal(load, memory=memory * GIB or math.inf, disk=disk * GIB or math.inf)
    found = msgspec.structs.asdict(needs(load))
    return {
        "load": msgspec.structs.asdict(load),
        "needs": found,
        "shown": {name: shown(size) for name, size in found.items() if name != "responses"},
        "refusal": why,
        "ok": not why,
    }
