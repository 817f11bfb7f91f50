"""What the recogniser's training gives, and that the shipped coefficients are that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("sentence_transformers")
pytest.importorskip("textblob")

import numpy as np
from tools.recogniser import cross_validate, cross_validated_labels, folds, train

from groundwatch.errors import UsageError
from groundwatch.events import Label
from groundwatch.extraction.engines.linguistic.recogniser import Recogniser, shipped
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, read_annotations
from groundwatch.protocols.faithscore.validation import labels_agreement, predicted

ANNOTATION = Path(__file__).parents[3] / "shared" / "data" / "faithscore" / "annotation.jsonl"
needs_annotation = pytest.mark.skipif(not ANNOTATION.exists(), reason=f"no annotated answers at {ANNOTATION}")


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder(cached=20_000)


def answers() -> list[AnnotatedAnswer]:
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
        for number, thing in enumerate(things)
    ]


def test_training_is_deterministic_and_learns(embedder: SentenceEmbedder) -> None:
    first = train(answers(), embedder)
    assert msgspec.json.encode(first) == msgspec.json.encode(train(answers(), embedder))
    own = [predicted(annotated, Recogniser(first), embedder) for annotated in answers()]
    assert labels_agreement(answers(), own)["accuracy"] == 1.0
    folds = cross_validated_labels(answers(), 3, embedder)
    assert labels_agreement(answers(), folds)["accuracy"] == 1.0


def test_training_needs_both_labels_and_two_images(embedder: SentenceEmbedder) -> None:
    with pytest.raises(UsageError, match="both"):
        train([], embedder)
    with pytest.raises(UsageError, match="two images"):
        cross_validated_labels(answers()[:1], 10, embedder)


def test_folds_never_part_an_image() -> None:
    annotated = answers()
    seen = []
    for trained, held_out in folds(annotated, 10, seed=3):
        images = {annotated[index].image for index in held_out}
        assert images.isdisjoint(annotated[index].image for index in trained)
        seen.extend(held_out)
    assert sorted(seen) == list(range(len(annotated)))


@needs_annotation
@pytest.mark.slow
def test_agrees_with_people_on_unseen_images() -> None:
    answers = read_annotations(ANNOTATION)
    found = asyncio.run(cross_validate(answers, 5))
    assert found["recogniser"]["accuracy"] >= 0.92
    assert found["answers"] == 120
    assert found["table_8"]["pearson"]["value"] >= 0.85


@needs_annotation
@pytest.mark.slow
def test_the_shipped_coefficients_are_what_training_gives(embedder: SentenceEmbedder) -> None:
    """Within rounding: processors differ in the last digits."""
    fresh = train(read_annotations(ANNOTATION), embedder)
    ours = shipped()
    assert np.allclose(fresh.weights, ours._weights, atol=0.01)
