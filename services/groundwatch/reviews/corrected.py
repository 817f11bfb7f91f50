"""Corrected rates: what reviewers would find in everything that the first judges judged.

Each queue has its frame, the first judges' sums over everything that it was drawn from, and opinions that
were given with a known probability. People and models are told apart, and so are queues: of one with a
filter the rate is that of what passes it.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from groundwatch.errors import GroundwatchError, Unavailable
from groundwatch.events import AlarmRaised, Decision, OpinionGiven
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.compare.render import VersionComparison
from groundwatch.reporting.corrected import EVERY_VERSION, By, CorrectedAlarm, CorrectedRow, VersionDifference
from groundwatch.reporting.trends import VersionReport
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Frame, FrameGroup, Frames, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval, difference
from groundwatch.statistics.prediction_powered import (
    LEAST,
    Labelled,
    Sample,
    corrected_difference,
    corrected_rate,
)
from groundwatch.statistics.sampling import WeightedSums, weighted_rate
from groundwatch.topology import QUEUES_BUCKET

VersionOf = Callable[[Mapping[str, str]], str]


class ReviewedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was drawn and has opinions: by category, and of `all`, how many facts are (refuted,
    decided) in their mean, and of these claims by the first judges."""

    key: str
    version: str
    recorded_at: float
    weight: float
    probability: float
    facts: dict[str, tuple[float, float]]
    judged: dict[str, tuple[int, int]]


class QueueSamples:
    """The samples of one queue, by model, version and set of judges, and for `*` of all versions together.

    An opinion that no rule drew counts nowhere. Several of one answer count as one, their mean. Of those that
    were drawn only some may have an opinion yet: then each was less likely to have one, all alike.
    """

    def __init__(
        self, spec: QueueSpec, frame: Frame, opinions: Iterable[OpinionGiven], version_of: VersionOf
    ) -> None:
        self.spec = spec
        self.populations: dict[FrameGroup, WeightedSums] = {}
        for (model, version, protocol, judges, category), sums in frame.sums.items():
            for name in (version, EVERY_VERSION):
                group = (model, name, protocol, judges, category)
                self.populations.setdefault(group, WeightedSums()).merge(_copied(sums))
        given: dict[By, dict[tuple[str, str], list[OpinionGiven]]] = {"people": {}, "model": {}}
        for opinion in opinions:
            drawn = opinion.probability > 0 and not opinion.objection
            if drawn and (opinion.facts or not opinion.judged.get(ALL, (0, 0))[1]):
                by: By = "model" if opinion.judge is not None else "people"
                given[by].setdefault((opinion.key, opinion.fingerprint), []).append(opinion)
        self._answers: dict[tuple[By, str, str, str], list[ReviewedAnswer]] = defaultdict(list)
        self._done: dict[By, float] = {}
        for by, answers in given.items():
            self._done[by] = min(1.0, len(answers) / frame.drawn) if frame.drawn else 1.0
            for (_, judges), several in answers.items():
                place = (by, several[0].model, several[0].protocol, judges)
                self._answers[place].append(_answer(several, version_of))

    def sample(self, by: By, group: FrameGroup) -> Sample:
        """Everything that the queue was drawn from in this group, with those that have an opinion."""
        version = group[1]
        labelled = self.labelled(by, group, lambda one: version in (EVERY_VERSION, one.version))
        return Sample(self.populations.get(group, WeightedSums()), labelled)

    def labelled(self, by: By, group: FrameGroup, wanted: Callable[[ReviewedAnswer], bool]) -> list[Labelled]:
        """Answers with an opinion, of any version, that are `wanted`."""
        model, _, protocol, judges, category = group
        nothing = (0, 0)
        return [
            Labelled(
                wrong=one.facts.get(category, nothing)[0],
                known=one.facts.get(category, nothing)[1],
                judged_wrong=one.judged.get(category, nothing)[0],
                judged_known=one.judged.get(category, nothing)[1],
                weight=one.weight,
                probability=one.probability * self._done[by],
                key=one.key,
            )
            for one in self._answers.get((by, model, protocol, judges), ())
            if wanted(one)
        ]


async def read_samples(bus: Bus, version_of: VersionOf) -> tuple[QueueSamples, ...]:
    """Of every queue, in the order of making. Raises `Unavailable`."""
    specs = await Queues(bus).list()
    if not specs:
        return ()
    by_queue: dict[str, list[OpinionGiven]] = defaultdict(list)
    for opinion in await Opinions(bus).latest():
        by_queue[opinion.queue].append(opinion)
    found = []
    for spec in specs:
        frame, _ = await Frames(bus).load(spec.name)
        opinions = [one for one in by_queue[spec.name] if spec.has(one)]
        found.append(QueueSamples(spec, frame, opinions, version_of))
    return tuple(found)


def counted(labelled: Iterable[Labelled]) -> list[Labelled]:
    """Those of which either judge decided a fact."""
    return [one for one in labelled if one.known or one.judged_known]


def _answer(opinions: Sequence[OpinionGiven], version_of: VersionOf) -> ReviewedAnswer:
    """What the reviewers of one answer say of it on average."""
    first = opinions[0]
    sums: dict[str, list[int]] = {}
    for opinion in opinions:
        for fact in opinion.facts:
            if fact.removed or fact.decision is Decision.UNDECIDED:
                continue
            for category in {ALL, fact.category}:
                both = sums.setdefault(category, [0, 0])
                both[0] += fact.decision is Decision.REFUTED
                both[1] += 1
    return ReviewedAnswer(
        key=first.key,
        version=version_of(first.tags),
        recorded_at=first.recorded_at,
        weight=first.weight,
        probability=first.probability,
        facts={name: (wrong / len(opinions), known / len(opinions)) for name, (wrong, known) in sums.items()},
        judged=first.judged,
    )


def _copied(sums: WeightedSums) -> WeightedSums:
    return msgspec.convert(msgspec.to_builtins(sums), WeightedSums)


BYS: tuple[By, ...] = ("people", "model")

KEY = "corrected"
MOST_SERIES = 500

NOBODY = "no opinion"
FEW = "fewer than {} opinions: these alone are told"
UNDECIDED = "no opinion decides a fact"


class CorrectedRates(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue's corrected rates, computed `at` (seconds since the epoch)."""

    at: float = 0.0
    rows: tuple[CorrectedRow, ...] = ()


async def read_corrected(bus: Bus) -> CorrectedRates:
    """Those that the annotation service wrote down last. Raises `Unavailable`."""
    return await Bucket(bus, QUEUES_BUCKET).read_as(KEY, CorrectedRates) or CorrectedRates()


async def write_corrected(bus: Bus, rates: CorrectedRates) -> bool:
    """Whether it was written: another replica may write at the same time."""
    return await Bucket(bus, QUEUES_BUCKET).replace(KEY, ENCODER.encode(rates))


async def compute_corrected(bus: Bus, version_of: VersionOf) -> tuple[CorrectedRow, ...]:
    """Of every queue, in the order of making. Raises `Unavailable`."""
    return tuple(row for queue in await read_samples(bus, version_of) for row in rows_of(queue))


def corrected_metrics(metrics: Metrics, rows: Sequence[CorrectedRow]) -> None:
    """Show those of each queue that have a number, each under its labels alone."""
    gauges = (
        metrics.corrected_rate,
        metrics.corrected_rate_low,
        metrics.corrected_rate_high,
        metrics.corrected_judged,
        metrics.corrected_opinions,
    )
    for gauge in gauges:
        gauge.clear()
    told = [(row, row.corrected) for row in rows if row.corrected is not None]
    for row, found in told[:MOST_SERIES]:
        names = (row.queue, row.model, row.version, row.protocol, row.fingerprint, row.category, row.by)
        labels = [name.encode("utf-8", "replace").decode()[:128] for name in names]
        judged = row.judged.value if row.judged is not None else math.nan
        values = (found.value, found.low, found.high, judged, row.opinions)
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(*labels).set(value)


def rows_of(queue: QueueSamples) -> list[CorrectedRow]:
    """By model, version and set of judges, and for `*` of all versions together."""
    rows = []
    for by in BYS:
        for group in sorted(queue.populations):
            sample = queue.sample(by, group)
            if sample.labelled or by == "people":
                rows.append(_row(queue.spec, group, by, sample))
    return rows


def _row(spec: QueueSpec, named: FrameGroup, by: By, sample: Sample) -> CorrectedRow:
    model, version, protocol, judges, category = named
    labelled = counted(sample.labelled)
    found = corrected_rate(sample.population, labelled)
    reason = ""
    if found is None:
        reason = UNDECIDED if labelled else NOBODY
    elif found.opinions < LEAST:
        reason = FEW.format(LEAST)
    return CorrectedRow(
        queue=spec.name,
        model=model,
        version=version,
        protocol=protocol,
        fingerprint=judges,
        category=category,
        by=by,
        judged=_judged(sample.population),
        corrected=found.interval if found is not None else None,
        labels_alone=found.labels_alone if found is not None else None,
        opinions=len(labelled),
        tuning=found.tuning if found is not None else 0.0,
        for_half=found.for_half if found is not None else None,
        reason=reason,
        whole=_whole(spec),
    )


def _whole(spec: QueueSpec) -> bool:
    filters = (spec.tenant, spec.tag, spec.category, spec.verdict, spec.alarm, spec.version)
    return not any(filters)


NO_OPINION = "no second opinion about {}: make a queue of its answers and review it"


class _Side(NamedTuple):
    """What the queue with the most opinions tells of one side; `queue` is empty where none has any."""

    queue: str
    sample: Sample

    @property
    def opinions(self) -> int:
        return len(self.sample.labelled)

    @property
    def rate(self) -> Interval | None:
        found = corrected_rate(self.sample.population, self.sample.labelled)
        return found.interval if found is not None else None


NOTHING = _Side("", Sample(WeightedSums(), ()))


def compare_versions(
    versions: Iterable[VersionReport], queues: Sequence[QueueSamples], model: str, first: str, second: str
) -> tuple[VersionComparison, ...]:
    """The two versions side by side, for each protocol and set of judges that have judged both."""
    of_model = [one for one in versions if one.model == model]
    found = []
    for one in of_model:
        for other in of_model:
            if (one.protocol, one.fingerprint) != (other.protocol, other.fingerprint):
                continue
            if (one.version, other.version) != (first, second):
                continue
            judges = (one.protocol, one.fingerprint)
            found.append(
                VersionComparison(
                    model=model,
                    protocol=one.protocol,
                    fingerprint=one.fingerprint,
                    first=one,
                    second=other,
                    difference=_less(one.hallucination_rate, other.hallucination_rate),
                    corrected=version_differences(queues, model, *judges, first, second),
                )
            )
    return tuple(found)


def version_differences(
    queues: Sequence[QueueSamples], model: str, protocol: str, judges: str, first: str, second: str
) -> tuple[VersionDifference, ...]:
    """Of all facts, then by category where both versions have opinions."""
    versions = (first, second)
    # Of people where both versions have opinions of people; else of a model where both have some.
    told = [(by, [_of_version(queues, by, model, one, protocol, judges) for one in versions]) for by in BYS]
    by, chosen = next(
        (one for one in told if all(one[1])), next((one for one in told if any(one[1])), told[0])
    )
    categories = [ALL]
    if chosen[0] is not None and chosen[1] is not None:
        categories += sorted(
            {
                group[4]
                for group in chosen[0].populations
                if group[:4] == (model, first, protocol, judges)
                and (model, second, protocol, judges, group[4]) in chosen[1].populations
            }
            - {ALL}
        )
    rows = []
    for category in categories:
        sides = []
        for queue, version in zip(chosen, versions, strict=True):
            if queue is None:
                sides.append(NOTHING)
                continue
            sample = queue.sample(by, (model, version, protocol, judges, category))
            sides.append(_Side(queue.spec.name, Sample(sample.population, counted(sample.labelled))))
        rows.append(_difference(category, by, versions, (sides[0], sides[1])))
    return tuple(rows)


def correct_alarms(
    queues: Sequence[QueueSamples], raised: Iterable[Raised], among: Iterable[Raised]
) -> tuple[CorrectedAlarm, ...]:
    """Of each alarm whether the corrected rate rose too.

    The answers before it are those since the alarm of its kind before it was over; these are looked for
    `among` others.
    """
    ends: dict[tuple[str, str], list[float]] = {}
    for other in among:
        if other.recovered_at is not None:
            ends.setdefault((other.alarm.protocol, other.alarm.key), []).append(other.recovered_at)
    found = []
    for one in raised:
        over = ends.get((one.alarm.protocol, one.alarm.key), ())
        begin = max((end for end in over if end <= one.alarm.since), default=0.0)
        found.append(correct_alarm(queues, one.alarm, begin=begin, end=one.recovered_at))
    return tuple(found)


def correct_alarm(
    queues: Sequence[QueueSamples], alarm: AlarmRaised, *, begin: float = 0.0, end: float | None = None
) -> CorrectedAlarm:
    """Whether the corrected rate rose too, from answers recorded from `begin` to `since` to `end`.

    The first judges' sums have no time in them. They count for a queue that was drawn from one side alone;
    of another the opinions of each side tell without them, which is right and has a wider interval. Of a
    category these are the answers in which the first judges decided a fact of it, on either side.
    """
    several = [queue for queue in queues if _tells_of_alarm(queue.spec, alarm)]
    told: list[tuple[By, _Side, _Side]] = []
    for by in BYS:
        before = [_before(queue, by, alarm, begin) for queue in several]
        after = [_after(queue, by, alarm, end) for queue in several]
        most = [max(sides, key=lambda side: side.opinions, default=NOTHING) for sides in (before, after)]
        told.append((by, most[0], most[1]))
    # People go before models, where they have said enough.
    by, first, second = max(
        told, key=lambda one: (min(LEAST, one[1].opinions, one[2].opinions), one[0] == "people")
    )
    opinions = (first.opinions, second.opinions)
    found = corrected_difference(first.sample, second.sample)
    state: Literal["rose", "not_shown", "too_few"] = "too_few"
    if found is not None and min(opinions) >= LEAST:
        state = "rose" if found.interval.low > 0 else "not_shown"
    return CorrectedAlarm(
        state=state,
        by=by,
        queues=(first.queue, second.queue),
        opinions=opinions,
        before=first.rate,
        after=second.rate,
        difference=found.interval if found is not None else None,
    )


def _difference(
    category: str, by: By, versions: tuple[str, str], sides: tuple[_Side, _Side]
) -> VersionDifference:
    found = corrected_difference(sides[0].sample, sides[1].sample)
    opinions = (sides[0].opinions, sides[1].opinions)
    missing = [version for version, number in zip(versions, opinions, strict=True) if not number]
    reason = ""
    if missing:
        reason = NO_OPINION.format(" and ".join(missing))
    elif found is None:
        reason = UNDECIDED
    elif min(opinions) < LEAST:
        reason = FEW.format(LEAST)
    judged = (_judged(sides[0].sample.population), _judged(sides[1].sample.population))
    return VersionDifference(
        category=category,
        by=by,
        queues=(sides[0].queue, sides[1].queue),
        opinions=opinions,
        judged=judged,
        judged_difference=_less(*judged),
        corrected=(sides[0].rate, sides[1].rate),
        difference=found.interval if found is not None else None,
        labels_alone=found.labels_alone if found is not None else None,
        reason=reason,
    )


def _of_version(
    queues: Sequence[QueueSamples], by: By, model: str, version: str, protocol: str, judges: str
) -> QueueSamples | None:
    """The queue with the most opinions of those that were drawn from all answers of this version."""
    group = (model, version, protocol, judges, ALL)
    numbers = [
        (len(counted(queue.sample(by, group).labelled)), queue)
        for queue in queues
        if not _narrows(queue.spec) and queue.spec.version in ("", version) and not queue.spec.category
    ]
    number, found = max(numbers, key=lambda one: one[0], default=(0, None))
    return found if number else None


def _tells_of_alarm(spec: QueueSpec, alarm: AlarmRaised) -> bool:
    """Whether it was drawn from all answers with facts of the alarm's category, at some time."""
    return not _narrows(spec) and not spec.version and spec.category in ("", alarm.category)


def _narrows(spec: QueueSpec) -> bool:
    """Whether it was drawn from a part of the answers that may be better or worse than others."""
    return bool(spec.tenant or spec.tag or spec.verdict)


def _before(queue: QueueSamples, by: By, alarm: AlarmRaised, begin: float) -> _Side:
    whole = begin <= queue.spec.since and 0 < queue.spec.until < alarm.since
    return _side(queue, by, alarm, lambda one: begin <= one.recorded_at < alarm.since, whole=whole)


def _after(queue: QueueSamples, by: By, alarm: AlarmRaised, end: float | None) -> _Side:
    def wanted(one: ReviewedAnswer) -> bool:
        return one.recorded_at >= alarm.since and (end is None or one.recorded_at <= end)

    return _side(queue, by, alarm, wanted, whole=queue.spec.since >= alarm.since and end is None)


def _side(
    queue: QueueSamples, by: By, alarm: AlarmRaised, wanted: Callable[[ReviewedAnswer], bool], *, whole: bool
) -> _Side:
    """With the first judges' sums where all of what the queue was drawn from is on this side."""
    group = (alarm.model, EVERY_VERSION, alarm.protocol, alarm.fingerprint, alarm.category)

    def of_category(one: ReviewedAnswer) -> bool:
        decided = alarm.category == ALL or one.judged.get(alarm.category, (0, 0))[1] > 0
        return decided and wanted(one)

    labelled = counted(queue.labelled(by, group, of_category))
    population = queue.populations.get(group) if whole else None
    return _Side(queue.spec.name, Sample(population or WeightedSums(), labelled))


def _judged(population: WeightedSums) -> Interval | None:
    return weighted_rate(population) if population.plain.clusters else None


def _less(first: Interval | None, second: Interval | None) -> Interval | None:
    return difference(first, second) if first is not None and second is not None else None


class RateTable:
    """The corrected rates of whole queues, by what they are of, each of enough opinions. Of several about the
    same, people go before models, then more opinions before fewer."""

    def __init__(self, rows: Iterable[CorrectedRow]) -> None:
        self._rows: dict[tuple[str, str, str, str, str], CorrectedRow] = {}
        for row in sorted(rows, key=lambda one: (one.by == "people", one.opinions)):
            if row.whole and row.corrected is not None and row.opinions >= LEAST:
                key = (row.model, row.protocol, row.fingerprint, row.version, row.category)
                self._rows[key] = row

    def row(
        self,
        model: str,
        protocol: str,
        fingerprint: str,
        *,
        version: str = EVERY_VERSION,
        category: str = "all",
    ) -> CorrectedRow | None:
        return self._rows.get((model, protocol, fingerprint, version, category))

    def rate(self, model: str, protocol: str, fingerprint: str, **narrower: str) -> Interval | None:
        row = self.row(model, protocol, fingerprint, **narrower)
        return row.corrected if row is not None else None


SECONDS = 2.0
"""What was read is used for so long, whoever asks."""

TIMEOUT = 5.0
"""Seconds that a reading may take."""

REST = 20.0
"""And so many times as long as the reading took: it never is more than a twentieth of the time."""

NAMES = ("run", "protocol", "model", "category", "fingerprint", "raised_at")
"""Fields that tell one alarm from all others."""


class Corrections:
    """Reads queues and opinions anew when they are older than that. Where they cannot be read, what was read
    last counts."""

    def __init__(self, bus: Bus, version_of: VersionOf) -> None:
        self._bus = bus
        self._version_of = version_of
        self._queues: Sequence[QueueSamples] | None = None
        self._until = 0.0
        self._turn = asyncio.Lock()

    async def versions(
        self, versions: Iterable[VersionReport], model: str, first: str, second: str
    ) -> tuple[VersionComparison, ...]:
        """Raises `Unavailable` where no opinions could be read yet."""
        queues = await self._current()
        return await asyncio.to_thread(compare_versions, versions, queues, model, first, second)

    async def alarms(self, raised: Sequence[Raised], among: Sequence[Raised]) -> tuple[CorrectedAlarm, ...]:
        """Of each alarm whether the corrected rate rose too, nothing where no opinions could be read yet;
        `among` are those that may have gone before."""
        if not raised:
            return ()
        try:
            queues = await self._current()
        except Unavailable:
            return ()
        return await asyncio.to_thread(correct_alarms, queues, raised, among)

    async def add_to(self, rows: Iterable[dict[str, Any]], raised: Sequence[Raised]) -> None:
        """Add `corrected` to rows that tell of these alarms, None where no opinions could be read yet."""
        raised = tuple(raised)
        corrected = await self.alarms(raised, raised)
        found = {
            tuple(getattr(one.alarm, name) for name in NAMES): told
            for one, told in zip(raised, corrected, strict=False)
        }
        for row in rows:
            row["corrected"] = found.get(tuple(row[name] for name in NAMES))

    async def _current(self) -> Sequence[QueueSamples]:
        async with self._turn:
            begun = time.monotonic()
            if begun >= self._until:
                try:
                    async with asyncio.timeout(TIMEOUT):
                        self._queues = await read_samples(self._bus, self._version_of)
                except (GroundwatchError, TimeoutError) as error:
                    why = str(error) or f"it took longer than {TIMEOUT:g} s"
                    logger.warning("gateway.opinions_not_read", error=why)
                now = time.monotonic()
                self._until = now + max(SECONDS, REST * (now - begun))
            if self._queues is None:
                raise Unavailable("second opinions cannot be read at this moment: try again")
            return self._queues
