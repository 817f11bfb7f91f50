from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("numpy")
pytest.importorskip("sentence_transformers")
pytest.importorskip("textblob")

import numpy as np
from tests.support.cases import cases

from groundwatch.errors import UsageError
from groundwatch.events import Label
from groundwatch.extraction.engines.linguistic import train as training
from groundwatch.extraction.engines.linguistic.evaluate import (
    decomposer_prf,
    labelled_units,
    pair_facts,
    recogniser_accuracy,
)
from groundwatch.extraction.engines.linguistic.hedges import hedged
from groundwatch.extraction.engines.linguistic.outline import outline
from groundwatch.extraction.engines.linguistic.recogniser import (
    WIDTH,
    Coefficients,
    Recogniser,
    features,
    shipped,
)
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, read_annotations

CASES = cases(__file__)
ANNOTATION = Path(__file__).parents[5] / "shared" / "data" / "faithscore" / "annotation.jsonl"
needs_annotation = pytest.mark.skipif(not ANNOTATION.exists(), reason=f"no annotated answers at {ANNOTATION}")


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder(cached=20_000)


def answers(count: int = 6) -> list[AnnotatedAnswer]:
    things = ["fox", "lamp", "bridge", "piano", "tent", "whale"]
    return [
        AnnotatedAnswer(
            image=str(number % 3),
            answer=f"There is a {thing} on a hill, which suggests that somebody might enjoy it.",
            labels={
                f"There is a {thing} on a hill": Label.DESCRIPTIVE,
                "which suggests that somebody might enjoy it": Label.ANALYTICAL,
            },
            facts={f"There is a {thing}.": True, "There is a hill.": True},
        )
        for number, thing in enumerate(things[:count])
    ]


def test_features_have_one_row_for_each_unit(embedder: SentenceEmbedder) -> None:
    units = outline("A dog sits, and a cat sleeps. It might rain.")
    rows = features(units, embedder.encode([unit.text for unit in units]))
    assert rows.shape == (3, WIDTH)
    assert np.isfinite(rows).all()
    assert features((), embedder.encode([])).shape == (0, WIDTH)


def test_tells_plain_description_from_plain_analysis(embedder: SentenceEmbedder) -> None:
    units = outline(
        "A man in a blue coat is standing next to a bicycle. "
        "This suggests that he might enjoy a healthy lifestyle, which could inspire others."
    )
    chances = shipped().probabilities(units, embedder.encode([unit.text for unit in units]))
    assert chances[0] > 0.5 > max(chances[1:])


def test_a_sentence_that_guesses_is_analytical(embedder: SentenceEmbedder) -> None:
    wrong = {}
    for guess in CASES["guesses"]:
        units = outline(f"A ball is in the top left corner. The box is larger than the ball. {guess}")
        first, second, last = shipped().probabilities(units, embedder.encode([unit.text for unit in units]))
        if not min(first, second) > 0.5 > last:
            wrong[guess] = (first, second, last)
    assert wrong == {}


def test_an_aside_and_what_is_seen_are_no_guess() -> None:
    assert [text for text in CASES["asides"] if hedged(text)] == []


def test_other_coefficients_are_refused() -> None:
    with pytest.raises(ValueError, match="train again"):
        Recogniser(Coefficients(bias=0.0, weights=[1.0]))


def test_training_is_deterministic_and_learns(embedder: SentenceEmbedder) -> None:
    pytest.importorskip("sklearn")
    first = training.train(answers(), embedder)
    assert msgspec.json.encode(first) == msgspec.json.encode(training.train(answers(), embedder))
    assert recogniser_accuracy(answers(), Recogniser(first), embedder) == 1.0
    assert training.cross_validate(answers(), folds=3, embedder=embedder) == 1.0


def test_training_needs_both_labels_and_two_images(embedder: SentenceEmbedder) -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(UsageError, match="both"):
        training.train([], embedder)
    with pytest.raises(UsageError, match="two images"):
        training.cross_validate(answers(1), embedder=embedder)
    with pytest.raises(UsageError):
        recogniser_accuracy([], embedder=embedder)


def test_folds_never_part_an_image() -> None:
    annotated = answers()
    seen = []
    for trained, held_out in training.folds(annotated, 10, seed=3):
        images = {annotated[index].image for index in held_out}
        assert images.isdisjoint(annotated[index].image for index in trained)
        seen.extend(held_out)
    assert sorted(seen) == list(range(len(annotated)))


def test_pairs_are_one_to_one(embedder: SentenceEmbedder) -> None:
    pairs = pair_facts(
        ["There is a cat.", "There is a cat."], ["There is a cat.", "The sky is blue."], embedder
    )
    assert len(pairs) == 1
    assert pairs[0][1] == 0
    assert pair_facts([], ["There is a cat."], embedder) == []


def test_precision_recall_and_f1_are_pooled(embedder: SentenceEmbedder) -> None:
    agreement = decomposer_prf(answers(), embedder)
    assert agreement.expected == 12
    assert agreement.recall == 1.0
    assert agreement.precision == agreement.matched / agreement.found
    assert decomposer_prf([], embedder).f1 == 0.0


@needs_annotation
def test_units_people_labelled_are_found_in_their_answers() -> None:
    for annotated in read_annotations(ANNOTATION):
        units, labels = labelled_units(annotated)
        assert [unit.text for unit in units] == list(annotated.labels)
        assert list(labels) == list(annotated.labels.values())


@needs_annotation
@pytest.mark.slow
def test_agrees_with_people(embedder: SentenceEmbedder) -> None:
    pytest.importorskip("sklearn")
    annotated = read_annotations(ANNOTATION)
    assert training.cross_validate(annotated, embedder=embedder) >= 0.92
    assert decomposer_prf(annotated, embedder).f1 >= 0.75
    assert recogniser_accuracy(annotated, embedder=embedder) >= 0.95


@needs_annotation
@pytest.mark.slow
def test_the_shipped_coefficients_are_what_training_gives(embedder: SentenceEmbedder) -> None:
    """Within rounding: processors differ in the last digits."""
    pytest.importorskip("sklearn")
    fresh = training.train(read_annotations(ANNOTATION), embedder)
    ours = shipped()
    assert np.allclose(fresh.weights, ours._weights, atol=0.01)
