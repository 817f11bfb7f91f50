"""The report of live traffic while outcomes come in, and what is written down of it."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Container, Mapping
from typing import Any

import msgspec

from groundwatch.events import REPLACEABLE, Drawn, ResponseScored
from groundwatch.reporting.report import Report, ReportState
from groundwatch.reporting.trends import VersionReport, Versions, VersionsState
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.topology.partitions import partition_of_subject

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
        self._told: tuple[dict[str, Any], tuple[VersionReport, ...]] | None = None
        self._changed = True
        self._stale_at = 0.0
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
        self._changed = True
        if self._computing.locked():
            self._pending.append((partition, sequence, old, event))
        else:
            self._apply(partition, sequence, old, event)

    async def current(self) -> dict[str, Any]:
        """The report as of a moment ago, with the `sequence` up to which it goes."""
        return (await self._computed())[0]

    async def versions(self) -> tuple[VersionReport, ...]:
        """The versions of its models, as of the same moment."""
        return (await self._computed())[1]

    async def _computed(self) -> tuple[dict[str, Any], tuple[VersionReport, ...]]:
        async with self._computing:
            if self._told is None or (self._changed and time.monotonic() >= self._stale_at):
                self._changed = False
                began = time.monotonic()
                found, versions = await asyncio.to_thread(
                    lambda: (self._report.to_dict(), self._versions.rows())
                )
                self._told = found | {"sequence": self.sequence}, versions
                ended = time.monotonic()
                self._stale_at = ended + max(FRESH_SECONDS, COST_SHARE * (ended - began))
            self._apply_pending()
            return self._told

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
