"""The answers around a turn of a model: what it said before and after, and what else was different."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from groundwatch.errors import UNDECODED
from groundwatch.events import AlarmRaised, Decision, OutcomeKind, ResponseScored
from groundwatch.keys import response_key
from groundwatch.reporting.sums import facts_of
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.partitioned import last_before
from groundwatch.runtime.delivery.streams import Read
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval
from groundwatch.statistics.sampling import WeightedSums, weight, weighted_rate
from groundwatch.topology import OUTCOMES, run_subjects, subject_of
from groundwatch.topology.partitions import partition_of_subject, stream_in, subjects_in

READ = 1_500
"""Outcomes of the protocol, of all models, that are read before the turn, and behind it."""

LENGTHS = (0, 26, 76)
"""Words of short, middling and long answers, at least."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answers in a stretch of time, from `first` to `last` (when they were recorded).

    `versions`, `judges` and `tenants` count answers; `words` is their mean length, `lengths` the shares of
    those with at least so many words as `LENGTHS` says; `rate` is that of facts of the alarm's category.
    """

    answers: int
    first: float
    last: float
    rate: Interval | None
    versions: dict[str, int]
    judges: dict[str, int]
    tenants: dict[str, int]
    words: float | None
    lengths: tuple[float, ...]
    unscored: int

    @property
    def per_hour(self) -> float | None:
        return 3600 * (self.answers - 1) / (self.last - self.first) if self.last > self.first else None


class WrongAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with facts of the alarm's category that are not in its image, by sentence."""

    event: ResponseScored
    sentences: list[tuple[str, list[str]]]
    refuted: int
    decided: int


class Around(msgspec.Struct, frozen=True, kw_only=True):
    before: Traffic
    after: Traffic
    wrong_before: list[WrongAnswer]
    wrong_after: list[WrongAnswer]


async def read_around(
    bus: Bus, alarm: AlarmRaised, version_of: Callable[[Mapping[str, str]], str], most: int = 12
) -> Around:
    """Before the turn and from there to the alarm, of each the `most` answers with the most wrong facts.

    Raises what NATS and the archive raise.
    """
    before: list[ResponseScored] = []
    after: list[ResponseScored] = []
    history = bus.history.of_one_partition
    share = max(50, READ // bus.partitions)
    raised = await _raising(bus, alarm)
    for partition in range(bus.partitions):
        stream = stream_in(OUTCOMES, partition)
        turn = await last_before(history, stream, alarm.since)
        first, last = turn - share + 1, turn + share
        if raised is not None:
            here = partition == partition_of_subject(raised.subject)
            end = raised.sequence if here else await last_before(history, stream, raised.time)
            # What is judged long after it was recorded does not lie where its time says.
            first, last = (end - 2 * share, end) if not 0 < turn <= end else (first, min(last, end))
        reading = history.read(
            stream,
            subjects=subjects_in([run_subjects("outcome", alarm.run, alarm.protocol)], partition),
            start_sequence=max(1, first),
            last_sequence=last,
        )
        async with contextlib.aclosing(reading):
            async for read in reading:
                try:
                    event = _DECODER.decode(read.data)
                except UNDECODED:
                    continue
                if event.model != alarm.model:
                    continue
                if event.recorded_at < alarm.since:
                    before.append(event)
                elif event.recorded_at <= alarm.raised_at:
                    after.append(event)
    return Around(
        before=_traffic(before, alarm.category, version_of),
        after=_traffic(after, alarm.category, version_of),
        wrong_before=_wrong(before, alarm.category, most),
        wrong_after=_wrong(after, alarm.category, most),
    )


async def _raising(bus: Bus, alarm: AlarmRaised) -> Read | None:
    """The outcome that raised the alarm, where it is known which."""
    if not alarm.response_id:
        return None
    for partition in range(bus.partitions):
        key = response_key(alarm.tenant, alarm.response_id, partition)
        found = await bus.history.last(OUTCOMES, subject_of("outcome", alarm.run, alarm.protocol, key))
        if found is not None:
            return found
    return None


def _traffic(
    events: Sequence[ResponseScored], category: str, version_of: Callable[[Mapping[str, str]], str]
) -> Traffic:
    facts = WeightedSums()
    versions: Counter[str] = Counter()
    judges: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    for event in events:
        versions[version_of(event.tags)] += 1
        tenants[event.tenant] += 1
        if event.outcome is not OutcomeKind.SCORED:
            continue
        for stage, judge in sorted(event.judges.items()):
            judges[f"{stage}: {judge.model or judge.engine} ({judge.fingerprint})"] += 1
        facts.add(*facts_of(event).get(category, (0, 0)), weight(event.drawn))
    scored = [event for event in events if event.outcome is OutcomeKind.SCORED]
    times = [event.recorded_at for event in events]
    words = tuple(event.answer_words for event in scored)
    return Traffic(
        answers=len(events),
        first=min(times, default=0.0),
        last=max(times, default=0.0),
        rate=weighted_rate(facts),
        versions=dict(versions.most_common(6)),
        judges=dict(judges.most_common(6)),
        tenants=dict(tenants.most_common(6)),
        words=sum(words) / len(words) if words else None,
        lengths=_shares(words),
        unscored=len(events) - len(scored),
    )


def _shares(words: Sequence[int]) -> tuple[float, ...]:
    found = Counter(sum(number >= start for start in LENGTHS[1:]) for number in words)
    return tuple(found[place] / len(words) for place in range(len(LENGTHS))) if words else ()


def _wrong(events: Sequence[ResponseScored], category: str, most: int) -> list[WrongAnswer]:
    """Those with the most wrong facts of the category; of equals the latest."""
    found = []
    for event in events:
        wrong = [
            claim
            for claim in event.claims
            if claim.decision is Decision.REFUTED and category in (ALL, claim.category)
        ]
        if not wrong:
            continue
        by_unit: dict[int, list[str]] = {}
        for claim in wrong:
            by_unit.setdefault(claim.unit, []).append(claim.text)
        sentences = [
            (event.units[unit].text.strip() if 0 <= unit < len(event.units) else texts[0], texts)
            for unit, texts in sorted(by_unit.items())
        ]
        decided = sum(
            claim.decision is not Decision.UNDECIDED and category in (ALL, claim.category)
            for claim in event.claims
        )
        found.append(WrongAnswer(event=event, sentences=sentences, refuted=len(wrong), decided=decided))
    found.sort(key=lambda one: (-one.refuted, -one.event.recorded_at))
    return found[:most]
