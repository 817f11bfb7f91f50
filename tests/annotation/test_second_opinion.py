"""A model as second opinion over a real server: what it is asked about, how often, and how each item ends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from types import SimpleNamespace

import msgspec
import pytest
from tests.annotation.conftest import JUDGE, Publish, several
from tests.conftest import BusFactory
from tests.runtime.conftest import FAST, eventually

from groundwatch.annotation import second_opinion
from groundwatch.annotation.second_opinion import HourlyBudget, SecondOpinions, reviewer_of
from groundwatch.annotation.service import AnnotationService
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.errors import GroundwatchError, InputError, SettingsError, Unavailable, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    Decision,
    Judge,
    KnownFact,
    OpinionAsked,
    OpinionGiven,
    Reference,
    ResponseRecorded,
    ResponseScored,
    Verdict,
)
from groundwatch.protocols.base import EvaluationProtocol, units_of
from groundwatch.reviews.corrected import compute_corrected, read_corrected
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Frames, Item, Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.system.services import make_service
from groundwatch.topology import DEAD, OUTCOMES, SECOND, subject_of
from groundwatch.verification.engines.base import Verification, VerificationEngine
from groundwatch.verification.service import VerificationService

pytestmark = pytest.mark.usefixtures("clean_streams")

QUEUE = "second-opinion-faithscore"
Say = Callable[[ClaimsExtracted], "tuple[Verdict, ...] | GroundwatchError"]


def refuted(event: ClaimsExtracted) -> tuple[Verdict, ...]:
    return (Verdict(decision=Decision.REFUTED),) * len(event.claims)


class FakeJudge(VerificationEngine):
    """Says what it is told to; `asked` counts how often about which answer."""

    batch = 1

    def __init__(self, say: Say = refuted, *, model: str = "second", at_once: int = 4, pause: float = 0.0):
        self.say = say
        self.model = model
        self.asked: Counter[str] = Counter()
        self.at_once = at_once
        self._pause = pause
        self._now = self.most_at_once = 0

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="fake", model=self.model)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        self.asked.update(event.response.id for event in extracted)
        self._now += len(extracted)
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(self._pause)
        finally:
            self._now -= len(extracted)
        said = [self.say(event) for event in extracted]
        return [one if isinstance(one, GroundwatchError) else Verification(verdicts=one) for one in said]

    def problems(self) -> list[str]:
        return []


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_opinion, "ROUND_SECONDS", 0.05)


def settings(**second: object) -> Settings:
    section = {"judge": "fake", "rule": "random", "share": 1.0, "per_hour": 1000} | second
    changed = Settings().second_opinion.model_copy(update=section)
    return Settings().model_copy(
        update={"second_opinion": changed, "retry": FAST.model_copy(update={"attempts": 20})}
    )


def opinions_of(
    bus: Bus, judge: FakeJudge, given: Settings | None = None, metrics: Metrics | None = None
) -> SecondOpinions:
    chosen = given or settings()
    made = SecondOpinions(chosen, bus, metrics or Metrics(), ("faithscore",))
    stage = chosen.verification.model_copy(update={"concurrency": chosen.second_opinion.concurrency})
    made.consume(OpinionAsked, made.handle, stage, judge)
    return made


@contextlib.asynccontextmanager
async def running(
    bus: Bus, judge: FakeJudge | None, given: Settings | None = None, metrics: Metrics | None = None
) -> AsyncIterator[AnnotationService]:
    metrics = metrics or Metrics()
    second = opinions_of(bus, judge, given, metrics) if judge is not None else None
    service = AnnotationService(given or settings(), bus, metrics, second)
    await service.start()
    try:
        yield service
    finally:
        await service.drain(10)


def claims_of(outcome: ResponseScored) -> ClaimsExtracted:
    """What the first judge saw."""
    response = ResponseRecorded(
        id=outcome.id, model=outcome.model, answer="a ball", partition=outcome.partition
    )
    claims = tuple(Claim(text=one.text, category=one.category, unit=one.unit) for one in outcome.claims)
    return ClaimsExtracted(response=response, protocol=outcome.protocol, judge=JUDGE, claims=claims)


async def put_claims(bus: Bus, events: Sequence[ClaimsExtracted]) -> None:
    for one in events:
        subject = subject_of("extracted", "live", "verification", one.protocol, one.response.key)
        await bus.create(Outgoing(subject=subject, payload=ENCODER.encode(one)))


def now(number: int, seed: int = 0) -> list[ResponseScored]:
    """Outcomes of what is recorded now."""
    return several(number, seed, recorded_at=time.time() + 5)


async def queue_made(bus: Bus, name: str = QUEUE) -> QueueSpec:
    async def there() -> bool:
        return any(spec.name == name for spec in await Queues(bus).list())

    await eventually(there, within=60)
    return await Queues(bus).find(name)


async def items_when(bus: Bus, holds: Callable[[Sequence[Item]], bool], queue: str = QUEUE) -> Sequence[Item]:
    items = Items(bus)

    async def so() -> bool:
        return holds(await items.all(queue))

    await eventually(so, within=90)
    return await items.all(queue)


async def given(bus: Bus) -> list[OpinionGiven]:
    """Every opinion in the stream, also such as were replaced."""
    return [one.opinion async for one in Opinions(bus).read()]


def count(metrics: Metrics, result: str) -> float:
    return float(metrics.second_opinions.labels("faithscore", result)._value.get())


async def test_what_is_drawn_gets_an_opinion_of_the_judge(bus: Bus, publish: Publish) -> None:
    judge, metrics = FakeJudge(pause=0.02), Metrics()
    async with running(bus, judge, settings(share=0.5, concurrency=3), metrics) as service:
        spec = await queue_made(bus)
        assert spec.assigned == (reviewer_of(judge.judge(None)),)  # type: ignore[arg-type]
        events = now(30)
        await put_claims(bus, list(map(claims_of, events)))
        await publish(events)

        async def all_done() -> bool:
            frame, _ = await Frames(bus).load(QUEUE)
            items = await Items(bus).all(QUEUE)
            return frame.size == 30 and len(items) == frame.drawn and all(one.done for one in items)

        await eventually(all_done, within=90)
        assert service.problems() == [] and service.notes() == []
    opinions = {one.id: one for one in await given(bus)}
    items = await Items(bus).all(QUEUE)
    assert opinions.keys() == {one.id for one in items} == judge.asked.keys()
    assert set(judge.asked.values()) == {1} and count(metrics, "judged") == len(items)
    assert judge.most_at_once <= 3
    by_id = {one.id: one for one in events}
    for name, opinion in opinions.items():
        assert (opinion.reviewer, opinion.judge) == (spec.assigned[0], judge.judge(None))  # type: ignore[arg-type]
        assert (opinion.queue, opinion.probability, opinion.revision) == (QUEUE, 0.5, 1)
        claims = by_id[name].claims
        assert [(fact.claim, fact.text) for fact in opinion.facts] == [
            (at, claim.text) for at, claim in enumerate(claims)
        ]
        assert {fact.decision for fact in opinion.facts} == {Decision.REFUTED}
    rows = await compute_corrected(bus, Metrics().version_of)
    assert {(row.by, row.opinions) for row in rows if row.category == "all" and row.by == "model"} == {
        ("model", len(opinions))
    }


async def test_every_item_ends_and_says_why(bus: Bus, publish: Publish) -> None:
    events = now(6)
    unscorable, broken, missing, other, away, good = (one.id for one in events)
    times: Counter[str] = Counter()

    def say(event: ClaimsExtracted) -> tuple[Verdict, ...] | GroundwatchError:
        times[event.response.id] += 1
        match event.response.id:
            case name if name == unscorable:
                return Unscorable("missing_image", "0" * 64)
            case name if name == broken:
                return GroundwatchError("no such thing")
            case name if name == away and times[name] < 5:
                return Unavailable("no answer", judge="fake")
        return refuted(event)

    metrics = Metrics()
    async with running(bus, FakeJudge(say), metrics=metrics):
        await queue_made(bus)
        claims = [claims_of(one) for one in events if one.id != missing]
        claims = [
            msgspec.structs.replace(one, claims=one.claims[:-1]) if one.response.id == other else one
            for one in claims
        ]
        await put_claims(bus, claims)
        await publish(events)

        async def ended() -> bool:
            found = await Items(bus).all(QUEUE)
            letters = (await bus.js.stream_info(DEAD)).state.messages
            return len(found) == 6 and sum(map(is_done, found)) == 3 == letters

        await eventually(ended, within=90)
    ids = {one.key: one.id for one in events}
    letters = [one async for one in dead_letters(bus)]
    assert {ids[one.subject.rpartition(".")[2]]: one.reason for one in letters} == {
        broken: "bug: no such thing",
        missing: "bad_input: the answer is kept no longer",
        other: "bad_input: the answer has other claims by now",
    }
    assert {one.stage for one in letters} == {"second-opinion"}
    # The answer keeps the outcome that it has.
    assert (await bus.js.stream_info(OUTCOMES)).state.messages == 6
    said = {one.id: {fact.decision for fact in one.facts} for one in await given(bus)}
    assert said == {
        unscorable: {Decision.UNDECIDED},
        away: {Decision.REFUTED},
        good: {Decision.REFUTED},
    }
    assert times[broken] == 3 and times[away] == 5
    assert [count(metrics, one) for one in ("judged", "undecided")] == [2, 1]


async def test_a_judge_that_is_away_is_waited_for_and_told(bus: Bus, publish: Publish) -> None:
    away = True

    def say(event: ClaimsExtracted) -> tuple[Verdict, ...] | GroundwatchError:
        return Unavailable("no answer", judge="fake", retry_after=0.2) if away else refuted(event)

    events, judge = now(12), FakeJudge(say, at_once=2)
    async with running(bus, judge, settings(per_hour=12)) as service:
        await queue_made(bus)
        await put_claims(bus, list(map(claims_of, events)))
        await publish(events)

        async def told() -> bool:
            return any("second-opinion: judge fake is away since" in note for note in service.notes())

        await eventually(told, within=30)
        # People go on reviewing, and what waits in the work queue is bounded.
        assert service.problems() == []
        await asyncio.sleep(0.5)
        assert (await bus.js.stream_info(SECOND)).state.messages <= 4
        assert await given(bus) == []
        away = False
        await items_when(bus, lambda items: len(items) == 12 and all(map(is_done, items)))
        assert service.notes() == []
    assert Counter(one.id for one in await given(bus)) == Counter(one.id for one in events)
    assert (await bus.js.stream_info(DEAD)).state.messages == 0


async def test_a_dead_letter_that_is_sent_again_gets_its_opinion(bus: Bus, publish: Publish) -> None:
    (event,) = events = now(1)
    mended = False

    def say(event: ClaimsExtracted) -> tuple[Verdict, ...] | GroundwatchError:
        return refuted(event) if mended else InputError("an image that it cannot read")

    async with running(bus, FakeJudge(say)):
        await queue_made(bus)
        await put_claims(bus, [claims_of(event)])
        await publish(events)

        async def buried() -> bool:
            return (await bus.js.stream_info(DEAD)).state.messages == 1

        await eventually(buried, within=30)
        mended = True
        (letter,) = [one async for one in dead_letters(bus)]
        await send_again(bus, letter)
        await items_when(bus, lambda items: all(map(is_done, items)))
    assert [one.id for one in await given(bus)] == [event.id]
    assert (await bus.js.stream_info(DEAD)).state.messages == 0


async def test_an_answer_that_was_erased_gets_no_opinion(bus: Bus, publish: Publish) -> None:
    events = now(2)
    gone, left = events
    reached, erased = asyncio.Event(), asyncio.Event()

    class Waiting(FakeJudge):
        async def verify(
            self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
        ) -> Sequence[Verification | GroundwatchError]:
            reached.set()
            await erased.wait()
            return await super().verify(extracted, protocol)

    async with running(bus, Waiting(at_once=1)):
        await queue_made(bus)
        await put_claims(bus, list(map(claims_of, events)))
        await publish(events)
        await items_when(bus, lambda items: len(items) == 2 and all(one.asked for one in items))
        await reached.wait()
        task = asyncio.create_task(Eraser(bus.js, subject(gone.id, None, None), Stores(), wait=0.5).erase())
        done = await task
        assert done.counts["GW_SECOND"] == 1
        erased.set()
        await items_when(bus, lambda items: [one.id for one in items if one.done] == [left.id])
    assert [one.id for one in await given(bus)] == [left.id]
    assert (await bus.js.stream_info(DEAD)).state.messages == 0


async def test_the_hour_has_so_many_answers_over_restarts_and_replicas(
    bus_factory: BusFactory, publish: Publish
) -> None:
    judge = FakeJudge(at_once=3)
    buses = [await bus_factory("annotation") for _ in range(2)]
    limited = settings(per_hour=7)
    for _ in range(2):
        async with running(buses[0], judge, limited), running(buses[1], judge, limited):
            await queue_made(buses[0])
            if not judge.asked:
                events = now(20)
                await put_claims(buses[0], list(map(claims_of, events)))
                await publish(events)
            await items_when(buses[0], lambda items: len(items) == 20 and sum(map(is_done, items)) == 7)
            await asyncio.sleep(1.0)
    assert judge.asked.total() == 7 == len(await given(buses[0]))
    items = sorted(await Items(buses[0]).all(QUEUE), key=lambda one: one.order)
    # Random order over what there was when each was asked about.
    assert sum(one.done for one in items) == 7
    later = HourlyBudget(buses[0], 7, lambda: time.time() + 3_600)
    assert await later.take(9) == 7 and await later.take(1) == 0 == later.left
    assert await later.take(-2) == -2 and later.left == 2


def is_done(item: Item) -> bool:
    return item.done


async def test_killed_and_restarted_it_gives_each_opinion_once(
    bus: Bus, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the judge is asked, between the opinion and the note that it was given, and behind it."""
    judge = FakeJudge(pause=0.05)
    async with running(bus, judge):
        await queue_made(bus)
    config = (await bus.js.consumer_info(SECOND, "second-opinion")).config
    await bus.js.add_consumer(SECOND, config.evolve(ack_wait=1.0))
    events = now(12)
    await put_claims(bus, list(map(claims_of, events)))
    await publish(events)
    give = Opinions.give
    deaths = 0

    async def dying(self: Opinions, opinion: OpinionGiven, *, replace: bool = True) -> object:
        nonlocal deaths
        stored = await give(self, opinion, replace=replace)
        if deaths < 4:
            deaths += 1
            # The process is gone: nothing behind this happens, not even that it lets go.
            worker.kill()
            await asyncio.sleep(60)
        return stored

    monkeypatch.setattr(Opinions, "give", dying)
    async with running(bus, None) as reading:
        reading._second = Idle()  # type: ignore[assignment]
        for _ in range(6):
            worker = Worker(bus, judge)
            await worker.opinions.start()
            await worker.until_dead(3.0)
            worker.kill()
        last = Worker(bus, judge)
        await last.opinions.start()
        try:
            await items_when(bus, lambda items: len(items) == 12 and all(map(is_done, items)))
        finally:
            await last.opinions.drain(10)
    opinions = await given(bus)
    assert deaths == 4
    assert Counter(one.id for one in opinions) == Counter({one.id: 1 for one in events})
    assert {one.revision for one in opinions} == {1}


class Idle:
    """In the place of second opinions, which a test runs by itself."""

    problem = ""

    def problems(self) -> list[str]:
        return []

    async def drain(self, timeout: float) -> None:
        return


class Worker:
    """Second opinions of a process of their own, which dies as by SIGKILL."""

    def __init__(self, bus: Bus, judge: FakeJudge) -> None:
        self.opinions = opinions_of(bus, judge)
        self.dead = asyncio.Event()

    def kill(self) -> None:
        self.dead.set()
        tasks = [task for stage in self.opinions._stages for pull in stage.pulls for task in pull.tasks]
        for supervised in (self.opinions._working, self.opinions._monitor):
            supervised._ending = True
            tasks += [supervised._task] if supervised._task is not None else []
        for task in tasks:
            task.cancel()

    async def until_dead(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.dead.wait(), seconds)


async def test_two_replicas_ask_about_no_answer_twice(bus_factory: BusFactory, publish: Publish) -> None:
    judge = FakeJudge(pause=0.02)
    buses = [await bus_factory("annotation") for _ in range(2)]
    async with running(buses[0], judge), running(buses[1], judge):
        await queue_made(buses[0])
        events = now(40)
        await put_claims(buses[0], list(map(claims_of, events)))
        await publish(events)
        await items_when(buses[0], lambda items: len(items) == 40 and all(map(is_done, items)))
    assert set(judge.asked.values()) == {1} and len(await given(buses[0])) == 40


async def test_other_settings_are_another_queue_and_none_closes_it(bus: Bus) -> None:
    async def open_queues() -> list[tuple[str, float, str]]:
        return [(one.name, one.share, one.rule) for one in await Queues(bus).list() if not one.closed]

    people = await Queues(bus).create(QueueSpec(name="people", protocol="faithscore"))
    async with running(bus, FakeJudge()):
        await queue_made(bus)
    async with running(bus, FakeJudge()):
        await asyncio.sleep(1.0)
        assert await open_queues() == [("people", 1.0, "random"), (QUEUE, 1.0, "random")]
    async with running(bus, FakeJudge(), settings(share=0.1, rule="uncertain")):
        await queue_made(bus, f"{QUEUE}-2")
        await eventually(
            lambda: only(open_queues, ("people", 1.0, "random"), (f"{QUEUE}-2", 0.1, "uncertain"))
        )
    async with running(bus, FakeJudge(model="stronger"), settings(share=0.1, rule="uncertain")):
        await queue_made(bus, f"{QUEUE}-3")
        await eventually(
            lambda: only(open_queues, ("people", 1.0, "random"), (f"{QUEUE}-3", 0.1, "uncertain"))
        )
    async with running(bus, None):
        await eventually(lambda: only(open_queues, ("people", 1.0, "random")), within=30)
    assert not (await Queues(bus).find(people.name)).closed


async def only(found: Callable[[], object], *wanted: object) -> bool:
    return list(await found()) == list(wanted)  # type: ignore[misc]


async def test_beyond_what_may_wait_the_last_ones_go(
    bus: Bus, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_opinion, "MOST_WAITING", 6)
    monkeypatch.setattr(second_opinion, "REMOVED_AT_ONCE", 2)
    judge, metrics = FakeJudge(at_once=1), Metrics()
    async with running(bus, judge, settings(per_hour=2), metrics):
        await queue_made(bus)
        events = now(20)
        await put_claims(bus, list(map(claims_of, events)))
        await publish(events)

        async def settled() -> bool:
            frame, _ = await Frames(bus).load(QUEUE)
            items = await Items(bus).all(QUEUE)
            return frame.drawn == 20 and sum(map(is_done, items)) == 2 and len(items) < 10

        await eventually(settled, within=90)
    assert count(metrics, "removed") == 20 - len(await Items(bus).all(QUEUE))


class BiasedEngine(VerificationEngine):
    """Knows the truth, which a fact's text ends with, and errs in a tenth of the facts that hold."""

    batch = 50

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="biased")

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        return [
            Verification(verdicts=tuple(self._verdict(event, claim) for claim in event.claims))
            for event in extracted
        ]

    def _verdict(self, event: ClaimsExtracted, claim: Claim) -> Verdict:
        assert event.response.reference is not None
        holds = {fact.text: fact.holds for fact in event.response.reference.facts}[claim.text]
        random = Random(f"{event.response.id} {claim.text}")
        sure = random.random() < 0.7
        supported = holds and random.random() > 0.15
        p = random.uniform(0.9, 1.0) if sure else random.uniform(0.5, 0.7)
        decision = Decision.SUPPORTED if supported else Decision.REFUTED
        return Verdict(decision=decision, probability=p if supported else 1 - p)


COLORS = ("red", "green", "blue", "black", "white")


def traffic(number: int, true_rate: float) -> tuple[list[ClaimsExtracted], float]:
    """Claims of which the reference knows whether they hold, and the share that does not."""
    random = Random(7)
    events, wrong, total = [], 0, 0
    for one in range(number):
        texts = [f"The {thing} is {random.choice(COLORS)}." for thing in ("ball", "box", "dog")]
        facts = tuple(KnownFact(text=text, holds=random.random() >= true_rate) for text in texts)
        wrong, total = wrong + sum(not fact.holds for fact in facts), total + len(facts)
        response = ResponseRecorded(
            id=f"t{one}",
            model="lvlm",
            answer=" ".join(texts),
            reference=Reference(facts=facts),
            protocols=("faithscore",),
            recorded_at=time.time() + 5,
        )
        units = units_of(response.answer)
        claims = tuple(Claim(text=text, category="color", unit=at) for at, text in enumerate(texts))
        events.append(
            ClaimsExtracted(response=response, protocol="faithscore", judge=JUDGE, units=units, claims=claims)
        )
    return events, wrong / total


async def test_from_traffic_to_the_corrected_rate(
    bus_factory: BusFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real services: a biased first judge, the reference as the second."""
    # Of other draws one in twenty has an interval without the true rate.
    monkeypatch.setattr(
        "groundwatch.reviews.queues.secrets", SimpleNamespace(token_hex=lambda size: "5a" * size)
    )
    bus = await bus_factory("annotation")
    chosen = Settings.model_validate(
        {
            "verification": {"engine": "triton"},
            "second_opinion": {"judge": "reference", "share": 0.4, "per_hour": 10_000},
        }
    )
    metrics = Metrics()
    stages = [
        VerificationService(Settings(), await bus_factory("verification"), Metrics(), BiasedEngine()),
        ScoringService(Settings(), await bus_factory("scoring"), Metrics()),
    ]
    annotation = make_service("annotation", chosen, bus, metrics)
    async with contextlib.AsyncExitStack() as stack:
        for service in (annotation, *stages):
            await service.start()
            stack.push_async_callback(service.drain, 10)
        await queue_made(bus)
        events, true_rate = traffic(400, 0.2)
        await put_claims(bus, events)

        async def counted() -> bool:
            frame, _ = await Frames(bus).load(QUEUE)
            rates = await read_corrected(bus)
            return frame.size == 400 and any(
                row.by == "model" and row.category == "all" and row.opinions == frame.drawn
                for row in rates.rows
            )

        await eventually(counted, within=200)
        assert annotation.problems() == []
    rows = [row for row in (await read_corrected(bus)).rows if row.by == "model" and row.category == "all"]
    (row,) = [row for row in rows if row.version == "*"]
    assert row.queue == QUEUE and row.whole and row.judged is not None and row.corrected is not None
    assert row.judged.low > true_rate, "the first judge is biased"
    assert row.corrected.low <= true_rate <= row.corrected.high
    assert row.corrected.high - row.corrected.low < 0.15
    opinions = await Opinions(bus).latest()
    assert {one.judge.engine for one in opinions if one.judge} == {"reference"}
    assert len({one.probability for one in opinions}) > 2, "uncertain answers are likelier"
    calls = metrics.engine_calls.labels("second-opinion", "reference", "", "ok")._value.get()
    assert calls == len(opinions)


async def test_a_judge_that_cannot_be_is_refused_by_the_service(bus: Bus) -> None:
    chosen = settings(judge="reference")
    with pytest.raises(SettingsError, match="is the first judge of faithscore itself"):
        make_service("annotation", chosen, bus, Metrics())
