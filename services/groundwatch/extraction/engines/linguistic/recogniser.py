"""Descriptive or analytical: a logistic regression over MiniLM vectors and cues.

A sub-sentence's label depends on more than its words: "a museum exhibit" describes or guesses as its
sentence does, and answers to complex questions reason where captions describe. So a row holds the
vectors of the sub-sentence, of the first sub-sentence of its sentence and the mean over the answer, the
cues of the sub-sentence, its predecessor, its sentence and its sentence so far, where it stands, and its
grammar. The scales weigh the groups against each other under one regularisation.

Cues are the regular expressions of `patterns.toml`. A sentence that opens with a guess ("Perhaps a child has
arranged them.", "It looks like a game.") people call analytical. FaithScore's annotated answers hold few of
them in plain short words, so a regression alone reads "It may be a page of a picture book" by its picture
book: such a sentence is analytical whatever the regression says. Only what opens a sentence counts: in an
aside ("which is likely a swan", "possibly with a price tag") people take the guess for what is seen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.tagging import NOUNS, tag
from groundwatch.language.lexicon import singular
from groundwatch.language.subsentences import Span, split
from groundwatch.models.embeddings import DIMENSIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
    Rows = NDArray[np.float64]
    Probabilities = NDArray[np.float64]


_ENDS_A_SENTENCE = frozenset(".!?…\n。！？؟।॥")


class Unit(msgspec.Struct, frozen=True):
    """A sub-sentence; `sentence` is the index of the first sub-sentence of its sentence."""

    text: str
    start: int
    end: int
    sentence: int


def outline(answer: str) -> tuple[Unit, ...]:
    return place(answer, split(answer))


def place(answer: str, spans: Sequence[Span]) -> tuple[Unit, ...]:
    """Turn spans of `answer` into units: what ends a sentence stands between two of them."""
    units: list[Unit] = []
    sentence = 0
    for index, span in enumerate(spans):
        if index and not _ENDS_A_SENTENCE.isdisjoint(answer[spans[index - 1].end : span.start]):
            sentence = index
        units.append(Unit(answer[span.start : span.end], span.start, span.end, sentence))
    return tuple(units)


_TEXT = resources.files("groundwatch.extraction.engines.linguistic").joinpath("patterns.toml").read_bytes()
_PATTERNS = {
    name: [re.compile(one, re.IGNORECASE) for one in patterns]
    for name, patterns in msgspec.toml.decode(_TEXT, type=dict[str, list[str]]).items()
}
_CUES, _FINER = _PATTERNS["cues"], _PATTERNS["finer"]
COUNT, FINER_COUNT = len(_CUES), len(_FINER)

HEDGED_CHANCE = 0.04
"""How probably a guess is descriptive: of 22 in the annotated answers none is (Laplace's rule)."""


def cues(text: str, patterns: Sequence[re.Pattern[str]] = _CUES) -> tuple[float, ...]:
    """1.0 for every group that occurs in `text`, else 0.0.

    `_CUES` also tell of a neighbour's context, `_FINER` matter to the sub-sentence itself only.
    """
    return tuple(float(pattern.search(text) is not None) for pattern in patterns)


def hedged(sentence: str) -> bool:
    """Whether what opens a sentence is a guess or an impression, by its words."""
    guess, seen = (any(one.search(sentence) for one in _PATTERNS[name]) for name in ("hedged", "seen"))
    return guess and not seen


COEFFICIENTS = "recogniser.json"
_VECTOR_SCALE = 4.0
_PLACES = 11
_GRAMMAR = 20
_GRAMMAR_SCALE = 1.5
DENSE = 3 * DIMENSIONS
"""The columns that hold vectors come first."""

WIDTH = DENSE + 4 * COUNT + FINER_COUNT + _PLACES + _GRAMMAR


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
        return np.where(guesses, np.minimum(chances, HEDGED_CHANCE), chances)


def shipped() -> Recogniser:
    return Recogniser(msgspec.json.decode(shipped_bytes(), type=Coefficients))


def shipped_bytes() -> bytes:
    """The shipped coefficients as they lie in the package: their digest is part of the judge's version."""
    return resources.files(__package__).joinpath(COEFFICIENTS).read_bytes()


def features(units: Sequence[Unit], vectors: Vectors) -> Rows:
    """The rows of one answer's units, shape (len(units), WIDTH); `vectors` are the units' embeddings."""
    import numpy as np

    if not units:
        return np.zeros((0, WIDTH))
    opening = vectors[[unit.sentence for unit in units]]
    mean = np.broadcast_to(vectors.mean(axis=0), vectors.shape)
    own = np.array([cues(unit.text) for unit in units])
    before = np.vstack([np.zeros((1, COUNT)), own[:-1]])
    sentence, so_far = np.empty_like(own), np.empty_like(own)
    begins = [index for index, unit in enumerate(units) if unit.sentence == index]
    for begin, end in zip(begins, [*begins[1:], len(units)], strict=True):
        so_far[begin:end] = np.maximum.accumulate(own[begin:end], axis=0)
        sentence[begin:end] = so_far[end - 1]
    finer = np.array([cues(unit.text, _FINER) for unit in units])
    where = np.array([_place(units, index) for index in range(len(units))])
    speech = np.array([grammar(unit.text) for unit in units]) * _GRAMMAR_SCALE
    dense = np.hstack([vectors, opening, mean]) * _VECTOR_SCALE
    return np.hstack([dense, own, before, sentence, where, speech, so_far, finer])


@lru_cache(maxsize=4096)
def grammar(text: str) -> tuple[float, ...]:
    """Parts of speech that occur, with which one it begins, and the share of abstract nouns; 0.0 to 1.0.

    Descriptions name things with participles ("standing", "placed"); analysis names abstractions and has
    modals, infinitives and verbs such as "suggest".
    """
    tokens = tag(text)
    tags = [token.tag for token in tokens]
    present = set(tags)
    nouns = [singular(token.lower) for token in tokens if token.tag in NOUNS]
    abstract = sum(w.abstract(noun) or noun in w.QUALITIES for noun in nouns)
    verbs = {w.verb(token.lower) for token in tokens if token.tag.startswith("VB")}
    first = tags[0] if tags else ""
    return (
        min(abstract, 3) / 3,
        float(bool(nouns)),
        abstract / max(1, len(nouns)),
        float("MD" in present),
        float("VBG" in tags[:2]),
        float("VBN" in present),
        float("EX" in present),
        float(bool(present & {"VBZ", "VBP"})),
        float("BE" in present),
        float(bool(present & {"VB", "TO"})),
        float(first == "IN"),
        float(first == "DT"),
        float(first == "PRP"),
        float(first == "W"),
        float(first == "SUB"),
        float(bool(verbs & w.INTERPRETING)),
        float(bool(verbs & w.SHOWING)),
        float(bool(verbs & w.DONE_BY_PEOPLE)),
        float(not any(one.startswith("V") or one in {"BE", "HV", "MD"} for one in tags)),
        float("JJR" in present),
    )


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
