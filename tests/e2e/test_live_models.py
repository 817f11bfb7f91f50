"""The whole system with served models that really look: images in, no reference, verdicts out.

One start for the module: nats-server, all services, and a Triton with the miniature world's checkpoints.
The world's truth is known to the tests alone.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import pytest_asyncio
from PIL import Image

pytest.importorskip("tritonclient.grpc", reason="needs the extra triton")
pytest.importorskip("pytriton", reason="needs the extra triton-server")

from tests.support.command_line import CommandLine
from tests.support.samples import SAMPLES
from tools.miniature.answers import answer

from groundwatch.events import ChainAdvanced, Decision, OutcomeKind, ResponseScored
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import COLORS, Scene, Thing, png, scenes
from groundwatch.models.repository import ServedModel
from groundwatch.models.settings import TritonSettings
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import RetrySettings, Settings
from groundwatch.runtime.settings.gateway import GatewaySettings, IntakeSettings
from groundwatch.runtime.stores.images import ImageStore, check_image
from groundwatch.system.up import MINIATURE, System, whole_system
from groundwatch.topology import JUDGED, OUTCOMES, parse_subject

MODELS = {
    "lvlm_good": "lvlm",
    "verifier": "verifier",
    "generator": "generator",
    "image_encoder": "image_encoder",
}
SEED = 7 * 10**9
"""Scenes from here on belong to no training."""

IN_DETAIL = 0
"""The manner that says most of each thing."""

PATIENCE = 480.0
"""Seconds for whatever was sent to be settled, a killed Triton's loading of all models included."""

_absent = [name for name in MODELS if not (MINIATURE / name).is_dir()]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(_absent), reason=f"no checkpoints {', '.join(_absent)} in {MINIATURE}"),
]


class Live:
    """The running system as an application and its operator see it."""

    def __init__(self, system: System, http: httpx.AsyncClient) -> None:
        self.system = system
        self._http = http

    async def send(self, path: str, bodies: Sequence[dict[str, Any]]) -> None:
        """Post all at once; every one must be taken."""
        replies = await asyncio.gather(*(self._http.post(path, json=body) for body in bodies))
        assert [reply.status_code for reply in replies] == [202] * len(bodies), replies[0].text

    async def notes(self) -> str:
        """What `/readyz` tells beside its status."""
        return (await self._http.get("/readyz")).text

    async def audit(self) -> Ledger:
        return await audit(self.system.bus.js)

    async def settled(self) -> Ledger:
        """The ledger once nothing is under way; it must balance, with nothing among the dead letters."""
        deadline = time.monotonic() + PATIENCE
        while (ledger := await self.audit()).in_flight or ledger.questions:
            assert time.monotonic() < deadline, ledger
            await asyncio.sleep(0.2)
        assert ledger.balanced, ledger
        assert (ledger.lost, ledger.orphans, ledger.dead_letters, ledger.questions_lost) == (0, 0, 0, 0)
        return ledger

    async def outcomes(self, prefix: str) -> dict[str, ResponseScored]:
        """By id, those whose ids begin so, each of which there must be once."""
        found = [
            one
            async for read in read_stream(self.system.bus.js, OUTCOMES)
            if (one := msgspec.json.decode(read.data, type=ResponseScored)).id.startswith(prefix)
        ]
        by_id = {one.id: one for one in found}
        assert len(by_id) == len(found), Counter(one.id for one in found).most_common(3)
        return by_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    models = {
        name: ServedModel(kind=kind, checkpoint=str(MINIATURE / name), parameters={"threads": 1})
        for name, kind in MODELS.items()
    }
    settings = Settings(
        gateway=GatewaySettings(port=0),
        retry=RetrySettings(attempts=300, first_delay=0.2, max_delay=5.0),
        triton=TritonSettings(breaker_pause=1.0),
    )
    async with (
        whole_system(settings, tmp_path_factory.mktemp("live"), models) as system,
        httpx.AsyncClient(base_url=system.gateway_url, timeout=60) as http,
    ):
        yield Live(system, http)


def response(name: str, shown: Scene, said: str, **changes: Any) -> dict[str, Any]:
    """What an application posts: its picture, and no reference."""
    data = base64.b64encode(png(shown)).decode()
    return {
        "id": name,
        "model": "heron",
        "prompt": PROMPTS[IN_DETAIL][0],
        "answer": said,
        "images": [f"data:image/png;base64,{data}"],
        "protocols": ["faithscore"],
    } | changes


def with_wrong_color(shown: Scene, random: Random) -> tuple[Scene, str]:
    """The scene with its first thing in a color that nothing in it has, and that color."""
    there = {thing.color for thing in shown.things}
    color = random.choice([name for name in COLORS if name not in there])
    first: Thing = msgspec.structs.replace(shown.things[0], color=color)
    return msgspec.structs.replace(shown, things=(first, *shown.things[1:])), color


async def test_a_wrong_color_is_refuted_without_any_reference(live: Live) -> None:
    random = Random(SEED)
    drawn = list(islice((one for one in scenes(SEED) if len(one.things) > 1), 8))
    planted = [with_wrong_color(one, random) for one in drawn]
    told_right = [response(f"color-{at}-right", one, answer(one, IN_DETAIL)) for at, one in enumerate(drawn)]
    told_wrong = [
        response(f"color-{at}-wrong", one, answer(other, IN_DETAIL))
        for at, (one, (other, _)) in enumerate(zip(drawn, planted, strict=True))
    ]
    await live.send("/v1/responses", [*told_right, *told_wrong])
    await live.settled()
    found = await live.outcomes("color-")
    assert len(found) == len(told_right) + len(told_wrong)
    for one in found.values():
        assert one.outcome is OutcomeKind.SCORED, one
        assert one.judges["verification"].engine == "triton"
        # For a guess such as "They might be part of a game" the judge has no word.
        undecided = sum(claim.decision is Decision.UNDECIDED for claim in one.claims)
        assert one.decided + undecided == one.eligible == len(one.claims) and undecided <= 1 < one.decided
        for claim in one.claims:
            if claim.decision is Decision.UNDECIDED:
                assert claim.hedged, claim
                continue
            assert claim.probability is not None and 0 <= claim.probability <= 1
            assert claim.decision is (Decision.SUPPORTED if claim.probability >= 0.5 else Decision.REFUTED)
    caught = 0
    for at, (_, color) in enumerate(planted):
        about = [
            claim
            for claim in found[f"color-{at}-wrong"].claims
            if color in claim.text.rstrip(".").split() and claim.category in ("color", "entity")
        ]
        assert about, found[f"color-{at}-wrong"].claims
        caught += all(claim.decision is Decision.REFUTED for claim in about)
    assert caught >= len(planted) - 1, "the planted color was believed"
    # How good the verifier is, its card says; here it is enough that it looks.
    true = [claim for at in range(len(drawn)) for claim in found[f"color-{at}-right"].claims]
    assert sum(claim.decision is Decision.SUPPORTED for claim in true) >= 0.8 * len(true)
    wrong, right = (
        sum(scores(found[f"color-{at}-{which}"]) for at in range(len(drawn))) for which in ("wrong", "right")
    )
    assert wrong < right


def scores(outcome: ResponseScored) -> float:
    assert outcome.score is not None
    return outcome.score


async def test_the_documented_samples_are_scored_by_looking(live: Live) -> None:
    await live.send("/v1/responses", [SAMPLES[name] | {"id": f"sample-{name}"} for name in SAMPLES])
    await live.settled()
    found = await live.outcomes("sample-")
    assert found.keys() == {f"sample-{name}" for name in SAMPLES}
    for one in found.values():
        assert (one.outcome, one.score) == (OutcomeKind.SCORED, 0.75), one
        assert one.judges["verification"].engine == "triton"
        assert [fact.text for fact in one.claims if fact.decision is Decision.REFUTED] == [
            "The box is green."
        ]


async def test_a_question_is_asked_answered_and_judged(live: Live) -> None:
    (shown,) = islice(scenes(SEED + 1), 1)
    question = response("question-0", shown, "", model="lvlm_good")
    del question["answer"]
    await live.send("/v1/questions", [question])
    await live.settled()
    (outcome,) = (await live.outcomes("question-")).values()
    assert outcome.outcome is OutcomeKind.SCORED, outcome
    assert outcome.claims and outcome.answer_words > 3
    assert scores(outcome) > 0.5, "the good model tells the truth"


def chain(name: str, shown: Scene, length: int = 2) -> dict[str, Any]:
    """A chain whose descriptions the good model writes."""
    more = {"protocols": ["genception"], "tags": {"t": str(length)}}
    return response(name, shown, "", model="lvlm_good", **more)


async def test_chains_of_real_descriptions_and_images(live: Live) -> None:
    drawn = list(islice(scenes(SEED + 2), 2))
    await live.send("/v1/responses", [chain(f"chain-{at}", one) for at, one in enumerate(drawn)])
    await live.settled()
    found = await live.outcomes("chain-")
    assert len(found) == 2
    for one in found.values():
        assert one.outcome is OutcomeKind.SCORED, one
        assert (one.eligible, one.decided, one.usage.calls) == (2, 2, 4)
        assert all(-1 <= one.values[name] <= 1.000001 for name in ("s1", "s2", "gc1", "gc2"))
        assert one.score == one.values["gc2"]
        assert {stage: judge.engine for stage, judge in one.judges.items()} == {
            "captioning": "triton",
            "generation": "triton",
        }
    ends = await finished_chains(live)
    kept = ImageStore(live.system.bus.js)
    for at, shown in enumerate(drawn):
        end = ends[f"chain-{at}"]
        seed = hashlib.sha256(png(shown)).hexdigest()
        assert end.response.images == (seed,)
        named = [seed, *(step.image for step in end.steps)]
        assert len(named) == 3 and seed not in named[1:], "a generated image is no copy"
        drawings = []
        for digest in named:
            data, media_type = await kept.load(digest)
            assert hashlib.sha256(data).hexdigest() == digest
            assert (media_type, check_image(data, IntakeSettings()).sha256) == ("image/png", digest)
            drawings.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=int))
        # The same words draw the same image, but for what is drawn beside it: a good chain comes to rest.
        said = [step.description for step in end.steps]
        assert (np.abs(drawings[1] - drawings[2]).max() <= 2) == (said[0] == said[1])
        assert all(step.description.strip() for step in end.steps)


async def finished_chains(live: Live) -> dict[str, ChainAdvanced]:
    """By id, the event with which a chain arrived at scoring."""
    found = {}
    async for read in read_stream(live.system.bus.js, JUDGED):
        address = parse_subject(read.subject)
        assert address is not None
        if address.protocol == "genception":
            event = msgspec.json.decode(read.data, type=ChainAdvanced)
            found[event.response.id] = event
    return found


async def test_triton_is_killed_under_way_and_nothing_is_lost(live: Live) -> None:
    triton = live.system.triton
    assert triton is not None and triton.pid is not None
    number, before = 24, triton.pid
    drawn = list(islice(scenes(SEED + 3), number))
    answers = [response(f"kill-{at}", one, answer(one, IN_DETAIL)) for at, one in enumerate(drawn)]
    recorded = (await live.audit()).recorded
    # The chain takes longer than anything else, so the models are at work when it happens.
    await live.send("/v1/responses", [*answers[: number // 2], chain("kill-chain", drawn[0], length=4)])
    os.kill(before, signal.SIGKILL)
    assert (await live.audit()).in_flight > 0
    await live.send("/v1/responses", answers[number // 2 :])
    async with asyncio.timeout(PATIENCE):
        while "is started again; see" not in await live.notes():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    ledger = await live.settled()
    assert "is started again" not in await live.notes()
    assert ledger.recorded == recorded + number + 1
    assert triton.pid not in (None, before)
    found = await live.outcomes("kill-")
    assert found.keys() == {*(f"kill-{at}" for at in range(number)), "kill-chain"}
    assert {one.outcome for one in found.values()} == {OutcomeKind.SCORED}, [
        one for one in found.values() if one.outcome is not OutcomeKind.SCORED
    ]
    judged = {one.judges["verification"].model for one in found.values() if one.protocol == "faithscore"}
    assert len(judged) == 1, "the same checkpoint judges before and after"


async def test_the_probe_asks_the_same_triton(live: Live, tmp_path: Path) -> None:
    assert live.system.triton is not None
    typed = ("probe", "pope", "--target", f"triton://{live.system.triton.url}", "--model", "lvlm_good")
    done = await asyncio.to_thread(
        CommandLine(tmp_path / "data"), *typed, "--limit", 30, "--folder", tmp_path / "run", "--json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["questions"] >= 20 and told["answered"] == told["scored"] == told["questions"]
    figures = told["figures"]
    assert figures["accuracy"] >= 0.8 and 0.2 <= figures["yes_ratio"] <= 0.8
    assert figures["intervals"]["accuracy"]["n"] > 0
