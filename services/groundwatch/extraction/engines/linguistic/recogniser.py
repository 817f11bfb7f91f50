"""Descriptive or analytical: a logistic regression over MiniLM vectors and cues.

A sub-sentence's label depends on more than its words: "a museum exhibit" describes or guesses as its
sentence does, and answers to complex questions reason where captions describe. So a row holds the
vectors of the sub-sentence, of the first sub-sentence of its sentence and the mean over the answer, the
cues of the sub-sentence, its predecessor, its sentence and its sentence so far, where it stands, and its
grammar.
The scales weigh the groups against each other under one regularisation. A sentence that opens with a plain
guess is analytical whatever the regression says (`hedges`).
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from groundwatch.extraction.engines.linguistic.cues import COUNT, FINER_COUNT, cues, finer_cues
from groundwatch.extraction.engines.linguistic.grammar import COUNT as GRAMMAR
from groundwatch.extraction.engines.linguistic.grammar import grammar
from groundwatch.extraction.engines.linguistic.hedges import DESCRIPTIVE, hedged
from groundwatch.extraction.engines.linguistic.outline import Unit
from groundwatch.models.embeddings import DIMENSIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
    Rows = NDArray[np.float64]
    Probabilities = NDArray[np.float64]

COEFFICIENTS = "recogniser.json"
_VECTOR_SCALE = 4.0
_PLACES = 11
_GRAMMAR_SCALE = 1.5
DENSE = 3 * DIMENSIONS
"""The columns that hold vectors come first."""

WIDTH = DENSE + 4 * COUNT + FINER_COUNT + _PLACES + GRAMMAR


class Coefficients(msgspec.Struct, frozen=True, kw_only=True):
    """A trained recogniser: `weights` in the order of `features`' columns."""

    bias: float
    weights: list[float]


class Recogniser:
    """Says of each sub-sentence how probably it is descriptive."""

    def __init__(self, coefficients: Coefficients) -> None:
        import numpy as np

        if len(coefficients.weights) != WIDTH:
            raise ValueError(f"{len(coefficients.weights)} weights for {WIDTH} features: train again")
        self._weights = np.asarray(coefficients.weights, dtype=np.float64)
        self._bias = coefficients.bias

    def probabilities(self, units: Sequence[Unit], vectors: Vectors) -> Probabilities:
        """The probability of *descriptive* for each unit of one answer; `vectors` as for `features`."""
        import numpy as np

        scores = features(units, vectors) @ self._weights + self._bias
        chances: Probabilities = 1.0 / (1.0 + np.exp(-np.clip(scores, -30.0, 30.0)))
        guesses = [unit.sentence == index and hedged(unit.text) for index, unit in enumerate(units)]
        return np.where(guesses, np.minimum(chances, DESCRIPTIVE), chances)


def shipped() -> Recogniser:
    """The recogniser that comes with the package."""
    return Recogniser(msgspec.json.decode(shipped_bytes(), type=Coefficients))


def shipped_bytes() -> bytes:
    """The shipped coefficients as they lie in the package: their digest is part of the judge's version."""
    return importlib.resources.files(__package__).joinpath(COEFFICIENTS).read_bytes()


def features(units: Sequence[Unit], vectors: Vectors) -> Rows:
    """The rows of one answer's units, shape (len(units), WIDTH); `vectors` are the units' embeddings."""
    import numpy as np

    if not units:
        return np.zeros((0, WIDTH))
    opening = vectors[[unit.sentence for unit in units]]
    mean = np.broadcast_to(vectors.mean(axis=0), vectors.shape)
    own = np.array([cues(unit.text) for unit in units])
    before = np.vstack([np.zeros((1, COUNT)), own[:-1]])
    sentence = np.array([own[_sentence(units, unit)].max(axis=0) for unit in units])
    so_far = np.array([own[unit.sentence : index + 1].max(axis=0) for index, unit in enumerate(units)])
    finer = np.array([finer_cues(unit.text) for unit in units])
    where = np.array([_place(units, index) for index in range(len(units))])
    speech = np.array([grammar(unit.text) for unit in units]) * _GRAMMAR_SCALE
    dense = np.hstack([vectors, opening, mean]) * _VECTOR_SCALE
    return np.hstack([dense, own, before, sentence, where, speech, so_far, finer])


def _sentence(units: Sequence[Unit], unit: Unit) -> slice:
    end = unit.sentence + 1
    while end < len(units) and units[end].sentence == unit.sentence:
        end += 1
    return slice(unit.sentence, end)


def _place(units: Sequence[Unit], index: int) -> tuple[float, ...]:
    unit, count = units[index], len(units)
    return (
        index / max(1, count - 1),
        min(index, 10) / 10,
        float(index == 0),
        float(count == 1),
        float(count < 4),
        float(count > 10),
        min(count, 20) / 20,
        math.log(count) / 2,
        min(len(unit.text.split()), 20) / 20,
        float(unit.sentence == index),
        min(index - unit.sentence, 5) / 5,
    )
