"""Rates over time, by version: what the overview draws. Constant memory, whatever the traffic."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.reporting.sums import Facts, Sums, facts_of, fingerprint
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval
from groundwatch.statistics.sampling import weighted_rate

T = TypeVar("T")

POINTS = 48
"""Stretches of time that are told apart."""

LONGEST = 86_400.0
SHORTEST = LONGEST / 2**15
"""Seconds of a stretch: while there are more than `POINTS` of them, each two become one, up to a day."""

RANGES = {"1h": 3_600.0, "24h": LONGEST, "7d": 7 * LONGEST, "30d": 30 * LONGEST}
"""Seconds until now of which sums are kept apart, by the name that people choose them by."""

STRETCHES = 24
"""Of a range: it begins with a whole one."""

VERSIONS = 500
"""Versions that are told apart; of more, those that answered last."""


def began(within: str, now: float) -> float:
    """When the first stretch of a range began: what it counts was recorded since then."""
    seconds = RANGES[within] / STRETCHES
    return (now - RANGES[within]) // seconds * seconds


class Point(msgspec.Struct, frozen=True):
    """The rate of the answers that were recorded in `seconds` from `start` on."""

    start: float
    seconds: float
    rate: Interval


class Trend(msgspec.Struct, array_like=True):
    """Scored outcomes added up by the time at which their answers were recorded."""

    seconds: float = SHORTEST
    sums: dict[int, Sums] = msgspec.field(default_factory=dict)

    def add(self, event: ResponseScored, facts: Facts) -> None:
        """Count one with its (refuted, decided) facts."""
        if not 0 <= event.recorded_at < 2**40:
            return
        found = self.sums.setdefault(int(event.recorded_at // self.seconds), Sums())
        found.add(event, facts)
        if len(self.sums) > 1 and found.scored == 1:
            self._bound()

    def merge(self, other: "Trend") -> None:
        while self.seconds < other.seconds:
            self._coarsen()
        ratio = round(self.seconds / other.seconds)
        for place, sums in other.sums.items():
            self.sums.setdefault(place // ratio, Sums()).merge(sums)
        if self.sums:
            self._bound()

    def points(self) -> list[Point]:
        """The oldest first; stretches without a decided fact are none."""
        rates = ((place, weighted_rate(one.facts)) for place, one in sorted(self.sums.items()))
        return [Point(place * self.seconds, self.seconds, rate) for place, rate in rates if rate is not None]

    def _bound(self) -> None:
        while max(self.sums) - min(self.sums) >= POINTS and self.seconds < LONGEST:
            self._coarsen()
        while len(self.sums) > POINTS:
            del self.sums[min(self.sums)]

    def _coarsen(self) -> None:
        finer, self.sums, self.seconds = self.sums, {}, 2 * self.seconds
        for place, sums in finer.items():
            self.sums.setdefault(place // 2, Sums()).merge(sums)


class Window(Trend):
    """The same of the last `STRETCHES` stretches alone."""

    def since(self, start: float) -> tuple["Window", Sums]:
        """What was recorded from the stretch of `start` on, and all of it together."""
        recent = {place: one for place, one in self.sums.items() if place >= start // self.seconds}
        total = Sums()
        for one in recent.values():
            total.merge(one)
        return Window(self.seconds, recent), total

    def _bound(self) -> None:
        latest = max(self.sums)
        self.sums = {place: one for place, one in self.sums.items() if place >= latest - STRETCHES}


class VersionSums(msgspec.Struct, array_like=True):
    """The scored answers of one version; `first` and `last` are when they were recorded."""

    sums: Sums = msgspec.field(default_factory=Sums)
    first: float = 0.0
    last: float = 0.0
    trend: Trend = msgspec.field(default_factory=Trend)
    ranges: dict[str, Window] = msgspec.field(
        default_factory=lambda: {name: Window(seconds / STRETCHES) for name, seconds in RANGES.items()}
    )


class VersionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model under one protocol and one set of judges; "" where answers name none.

    `first` and `last` are those of all its answers, the numbers those of a range where one is asked for.
    """

    model: str
    protocol: str
    fingerprint: str
    version: str
    scored: int
    coverage: float | None
    cost: float
    first: float
    last: float
    hallucination_rate: Interval | None
    trend: Trend


VersionsState = list[tuple[tuple[str, str, str, str], VersionSums]]


class Versions:
    """Takes in the scored outcomes of live traffic. `version_of` tells an answer's version by its tags."""

    def __init__(self, version_of: Callable[[Mapping[str, str]], str]) -> None:
        self._version_of = version_of
        self._sums: dict[tuple[str, str, str, str], VersionSums] = {}

    def add(self, event: ResponseScored) -> None:
        if event.outcome is not OutcomeKind.SCORED:
            return
        key = (event.model, event.protocol, fingerprint(event.judges), self._version_of(event.tags))
        # The last to answer stands last.
        version = self._sums[key] = self._sums.pop(key) if key in self._sums else VersionSums()
        if len(self._sums) > VERSIONS:
            del self._sums[next(iter(self._sums))]
        facts = facts_of(event)[ALL]
        version.sums.add(event, facts)
        version.first = min(version.first or event.recorded_at, event.recorded_at)
        version.last = max(version.last, event.recorded_at)
        if facts[1]:
            version.trend.add(event, facts)
        now = time.time()
        for name, window in version.ranges.items():
            # A clock that is ahead must not make all others old.
            if began(name, now) <= event.recorded_at < now + window.seconds:
                window.add(event, facts)

    def state(self) -> VersionsState:
        return list(self._sums.items())

    def restore(self, state: VersionsState) -> None:
        self._sums = dict(state)

    def rows(self, within: str = "") -> tuple[VersionReport, ...]:
        """By model, protocol and judges; of each, the version that began last comes first. `within` is a name
        of `RANGES`: then those with an answer in it."""
        rows = []
        for key, known in sorted(self._sums.items(), key=lambda one: (*one[0][:3], -one[1].first)):
            sums, trend = known.sums, known.trend
            if within:
                trend, sums = known.ranges[within].since(began(within, time.time()))
            if not sums.scored:
                continue
            rows.append(
                VersionReport(
                    **dict(zip(("model", "protocol", "fingerprint", "version"), key, strict=True)),
                    scored=sums.scored,
                    coverage=sums.coverage,
                    cost=sums.cost,
                    first=known.first,
                    last=known.last,
                    hallucination_rate=weighted_rate(sums.facts),
                    trend=_copied(trend),
                )
            )
        return tuple(rows)


def merged_trend(trends: Iterable[Trend]) -> Trend:
    """All of them together; of one itself."""
    first, *others = [*trends] or [Trend()]
    merged = _copied(first) if others else first
    for one in others:
        merged.merge(one)
    return merged


def _copied(one: T) -> T:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=type(one))
