"""What every captioning engine keeps to, and what each makes of its model."""

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

from groundwatch.captioning.engines import CaptioningEngine, Turn, build
from groundwatch.errors import (
    GroundwatchError,
    RateLimited,
    SettingsError,
    TransientError,
    Unscorable,
)
from groundwatch.events import Usage
from groundwatch.models.replies import Text
from groundwatch.models.settings import ChatSettings, TritonSettings
from groundwatch.runtime.settings import CaptioningSettings

MODEL = "heron-7b"
PICTURE = (seed_picture(1), "image/png")


@pytest.fixture(scope="module")
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


def openai(server: LlmServer, script: str, **changes: Any) -> CaptioningEngine:
    wanted = {"first_wait": 0.01, "patience": 0.2, "retries": 0} | changes
    chat = ChatSettings(base_url=server.base_url, model=script, **wanted)
    return build(CaptioningSettings(models={MODEL: chat}))


@pytest.fixture
def triton_server() -> Iterator[kserve.KServe]:
    with kserve.running() as started:
        yield started


def on_triton(server: kserve.KServe | LiveTriton, *, name: str = "heron", **changes: Any) -> CaptioningEngine:
    settings = CaptioningSettings(engine="triton", served={MODEL: name}, max_tokens=50)
    wanted = {"first_wait": 0.01, "patience": 0.2, "retries": 0} | changes
    return build(settings, triton=TritonSettings(url=server.url, **wanted))


@pytest.fixture(
    params=[
        "openai",
        "triton",
        pytest.param("tritonserver", marks=pytest.mark.xdist_group("triton")),
        fakes.CAPTIONING,
    ]
)
async def engine(
    request: pytest.FixtureRequest, server: LlmServer, triton_server: kserve.KServe
) -> CaptioningEngine:
    """Every kind of engine, ready to be asked; Triton's with a stand-in and with the real server."""
    if request.param == "openai":
        return openai(server, "echo:A dog.")
    if request.param == fakes.CAPTIONING:
        made = build(CaptioningSettings(engine=request.param))
    elif request.param == "tritonserver":
        made = on_triton(request.getfixturevalue("triton"), name="lvlm", timeout=60.0)
    else:
        made = on_triton(triton_server)
    if (warm_up := getattr(made, "warm_up", None)) is not None:
        await warm_up()
    return made


async def test_one_answer_for_each_turn_in_order(engine: CaptioningEngine) -> None:
    turns = [Turn(model=MODEL, text="Describe.", images=(PICTURE,)), Turn(model=MODEL, text="Is it?")]
    said = await engine.say(turns)
    assert len(said) == 2
    assert all(isinstance(one, Text) and one.text.strip() and one.usage.calls == 1 for one in said)
    assert await engine.say([]) == []
    assert await engine.say(turns) == said
    await engine.close()


async def test_the_judge_has_the_prompts_digest(engine: CaptioningEngine) -> None:
    judges = {engine.judge(MODEL, prompt) for prompt in ("a", "b", "a")}
    assert {judge.prompt for judge in judges} == {"a", "b"}
    assert len(judges) == 2


async def say(engine: CaptioningEngine, turn: Turn) -> Text | GroundwatchError:
    (said,) = await engine.say([turn])
    await engine.close()
    return said


async def test_a_model_is_asked_in_plain_text_with_the_image_in_front(server: LlmServer) -> None:
    said = await say(openai(server, "echo:A dog."), Turn(model=MODEL, text="Describe.", images=(PICTURE,)))
    assert said == Text(text="A dog.", usage=Usage(calls=1, input_tokens=100, output_tokens=10))
    asked = server.requests[-1]
    assert "response_format" not in asked
    (message,) = asked["messages"]
    assert [part["type"] for part in message["content"]] == ["image_url", "text"]
    assert message["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")


async def test_without_an_image_the_text_is_all(server: LlmServer) -> None:
    await say(openai(server, "echo:Yes."), Turn(model=MODEL, text="Is it?"))
    assert server.requests[-1]["messages"] == [{"role": "user", "content": "Is it?"}]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("empty", "empty_reply"),
        ("refusal", "refused"),
        ("filtered", "refused"),
        ("400", "judge_rejected_request"),
    ],
)
async def test_no_answer_has_a_reason(server: LlmServer, script: str, reason: str) -> None:
    said = await say(openai(server, script), Turn(model=MODEL, text="Describe."))
    assert isinstance(said, Unscorable) and said.reason == reason


@pytest.mark.parametrize("script", ["500", "401", "html", "closed", "ok:0.5"])
async def test_a_fault_that_passes_is_handed_back(server: LlmServer, script: str) -> None:
    said = await say(openai(server, script, timeout=0.2), Turn(model=MODEL, text="Describe."))
    assert isinstance(said, TransientError) and not isinstance(said, RateLimited)


async def test_a_rate_limit_is_waited_for_or_handed_back_with_its_wait(server: LlmServer) -> None:
    said = await say(openai(server, "429:9"), Turn(model=MODEL, text="Describe."))
    assert isinstance(said, RateLimited) and said.retry_after == 9
    said = await say(
        openai(server, "429:0.01,500,echo:A cat.", retries=1, patience=5), Turn(model=MODEL, text="Describe.")
    )
    assert isinstance(said, Text) and said.text == "A cat."


async def test_an_answer_that_was_cut_off_is_an_answer(server: LlmServer) -> None:
    said = await say(openai(server, "cutoff"), Turn(model=MODEL, text="Describe."))
    assert isinstance(said, Text) and said.cut_off


async def test_a_model_that_nobody_named_gives_no_answer(server: LlmServer) -> None:
    said = await say(openai(server, "ok"), Turn(model="other", text="Describe."))
    assert isinstance(said, Unscorable) and (said.reason, "other" in said.detail) == ("not_configured", True)
    said = await say(build(CaptioningSettings()), Turn(model=MODEL, text="Describe."))
    assert isinstance(said, Unscorable) and said.reason == "not_configured"


async def test_the_stand_in_cannot_read_what_is_no_image() -> None:
    turn = Turn(model=MODEL, text="Describe.", images=((b"no image", "image/png"),))
    said = await say(build(CaptioningSettings(engine=fakes.CAPTIONING)), turn)
    assert isinstance(said, Unscorable) and said.reason == "unreadable_image"


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
    with pytest.raises(SettingsError, match=rf"^setting 'captioning.engine': '{named}' "):
        build(CaptioningSettings(engine=named))


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"'captioning.engine': no engine 'x'; known are openai, triton$"):
        build(CaptioningSettings(engine="x"))


async def test_triton_answers_under_the_name_that_settings_give(triton_server: kserve.KServe) -> None:
    engine = on_triton(triton_server)
    (first,) = await engine.say([Turn(model=MODEL, text="Describe.", images=(PICTURE,))])
    assert (
        isinstance(first, TransientError) and not isinstance(first, RateLimited) and "heron@one" in str(first)
    )
    (said,) = await engine.say([Turn(model=MODEL, text="Describe.", images=(PICTURE,))])
    assert isinstance(said, Text) and said.text.startswith("The cell in row 1")
    assert said.usage == Usage(calls=1, input_tokens=11, output_tokens=3)
    assert engine.judge(MODEL, "p").model == "heron@one"
    (said,) = await engine.say([Turn(model="lvlm", text="Describe.")])
    assert isinstance(said, Unscorable) and (said.reason, "heron-7b" in said.detail) == (
        "not_configured",
        True,
    )
    await engine.close()


@pytest.mark.parametrize(
    ("behaviour", "wanted"),
    [
        ("[unreadable_image] no image", Unscorable),
        ("[prompt_too_long] 5000", Unscorable),
        ("UNAVAILABLE", TransientError),
        ("ok:2", TransientError),
    ],
)
async def test_what_triton_cannot_answer(
    triton_server: kserve.KServe, behaviour: str, wanted: type[GroundwatchError]
) -> None:
    triton_server.served.script["heron"] = [behaviour]
    engine = on_triton(triton_server, timeout=0.3)
    await engine.warm_up()
    said = await say(engine, Turn(model=MODEL, text="Describe.", images=(PICTURE,)))
    assert isinstance(said, wanted)


async def test_a_model_that_is_not_loaded_is_a_problem_of_the_service(triton_server: kserve.KServe) -> None:
    del triton_server.served.loaded["heron"]
    engine = on_triton(triton_server)
    await engine.warm_up()
    assert ["heron" in problem for problem in engine.problems()] == [True]
    await engine.close()
