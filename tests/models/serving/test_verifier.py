"""The shared prefix says what asking one by one says, whatever the statements are."""

from __future__ import annotations

import json
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import checkpoints
from tests.support.checkpoints import picture

from groundwatch.models.serving.failures import CheckpointError, Exhausted, Refused
from groundwatch.models.serving.lvlm import VisionLanguage
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import EntailmentRequest, EntailmentResult, Verifier

STATEMENTS = (
    "there is a red circle",
    "two",
    "the circle is left of the square and above the small green square in the image",
    "there is a red circle",
    "a",
)


def near(found, expected) -> bool:
    assert isinstance(found, EntailmentResult), found
    assert len(found.probabilities) == len(expected)
    return all(abs(a - b) <= 1e-3 for a, b in zip(found.probabilities, expected, strict=True))


def test_statements_of_differing_lengths_are_as_one_by_one(verifier):
    inquiry = EntailmentRequest(images=(picture(1),), statements=STATEMENTS)
    [found] = verifier.judge([inquiry])
    expected = verifier.judge_one_by_one(inquiry)
    assert near(found, expected)
    assert found.probabilities[0] == found.probabilities[3]
    assert max(expected) - min(expected) > 0.01, "a checkpoint that says the same of all would prove nothing"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    statements=st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(str.strip),
        min_size=1,
        max_size=8,
    ),
    number=st.integers(0, 3),
)
def test_any_statements_are_as_one_by_one(verifier, statements, number):
    inquiry = EntailmentRequest(images=(picture(number),), statements=tuple(statements))
    [found] = verifier.judge([inquiry])
    assert near(found, verifier.judge_one_by_one(inquiry))


def test_inquiries_that_share_a_batch_do_not_touch_each_other(verifier):
    inquiries = [
        EntailmentRequest(images=(picture(1),), statements=STATEMENTS),
        EntailmentRequest(images=(picture(2),), statements=STATEMENTS[:2]),
        EntailmentRequest(images=(picture(1), picture(2)), statements=STATEMENTS[1:]),
        EntailmentRequest(images=(picture(3),), statements=("yes",)),
    ]
    for inquiry, found in zip(inquiries, verifier.judge(inquiries), strict=True):
        assert near(found, verifier.judge_one_by_one(inquiry))


def test_it_looks(verifier):
    one, other = verifier.judge(
        [EntailmentRequest(images=(picture(number),), statements=STATEMENTS) for number in (1, 2)]
    )
    assert one.probabilities != other.probabilities


def test_more_statements_than_fit_into_one_pass(folder, checkpoint):
    narrow = Verifier(Parameters(model_id=str(folder), max_rows=3), checkpoint=checkpoint)
    inquiry = EntailmentRequest(images=(picture(1),), statements=STATEMENTS * 2)
    assert near(narrow.judge([inquiry])[0], narrow.judge_one_by_one(inquiry))


def test_the_prefix_is_read_once(verifier, checkpoint, monkeypatch):
    lengths = []
    forward = checkpoint.model.forward

    def counted(*arguments, **named):
        lengths.append((named["input_ids"].shape, "pixel_values" in named))
        return forward(*arguments, **named)

    monkeypatch.setattr(checkpoint.model, "forward", counted)
    prepared = []
    prepare = checkpoint.prepare
    monkeypatch.setattr(checkpoint, "prepare", lambda *all_: prepared.append(1) or prepare(*all_))
    verifier.judge([EntailmentRequest(images=(picture(1),), statements=STATEMENTS)])
    assert len(prepared) == 1
    (prefix, looked), (rests, looked_again) = lengths
    assert looked and not looked_again
    assert prefix[0] == 1 and rests[0] == len(STATEMENTS)


@pytest.fixture(scope="module")
def packed(folder, checkpoint) -> Verifier:
    """One that has proved that all statements can go in one pass."""
    found = Verifier(Parameters(model_id=str(folder)), checkpoint=checkpoint)
    found.warm_up(picture(0))
    assert found.one_pass
    return found


def test_one_pass_says_what_one_by_one_says(packed, folder, checkpoint):
    inquiries = [
        EntailmentRequest(images=(picture(1),), statements=STATEMENTS),
        EntailmentRequest(images=(picture(2),), statements=STATEMENTS[:2]),
        EntailmentRequest(images=(picture(1), picture(2)), statements=STATEMENTS[1:]),
        EntailmentRequest(images=(picture(3),), statements=("yes",)),
    ]
    narrow = Verifier(Parameters(model_id=str(folder), max_rows=2), checkpoint=checkpoint)
    narrow.one_pass = True
    for verifier in (packed, narrow):
        for inquiry, found in zip(inquiries, verifier.judge(inquiries), strict=True):
            assert near(found, verifier.judge_one_by_one(inquiry))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    statements=st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(str.strip),
        min_size=1,
        max_size=8,
    )
)
def test_in_one_pass_no_statement_sees_another(packed, statements):
    inquiry = EntailmentRequest(images=(picture(1),), statements=tuple(statements))
    [found] = packed.judge([inquiry])
    assert near(found, packed.judge_one_by_one(inquiry))


def test_one_pass_is_one(packed, checkpoint, monkeypatch):
    seen, base = [], checkpoint.model.base_model
    forward = base.forward
    monkeypatch.setattr(
        base, "forward", lambda *a, **n: seen.append(n["input_ids"].shape[0]) or forward(*a, **n)
    )
    packed.judge([EntailmentRequest(images=(picture(n),), statements=STATEMENTS) for n in (1, 2)])
    assert seen == [2]


@pytest.mark.parametrize("mark", ["<image>", "<|im_end|>", "<|im_start|>"])
def test_marks_in_a_statement_stay_text(verifier, mark):
    statements = (f"there is {mark} a circle", "two")
    inquiry = EntailmentRequest(images=(picture(1),), statements=statements)
    assert near(verifier.judge([inquiry])[0], verifier.judge_one_by_one(inquiry))
    ids = verifier.checkpoint.tokens([verifier._asked(1, statements[0])])[0]
    special = verifier.checkpoint.tokenizer.convert_tokens_to_ids(mark)
    plain = verifier.checkpoint.tokens([verifier._asked(1, "there is a circle")])[0]
    assert ids.count(special) == plain.count(special)


@pytest.mark.parametrize(
    ("inquiry", "reason"),
    [
        (EntailmentRequest(images=(b"junk",), statements=("a",)), "unreadable_image"),
        (EntailmentRequest(images=(b"",), statements=("a",)), "unreadable_image"),
        (EntailmentRequest(images=(picture()[:200],), statements=("a",)), "unreadable_image"),
        (EntailmentRequest(images=(picture(),), statements=("a " * 900,)), "prompt_too_long"),
        (EntailmentRequest(images=(picture(),), statements=("a" * 1_000_000,)), "prompt_too_long"),
        (EntailmentRequest(images=(picture(),), statements=()), "judge_rejected_request"),
        (EntailmentRequest(images=(picture(),), statements=("a", " ")), "judge_rejected_request"),
        (EntailmentRequest(images=(), statements=("a",)), "judge_rejected_request"),
        (EntailmentRequest(images=(picture(),) * 17, statements=("a",)), "judge_rejected_request"),
    ],
)
def test_what_cannot_be_judged_is_refused_alone(verifier, inquiry, reason):
    good = EntailmentRequest(images=(picture(1),), statements=STATEMENTS)
    found, beside = verifier.judge([inquiry, good])
    assert isinstance(found, Refused) and found.reason == reason
    assert near(beside, verifier.judge_one_by_one(good))


def test_yes_and_no_are_found_in_the_tokenizer(verifier):
    words = {verifier.checkpoint.tokenizer.decode([token]).strip() for token in verifier.yes}
    assert words == {"yes"}
    assert not set(verifier.yes) & set(verifier.no)


def test_spellings_that_are_no_tokens_are_refused_at_load(folder, checkpoint):
    with pytest.raises(CheckpointError, match="set YES and NO"):
        Verifier(Parameters(model_id=str(folder), yes="zqxj"), checkpoint=checkpoint)
    with pytest.raises(CheckpointError, match="in common"):
        Verifier(Parameters(model_id=str(folder), yes="no"), checkpoint=checkpoint)


def test_the_wording_is_the_checkpoints_or_the_parameters(folder, checkpoint, copy):
    own = Verifier(
        Parameters(model_id=str(folder), prompt_template="is it so: {statement} yes or no"),
        checkpoint=checkpoint,
    )
    assert "is it so: two yes or no" in own._asked(1, "two")
    inquiry = EntailmentRequest(images=(picture(1),), statements=STATEMENTS)
    assert near(own.judge([inquiry])[0], own.judge_one_by_one(inquiry))
    other = copy()
    (other / "groundwatch.json").write_text(json.dumps({"statement_template": "{statement} so"}))
    assert "two so" in Verifier(Parameters(model_id=str(other)), checkpoint=checkpoint)._asked(1, "two")
    (other / "groundwatch.json").unlink()
    assert "right according to the image" in (
        Verifier(Parameters(model_id=str(other)), checkpoint=checkpoint)._asked(1, "two")
    )
    with pytest.raises(CheckpointError, match="statement"):
        Verifier(Parameters(model_id=str(folder), prompt_template="no slot"), checkpoint=checkpoint)


def test_statements_in_words_that_it_was_not_taught_are_refused(checkpoint, copy):
    other = copy()
    known = sorted({word for text in STATEMENTS for word in re.findall(r"\w+", text.lower())})
    words = {"statement_template": "{statement}", "words": known}
    (other / "groundwatch.json").write_text(json.dumps(words))
    taught = Verifier(Parameters(model_id=str(other)), checkpoint=checkpoint)
    taught.warm_up(picture())
    good = EntailmentRequest(images=(picture(1),), statements=STATEMENTS)
    bad = EntailmentRequest(images=(picture(1),), statements=(STATEMENTS[0], "There is a page."))
    whole, refused = taught.judge([good, bad])
    assert near(whole, taught.judge_one_by_one(good))
    assert isinstance(refused, Refused) and refused.reason == "judge_rejected_request"
    assert "statement 1" in str(refused) and "page" in str(refused)


def test_a_template_with_the_image_last_is_refused(tmp_path):
    chat = (
        "{% for m in messages %}{% for c in m['content'] %}{% if c['type']=='text' %}{{ c['text'] }}"
        "{% endif %}{% endfor %}<image><|im_end|>{% endfor %}"
    )
    folder = checkpoints.vision_language(tmp_path / "last", chat=chat)
    with pytest.raises(CheckpointError, match="before the image"):
        Verifier(Parameters(model_id=str(folder))).warm_up(picture())


def test_logits_that_are_no_numbers_are_no_verdict(folder):
    broken = VisionLanguage(Parameters(model_id=str(folder)))
    with torch.no_grad():
        broken.model.lm_head.weight.mul_(float("nan"))
    verifier = Verifier(Parameters(model_id=str(folder)), checkpoint=broken)
    [found] = verifier.judge([EntailmentRequest(images=(picture(),), statements=("a",))])
    assert isinstance(found, Refused) and found.reason == "not_finite"
    with pytest.raises(CheckpointError, match="cannot judge"):
        verifier.warm_up(picture())


def test_a_batch_without_memory_is_judged_in_parts(verifier, checkpoint, monkeypatch):
    forward = checkpoint.model.forward

    def small(*arguments, **named):
        if named["input_ids"].shape[0] > 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return forward(*arguments, **named)

    monkeypatch.setattr(checkpoint.model, "forward", small)
    good = [EntailmentRequest(images=(picture(number),), statements=STATEMENTS) for number in range(3)]
    large = EntailmentRequest(images=(picture(4),), statements=STATEMENTS * 2)
    *found, failed = verifier.judge([*good, large])
    assert all(isinstance(one, EntailmentResult) for one in found)
    assert isinstance(failed, Exhausted) and "out of memory" in str(failed)


def test_a_checkpoint_whose_prefix_does_not_say_what_whole_prompts_say_is_refused(
    folder, checkpoint, monkeypatch
):
    verifier = Verifier(Parameters(model_id=str(folder)), checkpoint=checkpoint)
    score, whole = verifier._score, verifier._pass
    monkeypatch.setattr(verifier, "_pass", lambda rows: [p + 0.01 for p in whole(rows)])
    verifier.warm_up(picture())
    assert not verifier.one_pass, "the repeated cache is right"
    monkeypatch.setattr(verifier, "_score", lambda *all_, **named: [p + 0.01 for p in score(*all_, **named)])
    with pytest.raises(CheckpointError, match=r"set PREFIX to whole or auto .* OpenAI-compatible endpoint"):
        verifier.warm_up(picture())


def test_with_auto_it_asks_whole_prompts_then_and_says_so(folder, checkpoint, monkeypatch, caplog):
    verifier = Verifier(Parameters(model_id=str(folder), prefix="auto"), checkpoint=checkpoint)
    verifier.warm_up(picture())
    assert verifier.way == "one pass" and not verifier.fell_back
    for name in ("_pass", "_score"):
        right = getattr(verifier, name)
        wrong = lambda *all_, right=right, **named: [p + 0.01 for p in right(*all_, **named)]  # noqa: E731
        monkeypatch.setattr(verifier, name, wrong)
    verifier.warm_up(picture())
    assert verifier.fell_back and "now asked as whole: " in caplog.text
    good = EntailmentRequest(images=(picture(1),), statements=STATEMENTS)
    assert list(verifier.judge([good])[0].probabilities) == verifier.judge_one_by_one(good)


def test_statements_can_be_asked_in_whole_prompts(folder, checkpoint, verifier):
    whole = Verifier(Parameters(model_id=str(folder), prefix="whole"), checkpoint=checkpoint)
    whole.warm_up(picture())
    good = EntailmentRequest(images=(picture(1),), statements=STATEMENTS)
    empty = EntailmentRequest(images=(picture(1),), statements=("a", " "))
    judged, refused = whole.judge([good, empty])
    [shared] = verifier.judge([good])
    assert near(judged, shared.probabilities)
    assert judged.tokens > shared.tokens
    assert isinstance(refused, Refused)


def test_why_one_pass_is_not_taken_is_told(folder, checkpoint, monkeypatch, caplog):
    def broken(rows):
        raise TypeError("forward() got no mask")

    verifier = Verifier(Parameters(model_id=str(folder)), checkpoint=checkpoint)
    monkeypatch.setattr(verifier, "_pass", broken)
    verifier.warm_up(picture())
    assert not verifier.one_pass
    assert "now asked as rows: " in caplog.text and "forward() got no mask" in caplog.text


def test_one_pass_that_is_wrong_in_a_batch_gives_way(folder, checkpoint, monkeypatch, caplog):
    verifier = Verifier(Parameters(model_id=str(folder)), checkpoint=checkpoint)
    whole = verifier._pass
    monkeypatch.setattr(verifier, "_pass", lambda rows: [p + 0.01 * (len(rows) > 1) for p in whole(rows)])
    verifier.warm_up(picture())
    assert not verifier.one_pass and "a shared prefix gives" in caplog.text


def test_what_fills_a_row_is_at_no_place_beyond_the_statements(packed, checkpoint, monkeypatch):
    seen, base = [], checkpoint.model.base_model
    forward = base.forward
    monkeypatch.setattr(base, "forward", lambda *a, **n: seen.append(n) or forward(*a, **n))
    short = EntailmentRequest(images=(picture(1),), statements=("two",))
    packed.judge([short, EntailmentRequest(images=(picture(2),), statements=("two",) * 12)])
    [asked] = seen
    ready = packed._prepare(short)
    reached = len(ready.prefix.ids) + len(ready.rests[0])
    assert asked["position_ids"].max() < reached < asked["input_ids"].shape[1]
