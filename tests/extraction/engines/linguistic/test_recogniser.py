from __future__ import annotations

import pytest

pytest.importorskip("numpy")
pytest.importorskip("sentence_transformers")
pytest.importorskip("textblob")

import numpy as np
from tests.support.cases import cases

from groundwatch.extraction.engines.linguistic.recogniser import (
    WIDTH,
    Coefficients,
    Recogniser,
    features,
    hedged,
    outline,
    shipped,
)
from groundwatch.models.embeddings import SentenceEmbedder

CASES = cases(__file__)


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder(cached=20_000)


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
