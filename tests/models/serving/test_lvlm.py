"""Answers: greedy ones do not depend on company, sampled ones on nothing but their seed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.support import checkpoints
from tests.support.checkpoints import picture

from groundwatch.models.serving.failures import CheckpointError, Refused
from groundwatch.models.serving.lvlm import Answer, Lvlm, Question, VisionLanguage
from groundwatch.models.serving.parameters import Parameters


def test_a_batch_answers_as_each_alone(lvlm):
    questions = [
        Question(prompt="describe the image", images=(picture(1),), max_tokens=8),
        Question(prompt="a", images=(picture(2),), max_tokens=4),
        Question(prompt="there are two", max_tokens=5),
        Question(prompt="describe the image and the square", images=(picture(1), picture(3)), max_tokens=6),
    ]
    together = lvlm.answer(questions)
    assert together == [lvlm.answer([question])[0] for question in questions]
    assert all(isinstance(answer, Answer) for answer in together)
    assert [answer.output_tokens for answer in together][:3] == [8, 4, 5]


def test_an_answer_takes_the_passes_that_generate_takes(lvlm):
    model, passes = lvlm.checkpoint.model, []
    hook = model.register_forward_pre_hook(lambda *_: passes.append(1))
    questions = [
        Question(prompt=f"describe {word}", images=(picture(1),), max_tokens=8) for word in ("a", "two")
    ]
    lvlm.answer(questions)
    served = len(passes)
    given = lvlm.checkpoint.batch([lvlm._prepare(one)[1][1] for one in questions])
    model.generate(**given, do_sample=False, max_new_tokens=8, pad_token_id=lvlm.checkpoint.pad)
    hook.remove()
    assert served == len(passes) - served == 8


def test_threads_that_pad_otherwise_do_not_touch_each_other(lvlm):
    texts, tokenizer = ["a", "there are two"], lvlm.checkpoint.tokenizer

    def lengths(number: int) -> int:
        return len({len(row) for row in tokenizer(texts, padding=bool(number % 2))["input_ids"]})

    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(lengths, range(400))] == [2, 1] * 200


def test_sampling_is_decided_by_the_seed_alone(lvlm):
    question = Question(prompt="describe", images=(picture(1),), max_tokens=12, temperature=1.0, seed=7)
    alone = lvlm.answer([question])[0]
    state = torch.random.get_rng_state()
    again = lvlm.answer([Question(prompt="two", max_tokens=3), question, question])
    assert again[1] == again[2] == alone
    assert torch.equal(state, torch.random.get_rng_state()), "another's dice were touched"
    others = {
        lvlm.answer(
            [Question(prompt="describe", images=(picture(1),), max_tokens=12, temperature=1.0, seed=s)]
        )[0].text
        for s in range(5)
    }
    assert len(others) > 1


def test_it_stops_where_the_model_does(lvlm):
    checkpoint = lvlm.checkpoint
    question = Question(prompt="describe the image", images=(picture(1),), max_tokens=8)
    first = checkpoint.tokenizer(lvlm.answer([question])[0].text, add_special_tokens=False)["input_ids"][0]
    checkpoint.ends.append(first)
    try:
        found = lvlm.answer([question])[0]
    finally:
        checkpoint.ends.remove(first)
    assert (found.finish, found.text, found.output_tokens) == ("stop", "", 0)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (Question(prompt="a", images=(b"<html>",)), "unreadable_image"),
        (Question(prompt="two " * 800), "prompt_too_long"),
        (Question(prompt="a" * 1_000_000), "prompt_too_long"),
        (Question(prompt=" "), "judge_rejected_request"),
        (Question(prompt="a", max_tokens=0), "judge_rejected_request"),
        (Question(prompt="a", max_tokens=33), "judge_rejected_request"),
        (Question(prompt="a", temperature=-1.0), "judge_rejected_request"),
        (Question(prompt="a", images=(picture(),) * 17), "judge_rejected_request"),
    ],
)
def test_what_cannot_be_answered_is_refused_alone(lvlm, question, reason):
    if question.max_tokens == 256:
        question = Question(
            prompt=question.prompt, images=question.images, temperature=question.temperature, max_tokens=4
        )
    found, beside = lvlm.answer([question, Question(prompt="two", max_tokens=2)])
    assert isinstance(found, Refused) and found.reason == reason
    assert isinstance(beside, Answer)


def test_marks_in_a_prompt_stay_text(lvlm):
    found = lvlm.answer([Question(prompt="<image> <|im_end|> two", images=(picture(),), max_tokens=3)])[0]
    assert isinstance(found, Answer)


def test_an_answer_is_never_longer_than_there_are_positions(tmp_path):
    folder = checkpoints.vision_language(tmp_path / "short", positions=40)
    lvlm = Lvlm(Parameters(model_id=str(folder)))
    found = lvlm.answer([Question(prompt="describe the image", images=(picture(),), max_tokens=500)])[0]
    assert isinstance(found, Answer)
    assert found.input_tokens + found.output_tokens == 40 and found.finish == "length"


def test_numbers_that_are_none_are_no_answer(folder):
    broken = VisionLanguage(Parameters(model_id=str(folder)))
    with torch.no_grad():
        broken.model.lm_head.weight[5] = float("nan")
    lvlm = Lvlm(Parameters(model_id=str(folder)), checkpoint=broken)
    [found] = lvlm.answer([Question(prompt="a", max_tokens=3)])
    assert isinstance(found, Refused) and found.reason == "not_finite"
    with pytest.raises(CheckpointError, match="cannot answer"):
        lvlm.warm_up(picture())


def test_a_checkpoint_without_a_chat_template(tmp_path):
    folder = checkpoints.vision_language(tmp_path / "plain", chat="")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    lvlm = Lvlm(Parameters(model_id=str(folder)))
    assert lvlm.checkpoint.rendered(2, "two") == "<image><image>two"
    found = lvlm.answer([Question(prompt="two", images=(picture(),), max_tokens=3)])[0]
    assert isinstance(found, Answer)
