"""The engine `detector` on a real tritonserver."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the extra triton")
pytest.importorskip("pytriton", reason="needs the extra triton-server")

from PIL import Image
from tests.support.triton import ONE_THREAD, serving

from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, ResponseRecorded
from groundwatch.miniature.world import KINDS, boxes, png, scenes
from groundwatch.models.repository import ServedModel
from groundwatch.models.settings import DetectorSettings, TritonSettings
from groundwatch.orientation import ORIENTATION
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.settings import StageSettings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.images import check_image
from groundwatch.system.up import MINIATURE
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import Verification

if TYPE_CHECKING:
    from tests.support.triton import LiveTriton


async def load_image(name: str) -> tuple[bytes, str]:
    return png(next(scenes(int(name)))), "image/png"


async def test_a_real_server_is_asked_alike(triton: LiveTriton) -> None:
    """With random weights: that every verdict follows from boxes that its model told."""
    made = build(
        StageSettings(engine="detector"),
        load_image=load_image,
        triton=triton.settings(),
        detector=DetectorSettings(lower=0.3, upper=0.3),
    ).of(FaithScore())
    await made.warm_up()
    assert made.problems() == [] and "@" in made.judge(FaithScore()).model
    claims = tuple(Claim(text=f"There is a {name}.", category="entity") for name in ("circle", "square"))
    response = ResponseRecorded(id="1", model="lvlm", answer="…", images=("1",))
    event = ClaimsExtracted(response=response, protocol="faithscore", judge=Judge(engine="x"), claims=claims)
    (result,) = await made.verify([event], FaithScore())
    await made.close()
    assert isinstance(result, Verification) and len(result.verdicts) == 2
    boxed = [one for one in result.verdicts if "no box is drawn" not in one.evidence]
    assert boxed
    for one in boxed:
        assert one.probability is not None
        assert one.decision.value == ("supported" if one.probability >= 0.3 else "refuted")
        best = max((box.score for box in one.boxes), default=None)
        assert best == (one.probability if one.decision is Decision.SUPPORTED else None)


def photographs() -> dict[str, bytes]:
    """A scene as files of many kinds; those that cameras turned are shown upright, as it is."""
    scene = Image.open(io.BytesIO(png(SCENE))).convert("RGB")
    found = {"plain": (scene, "PNG", {}), "palette": (scene.quantize(32), "PNG", {})}
    for orientation, turn in ((3, "ROTATE_180"), (6, "ROTATE_90"), (8, "ROTATE_270"), (5, "TRANSPOSE")):
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        turned = scene.transpose(Image.Transpose[turn])
        for kind in ("JPEG", "PNG"):
            found[f"{kind} turned {orientation}"] = (turned, kind, {"exif": exif})
    large = scene.resize((6320, 6320), Image.Resampling.NEAREST)
    found["40 megapixels"] = (large, "JPEG", {})
    found["gray"] = (scene.convert("L"), "PNG", {})
    files = {}
    for name, (image, kind, options) in found.items():
        out = io.BytesIO()
        image.save(out, kind, **{"quality": 95} | options if kind == "JPEG" else options)
        files[name] = check_image(out.getvalue(), IntakeSettings()).data
    return files


SCENE = next(
    shown for shown in scenes(11) if len({thing.kind for thing in shown.things}) == 3 == len(shown.things)
)
ABSENT = next(kind for kind in KINDS if not SCENE.of_kind(kind))
CLAIMS = (
    *(f"The {thing.kind} is in the {thing.place} corner." for thing in SCENE.things),
    *(f"The {thing.kind} is {thing.color}." for thing in SCENE.things),
    f"There is a {ABSENT}.",
)


@pytest.mark.slow
@pytest.mark.skipif(not (MINIATURE / "detector").is_dir(), reason="the checkpoints are not in this checkout")
async def test_every_kind_of_photograph_is_judged_as_people_see_it(tmp_path: Path) -> None:
    """From the intake's check to Triton with the trained detector and verifier, and back as boxes."""
    files = photographs()

    async def load(name: str) -> tuple[bytes, str]:
        return files[name], "image/png"

    models = {
        kind: ServedModel(kind=kind, checkpoint=str(MINIATURE / kind), parameters=ONE_THREAD)
        for kind in ("detector", "verifier")
    }
    wrong: list[Any] = []
    async with serving(tmp_path, models) as server:
        triton = TritonSettings(url=server.url)
        engines = [
            build(StageSettings(engine=one), load_image=load, triton=triton).of(FaithScore())
            for one in ("detector", "triton")
        ]
        for engine in engines:
            await engine.warm_up()  # type: ignore[attr-defined]
        for name in files:
            event = ClaimsExtracted(
                response=ResponseRecorded(id="1", model="lvlm", answer="…", images=(name,)),
                protocol="faithscore",
                judge=Judge(engine="x"),
                claims=tuple(Claim(text=text, category="other") for text in CLAIMS),
            )
            by_boxes, by_looking = [(await one.verify([event], FaithScore()))[0] for one in engines]
            assert isinstance(by_boxes, Verification) and isinstance(by_looking, Verification)
            if name == "gray":
                # What color things have it cannot tell, and the verifier saw none in training.
                wrong += [
                    (name, text, one)
                    for text, one in zip(CLAIMS[3:6], by_boxes.verdicts[3:6], strict=True)
                    if one.decision is not Decision.UNDECIDED
                ]
                continue
            for said in (by_boxes, by_looking):
                found = [one.decision.value for one in said.verdicts]
                wanted = ["supported"] * 6 + ["refuted"]
                wrong += [(name, found)] if found != wanted else []
            for box, verdict in zip(boxes(SCENE), by_boxes.verdicts, strict=False):
                (seen,) = verdict.boxes
                edges = (seen.x0, seen.y0, seen.x1, seen.y1)
                wrong += [(name, edges, box)] if edges != pytest.approx(box, abs=0.06) else []
            assert by_boxes.verdicts[-1].boxes == ()
        for engine in engines:
            await engine.close()
    assert wrong == [], "\n".join(map(repr, wrong))
