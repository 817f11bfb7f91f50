"""A model as second opinion: a queue for each protocol that nobody but a configured judge works at.

Its items are drawn, held and completed as those that people review, and what the judge says is an opinion as
theirs is. Of all replicas one at a time asks the judge, about so many answers in an hour. What an item was
tried is written down before the judge is asked: one that kills the process each time comes to an end too.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from groundwatch.errors import (
    UNDECODED,
    GroundwatchError,
    HeldByOthers,
    TransientError,
    Unavailable,
    UnknownName,
    Unscorable,
    WorkTimeout,
)
from groundwatch.events import (
    ClaimsExtracted,
    Decision,
    FactOpinion,
    Judge,
    ResponseScored,
    Verdict,
)
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.reviews.opinions import Opinions, opinion_on
from groundwatch.reviews.queues import JUDGE, Item, Items, Queues, QueueSpec, holding
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.service import next_stage
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.settings import RetrySettings
from groundwatch.runtime.settings.second_opinion import SecondOpinionSettings
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import EXTRACTED, OUTCOMES, QUEUES_BUCKET, subject_of

KEY = "second-opinion"
LEASE_SECONDS = 30.0
TRIES = 20
HOUR = 3600.0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks the second judge, `until` when (seconds since the epoch), and how many answers were `spent` in
    which `hour` since the epoch."""

    holder: str = ""
    until: float = 0.0
    hour: int = 0
    spent: int = 0


class Turns:
    """This process's part in it. Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus, per_hour: int, clock: Callable[[], float] = time.time) -> None:
        self._bucket = Bucket(bus, QUEUES_BUCKET)
        self._per_hour = per_hour
        self._clock = clock
        self._me = secrets.token_hex(8)
        self._lock = asyncio.Lock()
        self._known = Turn()

    @property
    def ours(self) -> bool:
        """Whether it is our turn, as far as we know."""
        return self._known.holder == self._me and self._clock() < self._known.until

    @property
    def left(self) -> int:
        """How many answers are left in this hour, as far as we know."""
        return self._left(self._known)

    async def take(self) -> bool:
        """Take the turn, or hold it for longer; False while it is another's."""

        def change(turn: Turn) -> Turn:
            now = self._clock()
            if turn.holder != self._me and turn.until > now:
                return turn
            if turn.holder == self._me and turn.until > now + LEASE_SECONDS / 2:
                return turn
            return msgspec.structs.replace(turn, holder=self._me, until=now + LEASE_SECONDS)

        await self._change(change)
        return self.ours

    async def spend(self, wanted: int) -> int:
        """Take so many answers out of this hour, or as many as are left; how many, none on another's turn."""
        taken = 0

        def change(turn: Turn) -> Turn:
            nonlocal taken
            now = self._clock()
            taken = min(wanted, self._left(turn)) if turn.holder == self._me else 0
            if not taken:
                return turn
            hour = int(now // HOUR)
            spent = turn.spent if turn.hour == hour else 0
            until = now + LEASE_SECONDS
            return msgspec.structs.replace(turn, hour=hour, spent=spent + taken, until=until)

        await self._change(change)
        return taken

    async def give_back(self, number: int) -> None:
        """Answers that were spent and not asked about; those of an hour that is over are lost."""

        def change(turn: Turn) -> Turn:
            if not number or turn.hour != int(self._clock() // HOUR):
                return turn
            return msgspec.structs.replace(turn, spent=max(0, turn.spent - number))

        await self._change(change)

    async def end(self) -> None:
        """Let another one have the turn."""

        def change(turn: Turn) -> Turn:
            return msgspec.structs.replace(turn, until=0.0) if turn.holder == self._me else turn

        await self._change(change)

    def _left(self, turn: Turn) -> int:
        spent = turn.spent if turn.hour == int(self._clock() // HOUR) else 0
        return max(0, self._per_hour - spent)

    async def _change(self, change: Callable[[Turn], Turn]) -> None:
        async with self._lock:
            for _ in range(TRIES):
                found = await self._bucket.get(KEY)
                turn, revision = Turn(), 0
                if found is not None:
                    revision = found.revision
                    try:
                        turn = msgspec.json.decode(found.data, type=Turn)
                    except UNDECODED:
                        # Of another version: what it says of the hour is lost.
                        turn = Turn()
                changed = change(turn)
                if changed == turn or await self._bucket.put(KEY, ENCODER.encode(changed), revision):
                    self._known = changed
                    return
            raise Unavailable("others change whose turn it is at this moment")


NAME = "second-opinion"
"""Of the stage in metrics, and what its queues' names begin with."""

CREATED_BY = "settings: second_opinion"
MAX_NAME = 56

ROUND_SECONDS = 1.0
BUGS = 3
"""So often the judge breaks over an item before that fails. What passes by itself, and what the process did
not survive, is tried as often as `retry.attempts` says."""

MOST_WAITING = 20_000
"""Items that wait in one queue. Beyond, those that would come last are removed: which these are is random."""

REMOVED_AT_ONCE = 500

VERIFY_SECONDS = 900.0

E = TypeVar("E")

GONE = "the answer is kept no longer"
OTHERS = "the answer has other claims by now"


class SecondJudge(Protocol):
    """Whoever gives second opinions, about the `protocols` of these names."""

    protocols: tuple[str, ...]

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """Under which name it judges them."""
        ...

    def at_once(self, protocol: EvaluationProtocol) -> int:
        """How many answers it looks at together."""
        ...

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[tuple[Verdict, ...] | GroundwatchError]:
        """Of each a verdict for every claim, in order; an error stands in the place of an event's result."""
        ...

    async def warm_up(self) -> None: ...

    def problems(self) -> list[str]:
        """Why it cannot be asked."""
        ...

    async def close(self) -> None: ...


class _Work(NamedTuple):
    item: Item
    outcome: ResponseScored
    extracted: ClaimsExtracted


class SecondOpinions:
    """Draws nothing itself: keeps the queues, and works at them."""

    def __init__(
        self,
        settings: SecondOpinionSettings,
        retries: RetrySettings,
        judge: SecondJudge,
        bus: Bus,
        metrics: Metrics,
        queues: Queues,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._retries = retries
        self._judge = judge
        self._bus = bus
        self._metrics = metrics
        self._queues = queues
        self._items: Items = queues.items
        self._turns = Turns(bus, settings.per_hour, clock)
        self._away = AwayJudges(NAME, metrics)
        self._clock = clock
        self._ending = asyncio.Event()
        self._opinions = Opinions(bus)
        # By protocol: how often in a row the judge was away, and until when (monotonic) nobody asks it.
        self._faults: dict[str, int] = {}
        self._paused_until: dict[str, float] = {}
        # By key, of items that the judge broke over: when they are tried again (monotonic), how often it was.
        self._not_before: dict[str, float] = {}
        self._bugs: dict[str, int] = {}
        self._fault = ""
        self._working = SupervisedTask(NAME, self._work)
        self._holding = SupervisedTask(f"{NAME}-turn", self._hold_turn)

    def start(self) -> None:
        for name in self._judge.protocols:
            for result in ("judged", "undecided", "failed", "removed"):
                self._metrics.second_opinions.labels(name, result)
        self._working.start()
        self._holding.start()

    async def drain(self, timeout: float) -> None:
        """Finish what the judge is asked about now, or give it back; then let go of the judge."""
        self._ending.set()
        await self._working.finish(timeout)
        await self._holding.stop()
        with contextlib.suppress(GroundwatchError, *FAULTS):
            await self._turns.end()
        await self._judge.close()

    def problems(self) -> list[str]:
        """What somebody has to mend."""
        return [task.problem for task in (self._working, self._holding) if task.problem]

    def notes(self) -> list[str]:
        """Why no opinions are given: what people review goes on meanwhile."""
        found = [*self._judge.problems(), *self._away.problems(), *([self._fault] if self._fault else [])]
        return [f"{NAME}: {why}" for why in found]

    async def _hold_turn(self) -> None:
        while True:
            with contextlib.suppress(GroundwatchError, *FAULTS):
                await self._turns.take()
            await asyncio.sleep(LEASE_SECONDS / 3)

    async def _work(self) -> None:
        await self._judge.warm_up()
        while not self._ending.is_set():
            busy = False
            try:
                busy = await self._round()
                self._fault = ""
            except (GroundwatchError, *FAULTS) as error:
                if not self._fault:
                    logger.warning("second_opinion.not_given", error=str(error) or repr(error))
                self._fault = str(error) or repr(error)
            if not busy:
                await until_set(self._ending, ROUND_SECONDS)

    async def _round(self) -> bool:
        """Ask the judge about what waits, once for each protocol; whether there is more to do at once."""
        if not self._turns.ours:
            self._metrics.second_opinions_waiting.clear()
            self._metrics.second_opinions_left.clear()
            return False
        if self._judge.problems():
            return False
        protocols = [registry.get(name) for name in self._judge.protocols]
        specs = await self._current_queues(protocols)
        busy = False
        for protocol in protocols:
            reviewer = reviewer_of(self._judge.judge(protocol))
            busy |= await self._judge_some(specs[protocol.name], protocol, reviewer)
            self._metrics.second_opinions_left.labels(reviewer).set(self._turns.left)
        return busy

    async def _current_queues(self, protocols: Sequence[EvaluationProtocol]) -> dict[str, QueueSpec]:
        """The open queue of each protocol, made where there is none as settings have it; others are closed.

        With another judge, share or rule there is another queue, since each has its own probabilities.
        """
        specs = await self._queues.list()
        found: dict[str, QueueSpec] = {}
        wanted = {protocol.name: self._wanted(protocol) for protocol in protocols}
        for spec in specs:
            if spec.created_by != CREATED_BY or spec.closed:
                continue
            if spec.protocol not in found and _same(spec, wanted.get(spec.protocol)):
                found[spec.protocol] = spec
            else:
                await self._queues.close(spec.name)
        names = {one.name for one in specs}
        for name in wanted.keys() - found.keys():
            spec = msgspec.structs.replace(wanted[name], name=_free_name(name, names))
            found[name] = await self._queues.create(spec)
            logger.info("second_opinion.queue", queue=spec.name, judge=spec.assigned[0])
        return found

    def _wanted(self, protocol: EvaluationProtocol) -> QueueSpec:
        return QueueSpec(
            name=NAME,
            protocol=protocol.name,
            rule=self._settings.rule,
            share=self._settings.share,
            assigned=(reviewer_of(self._judge.judge(protocol)),),
            created_by=CREATED_BY,
        )

    async def _judge_some(self, spec: QueueSpec, protocol: EvaluationProtocol, reviewer: str) -> bool:
        """Ask about as many as the judge takes at once and the hour has left; whether there may be more."""
        now = self._clock()
        known = await self._items.all(spec.name)
        waiting = [
            one for one in known if one.state in ("open", "held") and holding(one, now).keys() <= {reviewer}
        ]
        waiting.sort(key=lambda one: one.order)
        self._metrics.second_opinions_waiting.labels(protocol.name).set(len(waiting))
        if len(waiting) >= MOST_WAITING + REMOVED_AT_ONCE:
            await self._remove(spec, waiting[-REMOVED_AT_ONCE:])
        pause = time.monotonic()
        waiting = [one for one in waiting if self._not_before.get(one.key, 0.0) <= pause]
        if not waiting or self._paused_until.get(protocol.name, 0.0) > pause:
            return False
        most = self._settings.concurrency or self._judge.at_once(protocol)
        taken = await self._turns.spend(min(most, len(waiting)))
        spent = 0
        try:
            begun = await asyncio.gather(*(self._begin(one, protocol, reviewer) for one in waiting[:taken]))
            if works := [work for work in begun if work is not None]:
                began = time.monotonic()
                results = await self._verify([work.extracted for work in works], protocol)
                seconds = (time.monotonic() - began) / len(works)
                spent = sum(not isinstance(one, Unavailable) for one in results)
                self._look_after(protocol, results)
                for work, result in zip(works, results, strict=True):
                    await self._finish(work, result, protocol, reviewer, seconds)
        finally:
            await self._turns.give_back(taken - spent)
        return taken == most

    async def _begin(self, item: Item, protocol: EvaluationProtocol, reviewer: str) -> _Work | None:
        """What the judge is to see of an item, which it holds now; None where there is nothing to ask."""
        try:
            if item.tries and await self._given_before(item, reviewer):
                return None
            if item.tries >= self._retries.attempts:
                await self._fail(item, f"was tried {item.tries} times in vain")
                return None
            outcome = await self._event(
                OUTCOMES, subject_of("outcome", item.run, item.protocol, item.key), ResponseScored
            )
            stage = next_stage(protocol, Stage.EXTRACTION).value
            extracted = await self._event(
                EXTRACTED, subject_of("extracted", item.run, stage, item.protocol, item.key), ClaimsExtracted
            )
            if outcome is None or extracted is None:
                await self._fail(item, GONE)
                return None
            if [one.text for one in outcome.claims] != [one.text for one in extracted.claims]:
                await self._fail(item, OTHERS)
                return None
            await self._items.hold(item.queue, item.key, reviewer, tries=item.tries + 1)
        except (UnknownName, HeldByOthers):
            # It was erased, or a replica that has lost its turn has just done it.
            return None
        return _Work(item, outcome, extracted)

    async def _given_before(self, item: Item, reviewer: str) -> bool:
        """Whether the judge has given its opinion on the item already: who asked it died before noting so."""
        said = await self._opinions.last(item.run, item.protocol, reviewer, item.key)
        if said is None or said.queue != item.queue:
            return False
        await self._items.complete(item.queue, item.key, said, replace=False)
        return True

    async def _event(self, stream: str, subject: str, form: type[E]) -> E | None:
        found = await self._bus.last_event(stream, subject)
        try:
            return msgspec.json.decode(found.data, type=form) if found is not None else None
        except UNDECODED as error:
            logger.warning("second_opinion.unreadable", subject=subject, error=str(error))
            return None

    async def _verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[tuple[Verdict, ...] | GroundwatchError]:
        try:
            async with asyncio.timeout(VERIFY_SECONDS):
                return await self._judge.verify(extracted, protocol)
        except TimeoutError:
            return [WorkTimeout(f"the judge took longer than {VERIFY_SECONDS:.0f} s")] * len(extracted)

    def _look_after(
        self, protocol: EvaluationProtocol, results: Sequence[tuple[Verdict, ...] | GroundwatchError]
    ) -> None:
        """Note whether the judge is away, and for how long nobody asks it then."""
        away = [one for one in results if isinstance(one, Unavailable)]
        for error in away:
            self._away.found_away(protocol.name, error)
        if len(away) < len(results):
            self._away.answered(protocol.name)
            self._faults.pop(protocol.name, None)
            return
        self._faults[protocol.name] = faults = self._faults.get(protocol.name, 0) + 1
        self._paused_until[protocol.name] = time.monotonic() + self._retries.delay(faults, away[0])

    async def _finish(
        self,
        work: _Work,
        result: tuple[Verdict, ...] | GroundwatchError,
        protocol: EvaluationProtocol,
        reviewer: str,
        seconds: float,
    ) -> None:
        """Give the opinion, or let go of the item until it is tried again."""
        item, key = work.item, work.item.key
        try:
            match result:
                case Unavailable():
                    # No fault of the answer's: this was no try.
                    await self._items.release(item.queue, key, reviewer, tries=item.tries)
                    return
                case GroundwatchError() if not isinstance(result, Unscorable):
                    self._bugs[key] = self._bugs.get(key, 0) + (not isinstance(result, TransientError))
                    if self._bugs[key] >= BUGS:
                        await self._fail(item, f"the judge broke over it: {result}")
                        return
                    self._not_before[key] = time.monotonic() + self._retries.delay(item.tries + 1)
                    await self._items.release(item.queue, key, reviewer)
                    return
            verdicts = () if isinstance(result, GroundwatchError) else result
            opinion = opinion_on(
                work.outcome,
                reviewer=reviewer,
                facts=_facts(work.outcome, verdicts),
                given_at=self._clock(),
                judge=self._judge.judge(protocol),
                queue=item.queue,
                probability=item.probability,
                seconds=seconds,
            )
            await self._items.complete(item.queue, key, opinion, replace=False)
        except (UnknownName, HeldByOthers):
            return
        self._forget(key)
        judged = any(verdict.decision is not Decision.UNDECIDED for verdict in verdicts)
        self._metrics.second_opinions.labels(item.protocol, "judged" if judged else "undecided").inc()
        if isinstance(result, GroundwatchError):
            logger.info("second_opinion.undecided", queue=item.queue, key=key, reason=str(result))

    def _forget(self, key: str) -> None:
        self._not_before.pop(key, None)
        self._bugs.pop(key, None)

    async def _remove(self, spec: QueueSpec, last: Sequence[Item]) -> None:
        await self._items.remove(spec.name, [one.key for one in last])
        self._metrics.second_opinions.labels(spec.protocol, "removed").inc(len(last))
        logger.warning("second_opinion.removed", queue=spec.name, items=len(last))

    async def _fail(self, item: Item, reason: str) -> None:
        await self._items.fail(item.queue, item.key, reason)
        self._forget(item.key)
        self._metrics.second_opinions.labels(item.protocol, "failed").inc()
        logger.warning("second_opinion.failed", queue=item.queue, key=item.key, reason=reason)


def _facts(outcome: ResponseScored, verdicts: Sequence[Verdict]) -> tuple[FactOpinion, ...]:
    """Every claim with the judge's decision; without verdicts all are undecided: an answer that the judge
    cannot judge was drawn all the same, and must not be missing among those that were looked at."""
    decisions = [verdict.decision for verdict in verdicts] or [Decision.UNDECIDED] * len(outcome.claims)
    return tuple(
        FactOpinion(text=claim.text, category=claim.category, unit=claim.unit, decision=decision, claim=at)
        for at, (claim, decision) in enumerate(zip(outcome.claims, decisions, strict=True))
    )


async def close_queues(queues: Queues, specs: Sequence[QueueSpec]) -> list[QueueSpec]:
    """Close those of a second judge, where there is none any more; the others."""
    for spec in specs:
        if spec.created_by == CREATED_BY and not spec.closed:
            await queues.close(spec.name)
    return [spec for spec in specs if spec.created_by != CREATED_BY]


def reviewer_of(judge: Judge) -> str:
    """As whom a judge gives its opinions."""
    return f"{JUDGE}{judge.fingerprint}"


def _same(spec: QueueSpec, wanted: QueueSpec | None) -> bool:
    if wanted is None:
        return False
    kept = {name: getattr(wanted, name) for name in ("rule", "share", "assigned")}
    return msgspec.structs.replace(spec, **kept) == spec


def _free_name(protocol: str, names: set[str]) -> str:
    """The first name of this kind that no queue has."""
    base = f"{NAME}-{protocol}"[:MAX_NAME]
    numbers = [0]
    for name in names:
        if name == base:
            numbers.append(1)
        elif name.startswith(f"{base}-") and (number := name.removeprefix(f"{base}-")).isdecimal():
            numbers.append(int(number))
    return f"{base}-{max(numbers) + 1}" if max(numbers) else base
