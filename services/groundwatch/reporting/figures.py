"""The figures that a protocol's paper reports, from outcomes' values: one arithmetic for every report."""

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Figure
from groundwatch.statistics.intervals import Interval, RunningSums, ranks
from groundwatch.statistics.sampling import (
    WeightedMoments,
    WeightedSums,
    weight,
    weighted_mean_interval,
    weighted_rate,
)

UNITS = 10_000
"""Images, or what else is averaged first, that are remembered. One that comes back after so many others
counts as another one: a gateway that runs for months must not grow."""


def protocol_of(name: str) -> EvaluationProtocol:
    """The protocol of this name; of one that is not installed here, one that says nothing of its figures."""
    try:
        return registry.get(name)
    except UsageError:
        return EvaluationProtocol()


class FigureReport(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a model. `n` of the interval counts answers, or what is averaged first.

    `coverage` is the share of judged answers that are in it: older outcomes may lack its values. `rank` is
    among the `ranked` models that the same judges judged, 1 for the highest; 0 where there is none.
    """

    name: str
    heading: str
    meaning: str
    value: Interval | None
    coverage: float | None
    rank: int = 0
    ranked: int = 0


class _Unit(RunningSums):
    """The answers to one image: `of` by `over`, weighted; how many are a gate, how many of these shut it.

    `part` is how much of it is there.
    """

    answers: int = 0
    weights: float = 0.0
    of: float = 0.0
    over: float = 0.0
    gates: int = 0
    closed: int = 0
    part: float = 0.0

    def value(self, gated: bool) -> float | None:
        if self.part < 1 - 1e-9 or (gated and not self.gates):
            return None
        if self.closed:
            return 0.0
        return self.of / self.over if self.over else None


class FigureSums:
    """What one figure needs of one model's outcomes.

    One that was judged with probability p stands for 1 / p. Where images are averaged, one stands for as many
    as its judged answers do in the mean.
    """

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.answers = 0
        self._values = WeightedMoments()
        self._ratio = WeightedSums()
        self._units: dict[str, _Unit] = {}

    def add(self, values: Mapping[str, float], unit: str, each: float) -> None:
        """Count one outcome; one without the figure's values is in no number."""
        figure = self.figure
        gate = values.get(figure.gate) if figure.gate else None
        part, whole = _sum(values, figure.of), _sum(values, figure.over) if figure.over else 1.0
        if part is None or whole is None:
            part = whole = 0.0
            if gate is None and figure.part not in values:
                return
        self.answers += bool(whole or figure.over or gate is not None)
        if figure.per_unit:
            if unit:
                shut = gate is not None and gate < 1
                of_whole = values.get(figure.part, 1.0)
                added = _Unit(1, each, each * part, each * whole, gate is not None, shut, of_whole)
                self._add_unit(unit, added)
        elif figure.over:
            self._ratio.add(int(part), int(whole), each)
        else:
            self._values.add(part, each)

    def merge(self, other: "FigureSums") -> None:
        self.answers += other.answers
        self._values.merge(other._values)
        self._ratio.merge(other._ratio)
        for name, unit in list(other._units.items()):
            self._add_unit(name, unit)

    def interval(self, bounds: tuple[float, float]) -> Interval | None:
        """The estimate with its 95 % interval; None without any value."""
        if self.figure.over and not self.figure.per_unit:
            found = weighted_rate(self._ratio)
            return None if found is None else msgspec.structs.replace(found, n=self._ratio.plain.clusters)
        values = WeightedMoments()
        values.merge(self._values)
        for unit in self._units.values():
            self._settle(unit, values)
        return weighted_mean_interval(values, bounds=bounds)

    def _add_unit(self, name: str, added: _Unit) -> None:
        # The latest stand last.
        unit = self._units.pop(name, None) or _Unit()
        unit.merge(added)
        self._units[name] = unit
        if len(self._units) > UNITS:
            self._settle(self._units.pop(next(iter(self._units))), self._values)

    def _settle(self, unit: _Unit, values: WeightedMoments) -> None:
        value = unit.value(bool(self.figure.gate))
        if value is not None:
            values.add(value, unit.weights / unit.answers)


class Headline:
    """The sums of every figure of one protocol, and of one model under one set of judges."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol_of(protocol)
        self._judged = 0
        self._sums = [FigureSums(figure) for figure in self._protocol.headline]

    def add(self, event: ResponseScored) -> None:
        """Count one outcome; one that was declined is in no figure."""
        if self._sums and event.outcome is not OutcomeKind.DECLINED:
            unit = self._protocol.unit(event.tags, event.images)
            self.add_values(event.values, unit, weight(event.drawn))

    def add_values(self, values: Mapping[str, float], unit: str, each: float) -> None:
        self._judged += 1
        if values:
            for sums in self._sums:
                sums.add(values, unit, each)

    def remove(self) -> None:
        """Take back an outcome without values."""
        self._judged -= 1

    def merge(self, other: "Headline") -> None:
        self._judged += other._judged
        for mine, others in zip(self._sums, other._sums, strict=True):
            mine.merge(others)

    def figures(self) -> tuple[FigureReport, ...]:
        """In the protocol's order; nothing before anything was judged."""
        if not self._judged:
            return ()
        return tuple(
            FigureReport(
                **{name: getattr(sums.figure, name) for name in ("name", "heading", "meaning")},
                value=sums.interval(sums.figure.bounds or self._protocol.bounds),
                coverage=sums.answers / self._judged,
                ranked=int(sums.figure.ranked),
            )
            for sums in self._sums
        )


def with_ranks(rows: Sequence[tuple[Hashable, Sequence[FigureReport]]]) -> list[tuple[FigureReport, ...]]:
    """The figures of each row; those that rank models, with the row's rank among the rows of the same key."""
    values: dict[tuple[Hashable, str], dict[int, float]] = {}
    for at, (key, figures) in enumerate(rows):
        for one in figures:
            if one.ranked and one.value is not None:
                values.setdefault((key, one.name), {})[at] = one.value.value
    places = {name: ranks(found) for name, found in values.items()}

    def placed(at: int, key: Hashable, one: FigureReport) -> FigureReport:
        place = places.get((key, one.name), {})
        return msgspec.structs.replace(one, rank=place.get(at, 0), ranked=len(place))

    return [tuple(placed(at, key, one) for one in figures) for at, (key, figures) in enumerate(rows)]


def _sum(values: Mapping[str, float], names: Sequence[str]) -> float | None:
    """The sum of these values; None where one is not there."""
    total = 0.0
    for name in names:
        value = values.get(name)
        if value is None:
            return None
        total += value
    return total
