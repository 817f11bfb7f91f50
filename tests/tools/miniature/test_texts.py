"""What models learn from is so: pairs are what they claim, for every template and any scene."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tools.miniature.texts import TEMPLATES, pairs, questions, reference

from groundwatch.miniature.language import holds
from groundwatch.miniature.world import scenes
from groundwatch.system.up import MINIATURE


@given(st.integers(0, 2**40))
def test_pairs_are_right_and_wrong(seed: int) -> None:
    shown = next(scenes(seed))
    for name, (right, wrong) in pairs(shown, Random(seed), 12):
        assert holds(shown, right) is True, name
        assert holds(shown, wrong) is False, name


@given(st.integers(0, 2**40), st.sampled_from(sorted(TEMPLATES)))
def test_pairs_follow_weights(seed: int, only: str) -> None:
    weights = {name: float(name == only) for name in TEMPLATES}
    drawn = list(pairs(next(scenes(seed)), Random(seed), 3, weights))
    assert {name for name, _ in drawn} <= {only}


def test_the_verifier_says_which_words_it_was_taught() -> None:
    random, taught = Random(0), set[str]()
    for shown in islice(scenes(0), 2000):
        for _, pair in pairs(shown, random, 8):
            taught.update(re.findall(r"\w+", " ".join(pair).lower()))
    known = json.loads((MINIATURE / "verifier" / "groundwatch.json").read_text())["words"]
    assert set(known) == taught


def test_how_many_says_nothing_of_whether_it_holds() -> None:
    random, counts = Random(1), Counter[tuple[str, bool]]()
    for shown in islice(scenes(1), 6000):
        pair = TEMPLATES["count"](shown, random)
        if pair is not None:
            for text, right in zip(pair, (True, False), strict=True):
                counts[text.split()[2], right] += 1
    for number in ("one", "two", "three"):
        right, wrong = counts[number, True], counts[number, False]
        assert 0.8 < right / wrong < 1.25, counts


@given(st.integers(0, 2**40))
def test_reference_captions_vary_and_name_every_kind(seed: int) -> None:
    shown = next(scenes(seed))
    captions = {reference(shown, Random(number)) for number in range(12)}
    assert len(captions) > 3
    assert all(thing.kind in caption for thing in shown.things for caption in captions)


@given(st.integers(0, 2**40))
def test_questions_about_one_scene_have_both_truths(seed: int) -> None:
    shown = next(scenes(seed))
    asked = list(questions(shown, Random(seed), 6))
    assert [truth for _, truth in asked] == [True, False] * 3
    for question, truth in asked:
        thing = question.removeprefix("Is there ").removesuffix(" in the image?")
        assert holds(shown, f"There is {thing}.") is truth
