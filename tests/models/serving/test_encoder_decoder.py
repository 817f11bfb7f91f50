"""Models whose processor places the image itself: those with an encoder for the text, and BLIP-2 with OPT."""

from __future__ import annotations

import shutil

import pytest
import torch
from tests.models.serving.test_verifier import STATEMENTS, near
from tests.support import checkpoints
from tests.support.checkpoints import picture
from tests.support.triton import ONE_THREAD, serving

from groundwatch.errors import Unscorable
from groundwatch.models.repository import ServedModel
from groundwatch.models.serving.failures import CheckpointError, Refused
from groundwatch.models.serving.images import decode
from groundwatch.models.serving.lvlm import Answer, Lvlm, Question
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import (
    EncoderDecoderVerifier,
    EntailmentRequest,
    Verifier,
    load_verifier,
)
from groundwatch.models.settings import TritonSettings
from groundwatch.models.triton import TritonModels

MADE = {
    "blip2-t5": checkpoints.blip2,
    "blip2-opt": lambda folder: checkpoints.blip2(folder, decoder=True),
    "florence2": checkpoints.florence2,
}
WITH_ENCODER = ("blip2-t5", "florence2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("encoder_decoder")
    return {name: make(place / name) for name, make in MADE.items()}


@pytest.fixture(scope="module")
def verifiers(folders):
    return {name: load_verifier(Parameters(model_id=str(folder))) for name, folder in folders.items()}


@pytest.fixture(params=MADE)
def verifier(request, verifiers) -> Verifier:
    return verifiers[request.param]


def asked(number: int, statements: tuple[str, ...] = STATEMENTS) -> EntailmentRequest:
    return EntailmentRequest(images=(picture(number),), statements=statements)


def test_the_class_follows_the_checkpoint(verifiers):
    kinds = {name for name, one in verifiers.items() if isinstance(one, EncoderDecoderVerifier)}
    assert kinds == set(WITH_ENCODER)


def test_requests_in_a_batch_are_as_one_by_one(verifier):
    requests = [asked(1), asked(2, STATEMENTS[:2]), asked(1, ("say 'no' & <7> trees",)), asked(3)]
    for request, found in zip(requests, verifier.judge(requests), strict=True):
        assert near(found, verifier.judge_one_by_one(request))
    expected = verifier.judge_one_by_one(requests[0])
    assert max(expected) - min(expected) > 0.01, "a checkpoint that says the same of all would prove nothing"


def test_it_looks(verifier):
    one, other = verifier.judge([asked(1), asked(2)])
    assert max(abs(a - b) for a, b in zip(one.probabilities, other.probabilities, strict=True)) > 1e-3


@pytest.mark.parametrize("name", MADE)
def test_the_answer_is_what_the_model_would_begin_to_say(verifiers, name):
    """transformers' own generation, from its own processor's tensors, is the witness."""
    verifier = verifiers[name]
    checkpoint = verifier.checkpoint
    for statement, found in zip(STATEMENTS, verifier.judge([asked(1)])[0].probabilities, strict=True):
        given = checkpoint.processor(
            images=decode(picture(1), verifier._parameters), text=[statement], return_tensors="pt"
        )
        said = checkpoint.model.generate(
            **given, max_new_tokens=3, do_sample=False, output_scores=True, return_dict_in_generate=True
        )
        scores = said.scores[1 if name == "florence2" else 0][0]
        yes, no = scores[verifier.yes].logsumexp(0), scores[verifier.no].logsumexp(0)
        assert found == pytest.approx(float(torch.sigmoid(yes - no)), abs=1e-3)


@pytest.mark.parametrize("name", WITH_ENCODER)
def test_the_image_is_encoded_once_for_all_statements(folders, verifiers, name, monkeypatch):
    checkpoint = verifiers[name].checkpoint
    narrow = load_verifier(Parameters(model_id=str(folders[name]), max_rows=3), checkpoint=checkpoint)
    inquiry = asked(1, STATEMENTS * 2)
    expected = narrow.judge_one_by_one(inquiry)
    looked, read = [], []
    looking, reading = checkpoint.model.get_image_features, checkpoint.language.forward
    counted = lambda **named: looked.append(1) or looking(**named)  # noqa: E731
    rows = lambda **named: read.append(len(named["inputs_embeds"])) or reading(**named)  # noqa: E731
    monkeypatch.setattr(checkpoint.model, "get_image_features", counted)
    monkeypatch.setattr(checkpoint.language, "forward", rows)
    [found] = narrow.judge([inquiry])
    assert near(found, expected)
    assert (looked, read) == ([1], [3, 3, 3, 1])


@pytest.mark.parametrize("mark", ["<image>", "</s>", "<CAPTION>"])
def test_marks_in_a_statement_stay_text(verifier, mark):
    request = asked(1, (f"there is {mark} a circle", "two"))
    assert near(verifier.judge([request])[0], verifier.judge_one_by_one(request))


@pytest.mark.parametrize(
    ("images", "statement", "reason"),
    [
        ((picture(1), picture(2)), "two", "judge_rejected_request"),
        ((picture(1),), "a " * 900, "prompt_too_long"),
        ((b"junk",), "two", "unreadable_image"),
    ],
)
def test_what_cannot_be_judged_is_refused_alone(verifier, images, statement, reason):
    found, beside = verifier.judge([EntailmentRequest(images=images, statements=(statement,)), asked(1)])
    assert isinstance(found, Refused) and found.reason == reason
    assert near(beside, verifier.judge_one_by_one(asked(1)))


@pytest.mark.parametrize("name", MADE)
def test_it_answers_as_the_model_generates(folders, verifiers, name):
    checkpoint = verifiers[name].checkpoint
    lvlm = Lvlm(Parameters(model_id=str(folders[name]), max_tokens=32), checkpoint=checkpoint)
    questions = [
        Question(prompt="describe the image", images=(picture(1),), max_tokens=8),
        Question(prompt="a", images=(picture(2),), max_tokens=5),
    ]
    together = lvlm.answer(questions)
    assert together == [lvlm.answer([question])[0] for question in questions]
    for question, answer in zip(questions, together, strict=True):
        given = checkpoint.processor(
            images=decode(question.images[0], lvlm._parameters), text=[question.prompt], return_tensors="pt"
        )
        said = checkpoint.model.generate(**given, max_new_tokens=question.max_tokens, do_sample=False)
        said = said[0, 1:] if checkpoint.encoder_decoder else said[0]
        expected = checkpoint.tokenizer.decode(said, skip_special_tokens=True)
        assert isinstance(answer, Answer) and answer.text and expected.endswith(answer.text)
    for images in ((), (picture(1), picture(2))):
        [found] = lvlm.answer([Question(prompt="a", images=images, max_tokens=2)])
        assert isinstance(found, Refused) and "this model takes one" in str(found)


def test_places_that_the_model_does_not_fill_are_refused_at_load(tmp_path):
    folder = checkpoints.blip2(tmp_path / "other", places=6)
    with pytest.raises(CheckpointError, match="another number of places"):
        load_verifier(Parameters(model_id=str(folder))).warm_up(picture())


def test_a_revision_without_the_image_token_is_refused_at_load(tmp_path):
    folder = checkpoints.blip2(tmp_path / "old", places=0)
    with pytest.raises(CheckpointError, match="newest revision"):
        load_verifier(Parameters(model_id=str(folder))).warm_up(picture())


@pytest.mark.parametrize("decoder", [False, True])
def test_an_instructblip_answers_and_is_no_verifier(tmp_path, decoder):
    folder = checkpoints.blip2(tmp_path / "instruct", decoder=decoder, instruct=True)
    lvlm = Lvlm(Parameters(model_id=str(folder)))
    questions = [
        Question(prompt=text, images=(picture(number),), max_tokens=6)
        for number, text in enumerate(("describe the image", "a", "describe the image"))
    ]
    together = lvlm.answer(questions)
    assert all(isinstance(one, Answer) and one.text for one in together), together
    assert together == [lvlm.answer([question])[0] for question in questions]
    with pytest.raises(CheckpointError, match="use a BLIP-2"):
        load_verifier(Parameters(model_id=str(folder)), checkpoint=lvlm.checkpoint)


def test_an_architecture_that_transformers_lacks_is_refused_by_name(folders, tmp_path):
    """As the hub's OFA says of itself; its code is not asked for."""
    folder = shutil.copytree(folders["florence2"], tmp_path / "served")
    (folder / "config.json").write_text('{"model_type": "ofa", "architectures": ["OFAModel"]}')
    with pytest.raises(CheckpointError, match="model type `ofa`"):
        load_verifier(Parameters(model_id=str(folder)))


def test_a_kind_of_model_that_takes_no_images_is_refused_with_where_to_serve_it(folders, tmp_path):
    folder = shutil.copytree(folders["florence2"], tmp_path / "served")
    (folder / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    with pytest.raises(CheckpointError, match="OpenAI-compatible endpoint") as refused:
        load_verifier(Parameters(model_id=str(folder)))
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(("judge", "answers"), [("blip2-t5", "blip2-opt"), ("blip2-opt", "florence2")])
async def test_triton_serves_them(folders, verifiers, tmp_path, judge, answers):
    models = {
        kind: ServedModel(kind=kind, checkpoint=str(folders[name]), parameters=ONE_THREAD)
        for kind, name in (("verifier", judge), ("lvlm", answers))
    }
    async with serving(tmp_path / "triton", models) as server:
        client = TritonModels(TritonSettings(url=server.url, timeout=30.0))
        try:
            found = await client.verify([picture(1)], list(STATEMENTS))
            assert found == pytest.approx(verifiers[judge].judge_one_by_one(asked(1)), abs=1e-3)
            with pytest.raises(Unscorable, match="this model takes one"):
                await client.verify([picture(1), picture(2)], ["two"])
            lvlm = Lvlm(Parameters(model_id=str(folders[answers])), checkpoint=verifiers[answers].checkpoint)
            [expected] = lvlm.answer([Question(prompt="describe", images=(picture(1),), max_tokens=6)])
            said = await client.lvlm([picture(1)], "describe", max_tokens=6)
            assert isinstance(expected, Answer) and said.text == expected.text
        finally:
            await client.close()
