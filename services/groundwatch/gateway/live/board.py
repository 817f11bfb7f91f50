"""The report of live traffic while outcomes come in, and its snapshots: where a gateway that starts goes on.

A snapshot holds sums, names of models and judges, and digests; no text, no id, no tenant. It is of one stream
of outcomes, up to a sequence of it, and of one way to count: another version of groundwatch, other rules of
alarms or other figures of protocols do not go on from it, but read the stream anew.
"""

import asyncio
import hashlib
import secrets
import time
import zlib
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import nats.js.errors

from groundwatch import __version__
from groundwatch.errors import UNDECODED, TransientError, Unavailable, words
from groundwatch.events import LIVE, REPLACEABLE, Drawn, ResponseScored
from groundwatch.keys import digest
from groundwatch.protocols import registry
from groundwatch.reporting.alarms import AlarmsState
from groundwatch.reporting.report import Report, ReportState
from groundwatch.reporting.trends import VersionReport, Versions, VersionsState
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.streams import FAULTS, Position, position_of
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.alarm import Rule
from groundwatch.topology import BUCKETS, OUTCOMES, REPORT_BUCKET
from groundwatch.topology.partitions import partition_of_subject, streams_of_kind

FRESH_SECONDS = 0.5
COST_SHARE = 20
"""Intervals take time to compute: at most a twentieth of it is spent on them."""

MAX_REPLACEABLE = 200_000
"""Outcomes of dead letters that are remembered, the latest: about 100 MB where there are so many."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class BoardState(msgspec.Struct, frozen=True, array_like=True):
    """A report up to these sequences by partition, counted since `begun` (seconds since the epoch)."""

    sequences: dict[int, int]
    begun: float
    report: ReportState
    replaceable: list[tuple[bytes, bytes]]
    forgotten: int
    versions: VersionsState


class _Told(NamedTuple):
    """What was computed last, when there had been so many `changes`."""

    report: dict[str, Any]
    versions: tuple[VersionReport, ...]
    changes: int
    stale_at: float


class Board:
    """A `Report` that takes outcomes while another thread computes its numbers.

    `most` and `kept` are the report's, `version_of` tells an answer's version by its tags. An outcome that
    stands for a dead letter is kept until another one takes its place: then it is taken back, and the report
    is right at once, with nothing read again. What is kept of it names no response, no tenant and no image.
    Of more than `MAX_REPLACEABLE` the oldest are `forgotten`: what takes their place is counted beside them.
    """

    def __init__(
        self,
        most: int | None,
        kept: Callable[[], Container[str]],
        version_of: Callable[[Mapping[str, str]], str] = lambda tags: "",
    ) -> None:
        self._report = Report(most=most, kept=kept)
        self._versions = Versions(version_of)
        self._pending: list[tuple[int, int, ResponseScored | None, ResponseScored | None]] = []
        self._computing = asyncio.Lock()
        self._replaceable: dict[bytes, bytes] = {}
        self._told: dict[str, _Told] = {}
        self._changes = 0
        self.begun = time.time()
        self.sequences: dict[int, int] = {}
        self.forgotten = 0

    @property
    def sequence(self) -> int:
        """How far it goes, over all partitions."""
        return sum(self.sequences.values())

    def restore(self, state: BoardState) -> None:
        """Go on from there. Raises `ValueError` when it was made by other protocols."""
        self._report.restore(state.report)
        self._versions.restore(state.versions)
        self._replaceable = dict(state.replaceable)
        self.sequences = dict(state.sequences)
        self.begun, self.forgotten = state.begun, state.forgotten

    async def written(self, capture: Callable[[BoardState], Callable[[], bytes] | None]) -> bytes:
        """The state encoded, in a thread; outcomes that come meanwhile are not in it.

        `capture` is given the state, at a moment when all that came is in it, and returns what encodes it, or
        None: then nothing is.
        """
        async with self._computing:
            self._apply_pending()
            state = BoardState(
                dict(self.sequences),
                self.begun,
                self._report.state(),
                list(self._replaceable.items()),
                self.forgotten,
                self._versions.state(),
            )
            encode = capture(state)
            data = await asyncio.to_thread(encode) if encode is not None else b""
            self._apply_pending()
            return data

    def add(self, sequence: int, subject: str, event: ResponseScored | None) -> None:
        """Count an outcome, in place of the dead letter's on the same subject; None could not be read."""
        partition = partition_of_subject(subject)
        old = None
        if event is not None and (self._replaceable or event.reason in REPLACEABLE):
            old = self._replace(hashlib.blake2b(subject.encode(), digest_size=16).digest(), event)
        self._changes += 1
        if self._computing.locked():
            self._pending.append((partition, sequence, old, event))
        else:
            self._apply(partition, sequence, old, event)

    async def current(self) -> dict[str, Any]:
        """The report as of a moment ago, with the `sequence` up to which it goes."""
        return (await self._computed("")).report

    async def versions(self, within: str = "") -> tuple[VersionReport, ...]:
        """The versions of its models, as of the same moment; or of a range of time, one of `RANGES`."""
        return (await self._computed(within)).versions

    async def _computed(self, within: str) -> _Told:
        async with self._computing:
            told = self._told.get(within)
            # A range has other answers in it later, also when none comes.
            changed = told is None or within or told.changes != self._changes
            if told is None or (changed and time.monotonic() >= told.stale_at):
                began, changes = time.monotonic(), self._changes
                report, versions = await asyncio.to_thread(
                    lambda: ({} if within else self._report.to_dict(), self._versions.rows(within))
                )
                ended = time.monotonic()
                stale_at = ended + max(FRESH_SECONDS, COST_SHARE * (ended - began))
                told = _Told(report | {"sequence": self.sequence}, versions, changes, stale_at)
                self._told[within] = told
            self._apply_pending()
            return told

    def _apply_pending(self) -> None:
        pending, self._pending = self._pending, []
        for change in pending:
            self._apply(*change)

    def _replace(self, key: bytes, event: ResponseScored) -> ResponseScored | None:
        """The dead letter's outcome whose place this one takes. What the report does not need is not kept."""
        old = self._replaceable.pop(key, None)
        if event.reason in REPLACEABLE:
            self._replaceable[key] = ENCODER.encode(_bare(event))
            if len(self._replaceable) > MAX_REPLACEABLE:
                del self._replaceable[next(iter(self._replaceable))]
                self.forgotten += 1
        return _DECODER.decode(old) if old is not None else None

    def _apply(
        self, partition: int, sequence: int, old: ResponseScored | None, event: ResponseScored | None
    ) -> None:
        self.sequences[partition] = sequence
        if old is not None:
            self._report.remove(old)
        if event is not None:
            self._report.add(event)
            self._versions.add(event)


def _bare(event: ResponseScored) -> ResponseScored:
    """What taking it back needs."""
    return msgspec.structs.replace(
        event,
        id="",
        tenant="",
        detail="",
        units=(),
        claims=(),
        values={},
        tags={},
        images=(),
        drawn=Drawn(probability=event.drawn.probability),
    )


PART = 1024 * 1024
"""Bytes of one message, where the server takes so many."""

HEADROOM = 16 * 1024
"""Bytes of a message that its subject and headers may need."""

GENERATIONS = 4
"""So many snapshots fit into the bucket: those of gateways that write at once, and the one before."""

TOGETHER = 8
FORMAT = 5
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
        self._bucket = Bucket(bus, REPORT_BUCKET, nameless=True)
        self._counting = counting
        self._most = next(one.max_bytes for one in BUCKETS if one.name == REPORT_BUCKET) // GENERATIONS
        self.problem = ""
        """Why the last one was not written; empty when it was, or another gateway had written one."""

    async def read(self) -> State | None:
        """The snapshot of the stream as it is now; None where there is none that can be gone on from.

        Raises `Unavailable`, or what NATS raises, when it does not answer: all outcomes take too long to be
        read for that.
        """
        try:
            manifest = await self._bucket.read_as(LIVE, Manifest)
            if manifest is None or manifest.counting != self._counting:
                return None
            held = await self._held()
            last = sum(one.last for one in held)
            if not _goes_on(manifest, held) or manifest.sequence > last:
                return None
            names = [f"part.{manifest.name}.{number}" for number in range(manifest.parts)]
            parts: list[bytes] = []
            for start in range(0, len(names), TOGETHER):
                found = await asyncio.gather(*map(self._bucket.get, names[start : start + TOGETHER]))
                parts += [one.data for one in found if one is not None]
            if len(parts) < len(names):
                # A newer snapshot took its place while it was read.
                return None
            return await asyncio.to_thread(_unpacked, parts)
        except (nats.js.errors.NotFoundError, Unavailable) as error:
            if isinstance(error, Unavailable) and not isinstance(
                error.__cause__, nats.js.errors.NotFoundError
            ):
                raise
            # There is no bucket.
            return None
        except (*UNDECODED, zlib.error, ValueError) as error:
            logger.warning("gateway.snapshot_unread", error=repr(error))
            return None

    async def wanted(self, sequence: int, seconds: float) -> bool:
        """Whether nobody has written one that goes so far, or any in so many seconds."""
        try:
            manifest = await self._bucket.read_as(LIVE, Manifest)
            if manifest is None or not _goes_on(manifest, await self._held()):
                return True
            # During an upgrade gateways of both versions write, each no oftener than it may.
            newer = manifest.counting != self._counting or manifest.sequence < sequence
            return newer and time.time() - manifest.at >= seconds
        except (TransientError, *FAULTS) as error:
            self.problem = _unwritten(words(error))
        return False

    async def write(self, sequence: int, data: bytes) -> bool:
        """Write one down, unless another gateway does; whether it is written. `problem` says why not."""
        self.problem = ""
        if len(data) > self._most:
            self.problem = _unwritten(f"it has {len(data)} bytes, and at most {self._most} are kept")
            return False
        try:
            before = await self._bucket.get(LIVE)
            size = max(1, min(PART, self._bus.client.max_payload - HEADROOM))
            parts = [data[start : start + size] for start in range(0, len(data), size)]
            manifest = Manifest(
                name=secrets.token_hex(8),
                parts=len(parts),
                streams=tuple(one.made for one in await self._held()),
                sequence=sequence,
                counting=self._counting,
                at=time.time(),
            )
            for number, part in enumerate(parts):
                await self._bucket.put(f"part.{manifest.name}.{number}", part, 0)
            revision = before.revision if before is not None else 0
            # 0: another gateway was faster.
            return bool(await self._bucket.put(LIVE, msgspec.json.encode(manifest), revision))
        except (TransientError, *FAULTS) as error:
            self.problem = _unwritten(words(error))
        return False

    async def _held(self) -> list[Position]:
        streams = streams_of_kind(OUTCOMES, self._bus.partitions)
        return await asyncio.gather(*(position_of(self._bus.js, stream) for stream in streams))


def _goes_on(manifest: Manifest, held: Sequence[Position]) -> bool:
    """Whether it is of these streams; partitions may have come since."""
    now = tuple(one.made for one in held)
    return bool(manifest.streams) and now[: len(manifest.streams)] == manifest.streams


def packed(state: State) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(state), 1)


def _unpacked(parts: list[bytes]) -> State:
    """Raises `ValueError` or `zlib.error` for what is no snapshot."""
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(b"".join(parts), LARGEST)
    if not unpacking.eof:
        raise ValueError("a snapshot is cut short, or too large")
    return _STATE.decode(data)


def _unwritten(why: str) -> str:
    return f"the report is not written down, so a gateway that starts reads all outcomes: {why}"
