"""Differences of corrected rates: of two versions of a model, and of the answers before and after a turn.

What is compared are different answers, so the two sides are independent, each from the queue that has the
most opinions about it. Both are told by people, or both by a better model. Pure, but for what it is given.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from groundwatch.events import AlarmRaised
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.compare.versions import VersionComparison
from groundwatch.reporting.corrected import EVERY_VERSION, By, CorrectedAlarm, VersionDifference
from groundwatch.reporting.trends import VersionReport
from groundwatch.reviews.corrected import FEW, UNDECIDED
from groundwatch.reviews.queues import QueueSpec
from groundwatch.reviews.samples import Answer, QueueSamples, counted
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval, difference
from groundwatch.statistics.prediction_powered import LEAST, Sample, corrected_difference, corrected_rate
from groundwatch.statistics.sampling import WeightedSums, weighted_rate

BYS: tuple[By, ...] = ("people", "model")

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
    def wanted(one: Answer) -> bool:
        return one.recorded_at >= alarm.since and (end is None or one.recorded_at <= end)

    return _side(queue, by, alarm, wanted, whole=queue.spec.since >= alarm.since and end is None)


def _side(
    queue: QueueSamples, by: By, alarm: AlarmRaised, wanted: Callable[[Answer], bool], *, whole: bool
) -> _Side:
    """With the first judges' sums where all of what the queue was drawn from is on this side."""
    group = (alarm.model, EVERY_VERSION, alarm.protocol, alarm.fingerprint, alarm.category)

    def of_category(one: Answer) -> bool:
        decided = alarm.category == ALL or one.judged.get(alarm.category, (0, 0))[1] > 0
        return decided and wanted(one)

    labelled = counted(queue.labelled(by, group, of_category))
    population = queue.populations.get(group) if whole else None
    return _Side(queue.spec.name, Sample(population or WeightedSums(), labelled))


def _judged(population: WeightedSums) -> Interval | None:
    return weighted_rate(population) if population.plain.clusters else None


def _less(first: Interval | None, second: Interval | None) -> Interval | None:
    return difference(first, second) if first is not None and second is not None else None
