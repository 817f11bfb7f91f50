"""Draws queues from the outcomes of live traffic: which belong to a queue, and with which probability each is
drawn into it.

Whether one is drawn depends on the queue's salt and the response's key alone, beside the probability: any
replica, and any repeat, draws the same. Each queue goes on behind the sequences up to which its frame counts.
Items are written before the frame: a crash between the two draws the same items again, which adds nothing. Of
two replicas that have read the same one writes the frame, and the other goes on from what that one wrote.
"""

import asyncio
import contextlib
import heapq
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from math import exp, sqrt
from typing import Generic, NamedTuple, TypeVar

import msgspec

from groundwatch.conversations.conversation import LOGPROB
from groundwatch.events import LIVE, Decision, LeftOutKind, OutcomeKind, ResponseScored
from groundwatch.reviews.queues import Frame, Frames, Item, Items, QueueSpec, item_of
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import last_before
from groundwatch.runtime.delivery.streams import Position, decoded, position_of
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.sampling import uniform
from groundwatch.topology import OUTCOMES, PREFIX, parse_subject
from groundwatch.topology.partitions import stream_in, subjects_in

FLOOR = 0.2
"""Of an answer of which the judge is sure, this part of the share is drawn all the same."""

DISAGREED = 4.0
"""So many times as likely is an answer drawn on which judges disagree."""

UNKNOWN = 0.25
"""p(1 - p) of a claim that was not decided and has no probability."""

SURE = 0.01
"""p(1 - p) of a claim of which a judge is quite sure, as far as other signals go."""

T = TypeVar("T")


def matches(spec: QueueSpec, event: ResponseScored, version: str) -> bool:
    """Whether the queue is drawn from this outcome among others."""
    if event.outcome is not OutcomeKind.SCORED or not event.claims or event.protocol != spec.protocol:
        return False
    if spec.model not in ("", event.model) or spec.tenant not in ("", event.tenant):
        return False
    if spec.version not in ("", version):
        return False
    if event.recorded_at < spec.since or (spec.until and event.recorded_at > spec.until):
        return False
    if spec.tag:
        name, _, value = spec.tag.partition("=")
        if event.tags.get(name) != value:
            return False
    if not spec.category and spec.verdict is None:
        return True
    return any(
        spec.category in ("", claim.category) and spec.verdict in (None, claim.decision)
        for claim in event.claims
    )


def uncertainty(event: ResponseScored) -> float:
    """The standard deviation of how many claims do not hold, if each does with the judge's probability and
    on its own: √Σ p(1 - p). Of claims that were decided without a probability nothing is added."""
    total = 0.0
    for claim in event.claims:
        p = claim.probability
        if p is not None:
            total += p * (1 - p)
        elif claim.decision is Decision.UNDECIDED:
            total += UNKNOWN
    return sqrt(total)


def signals(event: ResponseScored) -> float:
    """As `uncertainty`, with what else speaks for a closer look; none of it is ever a verdict or a score.

    A claim counts once at the answer's beginning and up to twice at its end, where models invent more, and
    never for nothing; without a probability the surest box of the detector stands for it. Words in a language
    that was not read double the whole, and so, at most, does an unlikely wording: the tag `logprob`, the mean
    log-probability of the answer's tokens.
    """
    total = 0.0
    for at, claim in enumerate(event.claims):
        p = claim.probability
        if p is None:
            p = max((box.score for box in claim.boxes), default=0.5)
        total += max(p * (1 - p), SURE) * (1 + at / len(event.claims))
    try:
        wording = min(1.0, max(0.0, exp(float(event.tags.get(LOGPROB, "0")))))
    except (ValueError, OverflowError):
        wording = 1.0
    unread = any(one.kind is LeftOutKind.LANGUAGE for one in event.left_out)
    return sqrt(total) * (2 - wording) * (1 + unread)


def doubt(spec: QueueSpec, event: ResponseScored) -> float:
    """What an answer of a queue is drawn in proportion to."""
    return signals(event) if spec.rule == "signals" else uncertainty(event)


def measure(spec: QueueSpec, event: ResponseScored, disagreed: bool = False) -> float:
    """How many times as likely as others the answer is to be drawn."""
    match spec.rule:
        case "uncertain" | "signals" if spec.mean_uncertainty > 0:
            return max(FLOOR, doubt(spec, event) / spec.mean_uncertainty)
        case "disagreement" if disagreed:
            return DISAGREED
    return 1.0


def probability(spec: QueueSpec, measured: float) -> float:
    """With which an answer of this measure is drawn as it comes; never 0."""
    return min(1.0, spec.share * measured)


def position(spec: QueueSpec, key: str) -> float:
    """The number in [0, 1) below whose probability an answer is drawn."""
    return uniform(spec.salt, key)


def order(spec: QueueSpec, key: str) -> float:
    """Where an item stands in its queue; says nothing of why it was drawn."""
    return uniform(spec.salt, "order", key)


class _Ranked(NamedTuple, Generic[T]):
    rank: float
    name: str
    measure: float
    item: T


class SequentialPoisson(Generic[T]):
    """Draws a fixed number of many, each with a probability in proportion to its measure (Ohlsson 1998).

    Those with the smallest ratio of a uniform number to the measure are drawn; where a measure would need a
    probability above 1, it is drawn for sure, and the others share what is left. With equal measures that is
    a simple random sample, and the probabilities are exact. Holds no more than twice what it draws.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.number = 0
        self._total = 0.0
        # heapq keeps the smallest first: both are of what is worst to have.
        self._smallest: list[_Ranked[T]] = []
        self._largest: list[_Ranked[T]] = []

    def add(self, name: str, measured: float, uniform: float, item: T) -> None:
        """`name` tells items apart, and decides between equal ones."""
        self.number += 1
        self._total += measured
        self._keep(self._smallest, _Ranked(-uniform / measured, name, measured, item))
        self._keep(self._largest, _Ranked(measured, name, measured, item))

    def drawn(self) -> list[tuple[T, float]]:
        """What is drawn, with its probability."""
        if self.number <= self._size:
            return [(one.item, 1.0) for one in self._smallest]
        left, total = self._size, self._total
        sure: dict[str, _Ranked[T]] = {}
        for one in sorted(self._largest, key=lambda one: (-one.measure, one.name)):
            if left <= 0 or left * one.measure < total * (1 - 1e-12):
                break
            sure[one.name] = one
            left, total = left - 1, total - one.measure
        rest = sorted((one for one in self._smallest if one.name not in sure), key=lambda one: -one.rank)
        found = [(one.item, 1.0) for one in sure.values()]
        return found + [(one.item, left * one.measure / total) for one in rest[:left]]

    def _keep(self, heap: list[_Ranked[T]], one: _Ranked[T]) -> None:
        ranked = _Ranked(one.rank, one.name, one.measure, one.item)
        if len(heap) < self._size:
            heapq.heappush(heap, ranked)
        elif ranked[:2] > heap[0][:2]:
            heapq.heapreplace(heap, ranked)


def disagree(event: ResponseScored, others: Iterable[ResponseScored]) -> bool:
    """Whether another judge of the same answer decided otherwise: on a claim of the same text, or, for
    another protocol, on whether anything does not hold."""
    mine = {claim.text: claim.decision for claim in event.claims}
    wrong = _any_refuted(event)
    for other in others:
        if other.outcome is not OutcomeKind.SCORED:
            continue
        if other.protocol == event.protocol:
            for claim in other.claims:
                said = mine.get(claim.text, Decision.UNDECIDED)
                if Decision.UNDECIDED not in (said, claim.decision) and said is not claim.decision:
                    return True
        elif None not in (wrong, there := _any_refuted(other)) and wrong is not there:
            return True
    return False


def _any_refuted(event: ResponseScored) -> bool | None:
    decided = {claim.decision for claim in event.claims} - {Decision.UNDECIDED}
    return Decision.REFUTED in decided if decided else None


SUBJECT = f"{PREFIX}.outcome.{LIVE}.*.*"
STEP = 20_000
"""Sequences that are read for one queue before others have their turn."""

LATEST = 5_000
"""Sequences of each partition that a mean is taken of."""

AT_ONCE = 32
SAVE_SECONDS = 10.0
SKEW_SECONDS = 60.0
"""By which the clocks of who records and of NATS may differ."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class _Open(msgspec.Struct):
    """A queue that takes what comes, as this process knows it. `saved` is when it was last written, by the
    monotonic clock."""

    spec: QueueSpec
    frame: Frame
    revision: int
    saved: float
    changed: bool = False


class QueueReader:
    """Reads outcomes for all queues that are open."""

    def __init__(self, bus: Bus, items: Items, version_of: Callable[[Mapping[str, str]], str]) -> None:
        """`version_of` finds a model's version among a response's tags."""
        self._bus = bus
        self._items = items
        self._frames = Frames(bus)
        self._version_of = version_of
        self._open: dict[str, _Open] = {}

    async def go_on(self, specs: Sequence[QueueSpec]) -> set[str]:
        """Bring queues that take what comes up to what is recorded now, or `STEP` sequences nearer; which of
        them have changed. Those that are not named are forgotten.

        Raises `GroundwatchError` and what NATS raises; what was read and not written is then read again.
        """
        ends = await self._ends()
        changed = set[str]()
        wanted = {spec.name: spec for spec in specs}
        for name in self._open.keys() - wanted.keys():
            del self._open[name]
        for spec in wanted.values():
            known = self._open.get(spec.name)
            made = {partition: end.created for partition, end in enumerate(ends)}
            if known is None or known.spec != spec or known.frame.streams != made:
                self._open[spec.name] = await self._begin(spec, ends)
        for partition, end in enumerate(ends):
            changed |= await self._go_on(partition, end)
        return changed

    async def _begin(self, spec: QueueSpec, ends: Sequence[Position]) -> _Open:
        """The queue as it was last written, or with nothing drawn of what was recorded before `since`."""
        frame, revision = await self._frames.load(spec.name)
        for partition, end in enumerate(ends):
            if frame.streams.get(partition) == end.created:
                # A stream that came back with an older state goes on from there.
                frame.sequences[partition] = min(frame.sequences[partition], end.last)
                continue
            # New, or a stream that was made anew and counts from 1.
            history, stream = self._bus.history.of_one_partition, stream_in(OUTCOMES, partition)
            frame.sequences[partition] = await last_before(history, stream, spec.since - SKEW_SECONDS)
            frame.streams[partition] = end.created
        return _Open(spec, frame, revision, time.monotonic())

    async def _go_on(self, partition: int, end: Position) -> set[str]:
        groups: dict[int, list[_Open]] = {}
        for one in self._open.values():
            if one.frame.sequences[partition] < end.last:
                groups.setdefault(one.frame.sequences[partition], []).append(one)
        changed = set[str]()
        # Those that are nearest first: they have only what is new.
        for begin in sorted(groups, reverse=True):
            try:
                changed |= await self._read_for(groups[begin], partition, begin, min(end.last, begin + STEP))
            except BaseException:
                # Counted, and not written: read again from what is written.
                for one in groups[begin]:
                    self._open.pop(one.spec.name, None)
                raise
        return changed

    async def _read_for(self, several: Sequence[_Open], partition: int, begin: int, last: int) -> set[str]:
        protocols = {one.spec.protocol for one in several}
        async with contextlib.aclosing(
            outcomes_between(self._bus, partition, begin + 1, last, protocols)
        ) as reading:
            async for events in reading:
                items = [item for one in several for item in await self._taken(one, events)]
                await self._create(items)
        written = set[str]()
        for one in several:
            one.frame.sequences[partition] = last
            if one.changed or time.monotonic() - one.saved > SAVE_SECONDS:
                revision = await self._frames.save(one.frame, one.revision)
                if not revision:
                    # Another replica was faster: go on from there.
                    del self._open[one.spec.name]
                    continue
                if one.changed:
                    written.add(one.spec.name)
                one.revision, one.saved, one.changed = revision, time.monotonic(), False
        return written

    async def _taken(self, one: _Open, events: Sequence[ResponseScored]) -> list[Item]:
        """Count what the queue is drawn from, and give what is drawn."""
        items = []
        found = self._matching(one.spec, events)
        measures = await self._measures(one.spec, [event for event, _ in found])
        for (event, version), measured in zip(found, measures, strict=True):
            one.frame.add(event, version)
            one.changed = True
            likely = probability(one.spec, measured)
            if position(one.spec, event.key) < likely:
                one.frame.drawn += 1
                items.append(self._item(one.spec, event, version, likely))
        return items

    def _matching(
        self, spec: QueueSpec, events: Sequence[ResponseScored]
    ) -> list[tuple[ResponseScored, str]]:
        """Those that the queue is drawn from, with the version of their model."""
        found = ((event, self._version_of(event.tags)) for event in events)
        return [(event, version) for event, version in found if matches(spec, event, version)]

    async def _measures(self, spec: QueueSpec, events: Sequence[ResponseScored]) -> list[float]:
        if spec.rule != "disagreement":
            return [measure(spec, event) for event in events]
        found = []
        for begin in range(0, len(events), AT_ONCE):
            some = events[begin : begin + AT_ONCE]
            others = await asyncio.gather(*map(self._others, some))
            found += [
                measure(spec, event, disagree(event, several))
                for event, several in zip(some, others, strict=True)
            ]
        return found

    async def _others(self, event: ResponseScored) -> list[ResponseScored]:
        """What other runs, and other protocols, say of the same answer."""
        found = []
        reading = self._bus.history.read(OUTCOMES, subjects=[f"{PREFIX}.outcome.*.*.{event.key}"])
        async with contextlib.aclosing(reading):
            async for read in reading:
                other = decoded(_DECODER, read)
                if other is not None and (other.run, other.protocol) != (event.run, event.protocol):
                    found.append(other)
        return found

    async def _ends(self) -> list[Position]:
        streams = [stream_in(OUTCOMES, one) for one in range(self._bus.partitions)]
        return [await position_of(self._bus.js, stream) for stream in streams]

    async def draw(self, spec: QueueSpec) -> bool:
        """Draw the items of a queue of a fixed size, unless that was done; whether all is done, by whomever.

        Up to where it is drawn from is written down before it is read: whoever draws, and however often,
        draws from the same. Raises as `go_on` does.
        """
        frame, revision = await self._frames.load(spec.name)
        if not frame.complete and not frame.sequences:
            ends = await self._ends()
            frame.sequences = {partition: end.last for partition, end in enumerate(ends)}
            frame.streams = {partition: end.created for partition, end in enumerate(ends)}
            if not (revision := await self._frames.save(frame, 0)):
                return False
        if frame.complete:
            return True
        poisson: SequentialPoisson[Item] = SequentialPoisson(spec.size)
        for partition, last in frame.sequences.items():
            reading = outcomes_between(self._bus, partition, 1, last, {spec.protocol})
            async with contextlib.aclosing(reading):
                async for events in reading:
                    found = self._matching(spec, events)
                    measures = await self._measures(spec, [event for event, _ in found])
                    for (event, version), measured in zip(found, measures, strict=True):
                        frame.add(event, version)
                        item = self._item(spec, event, version, 0.0)
                        poisson.add(event.key, measured, position(spec, event.key), item)
        drawn = poisson.drawn()
        await self._create([msgspec.structs.replace(item, probability=likely) for item, likely in drawn])
        frame.drawn, frame.complete = len(drawn), True
        if not await self._frames.save(frame, revision):
            return False
        logger.info("annotation.drawn", queue=spec.name, items=len(drawn))
        return True

    async def _create(self, items: Sequence[Item]) -> None:
        for begin in range(0, len(items), AT_ONCE):
            await asyncio.gather(*map(self._items.create, items[begin : begin + AT_ONCE]))

    def _item(self, spec: QueueSpec, event: ResponseScored, version: str, likely: float) -> Item:
        more = {"uncertainty": uncertainty(event), "order": order(spec, event.key)}
        return item_of(spec, event, version, likely, **more)


async def mean_uncertainty(
    bus: Bus, spec: QueueSpec, version_of: Callable[[Mapping[str, str]], str]
) -> float | None:
    """Of the latest outcomes that the queue would be drawn from; None where there are none."""
    total, number = 0.0, 0
    anytime = msgspec.structs.replace(spec, since=0.0, until=0.0)
    for partition in range(bus.partitions):
        end = await position_of(bus.js, stream_in(OUTCOMES, partition))
        reading = outcomes_between(bus, partition, max(1, end.last - LATEST), end.last, {spec.protocol})
        async with contextlib.aclosing(reading):
            async for events in reading:
                for event in events:
                    if matches(anytime, event, version_of(event.tags)):
                        total, number = total + doubt(spec, event), number + 1
    return total / number if number else None


async def outcomes_between(
    bus: Bus, partition: int, first: int, last: int, protocols: set[str]
) -> AsyncGenerator[list[ResponseScored]]:
    """What live traffic has of these protocols between two sequences, batch by batch."""
    reading = bus.history.of_one_partition.batches(
        stream_in(OUTCOMES, partition),
        subjects=subjects_in([SUBJECT], partition),
        start_sequence=first,
        last_sequence=last,
    )
    async with contextlib.aclosing(reading):
        async for several in reading:
            found = []
            for read in several:
                address = parse_subject(read.subject)
                if address is None or address.protocol not in protocols:
                    continue
                if (event := decoded(_DECODER, read)) is not None:
                    found.append(event)
            if found:
                yield found
