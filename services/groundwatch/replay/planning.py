"""Before a replay begins: which part of the stream it reads, whether that is still there, and what it will
cost."""

import heapq
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import nats.errors
import nats.js.errors

from groundwatch.errors import UNDECODED, TransientError, UsageError
from groundwatch.events import (
    DEAD_LETTER,
    UNDECODABLE,
    ClaimsExtracted,
    OutcomeKind,
    ResponseScored,
    Usage,
)
from groundwatch.protocols.base import Stage
from groundwatch.replay.pipeline import Choosing, Item
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.history import History, JoinedHistory, last_before
from groundwatch.runtime.delivery.streams import SKIPPED, position_of
from groundwatch.times import shown_moment
from groundwatch.topology import HEADER_OUTCOME, OUTCOMES, RESPONSES, run_subjects
from groundwatch.topology.partitions import streams_of_kind, subjects_in

LATE = 3_600.0
"""Seconds after which no response recorded earlier comes into the stream any more: intake takes seconds."""

SAMPLE = 2_000
"""Outcomes of live traffic that the cost of a judgement is measured on."""


class Stretch(msgspec.Struct, frozen=True):
    """Sequences `first` to `last` of a stream; empty where `last` is below `first`.

    Of several partitions `parts` has these for each, and `first` to `last` are numbers through all of them.
    """

    first: int
    last: int
    parts: tuple[tuple[int, int], ...] = ()

    def of(self, history: History) -> History:
        """What reads by these numbers."""
        return JoinedHistory(history, self.parts) if self.parts else history.of_one_partition


def joined(parts: Sequence[tuple[int, int]]) -> Stretch:
    """The stretches of all partitions as one."""
    if len(parts) == 1:
        return Stretch(*parts[0])
    return Stretch(1, sum(max(0, last - first + 1) for first, last in parts), tuple(parts))


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What judgements by the source's own judges took: how many there were, and their usage, by protocol;
    `seconds` between neighbouring outcomes while they came."""

    outcomes: Counter[str] = Counter()
    usage: dict[str, Usage] = {}
    seconds: float = 0.0

    def of(self, judged: Mapping[str, int], what: str) -> float | None:
        """What so many judgements of each protocol take, one that was not measured as the others do; None
        where nothing was."""
        if not self.outcomes:
            return None
        every = sum(self.usage.values(), Usage())
        whole: float = sum(
            number
            * getattr(self.usage.get(name, every), what)
            / (self.outcomes[name] or self.outcomes.total())
            for name, number in judged.items()
        )
        return whole


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would do. `read` events are looked at, of which `responses` are selected; `pairs` of a
    response and a protocol get an outcome, of which `declined` are declined as before and `judged` are asked
    about. `chains` are pairs that a replay leaves out. `first` and `last` are times of recording.

    `calls`, tokens, `cost` (US dollars) and `seconds` are what the source's judges took for as many
    judgements, measured on `measured_on` outcomes; None where nothing could be measured. Other judges cost
    something else. They are upper bounds: what the judgement cache knows is not asked again.
    """

    run: str
    source: str
    stage: str
    read: int
    responses: int
    pairs: int
    declined: int
    judged: int
    chains: int
    by_protocol: dict[str, int]
    first: float
    last: float
    measured_on: int
    calls: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    seconds: float | None


async def find_stretch(history: History, spec: Spec) -> Stretch:
    """Where the spec's events can lie.

    Raises `UsageError` when retention has removed a part of the range that was asked for.
    """
    return joined(
        [
            await _find_in(history.of_one_partition, spec, stream, *subjects_in([spec.subjects], partition))
            for partition, stream in enumerate(streams_of_kind(spec.stream, history.partitions))
        ]
    )


async def _find_in(history: History, spec: Spec, stream: str, subjects: str) -> tuple[int, int]:
    """The first and last sequence in one stream; the last is below the first where there is nothing."""
    try:
        first, last = await history.first_sequence(stream), (await position_of(history.js, stream)).last
    except nats.js.errors.NotFoundError as error:
        raise UsageError(
            "nothing is provisioned on this server: run groundwatch admin provision first"
        ) from error
    if first > last:
        if last > SKIPPED and spec.since and not spec.allow_gap:
            raise _gone(spec, "nothing is left of it")
        return first, first - 1
    oldest = await history.next(stream, subjects, first)
    if oldest is None:
        return first, first - 1
    cut = first > SKIPPED + 1
    first = oldest.sequence
    if spec.since and cut and spec.since < oldest.time and not spec.allow_gap:
        raise _gone(spec, f"the oldest event that is left came at {shown_moment(oldest.time)}")
    if spec.stream == RESPONSES:
        # Every event comes after the moment that it says it was recorded at.
        if spec.since:
            first = max(first, await last_before(history, stream, spec.since) + 1)
        if spec.until and spec.until + LATE < time.time():
            last = min(last, await last_before(history, stream, spec.until + LATE))
    return first, last


async def plan(history: History, spec: Spec, stretch: Stretch) -> tuple[Plan, Spec]:
    """Read the stretch once and count; the spec comes back with the bound that makes its sample exact."""
    choosing = Choosing(msgspec.structs.replace(spec, below=0))
    pairs: list[_Pair] = []
    read = chains = 0
    reading = stretch.of(history).batches(
        spec.stream, subjects=(spec.subjects,), start_sequence=stretch.first, last_sequence=stretch.last
    )
    try:
        async for messages in reading:
            chosen = choosing.choose(messages)
            read, chains = read + chosen.events, chains + chosen.chains
            pairs += map(_pair, chosen.items)
    except TransientError as error:
        raise UsageError(f"the server went away while counting ({error}): try again") from error
    keys = {pair.key for pair in pairs}
    if spec.sample and len(keys) > spec.sample:
        hashes = {key: choosing.selection.hash(key) for key in keys}
        spec = msgspec.structs.replace(spec, below=heapq.nsmallest(spec.sample + 1, hashes.values())[-1])
        pairs = [pair for pair in pairs if hashes[pair.key] < spec.below]
    cost = await measure(history, spec)
    spent = sum((pair.spent for pair in pairs), Usage())
    judged = Counter(pair.protocol for pair in pairs if not pair.declined)

    def expected(what: str, digits: int | None = None) -> Any:
        """What the outcomes take, less what they took before the stage that the replay begins at."""
        if spec.stage == Stage.SCORING:
            return 0
        whole = cost.of(judged, what)
        return None if whole is None else round(max(0.0, whole - getattr(spent, what)), digits)

    counted = Plan(
        run=spec.run,
        source=spec.source,
        stage=spec.stage,
        read=read,
        responses=len({pair.key for pair in pairs}),
        pairs=len(pairs),
        declined=len(pairs) - judged.total(),
        judged=judged.total(),
        chains=chains,
        by_protocol=dict(Counter(pair.protocol for pair in pairs)),
        first=min((pair.recorded_at for pair in pairs), default=0.0),
        last=max((pair.recorded_at for pair in pairs), default=0.0),
        measured_on=cost.outcomes.total(),
        calls=expected("calls"),
        input_tokens=expected("input_tokens"),
        output_tokens=expected("output_tokens"),
        cost=expected("cost", 6),
        seconds=round(cost.seconds * judged.total(), 1) if cost.outcomes else None,
    )
    return counted, spec


class _Pair(NamedTuple):
    """A response and a protocol; `spent` is what its events took before the stage that is begun at."""

    key: str
    protocol: str
    recorded_at: float
    declined: bool
    spent: Usage


def _pair(item: Item) -> _Pair:
    spent = item.event.usage if isinstance(item.event, ClaimsExtracted) else Usage()
    declined = item.protocol in item.response.declined
    return _Pair(item.key, item.protocol, item.response.recorded_at, declined, spent)


async def measure(history: History, spec: Spec) -> Cost:
    """What the newest judgements of the source took."""
    subjects = (run_subjects("outcome", spec.source),)
    try:
        newest = await _newest(history, SAMPLE)
        usage, count, times = dict[str, Usage](), Counter[str](), []
        async for message in newest.of(history).read(
            OUTCOMES, subjects=subjects, start_sequence=newest.first
        ):
            if message.headers.get(HEADER_OUTCOME) == OutcomeKind.DECLINED.value:
                continue
            try:
                outcome = msgspec.json.decode(message.data, type=ResponseScored)
            except UNDECODED:
                continue
            if outcome.reason in (DEAD_LETTER, UNDECODABLE):
                continue
            name = outcome.protocol
            usage[name] = usage.get(name, Usage()) + outcome.usage
            count[name] += 1
            times.append(outcome.scored_at)
    except (TransientError, nats.errors.Error) as error:
        raise UsageError(f"cannot read the outcomes of run '{spec.source}': {error}") from error
    if not count:
        return Cost()
    # Pauses without traffic say nothing of how long a judgement takes.
    gaps = sorted(after - before for before, after in pairwise(sorted(times)))
    busy = gaps[: max(1, len(gaps) * 9 // 10)]
    return Cost(outcomes=count, usage=usage, seconds=sum(busy) / len(busy) if busy else 0.0)


async def _newest(history: History, most: int) -> Stretch:
    """About so many of the newest outcomes, of each partition its share."""
    streams = streams_of_kind(OUTCOMES, history.partitions)
    lasts = [(await position_of(history.js, stream)).last for stream in streams]
    return joined([(max(1, last - most // len(streams)), last) for last in lasts])


def _gone(spec: Spec, why: str) -> UsageError:
    return UsageError(
        f"{shown_moment(spec.since)} reaches back to what retention has removed from {spec.stream}: {why}; "
        "begin later, or allow the gap and take what is left",
        "since",
        "allow_gap",
    )
