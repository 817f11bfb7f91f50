"""Snapshots of the live report in a bucket: where a gateway that starts goes on.

A snapshot holds sums, names of models and judges, and digests; no text, no id, no tenant. It is of one stream
of outcomes, up to a sequence of it, and of one way to count: another version of groundwatch, other rules of
alarms or other figures of protocols do not go on from it, but read the stream anew.
"""

import asyncio
import secrets
import time
import zlib
from collections.abc import Sequence

import msgspec
import nats.js.errors
from nats.js.kv import KeyValue

from groundwatch import __version__
from groundwatch.errors import UNDECODED, TransientError
from groundwatch.events import LIVE
from groundwatch.gateway.live.board import BoardState
from groundwatch.keys import digest
from groundwatch.protocols import registry
from groundwatch.reporting.alarms import AlarmsState
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, Position, position_of
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.alarm import Rule
from groundwatch.topology import BUCKETS, OUTCOMES, REPORT_BUCKET
from groundwatch.topology.partitions import streams_of_kind

PART = 1024 * 1024
"""Bytes of one message, where the server takes so many."""

HEADROOM = 16 * 1024
"""Bytes of a message that its subject and headers may need."""

GENERATIONS = 4
"""So many snapshots fit into the bucket: those of gateways that write at once, and the one before."""

TOGETHER = 8
FORMAT = 3
"""Of what is written: another one is not read."""

LARGEST = 2**31
"""Bytes that a snapshot may have when it is unpacked."""


class State(msgspec.Struct, frozen=True, array_like=True):
    """`alarms` are an `AlarmsState`."""

    board: BoardState
    alarms: msgspec.Raw

    def alarms_state(self) -> AlarmsState:
        return msgspec.msgpack.decode(self.alarms, type=AlarmsState)


_STATE = msgspec.msgpack.Decoder(State)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts make up a snapshot. `streams` are when the streams of outcomes were made, by partition, in
    microseconds since the epoch; `sequence` is how far it goes over all of them; `counting` a digest of how
    was counted; `at` is when it was written."""

    name: str
    parts: int
    size: int
    streams: tuple[int, ...]
    sequence: int
    counting: str
    at: float


def counting_of(rule: Rule, most: int | None) -> str:
    """A digest of whatever shapes a report."""
    figures = [(name, registry.get(name).headline) for name in sorted(registry.names())]
    return digest(__version__, str(FORMAT), repr(most), repr(rule), repr(figures))[:32]


class Snapshots:
    """Reads and writes them. Of several gateways one writes, the one that has counted furthest."""

    def __init__(self, bus: Bus, counting: str) -> None:
        self._bus = bus
        self._counting = counting
        self._most = next(one.max_bytes for one in BUCKETS if one.name == REPORT_BUCKET) // GENERATIONS
        self.problem = ""
        """Why the last one was not written; empty when it was, or another gateway had written one."""

    async def read(self) -> State | None:
        """The snapshot of the stream as it is now; None where there is none that can be gone on from.

        Raises what NATS raises when it does not answer: all outcomes take too long to be read for that.
        """
        try:
            bucket = await self._bus.js.key_value(REPORT_BUCKET)
            manifest, _ = await _manifest(bucket)
            if manifest is None or manifest.counting != self._counting:
                return None
            held = await self._held()
            last = sum(one.last for one in held)
            if not _goes_on(manifest, held) or manifest.sequence > last:
                return None
            names = [f"part.{manifest.name}.{number}" for number in range(manifest.parts)]
            parts: list[bytes] = []
            for start in range(0, len(names), TOGETHER):
                entries = await asyncio.gather(*map(bucket.get, names[start : start + TOGETHER]))
                parts += [entry.value or b"" for entry in entries]
            return await asyncio.to_thread(_unpacked, parts)
        except nats.js.errors.NotFoundError:
            # No bucket, or a newer snapshot took its place while it was read.
            return None
        except (*UNDECODED, zlib.error, ValueError) as error:
            logger.warning("gateway.snapshot_unread", error=repr(error))
            return None

    async def wanted(self, sequence: int, seconds: float) -> bool:
        """Whether nobody has written one that goes so far, or any in so many seconds."""
        try:
            manifest, _ = await _manifest(await self._bus.js.key_value(REPORT_BUCKET))
            if manifest is None or not _goes_on(manifest, await self._held()):
                return True
            if manifest.counting != self._counting:
                # During an upgrade gateways of both versions write, each no oftener than it may.
                return time.time() - manifest.at >= seconds
            return manifest.sequence < sequence and time.time() - manifest.at >= seconds
        except nats.js.errors.NotFoundError:
            self.problem = _absent()
        except FAULTS as error:
            self.problem = _unwritten(repr(error))
        return False

    async def write(self, sequence: int, data: bytes) -> bool:
        """Write one down, unless another gateway does; whether it is written. `problem` says why not."""
        self.problem = ""
        if len(data) > self._most:
            self.problem = _unwritten(f"it has {len(data)} bytes, and at most {self._most} are kept")
            return False
        try:
            bucket = await self._bus.js.key_value(REPORT_BUCKET)
            _, revision = await _manifest(bucket)
            size = max(1, min(PART, self._bus.client.max_payload - HEADROOM))
            parts = [data[start : start + size] for start in range(0, len(data), size)]
            manifest = Manifest(
                name=secrets.token_hex(8),
                parts=len(parts),
                size=len(data),
                streams=tuple(one.made for one in await self._held()),
                sequence=sequence,
                counting=self._counting,
                at=time.time(),
            )
            for number, part in enumerate(parts):
                await bucket.put(f"part.{manifest.name}.{number}", part)
            await bucket.update(LIVE, msgspec.json.encode(manifest), revision)
        except nats.js.errors.KeyWrongLastSequenceError:
            # Another gateway was faster.
            return False
        except nats.js.errors.NotFoundError:
            self.problem = _absent()
            return False
        except (TransientError, *FAULTS) as error:
            self.problem = _unwritten(repr(error))
            return False
        return True

    async def _held(self) -> list[Position]:
        streams = streams_of_kind(OUTCOMES, self._bus.partitions)
        return await asyncio.gather(*(position_of(self._bus.js, stream) for stream in streams))


def _goes_on(manifest: Manifest, held: Sequence[Position]) -> bool:
    """Whether it is of these streams; partitions may have come since."""
    now = tuple(one.made for one in held)
    return bool(manifest.streams) and now[: len(manifest.streams)] == manifest.streams


async def _manifest(bucket: KeyValue) -> tuple[Manifest | None, int]:
    """The manifest, if there is one that can be read, and the revision to write another one over."""
    try:
        entry = await bucket.get(LIVE)
    except nats.js.errors.KeyNotFoundError as error:
        gone = error.entry
        return None, (gone.revision if gone is not None else 0) or 0
    try:
        return msgspec.json.decode(entry.value or b"", type=Manifest), entry.revision or 0
    except UNDECODED:
        return None, entry.revision or 0


def packed(state: State) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(state), 1)


def _unpacked(parts: list[bytes]) -> State:
    """Raises `ValueError` or `zlib.error` for what is no snapshot."""
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(b"".join(parts), LARGEST)
    if not unpacking.eof:
        raise ValueError("a snapshot is cut short, or too large")
    return _STATE.decode(data)


def _absent() -> str:
    return (
        f"the report is not written down: bucket {REPORT_BUCKET} is missing: run groundwatch admin provision"
    )


def _unwritten(why: str) -> str:
    return f"the report is not written down, so a gateway that starts reads all outcomes: {why}"
