"""Judged live by a model that costs something, then replayed: nobody is asked and paid a second time."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.support.llm_server import LlmServer, picture
from tests.support.llm_server import running as llm_server

from groundwatch.events import OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.ledger import audit
from groundwatch.models.settings import ChatSettings
from groundwatch.replay.running import begin
from groundwatch.replay.runs import Run, Runs, changed, judgement
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import Replayer
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import (
    CacheSettings,
    ExtractionSettings,
    RetrySettings,
    Settings,
    StageSettings,
)
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.images import ImageStore, check_image
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import HEADER_PROTOCOLS, OUTCOMES, subject_of
from groundwatch.verification.service import VerificationService

ANSWERS = (
    "A dog sits beside a blue ball.",
    "Two red cats lie on the grass.",
    "A brown horse stands near a white fence.",
)
RETRY = RetrySettings(attempts=6, first_delay=0.05, max_delay=0.1)


def settings_of(server: LlmServer, model: str) -> Settings:
    """Both stages ask this model. It costs."""
    chat = ChatSettings(
        base_url=server.base_url, model=model, input_price=2.0, output_price=8.0, retries=1, first_wait=0.01
    )
    stage = StageSettings(engine="llm", llm=chat)
    return Settings(extraction=ExtractionSettings(**dict(stage)), verification=stage, retry=RETRY)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@contextlib.asynccontextmanager
async def services(bus: Bus, settings: Settings, metrics: Metrics) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for service in (
            ExtractionService(settings, bus, metrics),
            VerificationService(settings, bus, metrics),
            ScoringService(settings, bus, metrics),
        ):
            await service.start()
            stack.push_async_callback(service.drain, 5.0)
        yield


async def record(bus: Bus, *responses: ResponseRecorded) -> None:
    """What the gateway does with them."""
    for response in responses:
        await bus.create(
            Outgoing(
                subject=subject_of("recorded", "live", response.key),
                payload=ENCODER.encode(response),
                headers={HEADER_PROTOCOLS: "faithscore"},
            )
        )


async def stored(bus: Bus) -> str:
    """An image of which the judge knows what it shows."""
    image = check_image(picture("dog ball red grass horse brown fence"), IntakeSettings())
    await ImageStore(bus.js).put(image)
    return image.sha256


def response(name: str, answer: str, image: str, tenant: str = "default") -> ResponseRecorded:
    return ResponseRecorded(
        id=name,
        model="heron-7b",
        tenant=tenant,
        answer=answer,
        images=(image,),
        protocols=("faithscore",),
        recorded_at=time.time(),
    )


async def judged(bus: Bus) -> None:
    deadline = time.monotonic() + 60
    while (ledger := await audit(bus.js)).in_flight:
        assert time.monotonic() < deadline, ledger
    assert ledger.balanced


async def replay(bus: Bus, settings: Settings, name: str, **spec: Any) -> Run:
    wanted = Spec(**({"run": name} | spec))
    run = await begin(bus, settings, wanted)
    replayer = Replayer(bus, await Runs.open(bus.js), settings, run)
    return await replayer.work()


async def outcomes(bus: Bus, run: str) -> dict[str, ResponseScored]:
    return {
        one.id: one
        async for read in read_stream(bus.js, OUTCOMES, subjects=(f"gw.outcome.{run}.>",))
        for one in [msgspec.json.decode(read.data, type=ResponseScored)]
    }


@pytest.mark.slow
async def test_a_replay_by_the_same_judge_asks_nobody(bus: Bus, clean_streams: None) -> None:
    """The judge misbehaves at first: faults, a limit and a reply that it has to mend."""
    image = await stored(bus)
    with llm_server() as server:
        settings = settings_of(server, "500,429:0.01,invalid,ok,ok,503,ok")
        async with services(bus, settings, Metrics()):
            await record(
                bus,
                *(
                    response(f"r{at}", f"{ANSWERS[at % 3]} A box {'x' * at}.", image, f"tenant-{at % 2}")
                    for at in range(12)
                ),
            )
            await judged(bus)
        asked = len(server.requests)
        before = await outcomes(bus, "live")
        assert {one.outcome for one in before.values()} == {OutcomeKind.SCORED}
        assert len({one.score for one in before.values()}) > 1
        assert all(one.usage.calls >= 3 and one.usage.cost > 0 for one in before.values())

        again = await replay(bus, settings, "again")
        assert again.status == "done" and again.counts.scored == 12
        assert len(server.requests) == asked
        after = await outcomes(bus, "again")
        assert {name: judgement(one) for name, one in after.items()} == {
            name: judgement(one) for name, one in before.items()
        }
        found = await changed(bus.history, "live", "again")
        assert (found.pairs, found.same_judges, found.changed) == (12, 12, 0)
        # It says itself that it cost nothing, so its budget is not touched.
        usage = again.counts.usage
        assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.cost) == (0, 0, 0, 0.0)
        assert usage.cached == sum(one.usage.calls for one in before.values())

        # One response that was never judged costs what it costs, and no more.
        await record(bus, response("late", "A cat.", image))
        third = await replay(bus, settings, "third")
        assert third.counts.scored == 13
        assert third.counts.usage.calls == len(server.requests) - asked == 3
        assert Counter(one.usage.calls for one in (await outcomes(bus, "third")).values()) == {0: 12, 3: 1}


async def test_another_verifier_on_known_extractions_pays_for_verification_alone(
    bus: Bus, clean_streams: None
) -> None:
    image = await stored(bus)
    with llm_server() as server:
        settings = settings_of(server, "ok")
        await record(bus, *(response(f"r{at}", answer, image) for at, answer in enumerate(ANSWERS)))
        await replay(bus, settings, "first")
        assert len(server.requests) == 9
        other = settings.model_copy(update={"verification": settings_of(server, "ok:0").verification})
        run = await replay(bus, other, "other")
        assert [one["model"] for one in server.requests[9:]] == ["ok:0"] * 3
        assert (run.counts.usage.calls, run.counts.usage.cached) == (3, 6)


async def test_a_replay_can_be_told_to_ask_again(bus: Bus, clean_streams: None) -> None:
    """For a judge that samples: how far does it agree with itself?"""
    image = await stored(bus)
    with llm_server() as server:
        settings = settings_of(server, "ok")
        await record(bus, response("r", ANSWERS[0], image))
        await replay(bus, settings, "first")
        fresh = settings.model_copy(update={"cache": CacheSettings(enabled=False)})
        run = await replay(bus, fresh, "fresh")
        assert len(server.requests) == 6 and run.counts.usage.calls == 3
