"""Texts packed behind one image are worth what each is worth alone."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import pytest
from tools.miniature.answers import answer

from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import draw, scenes

torch = pytest.importorskip("torch", reason="needs the extra models")
pytest.importorskip("transformers", reason="needs the extra models")

from tools.miniature.packing import ANSWER, CAPTION, Packer, forward  # noqa: E402
from tools.miniature.texts import pairs  # noqa: E402

from tools.miniature import build  # noqa: E402


@pytest.fixture(scope="module")
def small() -> tuple[Any, Any]:
    torch.manual_seed(0)
    processor = build.processor()
    return build.model(processor.tokenizer, width=32, layers=2, vision_layers=1).eval(), processor


def test_a_branch_sees_the_image_and_itself_only(small: tuple[Any, Any]) -> None:
    model, processor = small
    packer, random = Packer(processor), Random(0)
    with torch.inference_mode():
        for shown in islice(scenes(4), 5):
            picture = draw(shown)
            branches = [packer.caption(PROMPTS[0][0], answer(shown, 0))]
            branches += [packer.statement(right, True, 0) for _, (right, _) in pairs(shown, random, 4)]
            together = forward(model, packer.batch([([picture], branches)])).logits
            alone = [forward(model, packer.batch([([picture], [branch])])).logits for branch in branches]
            assert torch.allclose(together, torch.cat(alone), atol=1e-4)


def test_packed_is_what_the_processor_would_ask(small: tuple[Any, Any]) -> None:
    model, processor = small
    packer = Packer(processor)
    shown = next(scenes(8))
    text = "There is a ball."
    inputs = processor.apply_chat_template(
        [
            {
                "role": "user",
                "content": [{"type": "image", "image": draw(shown)}, {"type": "text", "text": text}],
            }
        ],
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        asked = model(**inputs).logits[0, -1]
        trained = forward(model, packer.batch([([draw(shown)], [packer.statement(text, False, 0)])]))
    assert torch.allclose(trained.logits[trained.roles == ANSWER][0], asked, atol=1e-4)


def test_the_tokenizer_knows_the_world_by_words(small: tuple[Any, Any]) -> None:
    words = small[1].tokenizer
    for shown in islice(scenes(6), 20):
        text = answer(shown, 0)
        ids = words(text).input_ids
        assert words.decode(ids) == text
        assert len(ids) <= 1.1 * len(text.replace(".", " .").split())
    assert words.decode(words("Ærø, 東京 & 🙂").input_ids) == "Ærø, 東京 & 🙂"


def test_a_caption_teaches_every_word_of_its_answer(small: tuple[Any, Any]) -> None:
    packer = Packer(small[1])
    branch = packer.caption("Describe the image.", "There is a ball.")
    taught = [label for label, role in zip(branch.labels, branch.roles, strict=True) if role == CAPTION]
    assert packer.words.decode(taught) == "There is a ball.<|im_end|>"
