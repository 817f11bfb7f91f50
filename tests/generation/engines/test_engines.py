"""What every generation engine keeps to, and what each makes of its models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import fakes

pytest.importorskip("tritonclient.grpc", reason="needs the extra triton")

from tests.support import kserve
from tests.support.chains import seed_picture
from tests.support.llm_server import LlmServer, running
from tests.support.triton import LiveTriton

from groundwatch.errors import GroundwatchError, RateLimited, SettingsError, TransientError, Unscorable
from groundwatch.generation.engines import GenerationEngine, build, cosine
from groundwatch.models.replies import Generated
from groundwatch.models.settings import ChatSettings, TritonSettings
from groundwatch.runtime.settings import ImagesSettings, StageSettings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.settings.reading import load
from groundwatch.runtime.stores.images import check_image

RED = "The cell in row 1, column 2 is red."
SIDES = (16, 64)
"""Pixels of the images that the real server's random weights make, and that stand-ins paint."""


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


@pytest.fixture
def triton_server() -> Iterator[kserve.KServe]:
    with kserve.running() as started:
        yield started


def openai(
    server: LlmServer, script: str = "ok", *, encoder: str = "ok", size: str = "", **changes: Any
) -> GenerationEngine:
    wanted = {"first_wait": 0.01, "patience": 0.2, "retries": 0} | changes
    chat = ChatSettings(base_url=server.base_url, model=script, **wanted)
    images = ImagesSettings(size=size, encoder_url=server.base_url, encoder_model=encoder)
    return build(StageSettings(engine="openai", llm=chat), images=images)


async def on_triton(server: kserve.KServe | LiveTriton, **changes: Any) -> GenerationEngine:
    wanted = {"first_wait": 0.01, "patience": 0.2, "retries": 0} | changes
    engine = build(StageSettings(engine="triton"), triton=TritonSettings(url=server.url, **wanted))
    await engine.warm_up()
    return engine


@pytest.fixture(
    params=[
        *("", "none", "openai", "triton"),
        pytest.param("tritonserver", marks=pytest.mark.xdist_group("triton")),
        fakes.GENERATION,
    ]
)
async def engine(
    request: pytest.FixtureRequest, server: LlmServer, triton_server: kserve.KServe
) -> GenerationEngine:
    """Every kind of engine, ready to be asked; Triton's with a stand-in and with the real server."""
    if request.param == "tritonserver":
        return await on_triton(request.getfixturevalue("triton"), timeout=60.0)
    if request.param == "openai":
        return openai(server)
    if request.param == "triton":
        return await on_triton(triton_server)
    return build(StageSettings(engine=request.param))


async def test_one_result_for_each_in_order(engine: GenerationEngine) -> None:
    made = await engine.generate([RED, "Nothing.", RED])
    assert len(made) == 3
    assert [isinstance(one, Generated | GroundwatchError) for one in made] == [True] * 3
    vectors = await engine.encode([seed_picture(1), seed_picture(2), seed_picture(1)])
    assert len(vectors) == 3
    if isinstance(made[0], Generated):
        assert made[0] == made[2] != made[1]
        assert check_image(made[0].image, IntakeSettings()).width in SIDES
        one, other, again = vectors
        assert isinstance(one, tuple) and isinstance(other, tuple) and isinstance(again, tuple)
        assert cosine(one, again) == pytest.approx(1.0) and cosine(one, other) < 0.999
    assert await engine.generate([]) == [] and await engine.encode([]) == []
    await engine.close()


async def test_the_judge_has_the_prompts_digest(engine: GenerationEngine) -> None:
    assert engine.judge("a") == engine.judge("a") != engine.judge("b")
    await engine.close()


async def test_what_is_asked_besides_is_part_of_the_judge(server: LlmServer) -> None:
    plain, steps = (openai(server, extra_body=body) for body in ({}, {"num_inference_steps": 4}))
    assert plain.judge("a").fingerprint != steps.judge("a").fingerprint
    assert plain.judge("a").version == "1"
    await plain.close()
    await steps.close()


async def test_what_is_no_image_has_no_vector(engine: GenerationEngine) -> None:
    (vector,) = await engine.encode([b"no image"])
    assert isinstance(vector, Unscorable) and vector.reason in ("unreadable_image", "not_configured")
    await engine.close()


async def test_no_engine_says_so() -> None:
    engine = build(StageSettings())
    for result in (*await engine.generate([RED]), *await engine.encode([seed_picture(1)])):
        assert isinstance(result, Unscorable) and result.reason == "not_configured"


async def test_the_stand_in_paints_what_the_text_names() -> None:
    engine = build(StageSettings(engine=fakes.GENERATION))
    red, wrong = await engine.generate([RED, "The cell in row 9, column 0 is red, row 1, column 1 is mauve."])
    assert isinstance(red, Generated) and isinstance(wrong, Generated)
    one, other, empty = await engine.encode([red.image, wrong.image, red.image])
    assert one == empty != other
    assert any(one) and any(other)


async def test_an_images_endpoint_is_asked_for_base64(server: LlmServer) -> None:
    engine = openai(server, size="256x256")
    (made,) = await engine.generate([RED])
    assert isinstance(made, Generated) and made.usage.output_tokens == 256
    assert server.requests[0] == {
        "model": "ok",
        "prompt": RED,
        "n": 1,
        "response_format": "b64_json",
        "size": "256x256",
    }
    await engine.encode([made.image])
    (part,) = server.requests[1]["messages"][0]["content"]
    assert part["image_url"]["url"].startswith("data:image/png;base64,")
    assert engine.judge("p").model == "ok/256x256 + ok"
    await engine.close()


async def test_parameters_that_a_server_refuses_are_left_out(server: LlmServer) -> None:
    engine = openai(server, omit=("response_format",))
    await engine.generate([RED])
    assert "response_format" not in server.requests[0] and "size" not in server.requests[0]
    await engine.close()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("empty", "empty_reply"),
        ("nothing", "empty_reply"),
        ("400:content_policy_violation", "refused"),
        ("400", "judge_rejected_request"),
    ],
)
async def test_no_image_has_a_reason(server: LlmServer, script: str, reason: str) -> None:
    engine = openai(server, script)
    (made,) = await engine.generate([RED])
    assert isinstance(made, Unscorable) and made.reason == reason
    await engine.close()


@pytest.mark.parametrize("script", ["500", "401", "html", "address", "garbled"])
async def test_a_fault_that_passes_is_handed_back(server: LlmServer, script: str) -> None:
    """An image that is told by its address is never fetched."""
    engine = openai(server, script)
    (made,) = await engine.generate([RED])
    assert isinstance(made, TransientError) and not isinstance(made, RateLimited)
    await engine.close()


async def test_what_an_endpoint_calls_an_image_is_checked_by_the_service(server: LlmServer) -> None:
    engine = openai(server, "noimage")
    (made,) = await engine.generate([RED])
    assert isinstance(made, Generated) and len(made.image) > 1_000_000
    await engine.close()


@pytest.mark.parametrize("encoder", ["500", "html", "empty"])
async def test_an_encoder_that_fails_is_asked_again_later(server: LlmServer, encoder: str) -> None:
    engine = openai(server, encoder=encoder)
    (vector,) = await engine.encode([seed_picture(1)])
    assert type(vector) is TransientError
    await engine.close()


async def test_a_rate_limit_is_handed_back_with_its_wait(server: LlmServer) -> None:
    engine = openai(server, "429:9")
    (made,) = await engine.generate([RED])
    assert isinstance(made, RateLimited) and made.retry_after == 9
    await engine.close()


async def test_triton_generates_and_encodes(triton_server: kserve.KServe) -> None:
    engine = await on_triton(triton_server)
    assert engine.judge("p").model == "generator@one + image_encoder@one"
    assert engine.problems() == []
    await engine.close()


async def test_an_images_endpoint_with_tritons_encoder(
    server: LlmServer, triton_server: kserve.KServe
) -> None:
    chat = ChatSettings(base_url=server.base_url, model="ok")
    settings = StageSettings(engine="openai", llm=chat)
    engine = build(settings, triton=TritonSettings(url=triton_server.url))
    await engine.warm_up()
    assert engine.judge("p").model == "ok + image_encoder@one"
    (vector,) = await engine.encode([seed_picture(1)])
    assert isinstance(vector, tuple)
    await engine.close()


@pytest.mark.parametrize(
    ("model", "behaviour", "wanted"),
    [
        ("generator", "[prompt_too_long] 200 tokens; at most 77", Unscorable),
        ("generator", "UNAVAILABLE", TransientError),
        ("image_encoder", "nan", Unscorable),
        ("image_encoder", "INTERNAL", TransientError),
    ],
)
async def test_what_triton_cannot_do(
    triton_server: kserve.KServe, model: str, behaviour: str, wanted: type[GroundwatchError]
) -> None:
    triton_server.served.script[model] = [behaviour]
    engine = await on_triton(triton_server)
    results = [*await engine.generate([RED]), *await engine.encode([seed_picture(1)])]
    bad, good = results if model == "generator" else results[::-1]
    assert isinstance(bad, wanted) and not isinstance(good, GroundwatchError)
    await engine.close()


@pytest.mark.parametrize(
    "named",
    [
        "no.such.module:Engine",
        "tests.support.fakes:Nothing",
        "math:pi",
        "collections:Counter",
        "asyncio:get_running_loop",
    ],
)
def test_an_engine_of_ones_own_that_is_none_is_told_with_its_setting(named: str) -> None:
    with pytest.raises(SettingsError, match=rf"^setting 'generation.engine': '{named}' "):
        build(StageSettings(engine=named))


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with pytest.raises(
        SettingsError, match=r"'generation.engine': no engine 'x'; known are none, openai, triton$"
    ):
        build(StageSettings(engine="x"))


def test_settings_say_what_is_missing() -> None:
    with pytest.raises(SettingsError, match=r"generation\.llm': engine openai needs"):
        load(environment={"GROUNDWATCH_GENERATION__ENGINE": "openai"})
    with pytest.raises(SettingsError, match=r"images\.encoder_model': must be named"):
        load(environment={"GROUNDWATCH_IMAGES__ENCODER_URL": "http://localhost/v1"})
