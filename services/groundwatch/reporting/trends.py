"""Rates over time, by version: what the overview draws. Constant memory, whatever the traffic."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.reporting.sums import Sums, facts_of, fingerprint
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval
from groundwatch.statistics.sampling import WeightedSums, weight, weighted_rate

POINTS = 48
"""Stretches of time that are told apart."""

LONGEST = 86_400.0
SHORTEST = LONGEST / 2**15
"""Seconds of a stretch: while there are more than `POINTS` of them, each two become one, up to a day."""

VERSIONS = 500
"""Versions that are told apart; of more, those that answered last."""


class Point(msgspec.Struct, frozen=True):
    """The rate of the answers that were recorded in `seconds` from `start` on."""

    start: float
    seconds: float
    rate: Interval


class Trend(msgspec.Struct, array_like=True):
    """Facts by the time at which their answers were recorded."""

    seconds: float = SHORTEST
    sums: dict[int, WeightedSums] = msgspec.field(default_factory=dict)

    def add(self, recorded_at: float, refuted: int, decided: int, weight: float) -> None:
        if not 0 <= recorded_at < 2**40:
            return
        place = int(recorded_at // self.seconds)
        found = self.sums.get(place)
        if found is None:
            found = self.sums[place] = WeightedSums()
        found.add(refuted, decided, weight)
        if len(self.sums) > 1 and found.plain.clusters == 1:
            self._bound()

    def merge(self, other: "Trend") -> None:
        while self.seconds < other.seconds:
            self._coarsen()
        ratio = round(self.seconds / other.seconds)
        for place, sums in other.sums.items():
            self.sums.setdefault(place // ratio, WeightedSums()).merge(sums)
        if self.sums:
            self._bound()

    def points(self) -> list[Point]:
        """The oldest first; stretches without an answer are none."""
        rates = ((place, weighted_rate(sums)) for place, sums in sorted(self.sums.items()))
        return [Point(place * self.seconds, self.seconds, rate) for place, rate in rates if rate is not None]

    def _bound(self) -> None:
        while max(self.sums) - min(self.sums) >= POINTS and self.seconds < LONGEST:
            self._coarsen()
        while len(self.sums) > POINTS:
            del self.sums[min(self.sums)]

    def _coarsen(self) -> None:
        finer, self.sums, self.seconds = self.sums, {}, 2 * self.seconds
        for place, sums in finer.items():
            self.sums.setdefault(place // 2, WeightedSums()).merge(sums)


class VersionSums(msgspec.Struct, array_like=True):
    """The scored answers of one version; `first` and `last` are when they were recorded."""

    sums: Sums = msgspec.field(default_factory=Sums)
    first: float = 0.0
    last: float = 0.0
    trend: Trend = msgspec.field(default_factory=Trend)


class VersionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model under one protocol and one set of judges; "" where answers name none."""

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
            version.trend.add(event.recorded_at, *facts, weight(event.drawn))

    def state(self) -> VersionsState:
        return list(self._sums.items())

    def restore(self, state: VersionsState) -> None:
        self._sums = dict(state)

    def rows(self) -> tuple[VersionReport, ...]:
        """By model, protocol and judges; of each, the version that began last comes first."""
        return tuple(
            VersionReport(
                model=model,
                protocol=protocol,
                fingerprint=judges,
                version=version,
                scored=known.sums.scored,
                coverage=known.sums.coverage,
                cost=known.sums.cost,
                first=known.first,
                last=known.last,
                hallucination_rate=weighted_rate(known.sums.facts),
                trend=merged_trend([known.trend]),
            )
            for (model, protocol, judges, version), known in sorted(
                self._sums.items(), key=lambda one: (*one[0][:3], -one[1].first)
            )
        )


def merged_trend(trends: Iterable[Trend]) -> Trend:
    merged = Trend()
    for one in trends:
        merged.merge(one)
    return merged
