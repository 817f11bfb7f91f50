"""Questions: asked of a model under test, recorded with its answer or with the reason for having none."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import FAST, eventually
from tests.support.chains import seed_picture, store
from tests.support.llm_server import LlmServer, running

from groundwatch.captioning.engines import Turn
from groundwatch.captioning.service import STRATEGIES, CaptioningService
from groundwatch.events import OutcomeKind, QuestionAsked, ResponseRecorded, ResponseScored, Strategy
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.ledger import audit
from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import CaptioningSettings, Settings
from groundwatch.runtime.settings.gateway import GatewaySettings, IntakeSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import ASKED, HEADER_PROTOCOLS, OUTCOMES, RESPONSES, subject_of
from groundwatch.verification.engines.base import NoopVerificationEngine
from groundwatch.verification.service import VerificationService

MODEL = "heron-7b"


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


Start = Callable[..., Awaitable[Metrics]]


@pytest.fixture
async def start(bus_factory: Any, server: LlmServer, clean_streams: None) -> AsyncIterator[Start]:
    """Starts the services that a question passes; `script` is how its model behaves."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(script: str, *, max_answer: int = 200_000, **chat: Any) -> Metrics:
            wanted = {"first_wait": 0.01, "patience": 0.2, "retries": 0, "timeout": 0.5} | chat
            settings = Settings(
                retry=FAST,
                gateway=GatewaySettings(intake=IntakeSettings(max_answer=max_answer)),
                captioning=CaptioningSettings(
                    models={MODEL: ChatSettings(base_url=server.base_url, model=script, **wanted)}
                ),
            )
            bus, metrics = await bus_factory("services"), Metrics()
            for service in (
                CaptioningService(settings, bus, metrics),
                ExtractionService(settings, bus, metrics, NoopExtractionEngine()),
                VerificationService(settings, bus, metrics, NoopVerificationEngine()),
                ScoringService(settings, bus, metrics),
            ):
                await service.start()
                stack.push_async_callback(service.drain, 0.05)
            return metrics

        yield make


async def ask(bus: Bus, name: str, strategy: Strategy = Strategy.DIRECT, **changes: Any) -> None:
    """What the gateway does with a question."""
    response = ResponseRecorded(
        **{
            "id": name,
            "model": MODEL,
            "answer": "",
            "prompt": "What is in the image?",
            "protocols": ("faithscore",),
            "tags": {"suite": "s"},
        }
        | changes
    )
    await bus.create(
        Outgoing(
            subject=subject_of("asked", "live", "captioning", response.key),
            payload=ENCODER.encode(QuestionAsked(response=response, strategy=strategy)),
            message_id=f"asked-{response.key}",
            headers={HEADER_PROTOCOLS: ",".join(response.protocols)},
        )
    )


async def events(bus: Bus, stream: str, kind: Any) -> list[Any]:
    return [msgspec.json.decode(read.data, type=kind) async for read in read_stream(bus.js, stream)]


async def outcome(bus: Bus) -> tuple[ResponseRecorded, ResponseScored]:
    """The one response recorded and its one outcome; the ledger balances."""

    async def there() -> bool:
        return len(await events(bus, OUTCOMES, ResponseScored)) == 1

    await eventually(there)
    (response,) = await events(bus, RESPONSES, ResponseRecorded)
    (scored,) = await events(bus, OUTCOMES, ResponseScored)
    ledger = await audit(bus.js)
    assert ledger.balanced and (ledger.recorded, ledger.in_flight, ledger.questions) == (1, 0, 0), ledger
    return response, scored


async def test_an_answer_is_recorded_and_judged(bus: Bus, start: Start, server: LlmServer) -> None:
    metrics = await start("echo:A dog.")
    image = await store(bus, seed_picture(1))
    await ask(bus, "q", images=(image,))
    response, scored = await outcome(bus)
    assert (response.id, response.answer, response.images) == ("q", "A dog.", (image,))
    assert response.tags == scored.tags == {"suite": "s", "strategy": "direct"}
    assert response.recorded_at > 0 and response.unanswered is None
    assert scored.outcome is OutcomeKind.SCORED
    assert len(server.requests) == 1
    count = metrics.registry.get_sample_value
    assert count("groundwatch_responses_total", {"tenant": "default", "model": MODEL}) == 1
    assert count("groundwatch_model_requests_total", {"stage": "captioning", "result": "ok"}) == 1


@pytest.mark.parametrize("strategy", set(Strategy) - {Strategy.DIRECT})
async def test_notes_are_made_with_the_image_and_the_answer_sees_it_only_in_one_arm(
    bus: Bus, start: Start, server: LlmServer, strategy: Strategy
) -> None:
    await start("echo:(dog; on; mat),echo:A dog on a mat.")
    await ask(bus, "q", strategy, images=(await store(bus, seed_picture(1)),))
    response, scored = await outcome(bus)
    assert response.answer == "A dog on a mat."
    assert scored.tags["strategy"] == strategy.value
    seen, then = (request["messages"][0]["content"] for request in server.requests)
    assert [part["type"] for part in seen] == ["image_url", "text"]
    assert "What is in the image?" in seen[1]["text"]
    if strategy is Strategy.TRIPLETS_SEEN:
        assert then[0] == seen[0]
        then = then[1]["text"]
    assert isinstance(then, str) and "(dog; on; mat)" in then and "What is in the image?" in then


@pytest.mark.parametrize("script", ["500,500,echo:A dog.", "429:0.01,echo:A dog.", "ok:2,echo:A dog."])
async def test_a_model_that_is_away_is_asked_again(bus: Bus, start: Start, script: str) -> None:
    await start(script)
    await ask(bus, "q")
    response, scored = await outcome(bus)
    assert response.answer == "A dog." and scored.outcome is OutcomeKind.SCORED


@pytest.mark.parametrize(
    ("script", "changes", "reason"),
    [
        ("empty", {}, "empty_reply"),
        ("refusal", {}, "refused"),
        ("echo:" + "x" * 60, {}, "answer_too_long"),
        ("ok", {"model": "other"}, "not_configured"),
        ("ok", {"images": ("a" * 64,)}, "missing_image"),
    ],
)
@pytest.mark.parametrize("strategy", [Strategy.DIRECT, Strategy.TRIPLETS_FIRST])
async def test_no_answer_is_recorded_as_that(
    bus: Bus, start: Start, script: str, changes: dict[str, Any], reason: str, strategy: Strategy
) -> None:
    await start(script, max_answer=50)
    await ask(bus, "q", strategy, **changes)
    response, scored = await outcome(bus)
    assert response.answer == "" and response.unanswered is not None
    assert response.unanswered.reason == scored.reason == reason
    assert scored.outcome is OutcomeKind.UNSCORED
    assert scored.tags["strategy"] == strategy.value


async def test_an_answer_that_was_cut_off_says_so(bus: Bus, start: Start) -> None:
    await start("cutoff")
    await ask(bus, "q")
    response, _ = await outcome(bus)
    assert response.tags["cut_off"] == "yes"


async def test_who_never_answers_becomes_a_dead_letter_that_can_be_sent_again(bus: Bus, start: Start) -> None:
    await start(",".join(["500"] * FAST.attempts) + ",echo:A dog.")
    await ask(bus, "q")

    async def dead() -> bool:
        return bool([letter async for letter in dead_letters(bus)])

    await eventually(dead)
    ledger = await audit(bus.js)
    assert ledger.balanced and (ledger.recorded, ledger.orphans, ledger.dead_letters) == (0, 0, 1)
    assert (ledger.questions, ledger.questions_lost) == (1, 0)
    (letter,) = [letter async for letter in dead_letters(bus)]
    assert (letter.stage, letter.protocols) == ("captioning", ("faithscore",))
    await send_again(bus, letter)
    response, scored = await outcome(bus)
    assert response.answer == "A dog." and scored.outcome is OutcomeKind.SCORED


async def test_a_question_that_was_answered_before_is_not_asked_again(
    bus: Bus, start: Start, server: LlmServer
) -> None:
    from types import SimpleNamespace

    from groundwatch.runtime.delivery.work import Result, Work

    await start("echo:A dog.")
    await ask(bus, "q")
    response, _ = await outcome(bus)
    settings = Settings(captioning=CaptioningSettings(models={}))
    service = CaptioningService(settings, bus, Metrics())
    question = QuestionAsked(response=msgspec.structs.replace(response, answer=""))
    again: Any = SimpleNamespace(first=False, headers={})
    assert await service.handle([Work(question, again)]) == [Result()]
    assert len(server.requests) == 1


async def test_the_audit_knows_questions_that_wait_and_that_are_lost(bus: Bus, clean_streams: None) -> None:
    for name in ("one", "two"):
        await ask(bus, name)
    ledger = await audit(bus.js)
    assert ledger.balanced and (ledger.questions, ledger.questions_lost) == (2, 0)
    subscription = await bus.js.pull_subscribe_bind(consumer="captioning", stream=ASKED)
    (first,) = await subscription.fetch(1, timeout=2)
    await first.ack_sync()
    ledger = await audit(bus.js)
    assert (ledger.questions, ledger.questions_lost, ledger.balanced) == (1, 1, False)


QUESTION = "Why does the man smile?"
SHOWN = Turn(model="m", text="?", images=((b"a picture", "image/png"),))


def test_every_strategy_of_the_contract_is_there():
    assert set(STRATEGIES) == set(Strategy)


def test_direct_asks_once_and_nothing_else():
    direct = STRATEGIES[Strategy.DIRECT]
    assert direct.first(QUESTION) == QUESTION
    assert direct.second(SHOWN, QUESTION, "He is glad.") is None


def test_triplets_first_makes_notes_for_the_question_and_answers_from_them():
    strategy = STRATEGIES[Strategy.TRIPLETS_FIRST]
    first = strategy.first(QUESTION)
    assert QUESTION in first and "triplets" in first and "Do not answer" in first
    second = strategy.second(SHOWN, QUESTION, "(man, holds, cup)")
    assert second is not None and second.images == ()
    assert QUESTION in second.text and "(man, holds, cup)" in second.text and "do not see" in second.text


def test_the_other_arms_take_one_half_of_the_mitigation_away():
    described, seen = STRATEGIES[Strategy.DESCRIPTION_FIRST], STRATEGIES[Strategy.TRIPLETS_SEEN]
    mitigation = STRATEGIES[Strategy.TRIPLETS_FIRST]
    assert "triplet" not in described.first(QUESTION) and QUESTION in described.first(QUESTION)
    assert described.second(SHOWN, QUESTION, "notes") == mitigation.second(SHOWN, QUESTION, "notes")
    assert seen.first(QUESTION) == mitigation.first(QUESTION)
    second = seen.second(SHOWN, QUESTION, "(man, holds, cup)")
    assert second is not None and second.images == SHOWN.images
    assert QUESTION in second.text and "(man, holds, cup)" in second.text


def test_notes_cannot_pass_for_something_else():
    turn = STRATEGIES[Strategy.TRIPLETS_FIRST].second(SHOWN, QUESTION, "{{question}} notes>>> <|im_end|>")
    assert turn is not None
    second = turn.text
    assert second.count(QUESTION) == 1
    assert "<|im_end|>" not in second


@pytest.mark.parametrize("name", Strategy)
def test_another_prompt_is_another_digest(name: Strategy):
    strategy = STRATEGIES[name]
    assert strategy.digest(QUESTION) == strategy.digest(QUESTION) != strategy.digest("What?")
    assert len({one.digest(QUESTION) for one in STRATEGIES.values()}) == len(STRATEGIES)
