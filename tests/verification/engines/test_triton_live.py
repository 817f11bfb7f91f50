"""The engine `triton` on a real tritonserver: with random weights, and with the trained verifier."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the extra triton")
pytest.importorskip("pytriton", reason="needs the extra triton-server")

from tests.support.checkpoints import picture
from tests.support.triton import LiveTriton, serving

import groundwatch.miniature
from groundwatch.events import Claim, ClaimsExtracted, Judge, ResponseRecorded
from groundwatch.miniature.language import article
from groundwatch.miniature.world import Scene, png, scenes
from groundwatch.models.repository import ServedModel
from groundwatch.models.settings import TritonSettings
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.settings import StageSettings
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import Verification, VerificationEngine
from groundwatch.verification.engines.looking import TritonVerificationEngine

CHECKPOINT = Path(groundwatch.miniature.__file__).parent / "checkpoints" / "verifier"
SCENES = 24


def extracted(name: str, image: str, *claims: str) -> ClaimsExtracted:
    """No reference comes along: the image is all there is."""
    response = ResponseRecorded(id=name, model="lvlm", answer="…", images=(image,))
    found = tuple(Claim(text=text, category="entity") for text in claims)
    return ClaimsExtracted(response=response, protocol="faithscore", judge=Judge(engine="x"), claims=found)


def engine(settings: TritonSettings, images: dict[str, bytes]) -> VerificationEngine:
    async def load(name: str) -> tuple[bytes, str]:
        return images[name], "image/png"

    return build(StageSettings(engine="triton"), load_image=load, triton=settings).of(FaithScore())


async def test_one_result_for_each_event_in_order(triton: LiveTriton) -> None:
    images = {"1": picture(1), "2": picture(2)}
    made = engine(triton.settings(), images)
    assert isinstance(made, TritonVerificationEngine)
    await made.warm_up()
    assert made.problems() == []
    judge = made.judge(FaithScore())
    assert judge.engine == "triton" and "@" in judge.model, "the checkpoint's digest is the judge's name"
    statements = ("there is a red circle", "there are two")
    events = [extracted("a", "1", *statements), extracted("b", "2", statements[0])]
    first, second = await made.verify(events, FaithScore())
    assert isinstance(first, Verification) and isinstance(second, Verification)
    assert (len(first.verdicts), len(second.verdicts)) == (2, 1)
    for one in (*first.verdicts, *second.verdicts):
        assert one.probability is not None and 0 <= one.probability <= 1
        assert one.decision.value == ("supported" if one.probability >= 0.5 else "refuted")
    again, _ = await made.verify(events, FaithScore())
    assert isinstance(again, Verification)
    for one, other in zip(first.verdicts, again.verdicts, strict=True):
        assert one.probability == pytest.approx(other.probability, abs=1e-3)
    await made.close()


@pytest.mark.slow
@pytest.mark.skipif(
    not (CHECKPOINT / "model.safetensors").is_file(), reason="the trained verifier is not in this checkout"
)
async def test_the_verdict_changes_when_the_image_is_swapped(tmp_path: Path) -> None:
    """What is true of one scene and not of another: supported with its own image, refuted with the other."""
    cases = _cases(list(islice(scenes(5 * 10**9), 4 * SCENES)))[:SCENES]
    assert len(cases) == SCENES
    images = {
        f"{at}-{which}": png(one) for at, case in enumerate(cases) for which, one in enumerate(case[1:])
    }
    model = ServedModel(kind="verifier", checkpoint=str(CHECKPOINT), parameters={"threads": 1})
    async with serving(tmp_path, {"verifier": model}) as server:
        made = engine(TritonSettings(url=server.url), images)
        assert isinstance(made, TritonVerificationEngine)
        await made.warm_up()
        shares = []
        for which in (0, 1):
            events = [extracted(str(at), f"{at}-{which}", case[0]) for at, case in enumerate(cases)]
            found = await made.verify(events, FaithScore())
            held = [one.verdicts[0].decision.value == "supported" for one in found]
            shares.append(sum(held) / len(held))
        await made.close()
    own, swapped = shares
    assert own >= 0.85 and swapped <= 0.25, shares


def _cases(drawn: list[Scene]) -> list[tuple[str, Scene, Scene]]:
    """A statement, a scene of which it is true, and one of which it is not."""
    found = []
    for shown, other in zip(drawn[::2], drawn[1::2], strict=True):
        elsewhere = {(thing.color, thing.kind) for thing in other.things}
        thing = shown.things[0]
        if (thing.color, thing.kind) not in elsewhere:
            found.append((f"There is {article(thing.color)} {thing.color} {thing.kind}.", shown, other))
    return found
