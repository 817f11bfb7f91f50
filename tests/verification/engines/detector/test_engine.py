"""The engine `detector` over Triton's gRPC: what it asks, and what it makes of what comes back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, get_args

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the extra triton")

from PIL import Image, ImageDraw
from pydantic import ValidationError
from tests.support.kserve import NAMELESS, KServe, running

from groundwatch.errors import GroundwatchError, TransientError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, ResponseRecorded
from groundwatch.language.lexicon import lexicon
from groundwatch.models.replies import Detection
from groundwatch.models.settings import DetectorSettings, TritonSettings
from groundwatch.protocols import registry
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.detector import DetectorVerificationEngine, _sight

LEFT, RIGHT = [0.1, 0.2, 0.4, 0.8], [0.6, 0.2, 0.9, 0.8]
RED, BLUE = (200, 30, 40), (40, 80, 210)


def picture(left: Any, right: Any, mode: str = "RGB") -> bytes:
    image = Image.new("RGB", (100, 50), "white")
    for (x0, y0, x1, y1), fill in ((LEFT, left), (RIGHT, right)):
        ImageDraw.Draw(image).rectangle((100 * x0, 50 * y0, 100 * x1, 50 * y1), fill=fill)
    out = io.BytesIO()
    image.convert(mode).save(out, "PNG")
    return out.getvalue()


STORE = {"ball": picture(RED, BLUE), "dog": picture(BLUE, RED), "gray": picture(RED, BLUE, "L")}
SEEN = {
    "ball": {"ball": [(LEFT, 0.95)], "box": [(RIGHT, 0.9), (LEFT, 0.06)]},
    "dog": {"dog": [(LEFT, 0.95)]},
    "gray": {"ball": [(LEFT, 0.95)]},
}


@pytest.fixture
def server() -> Iterator[KServe]:
    with running() as started:
        started.served.shows = {STORE[name]: seen for name, seen in SEEN.items()}
        yield started


async def load_image(name: str) -> tuple[bytes, str]:
    return STORE[name], "image/png"


def engine(server: KServe, **changes: Any) -> DetectorVerificationEngine:
    made = build(
        StageSettings(engine="detector"),
        load_image=load_image,
        triton=TritonSettings(url=server.url, first_wait=0.01, patience=0.2, retries=0, timeout=5.0),
        detector=DetectorSettings(**changes),
    ).of(FaithScore())
    assert isinstance(made, DetectorVerificationEngine)
    return made


async def verify(
    server: KServe, *claims: str, images: tuple[str, ...] = ("ball",), **changes: Any
) -> Verification | GroundwatchError:
    response = ResponseRecorded(id="1", model="lvlm", answer="…", images=images)
    event = ClaimsExtracted(
        response=response,
        protocol="faithscore",
        judge=Judge(engine="x"),
        claims=tuple(Claim(text=text, category="other") for text in claims),
    )
    made = engine(server, **changes)
    await made.warm_up()
    try:
        (result,) = await made.verify([event], FaithScore())
    finally:
        await made.close()
    return result


async def decisions(server: KServe, *claims: str, **changes: Any) -> list[str]:
    result = await verify(server, *claims, **changes)
    assert isinstance(result, Verification), result
    return [one.decision.value for one in result.verdicts]


async def test_things_are_asked_for_once_for_each_image(server: KServe) -> None:
    claims = ("There is a ball.", "The ball is red.", "There is no red box.", "The ball is left of the box.")
    result = await verify(server, *claims, "The ball is shiny.", "There are many reasons.", "There is a cat.")
    assert isinstance(result, Verification)
    assert server.served.texts == [["ball", "box", "cat"]]
    found = [one.decision.value for one in result.verdicts]
    assert found == [*["supported"] * 4, "undecided", "undecided", "refuted"]
    assert result.usage.calls == 1
    [box] = result.verdicts[0].boxes
    assert [box.x0, box.y0, box.x1, box.y1] == pytest.approx(LEFT, abs=1e-6)
    assert (box.label, box.image) == ("ball", 0) and box.score == pytest.approx(0.95)
    assert result.verdicts[4].evidence.startswith("undecided: ")


async def test_the_verdict_changes_with_the_image(server: KServe) -> None:
    claims = ("There is a ball.", "There is a dog.", "The ball is red.", "The dog is blue.")
    assert await decisions(server, *claims) == ["supported", "refuted", "supported", "refuted"]
    found = await decisions(server, *claims, images=("dog",))
    assert found == ["refuted", "supported", "refuted", "supported"]


async def test_several_images_are_one_response(server: KServe) -> None:
    claims = ("There is a ball.", "There is a dog.", "There is a cat.", "The dog is blue.")
    result = await verify(server, *claims, images=("ball", "dog"))
    assert isinstance(result, Verification)
    assert [one.decision.value for one in result.verdicts] == [
        "supported",
        "supported",
        "refuted",
        "supported",
    ]
    assert [box.image for one in result.verdicts for box in one.boxes] == [0, 1, 1]
    assert result.usage.calls == len(server.served.texts) == 2


async def test_a_gray_image_decides_no_color(server: KServe) -> None:
    found = await decisions(server, "There is a ball.", "The ball is red.", images=("gray",))
    assert found == ["supported", "undecided"]


async def test_the_bounds_decide(server: KServe) -> None:
    assert await decisions(server, "There is a ball.", upper=0.99) == ["undecided"]
    assert await decisions(server, "There is a box.", lower=0.01, upper=0.05) == ["supported"]
    assert await decisions(server, "There are two boxes.", lower=0.01, upper=0.05) == ["supported"]
    assert await decisions(server, "There are two boxes.") == ["refuted"]
    assert await decisions(server, "There is a ball.", intercept=-9.0) == ["refuted"]


async def test_what_it_tells_apart_is_asked_for_with_the_thing(server: KServe) -> None:
    server.served.shows[STORE["ball"]] = {"ball": [(LEFT, 0.95)], "small ball": [(LEFT, 0.9)]}
    claims = ("The ball is small.", "The ball is large.", "The ball is wooden.")
    assert await decisions(server, *claims) == ["undecided"] * 3
    found = await decisions(server, *claims, attributes=("size",))
    assert found == ["supported", "refuted", "undecided"]
    assert server.served.texts == [["ball"], ["ball", "large ball", "small ball"]]


def test_it_tells_apart_what_the_lexicon_knows() -> None:
    (kinds,) = get_args(DetectorSettings.model_fields["attributes"].annotation)[:1]
    words = {"size": "small", "material": "wooden", "shape": "round", "pattern": "striped", "age": "old"}
    assert set(get_args(kinds)) == words.keys()
    for kind, word in words.items():
        found = lexicon().attribute(word)
        assert found is not None and found.kind == kind


async def test_every_setting_is_part_of_the_judges_name(server: KServe) -> None:
    numbers = DetectorSettings.model_fields.keys() - {"attributes"}
    changes: list[dict[str, Any]] = [{}, *({name: 0.6} for name in numbers), {"attributes": ("size",)}]
    judges = set()
    for one in changes:
        made = engine(server, **one)
        await made.warm_up()
        judge = made.judge(FaithScore())
        assert (judge.engine, judge.model) == ("detector", "detector@one")
        judges.add(judge.fingerprint)
        await made.close()
    assert len(judges) == len(changes)


async def test_no_image_and_nothing_to_ask_for(server: KServe) -> None:
    result = await verify(server, "There is a ball.", images=())
    assert isinstance(result, Unscorable) and result.reason == "nothing_to_look_at"
    result = await verify(server, "It is raining.", "Stop!")
    assert isinstance(result, Verification) and result.usage.calls == 0
    assert {one.decision for one in result.verdicts} == {Decision.UNDECIDED}
    assert server.served.texts == []


async def test_no_detection_refutes(server: KServe) -> None:
    server.served.shows[STORE["ball"]] = {}
    assert await decisions(server, "There is a ball.", "There is no ball.") == ["refuted", "supported"]


async def test_a_name_that_the_detector_refuses_leaves_the_others(server: KServe) -> None:
    claims = ("There is a ball.", f"There is a {NAMELESS}.", "There is a dog.")
    result = await verify(server, *claims)
    assert isinstance(result, Verification)
    assert [one.decision.value for one in result.verdicts] == ["supported", "undecided", "refuted"]


@pytest.mark.parametrize(
    ("box", "score", "reason"),
    [
        ([0.1, 0.2, 1.4, 0.8], 0.9, ""),
        ([0.5, 0.2, 0.4, 0.8], 0.9, ""),
        (LEFT, 1.5, ""),
        ([float("nan"), 0.2, 0.4, 0.8], 0.9, "not_finite"),
        (LEFT, float("nan"), "not_finite"),
    ],
)
async def test_boxes_that_cannot_be_judge_nothing(
    server: KServe, box: list[float], score: float, reason: str
) -> None:
    """The served model's fault is the operator's to mend, but for what one image makes of it."""
    server.served.shows[STORE["ball"]] = {"ball": [(box, score)]}
    result = await verify(server, "There is a ball.")
    if reason:
        assert isinstance(result, Unscorable) and result.reason == reason
    else:
        assert isinstance(result, TransientError) and "bad reply" in str(result)


def test_a_box_without_an_inside_is_none() -> None:
    settings = DetectorSettings()
    assert _sight(Detection(0, (0.5, 0.2, 0.5, 0.8), 0.9), "ball", 0, settings) is None
    sight = _sight(Detection(0, (-0.5, 0.2, 0.5, 1.8), 0.9), "ball", 0, settings)
    assert sight is not None and (sight.box.x0, sight.box.y1) == (0, 1)


def test_who_it_cannot_judge_is_told_when_settings_are_read() -> None:
    with pytest.raises(ValidationError, match="detector cannot judge tri-he: use calibrated or"):
        Settings.model_validate({"verification": {"protocols": {"tri-he": {"engine": "detector"}}}})
    with pytest.raises(ValidationError, match=r"must not be below detector\.lower"):
        DetectorSettings(lower=0.8, upper=0.7)
    judges = StageSettings(engine="detector").by_protocol()
    assert judges["faithscore"] == "detector"
    assert judges["tri-he"] == registry.get("tri-he").verifier()
