"""The bundled sample: rebuilt to the byte, and with the rates that the demo promises."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from tools.demo_answers import ANSWERS, GOOD, TURNING, Composed, compose, encode, wrong_share

from groundwatch.events import ResponseRecorded
from groundwatch_benchmarks.scenes import SCENES, Scene, load_scenes


@pytest.fixture(scope="module")
def scenes() -> tuple[Scene, ...]:
    return load_scenes()


@pytest.fixture(scope="module")
def composed(scenes: tuple[Scene, ...]) -> list[Composed]:
    return compose(scenes)


def halves(composed: list[Composed], model: str) -> tuple[list[Composed], list[Composed]]:
    middle = len(composed) // 2
    return (
        [one for one in composed[:middle] if one.answer.model == model],
        [one for one in composed[middle:] if one.answer.model == model],
    )


def test_committed_file_is_what_the_builder_writes(composed: list[Composed]) -> None:
    assert ANSWERS.read_bytes() == encode(composed)


def test_the_sample_is_large_enough_and_small_enough(
    scenes: tuple[Scene, ...], composed: list[Composed]
) -> None:
    assert len(scenes) >= 64
    assert len(composed) >= 320
    assert ANSWERS.stat().st_size + SCENES.stat().st_size < 1_500_000
    assert {one.answer.tags["scene"] for one in composed} == {scene.id for scene in scenes}


def test_only_osprey_turns_bad_and_only_in_the_middle(composed: list[Composed]) -> None:
    early, late = halves(composed, TURNING)
    assert wrong_share(late) >= 0.30
    for well in (early, *halves(composed, GOOD)):
        assert 0.03 <= wrong_share(well) <= 0.08
    assert [one.worse for one in composed] == [one in late for one in composed]


def test_models_take_turns(composed: list[Composed]) -> None:
    counts = Counter(one.answer.model for one in composed)
    assert set(counts) == {GOOD, TURNING}
    assert abs(counts[GOOD] - counts[TURNING]) <= 2
    for start in range(0, len(composed) - 10, 10):
        window = Counter(one.answer.model for one in composed[start : start + 10])
        assert min(window[GOOD], window[TURNING]) >= 4


def test_every_line_is_a_recordable_response() -> None:
    seen = set()
    for line in ANSWERS.read_bytes().splitlines():
        response = msgspec.json.decode(line, type=ResponseRecorded)
        assert response.answer
        assert response.prompt
        assert response.reference is not None
        assert response.reference.complete
        assert set(response.tags) == {"scene", "task", "release"}
        assert set(msgspec.json.decode(line)) == {
            "id",
            "model",
            "prompt",
            "answer",
            "images",
            "reference",
            "tags",
        }
        seen.add(response.id)
    assert len(seen) >= 320


def test_answers_do_not_repeat_themselves(composed: list[Composed]) -> None:
    texts = Counter(one.answer.answer for one in composed)
    assert sum(times - 1 for times in texts.values()) <= len(composed) * 0.02
    assert all(1 <= len(one.holds) <= 5 for one in composed)


def test_scenes_have_enough_to_draw_from(scenes: tuple[Scene, ...]) -> None:
    for scene in scenes:
        assert len(scene.objects) == len(set(scene.objects)) >= 12, scene.id
        assert any(not fact.holds for fact in scene.facts), scene.id
        assert {question.task for question in scene.questions} == {"conversation", "complex question"}, (
            scene.id
        )
        for pieces in (scene.openings, scene.details, *(question.answers for question in scene.questions)):
            assert {piece.holds for piece in pieces} == {True, False}, scene.id
        assert len({piece.text for piece in scene.details}) == len(scene.details), scene.id


def test_no_sentence_is_shared_between_scenes(scenes: tuple[Scene, ...]) -> None:
    owners: dict[str, set[str]] = {}
    for scene in scenes:
        for piece in scene.openings:
            owners.setdefault(piece.text, set()).add(scene.id)
    assert all(len(ids) == 1 for ids in owners.values())


def test_the_text_is_plain_ascii() -> None:
    assert SCENES.read_bytes().isascii()
    assert ANSWERS.read_bytes().isascii()
