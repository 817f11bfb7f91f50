"""The figures that a protocol's paper reports, from outcomes' values: one arithmetic for every report."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import LIVE, OutcomeKind, ResponseScored
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Figure
from groundwatch.protocols.groups import PUSHED_OUT, WAITING, Group, GroupedAnswer, split
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

COMPLETE = "complete"
LOOKED_AT, REPEATED = 64, 8
"""With so many answers of one unit, and each time that they have doubled, all but its latest groups are
counted and no longer held: a sequence may be asked again every night."""

REASONS = 20
"""How many counts of groups are told apart by how many answers came."""


def now_of(run: str) -> float:
    """Up to when outcomes of a run can have come, in seconds since the epoch: a replay's are all there."""
    return time.time() if run == LIVE else math.inf


def protocol_of(name: str) -> EvaluationProtocol:
    """The protocol of this name; of one that is not installed here, one that says nothing of its figures."""
    try:
        return registry.get(name)
    except UsageError:
        return EvaluationProtocol()


class FigureReport(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a model. `n` of the interval counts answers, or what is averaged first.

    `coverage` is the share of judged answers that are in it: older outcomes may lack its values. `reason` is
    why there is no value, where that is the figure's own. `rank` is among the `ranked` models that the same
    judges judged, 1 for the highest; 0 where there is none.
    """

    name: str
    heading: str
    meaning: str
    value: Interval | None
    coverage: float | None
    reason: str = ""
    rank: int = 0
    ranked: int = 0


class _Unit(RunningSums):
    """The answers to one image: `of` by `over`, weighted; how many are a gate, how many of these shut it."""

    answers: int = 0
    weights: float = 0.0
    of: float = 0.0
    over: float = 0.0
    gates: int = 0
    closed: int = 0

    def value(self, gated: bool) -> float | None:
        if gated and not self.gates:
            return None
        if self.closed:
            return 0.0
        return self.of / self.over if self.over else None


class FigureSums(msgspec.Struct):
    """What one figure needs of one model's outcomes.

    One that was judged with probability p stands for 1 / p. Where images are averaged, one stands for as many
    as its judged answers do in the mean. Where groups are, they are given when they are wanted.
    """

    figure: Figure
    answers: int = 0
    lacking: int = 0
    values: WeightedMoments = msgspec.field(default_factory=WeightedMoments)
    ratio: WeightedSums = msgspec.field(default_factory=WeightedSums)
    units: dict[str, _Unit] = {}

    def add(self, values: Mapping[str, float], unit: str, each: float) -> None:
        """Count one outcome; one without the figure's values is in no number."""
        figure = self.figure
        found = self._of_over(values)
        if found is None:
            self.lacking += figure.all_of in values
            return
        part, whole = found
        self.answers += bool(whole or figure.over or figure.gate in values)
        if figure.part:
            return
        if figure.per_unit:
            if unit:
                self._add_unit(unit, self._unit(values, each))
        elif figure.over:
            self.ratio.add(int(part), int(whole), each)
        else:
            self.values.add(part, each)

    def merge(self, other: "FigureSums") -> None:
        self.answers += other.answers
        self.lacking += other.lacking
        self.values.merge(other.values)
        self.ratio.merge(other.ratio)
        for name, unit in list(other.units.items()):
            self._add_unit(name, unit)

    @property
    def reason(self) -> str:
        """Why there is no number, where answers without the figure's values forbid one."""
        return self.figure.lacking if self.lacking else ""

    def interval(self, bounds: tuple[float, float], groups: Iterable[Group] = ()) -> Interval | None:
        """The estimate with its 95 % interval; None without any value."""
        if self.lacking:
            return None
        if self.figure.over and not self.figure.per_unit:
            found = weighted_rate(self.ratio)
            return None if found is None else msgspec.structs.replace(found, n=self.ratio.plain.clusters)
        values = WeightedMoments()
        values.merge(self.values)
        for unit in self.units.values():
            self._settle(unit, values)
        for group in groups:
            self._settle(self._group(group), values)
        return weighted_mean_interval(values, bounds=bounds)

    def settle(self, group: Group) -> None:
        """Count a group that is not given again."""
        self._settle(self._group(group), self.values)

    def lacks(self, group: Group) -> str:
        """Why a group whose answers are all there has no value; empty where it has one."""
        unit = self._group(group)
        if unit.value(bool(self.figure.gate)) is not None:
            return ""
        return f"no_{self.figure.of[0] if unit.gates else self.figure.gate}_question"

    def _of_over(self, values: Mapping[str, float]) -> tuple[float, float] | None:
        figure = self.figure
        part, whole = _sum(values, figure.of), _sum(values, figure.over) if figure.over else 1.0
        if part is not None and whole is not None:
            return part, whole
        return (0.0, 0.0) if figure.gate in values or figure.part in values else None

    def _unit(self, values: Mapping[str, float], each: float) -> _Unit:
        part, whole = self._of_over(values) or (0.0, 0.0)
        gate = values.get(self.figure.gate)
        return _Unit(1, each, each * part, each * whole, gate is not None, gate is not None and gate < 1)

    def _group(self, group: Group) -> _Unit:
        unit = _Unit()
        for answer in group.answers:
            unit.merge(self._unit(dict(answer.values), answer.weight))
        return unit

    def _add_unit(self, name: str, added: _Unit) -> None:
        # The latest stand last.
        unit = self.units.pop(name, None) or _Unit()
        unit.merge(added)
        self.units[name] = unit
        if len(self.units) > UNITS:
            self._settle(self.units.pop(next(iter(self.units))), self.values)

    def _settle(self, unit: _Unit, values: WeightedMoments) -> None:
        value = unit.value(bool(self.figure.gate))
        if value is not None:
            values.add(value, unit.weights / unit.answers)


class Headline(msgspec.Struct):
    """The sums of every figure of one protocol, and of one model under one set of judges.

    Whose answers they are and what they are about is remembered by digests: neither is ever told.
    """

    name: str
    judged: int = 0
    sums: list[FigureSums] = []
    open: dict[str, list[GroupedAnswer]] = {}
    settled: dict[str, int] = {}

    def __post_init__(self) -> None:
        """Raises `ValueError` for what was written down of other figures."""
        self.sums = self.sums or [FigureSums(figure) for figure in self._protocol.headline]
        if tuple(sums.figure for sums in self.sums) != tuple(self._protocol.headline):
            raise ValueError(f"these are not the figures of {self.name}")

    @property
    def _protocol(self) -> EvaluationProtocol:
        return protocol_of(self.name)

    @property
    def _grouped(self) -> list[FigureSums]:
        return [sums for sums in self.sums if sums.figure.part]

    def add(self, event: ResponseScored) -> None:
        """Count one outcome; one that was declined is in no figure."""
        if self.sums and event.outcome is not OutcomeKind.DECLINED:
            unit = _digest(self._protocol.unit(event.tags, event.images))
            whose = _digest(f"{event.tenant}\n{event.model}") if self._grouped else ""
            self.add_values(event.values, unit, weight(event.drawn), event.recorded_at, whose)

    def add_values(
        self, values: Mapping[str, float], unit: str, each: float, at: float = 0.0, whose: str = ""
    ) -> None:
        """Count one judged outcome of the unit; `at` and `whose` tell apart the groups of answers to it."""
        self.judged += 1
        if not values:
            return
        for sums in self.sums:
            sums.add(values, unit, each)
        if self._grouped and unit:
            part = self._grouped[0].figure.part
            names = {name for sums in self._grouped for name in sums.figure.values} - {part}
            kept = tuple(sorted((name, value) for name, value in values.items() if name in names))
            if kept or part in values:
                answer = GroupedAnswer(at, values.get(part, 0.0), each, kept)
                self._add_answers(f"{whose}\n{unit}", [answer])

    def merge(self, other: "Headline") -> None:
        self.judged += other.judged
        for mine, others in zip(self.sums, other.sums, strict=True):
            mine.merge(others)
        self.settled = dict(Counter(self.settled) + Counter(other.settled))
        for name, answers in list(other.open.items()):
            self._add_answers(name, list(answers))

    def figures(self, now: float = math.inf) -> tuple[FigureReport, ...]:
        """In the protocol's order; nothing before anything was judged."""
        if not self.judged:
            return ()
        whole = [group for group in self._groups(now) if not group.reason]
        return tuple(
            FigureReport(
                **{name: getattr(sums.figure, name) for name in ("name", "heading", "meaning")},
                value=sums.interval(
                    sums.figure.bounds or self._protocol.bounds, whole if sums.figure.part else ()
                ),
                coverage=sums.answers / self.judged,
                reason=sums.reason,
                ranked=int(sums.figure.ranked),
            )
            for sums in self.sums
        )

    def groups(self, now: float = math.inf) -> dict[str, int]:
        """How many groups are complete, and how many have no score by reason, with how many answers came."""
        counts: Counter[str] = Counter()
        for group in self._groups(now):
            counts[group.told if group.reason else self._ended(group)] += 1
        shown = Counter(dict(counts.most_common(REASONS)))
        for told, number in (counts - shown).items():
            shown[told.partition(":")[0]] += number
        return dict(sorted((shown + Counter(self.settled)).items()))

    def _groups(self, now: float) -> Iterator[Group]:
        for answers in self.open.values():
            yield from split(answers, self._protocol.group_seconds, now)

    def _ended(self, group: Group) -> str:
        return group.reason or self._grouped[0].lacks(group) or COMPLETE

    def _add_answers(self, name: str, answers: Sequence[GroupedAnswer]) -> None:
        # The latest stand last.
        kept = self.open.pop(name, [])
        kept += answers
        self.open[name] = kept
        if len(kept) >= LOOKED_AT and not len(kept) & (len(kept) - 1):
            groups = list(split(kept, self._protocol.group_seconds, kept[-1].at))
            self._settle(groups[:-REPEATED])
            self.open[name] = [answer for group in groups[-REPEATED:] for answer in group.answers]
        if len(self.open) > UNITS:
            oldest = self.open.pop(next(iter(self.open)))
            self._settle(split(oldest, self._protocol.group_seconds, answers[-1].at))

    def _settle(self, groups: Iterable[Group]) -> None:
        for group in groups:
            if not group.reason:
                for sums in self._grouped:
                    sums.settle(group)
            ended = PUSHED_OUT if group.reason == WAITING else self._ended(group)
            self.settled[ended] = self.settled.get(ended, 0) + 1


def _digest(name: str) -> str:
    """32 hex digits; nothing of nothing."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() if name else ""


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
