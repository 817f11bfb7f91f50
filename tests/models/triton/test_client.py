"""The client against the real tritonserver with all six models."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import httpx
import pytest
import torch
from PIL import Image
from tests.support import checkpoints, kserve
from tests.support.checkpoints import picture
from tests.support.fakes import paint
from tests.support.triton import ONE_THREAD, serving

from groundwatch.errors import TransientError, Unavailable, Unscorable
from groundwatch.models.replies import Detection
from groundwatch.models.repository import ServedModel
from groundwatch.models.serving.detector import DetectionRequest, Detector
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import EntailmentRequest, Verifier
from groundwatch.models.settings import TritonSettings
from groundwatch.models.triton import TritonModels
from groundwatch.runtime.local.servers import free_port

STATEMENTS = ["there is a red circle", "two", "the circle is left of the square and above the image"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    """What is computed here must not wait for cores that the server's models hold."""
    torch.set_num_threads(1)


@pytest.fixture
async def models(triton):
    models = TritonModels(triton.settings())
    yield models
    await models.close()


async def test_verify_is_what_serving_says(triton, models):
    found = await models.verify(picture(1), STATEMENTS)
    verifier = Verifier(Parameters(model_id=triton.models["verifier"].checkpoint))
    inquiry = EntailmentRequest(images=(picture(1),), statements=tuple(STATEMENTS))
    assert found == pytest.approx(verifier.judge_one_by_one(inquiry), abs=1e-3)
    assert await models.verify(picture(1), []) == []
    assert len(await models.verify([picture(1), picture(2)], STATEMENTS)) == 3


async def test_lvlm(models):
    said = await models.lvlm([picture(1)], "describe the image", max_tokens=6)
    assert said.cut_off and said.usage.output_tokens == 6 and said.usage.calls == 1
    assert said == await models.lvlm([picture(1)], "describe the image", max_tokens=6)
    sampled = [
        (await models.lvlm([picture(1)], "describe", max_tokens=6, temperature=1.5, seed=seed)).text
        for seed in (1, 1, 2, 3)
    ]
    assert sampled[0] == sampled[1] and len(set(sampled)) > 1


async def test_encoders_and_generator(models):
    assert len(await models.encode_image(picture(1))) == 32
    vectors = await models.encode_text([f"text {number}" for number in range(40)])
    assert len(vectors) == 40 and {len(vector) for vector in vectors} == {384}
    assert await models.encode_text([]) == []
    image = await models.generate_image("a red circle", seed=3, steps=2)
    assert Image.open(io.BytesIO(image)).size == (16, 16)
    assert image == await models.generate_image("a red circle", seed=3, steps=2)
    assert image != await models.generate_image("a red circle", seed=4, steps=2)


PHRASES = ("red circle", "two", "a small square")


def in_process(folder: str, image: bytes, **changes: Any) -> tuple[Detection, ...]:
    [found] = Detector(Parameters(model_id=folder, **changes)).detect(
        [DetectionRequest(image=image, texts=PHRASES)]
    )
    assert isinstance(found, tuple)
    return found


def alike(found: tuple[Detection, ...], wanted: tuple[Detection, ...]) -> bool:
    return [one.text for one in found] == [one.text for one in wanted] and all(
        (*one.box, one.score) == pytest.approx((*other.box, other.score), abs=1e-4)
        for one, other in zip(found, wanted, strict=True)
    )


async def test_detect_is_what_serving_says(triton, models):
    image = picture(1, size=(60, 40))
    found = await models.detect(image, PHRASES)
    assert found and alike(found, in_process(triton.models["detector"].checkpoint, image))
    assert await models.detect(image, PHRASES) == found
    assert await models.detect(image, []) == ()
    together = await asyncio.gather(*(models.detect(image, PHRASES[: n % 3 + 1]) for n in range(9)))
    assert all(alike(one, found[: len(one)]) for one in together)


@pytest.mark.slow
async def test_grounding_dino_and_a_detector_that_finds_nothing(tmp_path, triton):
    """Nothing found is an answer: outputs without elements, from the model and from Triton's cache."""
    served = {
        "detector": ServedModel(
            kind="detector",
            checkpoint=triton.models["detector"].checkpoint,
            parameters={**ONE_THREAD, "threshold": 1.1},
        ),
        "grounding": ServedModel(
            kind="detector", checkpoint=str(checkpoints.grounding_dino(tmp_path / "g")), parameters=ONE_THREAD
        ),
    }
    async with serving(tmp_path / "triton", served) as server:
        nothing = TritonModels(TritonSettings(url=server.url))
        assert [await nothing.detect(picture(1), PHRASES) for _ in range(2)] == [(), ()]
        await nothing.close()
        grounding = TritonModels(TritonSettings(url=server.url, detector="grounding"))
        found = await grounding.detect(picture(1), PHRASES)
        assert found and alike(found, in_process(served["grounding"].checkpoint, picture(1)))
        await grounding.close()


@pytest.mark.parametrize(
    ("behaviour", "raises"), [("ok", None), ("nan", Unscorable), ("short", TransientError)]
)
async def test_a_detectors_reply_is_checked(behaviour, raises):
    image = paint("row 1, column 2 is red. row 3, column 4 is red. row 4, column 4 is blue.")
    with kserve.running() as server:
        server.served.script["detector"] = [behaviour]
        models = TritonModels(TritonSettings(url=server.url, retries=0, first_wait=0.01))
        if raises:
            with pytest.raises(raises):
                await models.detect(image, ["red cell"])
        else:
            assert await models.detect(image, ["green", "red cell"]) == (
                Detection(1, (0.25, 0.0, 0.5, 0.25), pytest.approx(0.9)),
                Detection(1, (0.75, 0.5, 1.0, 0.75), pytest.approx(0.9)),
            )
        await models.close()


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda models: models.verify(b"<html>", ["a"]), "unreadable_image"),
        (lambda models: models.encode_image(b""), "unreadable_image"),
        (lambda models: models.encode_image(picture(kind="BMP")), "unreadable_image"),
        (lambda models: models.lvlm([picture()], "two " * 900), "prompt_too_long"),
        (lambda models: models.verify(picture(), ["two " * 900]), "prompt_too_long"),
        (lambda models: models.verify(picture(), [" "]), "judge_rejected_request"),
        (lambda models: models.lvlm([], ""), "judge_rejected_request"),
        (lambda models: models.lvlm([], "a", max_tokens=100_000), "judge_rejected_request"),
        (lambda models: models.generate_image(" "), "judge_rejected_request"),
        (lambda models: models.detect(b"<html>", ["a"]), "unreadable_image"),
        (lambda models: models.detect(picture(), ["a", ""]), "judge_rejected_request"),
        (lambda models: models.detect(picture(), ["a"] * 65), "judge_rejected_request"),
        (lambda models: models.detect(picture(), ["two " * 30]), "prompt_too_long"),
    ],
)
async def test_what_the_input_is_to_blame_for_is_unscorable(models, ask, reason):
    with pytest.raises(Unscorable) as raised:
        await ask(models)
    assert raised.value.reason == reason and raised.value.detail


async def test_texts_that_are_hard_to_send(models):
    found = await models.verify(picture(), ["\ud800 broken", "zero \0 inside", "ünïcödé 图像", "<image>"])
    assert len(found) == 4


async def test_every_request_is_told(triton):
    told = []
    models = TritonModels(triton.settings(), on_call=lambda *call: told.append(call))
    await models.verify(picture(7), ["a"])
    with pytest.raises(Unscorable):
        await models.encode_image(b"x")
    await models.close()
    assert [kind for kind, _, _ in told] == ["ok", "unreadable_image"]
    assert told[0][1] > 0 and told[0][2].calls == 1


async def test_identity_names_checkpoint_and_weights(triton, models):
    found = await models.identity("verifier")
    assert found.model_id == "vision_language" and len(found.weights) == 64
    assert found.label.startswith(f"vision_language@{found.weights[:12]}")
    with pytest.raises(TransientError):
        await models.identity("nobody")


async def test_whether_a_verifier_asks_whole_prompts_is_a_metric(triton, models):
    await models.verify(picture(1), STATEMENTS)
    assert "/whole" not in models.label("verifier")
    text = (await asyncio.to_thread(httpx.get, triton.server.metrics_url)).text
    assert 'verifier_whole_prompts{model="verifier"} 0' in text


async def test_a_model_that_is_not_served(models):
    assert await models.ready() and await models.ready("verifier") and not await models.ready("nobody")
    with pytest.raises(TransientError, match="nobody"):
        await models.lvlm([], "a", model="nobody")
    await models.watch("verifier", "nobody")
    assert models.problems() == [f"triton at {models.settings.url}: model 'nobody': not loaded"]


async def test_requests_are_batched(triton, models):
    def executions() -> tuple[float, float]:
        text = httpx.get(triton.server.metrics_url).text
        return tuple(
            sum(
                float(line.rpartition(" ")[2])
                for line in text.splitlines()
                if line.startswith(f'{name}{{model="verifier"')
            )
            for name in ("nv_inference_count", "nv_inference_exec_count")
        )

    answered, run = executions()
    await asyncio.gather(*(models.verify(picture(n), [f"there are {n}", "two"]) for n in range(100, 132)))
    now_answered, now_run = executions()
    assert now_answered - answered == 32
    assert now_run - run < 24


async def test_what_is_refused_is_refused_again(models):
    """Triton's own cache keeps an error as an empty answer, which looks like a process that died."""
    for _ in range(3):
        with pytest.raises(Unscorable, match="statement 1 is empty") as told:
            await models.verify(picture(55), ["there are two", " "])
        assert told.value.reason == "judge_rejected_request"
        with pytest.raises(Unscorable, match="phrase 0 is empty"):
            await models.detect(picture(55), [" "])
    assert models.problems() == []


async def test_nobody_there_opens_the_breaker():
    models = TritonModels(
        TritonSettings(
            url=f"127.0.0.1:{free_port()}", timeout=1.0, retries=1, first_wait=0.01, breaker_failures=4
        )
    )
    told = []
    models._on_call = lambda kind, *_: told.append(kind)
    with pytest.raises(Unavailable, match="not available"):
        await models.verify(picture(), ["a"])
    # Nobody took the connection: no more need find out.
    with pytest.raises(Unavailable, match="left alone") as raised:
        await models.verify(picture(), ["a"])
    assert 0 < raised.value.retry_after <= 5.0 and raised.value.judge == "verifier"
    assert told == ["unreachable"] * 2 + ["left_alone"]
    assert "left alone" in models.problems()[0]
    assert not await models.ready()
    with pytest.raises(TransientError):
        await models.identity("verifier")
    await models.close()


async def test_a_cancelled_caller_takes_nobody_along(models):
    calls = [asyncio.create_task(models.verify(picture(n), ["a", "two"])) for n in range(200, 216)]
    await asyncio.sleep(0.005)
    for call in calls[::2]:
        call.cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert all(len(one) == 2 for one in found[1::2])


@pytest.mark.parametrize(
    "settings", [{"url": "http://a:1"}, {"timeout": 0}, {"lvlm": ""}, {"breaker_failures": 0}]
)
def test_wrong_settings_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        TritonSettings(**settings)
