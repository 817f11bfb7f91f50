"""A model as second opinion: a queue for each protocol that nobody but a configured judge works at.

Its items are drawn as those that people review. In random order a few at a time go into a work queue, no more
in an hour than settings allow; the stage on it asks the judge, which gives its opinion as people do.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec

from groundwatch.errors import (
    UNDECODED,
    GroundwatchError,
    HeldByOthers,
    InputError,
    Unavailable,
    UnknownName,
    Unscorable,
    UsageError,
)
from groundwatch.events import (
    ClaimsExtracted,
    Decision,
    FactOpinion,
    Judge,
    OpinionAsked,
    ResponseScored,
)
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.reviews.opinions import Opinions, opinion_on
from groundwatch.reviews.queues import JUDGE, Item, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.service import StageService, next_stage
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import (
    EXTRACTED,
    OUTCOMES,
    QUEUES_BUCKET,
    SECOND,
    SECOND_OPINION,
    subject_of,
)

KEY = "second-opinion"
HOUR = 3600.0

CREATED_BY = "settings: second_opinion"
MAX_NAME = 56

ROUND_SECONDS = 1.0
ROUND_TIMEOUT = 5.0
"""So long a service that stops lets one end."""

BUSY_SECONDS = 0.05
"""Between two rounds while there is something to hand on."""

MOST_WAITING = 20_000
"""Items that wait in one queue. Beyond, those that would come last are removed: which these are is random."""

REMOVED_AT_ONCE = 500


class _Hour(msgspec.Struct, frozen=True):
    """How many answers were `spent` in which `hour` since the epoch."""

    hour: int = 0
    spent: int = 0


def _read_hour(data: bytes | None) -> _Hour:
    try:
        return msgspec.json.decode(data or b"{}", type=_Hour)
    except UNDECODED:
        return _Hour()


class HourlyBudget:
    """How many answers the judge may still be asked about in this hour of the clock, by whichever replica."""

    def __init__(self, bus: Bus, per_hour: int, clock: Callable[[], float] = time.time) -> None:
        self._bucket = Bucket(bus, QUEUES_BUCKET)
        self._per_hour = per_hour
        self._clock = clock
        self.left = 0

    async def take(self, wanted: int) -> int:
        """Take so many, or as many as are left; below 0 they are given back. Raises `Unavailable`."""
        taken = 0

        def take(before: _Hour) -> _Hour:
            nonlocal taken
            hour = int(self._clock() // HOUR)
            spent = before.spent if before.hour == hour else 0
            taken = max(min(wanted, self._per_hour - spent), -spent)
            self.left = self._per_hour - spent - taken
            return _Hour(hour, spent + taken) if taken else before

        await self._bucket.change(KEY, _read_hour, take)
        return taken


class SecondOpinions(StageService):
    """Keeps the judge's queues, hands on what it is to look at, and asks it. `engine` is the judge."""

    def __init__(
        self,
        settings: Settings,
        bus: Bus,
        metrics: Metrics,
        protocols: Sequence[str],
    ) -> None:
        super().__init__(SECOND_OPINION, settings, bus, metrics)
        self._protocols = [registry.get(name) for name in protocols]
        self._queues = Queues(bus)
        self._items = self._queues.items
        self._opinions = Opinions(bus)
        self._budget = HourlyBudget(bus, settings.second_opinion.per_hour)
        self._ending = asyncio.Event()
        self._working = SupervisedTask(f"{SECOND_OPINION}-queues", self._work)

    async def start(self) -> None:
        """Begin. The judge may come later: what people review does not wait for it."""
        for protocol in self._protocols:
            for result in ("judged", "undecided", "removed"):
                self.metrics.second_opinions.labels(protocol.name, result)
        self._working.start()

    async def drain(self, timeout: float) -> None:
        self._ending.set()
        await self._working.finish(min(timeout, ROUND_TIMEOUT))
        await super().drain(timeout)

    @property
    def problem(self) -> str:
        """What somebody has to mend. That the judge is away is among `problems`."""
        return self._working.problem

    async def _work(self) -> None:
        if not self._started:
            await super().start()
        while not self._ending.is_set():
            busy = not self.engine.problems() and await self._round()
            await until_set(self._ending, BUSY_SECONDS if busy else ROUND_SECONDS)

    async def _round(self) -> bool:
        """Hand on what the hour and the work queue have room for; whether that was anything."""
        wanted = {protocol.name: self._wanted(protocol) for protocol in self._protocols}
        busy = False
        for spec in await keep_queues(self._queues, await self._queues.list(), wanted):
            busy |= await self._hand_on(spec)
            self.metrics.second_opinions_left.labels(spec.assigned[0]).set(self._budget.left)
        return busy

    def _wanted(self, protocol: EvaluationProtocol) -> QueueSpec:
        section = self.settings.second_opinion
        return QueueSpec(
            name=SECOND_OPINION,
            protocol=protocol.name,
            rule=section.rule,
            share=section.share,
            assigned=(reviewer_of(self.engine.judge(protocol)),),
            created_by=CREATED_BY,
        )

    async def _hand_on(self, spec: QueueSpec) -> bool:
        """Put the next items of a queue into the work queue. They are few at a time: what comes next is
        chosen from all that wait, and what waits for a judge that is away was taken of this hour."""
        waiting = [one for one in await self._items.all(spec.name) if not (one.done or one.asked)]
        waiting.sort(key=lambda one: one.order)
        self.metrics.second_opinions_waiting.labels(spec.protocol).set(len(waiting))
        if len(waiting) >= MOST_WAITING + REMOVED_AT_ONCE:
            await self._items.remove(spec.name, [one.key for one in waiting[-REMOVED_AT_ONCE:]])
            self.metrics.second_opinions.labels(spec.protocol, "removed").inc(REMOVED_AT_ONCE)
            logger.warning("second_opinion.removed", queue=spec.name, items=REMOVED_AT_ONCE)
        handed_on = (await self.bus.js.stream_info(SECOND)).state.messages
        room = 2 * self._at_once - handed_on
        taken = await self._budget.take(max(0, min(room, len(waiting))))
        new = 0
        try:
            for item in waiting[:taken]:
                new += await self._asked(item, spec.assigned[0])
        finally:
            # What another replica has handed on at the same time.
            await self._budget.take(new - taken)
        return taken > 0

    @property
    def _at_once(self) -> int:
        """How many answers the judge looks at together."""
        if concurrency := self._stage_settings.concurrency:
            return concurrency
        return max(1, getattr(self.engine, "at_once", 1)) if self.engine.batch == 1 else self.engine.batch

    async def _asked(self, item: Item, reviewer: str) -> bool:
        """Put an item into the work queue, then note that it is there; whether it was not there before."""
        subject = subject_of("second", item.run, item.protocol, item.key)
        asked = OpinionAsked(
            queue=item.queue,
            key=item.key,
            protocol=item.protocol,
            reviewer=reviewer,
            tenant=item.tenant,
            run=item.run,
        )
        outgoing = Outgoing(subject=subject, payload=asked, message_id=(subject, item.queue))
        stored = await self.bus.create(outgoing)
        try:
            await self._items.ask(item.queue, item.key)
        except UnknownName:
            # It was erased: who takes the message finds that too.
            logger.debug("second_opinion.erased", queue=item.queue)
        return stored is Stored.NEW

    async def handle(self, works: Sequence[Work[OpinionAsked]]) -> Sequence[Result | GroundwatchError]:
        """Ask the judge, and write down what it says as its opinion."""
        results: list[Result | GroundwatchError] = [Result() for _ in works]
        groups: dict[str, list[tuple[int, Item, ResponseScored, ClaimsExtracted]]] = defaultdict(list)
        for place, work in enumerate(works):
            try:
                if (found := await self._found(work)) is not None:
                    groups[work.event.protocol].append((place, *found))
            except GroundwatchError as error:
                results[place] = error
        for name, group in groups.items():
            protocol = registry.get(name)
            judge, began = self.engine.judge(protocol), time.monotonic()
            ask = partial(self.engine.verify, protocol=protocol)
            answers = await self.counted(ask, [extracted for *_, extracted in group], judge)
            seconds = (time.monotonic() - began) / len(group)
            if self.engine.judge(protocol) != judge:
                # What one model said must not stand under another one's name.
                changed = Unavailable(
                    f"{judge.engine}: another model answers than was asked", retry_after=0.0
                )
                answers = [changed] * len(group)
            for (place, item, outcome, _), answer in zip(group, answers, strict=True):
                results[place] = await self._give(item, outcome, judge, answer, seconds)
        return results

    async def _found(self, work: Work[OpinionAsked]) -> tuple[Item, ResponseScored, ClaimsExtracted] | None:
        """What the judge is to see; None where there is nothing to ask. Raises `InputError` where there never
        will be."""
        asked, protocol = work.event, registry.get(work.event.protocol)
        try:
            item = await self._items.find(asked.queue, asked.key)
        except UnknownName:
            # It was erased, or its queue deleted.
            return None
        if item.done or asked.reviewer != reviewer_of(self.engine.judge(protocol)):
            return None
        if not work.arrived.first:
            said = await self._opinions.last(asked.run, asked.protocol, asked.reviewer, asked.key)
            if said is not None and said.queue == asked.queue:
                # Who asked died before noting it.
                await self._items.complete(asked.queue, asked.key, said, replace=False)
                return None
        place = (asked.run, asked.protocol, asked.key)
        stage = next_stage(protocol, Stage.EXTRACTION).value
        scored = await self.bus.last_event(OUTCOMES, subject_of("outcome", *place))
        claims = await self.bus.last_event(EXTRACTED, subject_of("extracted", place[0], stage, *place[1:]))
        if scored is None or claims is None:
            raise InputError("the answer is kept no longer")
        try:
            outcome = msgspec.json.decode(scored.data, type=ResponseScored)
            extracted = msgspec.json.decode(claims.data, type=ClaimsExtracted)
        except UNDECODED as error:
            raise InputError(f"the answer or its claims cannot be read: {error}") from error
        if [one.text for one in outcome.claims] != [one.text for one in extracted.claims]:
            raise InputError("the answer has other claims by now")
        return item, outcome, extracted

    async def _give(
        self, item: Item, outcome: ResponseScored, judge: Judge, answer: Any, seconds: float
    ) -> Result | GroundwatchError:
        """Give what the judge said as its opinion; without verdicts every claim is undecided: an answer that
        it cannot judge was drawn all the same, and must not be missing among those that were looked at."""
        if isinstance(answer, Unscorable):
            logger.info("second_opinion.undecided", queue=item.queue, key=item.key, reason=str(answer))
            decisions = [Decision.UNDECIDED] * len(outcome.claims)
        elif isinstance(answer, GroundwatchError):
            return answer
        else:
            decisions = [verdict.decision for verdict in answer.verdicts]
        if len(decisions) != len(outcome.claims):
            return InputError(f"{len(decisions)} verdicts for {len(outcome.claims)} claims")
        facts = tuple(
            FactOpinion(text=claim.text, category=claim.category, unit=claim.unit, decision=said, claim=at)
            for at, (claim, said) in enumerate(zip(outcome.claims, decisions, strict=True))
        )
        opinion = opinion_on(
            outcome,
            reviewer=reviewer_of(judge),
            facts=facts,
            given_at=time.time(),
            judge=judge,
            queue=item.queue,
            probability=item.probability,
            seconds=seconds,
        )
        try:
            await self._items.complete(item.queue, item.key, opinion, replace=False)
        except (UnknownName, HeldByOthers):
            # It was erased meanwhile, or another replica was faster.
            return Result()
        except GroundwatchError as error:
            return error
        judged = any(decision is not Decision.UNDECIDED for decision in decisions)
        self.metrics.second_opinions.labels(item.protocol, "judged" if judged else "undecided").inc()
        return Result()


async def keep_queues(
    queues: Queues, specs: Iterable[QueueSpec], wanted: dict[str, QueueSpec]
) -> list[QueueSpec]:
    """The open queue of each protocol, made where there is none as settings have it; others are closed.

    With another judge, share or rule there is another queue, since each has its own probabilities.
    """
    found: dict[str, QueueSpec] = {}
    names = set[str]()
    for spec in specs:
        names.add(spec.name)
        if spec.created_by != CREATED_BY or spec.closed:
            continue
        if spec.protocol not in found and _same(spec, wanted.get(spec.protocol)):
            found[spec.protocol] = spec
        else:
            await queues.close(spec.name)
    for name in wanted.keys() - found.keys():
        spec = msgspec.structs.replace(wanted[name], name=_free_name(name, names))
        try:
            found[name] = await queues.create(spec)
        except UsageError as error:
            if error.parameters != ("queue",):
                raise
            # Another replica has made it by now: it is there in the next round.
            continue
        logger.info("second_opinion.queue", queue=spec.name, judge=spec.assigned[0])
    return list(found.values())


def reviewer_of(judge: Judge) -> str:
    """As whom a judge gives its opinions."""
    return f"{JUDGE}{judge.fingerprint}"


def _same(spec: QueueSpec, wanted: QueueSpec | None) -> bool:
    return wanted is not None and all(
        getattr(spec, name) == getattr(wanted, name) for name in ("rule", "share", "assigned")
    )


def _free_name(protocol: str, names: set[str]) -> str:
    """The first name of this kind that no queue has."""
    base = f"{SECOND_OPINION}-{protocol}"[:MAX_NAME]
    return next(name for end in count(1) if (name := f"{base}-{end}" if end > 1 else base) not in names)
