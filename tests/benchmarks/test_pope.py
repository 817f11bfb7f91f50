from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch_benchmarks.methods.yes_no import ask
from groundwatch_benchmarks.pope import Statistics, build

SHARED = Path(__file__).parents[3] / "shared" / "data" / "pope"
STRATEGIES = ["random", "popular", "adversarial"]
IMAGES = {
    "a": ["person", "dog", "ball"],
    "b": ["person", "cat"],
    "c": ["person", "dog", "cat", "umbrella"],
    "d": ["car", "cat"],
}

strategies = st.sampled_from(STRATEGIES)
images = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.lists(st.sampled_from("pqrstuvw"), max_size=6), max_size=6
)


@given(images, strategies, st.integers(0, 5), st.integers(0, 4))
def test_labels_are_true(found, strategy, seed, per_image):
    names = {ask(name): name for name in "pqrstuvw"}
    for question in build(found, strategy, seed=seed, per_image=per_image):
        present = names[question.text] in found[question.image]
        assert question.label == ("yes" if present else "no")


@given(images, strategies, st.integers(0, 5))
def test_nothing_is_asked_twice_and_numbers_run(found, strategy, seed):
    questions = build(found, strategy, seed=seed)
    assert len({(one.image, one.text) for one in questions}) == len(questions)
    assert [one.question_id for one in questions] == list(range(1, len(questions) + 1))
    for image, objects in found.items():
        asked = Counter(one.label for one in questions if one.image == image)
        assert asked["yes"] == min(3, len(set(objects)))
        assert asked["no"] <= asked["yes"]


@given(images, strategies, st.integers(0, 5))
def test_a_seed_gives_the_same_again(found, strategy, seed):
    assert build(found, strategy, seed=seed) == build(found, strategy, seed=seed)


@given(images, strategies, st.integers(0, 5))
def test_repeated_annotations_change_nothing(found, strategy, seed):
    twice = {image: objects * 2 for image, objects in found.items()}
    assert build(twice, strategy, seed=seed) == build(found, strategy, seed=seed)


def test_another_seed_asks_differently():
    asked = {tuple(one.text for one in build(IMAGES, "random", seed=seed)) for seed in range(8)}
    assert len(asked) > 1


def test_popular_takes_the_most_frequent_absent_ones():
    asked = [one.text for one in build(IMAGES, "popular") if one.image == "d" and one.label == "no"]
    assert asked == [ask("person"), ask("dog")]


def test_adversarial_takes_what_stands_beside_most_often():
    questions = [one for one in build(IMAGES, "adversarial") if one.image == "a"]
    after = {one.text: questions[at + 1].text for at, one in enumerate(questions) if one.label == "yes"}
    assert ask("cat") in after.values()
    assert Statistics(IMAGES).beside("person") == ("cat", "dog", "ball", "umbrella")


def test_no_images_and_no_negatives():
    assert build({}, "random") == []
    assert [one.label for one in build({"a": ["x"]}, "popular")] == ["yes"]
    assert [one.text for one in build({"a": ["x"]}, "random", pool=["x", "owl"]) if one.label == "no"] == [
        "Is there an owl in the image?"
    ]


def test_an_unknown_strategy_is_told():
    with pytest.raises(ValueError, match="no strategy 'best'"):
        build(IMAGES, "best")  # type: ignore[arg-type]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared POPE files are not on this machine")
def test_the_template_is_the_published_one():
    lines = (SHARED / "coco_pope_random.jsonl").read_bytes().splitlines()
    texts = [msgspec.json.decode(line)["text"] for line in lines]
    names = [text.removesuffix(" in the image?").split(" ", 3)[3] for text in texts]
    same = sum(ask(name) == text for name, text in zip(names, texts, strict=True))
    assert same / len(texts) > 0.99
