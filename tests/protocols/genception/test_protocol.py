from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import FAST, eventually, record
from tests.support.chains import chain_response, seed_picture, similarities, store, weighted
from tests.support.fakes import StandInCaptioningEngine, StandInGenerationEngine

from groundwatch.captioning.service import CaptioningService
from groundwatch.errors import InputError, TransientError, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge, OutcomeKind, ResponseScored
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.generation.service import GenerationService
from groundwatch.ledger.ledger import audit
from groundwatch.protocols import registry
from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import ASKED, OUTCOMES, parse_subject

SEED = "a" * 64
NAMES = ("extraction", "captioning", "generation", "scoring")


def chain(*found: float | None, length: int = 3) -> ChainAdvanced:
    steps = tuple(ChainStep(description="d", image=SEED, similarity=one) for one in found)
    return ChainAdvanced(
        response=chain_response("c", SEED), protocol="genception", length=length, steps=steps
    )


def test_it_is_known_as_a_protocol_of_chains():
    protocol: EvaluationProtocol = registry.get("genception")
    assert isinstance(protocol, ChainProtocol)
    assert not isinstance(registry.get("faithscore"), ChainProtocol)


def test_a_chain_starts_from_the_one_image_of_a_response():
    started = GenCeption().start(chain_response("c", SEED, tags={}))
    assert (started.length, started.steps, started.protocol) == (GenCeption.default_length, (), "genception")
    with pytest.raises(Unscorable, match="nothing_to_look_at"):
        GenCeption().start(chain_response("c", ""))
    with pytest.raises(InputError, match="from one image, not from 2"):
        GenCeption().start(chain_response("c", SEED, images=(SEED, SEED)))


@pytest.mark.parametrize("told", ["0", "21", "-1", "3.0", "", "three", "٣", "9" * 5000])
def test_a_length_that_is_none_is_refused(told: str):
    with pytest.raises(InputError, match="tag 't'"):
        GenCeption().start(chain_response("c", SEED, tags={"t": told}))


def test_the_prompt_of_a_response_goes_before_ours():
    assert GenCeption().description_prompt(chain_response("c", SEED, prompt="What is it?")) == "What is it?"
    assert "fewer than 500 words" in GenCeption().description_prompt(chain_response("c", SEED))


def test_a_description_is_given_to_the_generator_as_it_is():
    prompt = GenCeption().generation_prompt("A <red> ball {{description}}")
    assert prompt.endswith(": A <red> ball {{description}}")


def test_the_score_is_gc_at_t_beside_every_round():
    scored = GenCeption().score_chain(chain(0.9, 0.5, 0.2))
    assert scored.score == pytest.approx((0.9 + 1.0 + 0.6) / 6)
    assert scored.values == pytest.approx(
        {"s1": 0.9, "s2": 0.5, "s3": 0.2, "gc1": 0.9, "gc2": 1.9 / 3, "gc3": 2.5 / 6}
    )


@pytest.mark.parametrize("found", [(), (0.9,), (0.9, None, 0.2), (0.9, 0.5, None)])
def test_a_chain_with_a_round_missing_is_never_scored(found: tuple[float | None, ...]):
    with pytest.raises(InputError, match="of 3 rounds"):
        GenCeption().score_chain(chain(*found))


def test_no_number_is_no_score():
    with pytest.raises(Unscorable, match="no_similarity"):
        GenCeption().score_chain(chain(0.9, float("nan"), 0.1))


class Flaky:
    """An engine that fails once for everything it is asked, and counts."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.batch = inner.batch
        self.asked: Counter[Any] = Counter()
        self.judge, self.encode, self.close = inner.judge, getattr(inner, "encode", None), inner.close

    async def say(self, turns: Sequence[Any]) -> Sequence[Any]:
        return await self._some(turns, self._inner.say)

    async def generate(self, prompts: Sequence[str]) -> Sequence[Any]:
        return await self._some(prompts, self._inner.generate)

    async def _some(self, items: Sequence[Any], call: Callable[[Sequence[Any]], Awaitable[Any]]) -> Any:
        self.asked.update(items)
        return [
            TransientError("not now") if self.asked[item] == 1 else (await call([item]))[0] for item in items
        ]


Start = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def start(bus_factory: Any, clean_streams: None) -> AsyncIterator[Start]:
    """Starts services by name, each on a connection of its own; engines by name replace the stand-ins."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(*names: str, **engines: Any) -> dict[str, Any]:
            settings, metrics, made = Settings(retry=FAST), Metrics(), {}
            for name in names:
                bus = await bus_factory(name)
                kinds: dict[str, Callable[[], Any]] = {
                    "extraction": lambda bus=bus: ExtractionService(
                        settings, bus, metrics, NoopExtractionEngine()
                    ),
                    "captioning": lambda bus=bus: CaptioningService(
                        settings, bus, metrics, engines.get("captioning") or StandInCaptioningEngine()
                    ),
                    "generation": lambda bus=bus: GenerationService(
                        settings, bus, metrics, engines.get("generation") or StandInGenerationEngine()
                    ),
                    "scoring": lambda bus=bus: ScoringService(settings, bus, metrics),
                }
                made[name] = kinds[name]()
                await made[name].start()
                stack.push_async_callback(made[name].drain, 0.05)
            return made

        yield make


async def outcomes(bus: Bus) -> dict[str, ResponseScored]:
    """By id."""
    found: dict[str, ResponseScored] = {}
    async for message in read_stream(bus.js, OUTCOMES):
        one = msgspec.json.decode(message.data, type=ResponseScored)
        assert one.id not in found
        found[one.id] = one
    return found


async def settled(bus: Bus, count: int) -> dict[str, ResponseScored]:
    """Every outcome, once there are so many."""

    async def there() -> bool:
        return len(await outcomes(bus)) >= count

    await eventually(there, within=20)
    ledger = await audit(bus.js)
    assert ledger.balanced and not ledger.in_flight and not ledger.lost, ledger
    return await outcomes(bus)


async def rounds(bus: Bus) -> Counter[tuple[str, int]]:
    """How often each stage was sent each round."""
    found: Counter[tuple[str, int]] = Counter()
    async for message in read_stream(bus.js, ASKED):
        address = parse_subject(message.subject)
        assert address is not None
        found[address.stage, int(message.subject.rpartition(".")[2])] += 1
    return found


def check(outcome: ResponseScored, seed: bytes, length: int) -> None:
    """The outcome is what the arithmetic makes of the chain."""
    expected = similarities(seed, length)
    assert outcome.outcome is OutcomeKind.SCORED, outcome
    assert [outcome.values[f"s{t}"] for t in range(1, length + 1)] == pytest.approx(expected, abs=1e-12)
    assert outcome.score == outcome.values[f"gc{length}"] == pytest.approx(weighted(expected), abs=1e-12)
    assert (outcome.eligible, outcome.decided) == (length, length)


async def test_chains_of_three_have_the_expected_values(bus: Bus, start: Start) -> None:
    await start(*NAMES)
    seeds = [seed_picture(number) for number in range(8)]
    for number, seed in enumerate(seeds):
        await record(bus, chain_response(f"c{number}", await store(bus, seed)))
    found = await settled(bus, len(seeds))
    for number, seed in enumerate(seeds):
        check(found[f"c{number}"], seed, 3)
    one = found["c0"]
    assert one.judges.keys() == {"captioning", "generation"}
    assert {judge.engine for judge in one.judges.values()} == {"stand-in"}
    assert one.usage.calls == 6
    assert one.tags == {"t": "3", "category": "count"}
    assert len({outcome.score for outcome in found.values()}) == len(seeds)
    assert await rounds(bus) == {
        (stage, t): len(seeds) for stage in ("captioning", "generation") for t in (1, 2, 3)
    }


async def test_every_round_drifts_and_every_image_is_stored(bus: Bus, start: Start) -> None:
    await start(*NAMES)
    seed = seed_picture(1)
    await record(bus, chain_response("c", await store(bus, seed), tags={"t": "6"}))
    found = (await settled(bus, 1))["c"]
    check(found, seed, 6)
    values = [found.values[f"s{t}"] for t in range(1, 7)]
    assert values == sorted(values, reverse=True) and len(set(values)) == 6
    images = set()
    async for message in read_stream(bus.js, ASKED):
        for step in msgspec.json.decode(message.data, type=ChainAdvanced).steps:
            images |= {step.image} - {""}
    assert len(images) == 5
    for image in images:
        assert (await ImageStore(bus.js).load(image))[1] == "image/png"


async def test_a_chain_waits_for_whoever_is_away_and_goes_on(bus: Bus, start: Start) -> None:
    seed = seed_picture(2)
    await record(bus, chain_response("c", await store(bus, seed)))
    running = await start("scoring")
    for t in (1, 2, 3):
        for stage in ("extraction", "captioning") if t == 1 else ("captioning",):
            await _in_flight(bus, stage)
            running |= await start(stage)
            await _in_flight(bus, "generation" if stage == "captioning" else "captioning")
            await running.pop(stage).drain(1)
        running |= await start("generation")
        if t < 3:
            await _in_flight(bus, "captioning")
        else:
            await settled(bus, 1)
        await running.pop("generation").drain(1)
    check((await outcomes(bus))["c"], seed, 3)
    assert set((await rounds(bus)).values()) == {1}


async def _in_flight(bus: Bus, stage: str) -> None:
    async def there() -> bool:
        ledger = await audit(bus.js)
        # It may move on while it is counted.
        assert ledger.balanced or ledger.unsettled, ledger
        return ledger.balanced and ledger.in_flight_at == {stage: 1}

    await eventually(there)


async def test_a_fault_in_every_round_changes_nothing(bus: Bus, start: Start) -> None:
    captioning, generation = Flaky(StandInCaptioningEngine()), Flaky(StandInGenerationEngine())
    await start(*NAMES, captioning=captioning, generation=generation)
    seed = seed_picture(3)
    await record(bus, chain_response("c", await store(bus, seed)))
    check((await settled(bus, 1))["c"], seed, 3)
    assert list(captioning.asked.values()) == list(generation.asked.values()) == [2, 2, 2]


class Away(StandInCaptioningEngine):
    """Describes the seed, then nothing until it is `back`."""

    back = False

    async def say(self, turns: Sequence[Any]) -> Sequence[Any]:
        known = {turn.images[0][0] for turn in turns} <= {seed_picture(8)}
        return await super().say(turns) if known or self.back else [TransientError("away") for _ in turns]


async def test_a_chain_given_up_half_way_goes_on_from_its_dead_letter(bus: Bus, start: Start) -> None:
    away, seed = Away(), seed_picture(8)
    await start(*NAMES, captioning=away)
    await record(bus, chain_response("c", await store(bus, seed)))
    found = (await settled(bus, 1))["c"]
    assert (found.outcome, found.reason) == (OutcomeKind.UNSCORED, "dead_letter")
    (letter,) = [letter async for letter in dead_letters(bus)]
    assert (letter.stage, letter.protocols) == ("captioning", ("genception",))
    assert letter.subject.endswith(".2")
    away.back = True
    await send_again(bus, letter)

    async def scored() -> bool:
        return (await audit(bus.js)).scored == 1

    await eventually(scored)
    check((await outcomes(bus))["c"], seed, 3)
    assert (await audit(bus.js)).balanced
    assert set((await rounds(bus)).values()) == {1}


class Refusing(StandInCaptioningEngine):
    """Describes the seed, and nothing that was generated."""

    def __init__(self) -> None:
        self._asked = 0

    async def say(self, turns: Sequence[Any]) -> Sequence[Any]:
        self._asked += 1
        return [Unscorable("refused", "no more")] if self._asked > 1 else await super().say(turns)


async def test_a_model_that_refuses_half_way_leaves_the_chain_unscored(bus: Bus, start: Start) -> None:
    await start(*NAMES, captioning=Refusing())
    await record(bus, chain_response("c", await store(bus, seed_picture(4))))
    found = (await settled(bus, 1))["c"]
    assert (found.outcome, found.reason, found.score) == (OutcomeKind.UNSCORED, "refused", None)
    assert found.judges.keys() == {"captioning", "generation"}
    assert found.usage.calls == 2


class Other(StandInCaptioningEngine):
    """The same answers by another judge."""

    def judge(self, model: str, prompt: str) -> Judge:
        return Judge(engine="stand-in", prompt=prompt, version="2")


async def test_one_number_is_never_of_two_judges(bus: Bus, start: Start) -> None:
    running = await start("extraction", "captioning", "scoring")
    await record(bus, chain_response("c", await store(bus, seed_picture(5))))
    await _in_flight(bus, "generation")
    await running["captioning"].drain(1)
    await start("captioning", "generation", captioning=Other())
    found = (await settled(bus, 1))["c"]
    assert (found.outcome, found.reason) == (OutcomeKind.UNSCORED, "judge_changed")
    assert found.judges["captioning"].version == "1"
    assert found.usage.calls == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"images": ()}, "nothing_to_look_at"),
        ({"images": (SEED,)}, "missing_image"),
        ({"images": (SEED, SEED)}, "dead_letter"),
        ({"tags": {"t": "many"}}, "dead_letter"),
    ],
)
async def test_what_cannot_be_a_chain_has_an_outcome(
    bus: Bus, start: Start, changes: dict[str, Any], reason: str
) -> None:
    await start(*NAMES)
    image = await store(bus, seed_picture(6))
    await record(bus, chain_response("bad", image, **changes))
    await record(bus, chain_response("good", image))
    found = await settled(bus, 2)
    assert (found["bad"].outcome, found["bad"].reason) == (OutcomeKind.UNSCORED, reason)
    assert found["good"].outcome is OutcomeKind.SCORED


async def test_the_ledger_balances_while_chains_go_round(bus: Bus, start: Start) -> None:
    await start(*NAMES)
    image = await store(bus, seed_picture(7))
    seen: Counter[str] = Counter()

    async def traffic() -> None:
        for number in range(120):
            await record(bus, chain_response(f"c{number}", image, protocols=("genception", "faithscore")))

    flowing = asyncio.create_task(traffic())
    while not flowing.done() or not {"captioning", "generation"} & seen.keys():
        ledger = await audit(bus.js)
        assert not ledger.lost and (ledger.balanced or ledger.unsettled), ledger
        seen.update(ledger.in_flight_at)
    await flowing

    async def only_verification() -> bool:
        return (await audit(bus.js)).in_flight_at == {"verification": 120}

    await eventually(only_verification, within=30)
    assert (await audit(bus.js)).scored == 120
