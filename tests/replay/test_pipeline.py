"""The services' handlers in one process: they say what the services say, and every event has an end."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from tests.replay.conftest import Replays, outcomes, record, response, settings_of
from tests.runtime.conftest import eventually

from groundwatch.errors import TransientError, UsageError
from groundwatch.events import ClaimsExtracted, Judge, NoAnswer, OutcomeKind, Reference, Usage
from groundwatch.extraction.engines.base import Extraction, NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.protocols.base import Stage, statements, units_of
from groundwatch.reading.graph import Fact, Reading
from groundwatch.replay.pipeline import MOST_ATTEMPTS, Pair, Pipeline
from groundwatch.replay.runs import judgement
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import ExtractionSettings, RetrySettings, Settings, StageSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import EXTRACTED, JUDGED
from groundwatch.verification.engines.base import NoopVerificationEngine
from groundwatch.verification.service import VerificationService


@pytest.mark.slow
async def test_a_replay_says_what_the_services_said(replays: Replays, bus: Bus) -> None:
    settings = settings_of(bus, extraction="reader", verification="reference")
    answers = ("A dog sits beside a blue ball.", "Two red balls lie on the grass.", "I like it all.")
    await record(
        bus,
        *(response(f"r{number}", answer=answers[number % 3]) for number in range(12)),
        response("declined", declined={"faithscore": "sampled_out"}),
        response("silent", answer="", unanswered=NoAnswer(reason="refused", detail="no")),
        response("odd", protocols=("no-such", "faithscore")),
        response("unreferenced", protocols=("tri-he",), reference=None),
    )

    async def judged() -> bool:
        return int((await bus.js.stream_info("GW_OUTCOMES")).state.messages) == 17

    async with contextlib.AsyncExitStack() as stack:
        for made in (ExtractionService, VerificationService, ScoringService):
            service = made(settings, bus, Metrics())
            await service.start()
            stack.push_async_callback(service.drain, 5.0)
        await eventually(judged, within=60)
    await replays.done("again", settings, keep=True)
    live, again = await outcomes(bus, "live"), await outcomes(bus, "again")
    assert {name: judgement(one) for name, one in live.items()} == {
        name: judgement(one) for name, one in again.items()
    }
    assert len(live) == 17 and len({(one.outcome, one.reason) for one in live.values()}) > 4
    for stream in (EXTRACTED, JUDGED):
        kept: dict[str, dict[str, bytes]] = {"live": {}, "again": {}}
        async for message in read_stream(bus.js, stream):
            run, rest = message.subject.split(".", 3)[2:]
            kept[run][rest] = message.data.replace(b'"run":"again",', b"")
        assert kept["live"] == kept["again"] and len(kept["live"]) > 12


def offline(**engines: object) -> Pipeline:
    """Without a server."""
    settings = Settings(retry=RetrySettings(attempts=100, first_delay=0.01, max_delay=0.01))
    given = {Stage.EXTRACTION: NoopExtractionEngine(), Stage.VERIFICATION: NoopVerificationEngine()}
    return Pipeline(settings, engines=given | {Stage(name): engine for name, engine in engines.items()})


async def test_a_judge_that_stays_away_is_left_after_a_while() -> None:
    class Away(NoopVerificationEngine):
        asked = 0

        async def verify(self, extracted, protocol):
            self.asked += 1
            return [TransientError("not now")] * len(extracted)

    away = Away()
    (found,) = [one async for one in offline(verification=away).outcomes("faithscore", [response("r")])]
    assert (found.outcome, found.reason) == (OutcomeKind.UNSCORED, "dead_letter")
    assert found.detail == "verification: not now"
    # Whoever judged before is told, with what that took.
    assert set(found.judges) == {"extraction"}
    assert away.asked == MOST_ATTEMPTS


async def test_a_hallucination_that_is_said_twice_counts_twice() -> None:
    """Equation 1 and the sentence level of FaithScore by hand: two of three facts are wrong."""

    class Twice(NoopExtractionEngine):
        async def extract(self, responses, protocol):
            units = units_of(responses[0].answer)
            texts = ("There is a cat.", "There is a cat.", "There is a dog.")
            facts = (Fact(text, None, text[11:-1], unit=at) for at, text in enumerate(texts))
            claims = statements(responses[0], Reading(units=units, facts=tuple(facts)))
            return [Extraction(units=units, claims=claims)]

    said = response(
        "r",
        answer="There is a cat. There is a cat. There is a dog.",
        reference=Reference(objects=("dog",), complete=True),
    )
    settings = Settings(verification=StageSettings(engine="reference"))
    pipeline = Pipeline(settings, engines={Stage.EXTRACTION: Twice()})
    (found,) = [one async for one in pipeline.outcomes("faithscore", [said])]
    wanted = {"faithscore": 1 / 3, "sentence_level": 1 / 3, "facts": 3, "refuted": 2, "entities": 2}
    assert {name: found.values[name] for name in wanted} == pytest.approx(wanted)


async def test_what_the_user_must_mend_ends_it() -> None:
    class Wrong(NoopExtractionEngine):
        async def extract(self, responses, protocol):
            raise UsageError("give it a model")

    with pytest.raises(UsageError, match="give it a model"):
        _ = [one async for one in offline(extraction=Wrong()).outcomes("faithscore", [response("r")])]


async def test_what_no_handler_here_takes_on_is_told() -> None:
    chain = response("chain", images=("0" * 64,), protocols=("genception",))
    pair = Pair(chain, "genception")
    await offline().judge(Stage.EXTRACTION, [pair])
    assert pair.outcome.reason == "dead_letter" and "no stage captioning" in pair.outcome.detail


async def test_a_fault_keeps_what_was_paid_before_it() -> None:
    paid = ClaimsExtracted(
        response=response("r"),
        protocol="faithscore",
        judge=Judge(engine="llm", model="m", prompt=""),
        usage=Usage(calls=2, cost=0.5),
    )
    unknown = msgspec.structs.replace(paid, protocol="no-such")
    pair = Pair(unknown, "no-such")
    await offline().judge(Stage.VERIFICATION, [pair])
    assert pair.outcome.usage == paid.usage and pair.outcome.judges == {"extraction": paid.judge}


async def test_only_what_is_needed_is_built() -> None:
    """The engine of a stage that no protocol goes through may be one that nobody knows."""
    settings = Settings(
        extraction=ExtractionSettings(engine="noop"), matching=StageSettings(engine="lexical")
    )
    pipeline = Pipeline(
        settings.model_copy(update={"verification": StageSettings(engine="nobody")}),
    )
    matched = response("r", protocols=("valor-object-existence",))
    (found,) = [one async for one in pipeline.outcomes("valor-object-existence", [matched])]
    assert set(found.judges) == {"extraction", "matching"}
    with pytest.raises(UsageError, match="nobody"):
        _ = [one async for one in pipeline.outcomes("faithscore", [response("r")])]
