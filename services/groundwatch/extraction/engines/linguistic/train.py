"""Train the recogniser: `python -m groundwatch.extraction.engines.linguistic.train ANNOTATION.jsonl`.

Needs scikit-learn (extra `dev`), which inference does not. The same file gives the same coefficients.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.events import Label
from groundwatch.extraction.engines.linguistic.evaluate import labelled_units
from groundwatch.extraction.engines.linguistic.recogniser import (
    COEFFICIENTS,
    DENSE,
    WIDTH,
    Coefficients,
    Recogniser,
    features,
)
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, read_annotations

if TYPE_CHECKING:
    from groundwatch.extraction.engines.linguistic.recogniser import Rows

REGULARISATION = 0.2
"""scikit-learn's C, chosen by cross-validation: accuracy is flat within 0.4 points from 0.1 to 0.5."""

_VIEWS = (slice(0, WIDTH), slice(DENSE, WIDTH), slice(0, DENSE))
"""The columns that each of the averaged regressions sees: all, words and grammar, vectors.

Where both tell the same, a regression over all lets the 1,152 vector columns decide; the average of the
three errs less on images that none has seen.
"""


def train(answers: Sequence[AnnotatedAnswer], embedder: SentenceEmbedder | None = None) -> Coefficients:
    """Fit the recogniser on annotated answers.

    Raises `MissingExtraError` without scikit-learn, `UsageError` when only one label occurs.
    """
    import numpy as np

    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "dev") from error
    embedder = embedder or SentenceEmbedder()
    rows: list[Rows] = []
    labels: list[bool] = []
    for annotated in answers:
        units, known = labelled_units(annotated)
        rows.append(features(units, embedder.encode([unit.text for unit in units])))
        labels.extend(label is Label.DESCRIPTIVE for label in known)
    if len(set(labels)) < 2:
        raise UsageError("training needs both descriptive and analytical sub-sentences")
    stacked, bias, weights = np.vstack(rows), 0.0, np.zeros(WIDTH)
    for view in _VIEWS:
        model = LogisticRegression(C=REGULARISATION, max_iter=5000, tol=1e-6).fit(stacked[:, view], labels)
        bias += float(model.intercept_[0]) / len(_VIEWS)
        weights[view] += model.coef_[0] / len(_VIEWS)
    return Coefficients(bias=round(bias, 5), weights=[round(float(weight), 5) for weight in weights])


def folds(answers: Sequence[AnnotatedAnswer], count: int, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Indices of (training, held-out) answers: the answers on one image always stay together.

    Raises `UsageError` when there are fewer than two images.
    """
    images = sorted({annotated.image for annotated in answers})
    if len(images) < 2 or count < 2:
        raise UsageError(f"cross-validation needs two folds and two images, not {count} and {len(images)}")
    random.Random(seed).shuffle(images)
    fold_of = {image: index % min(count, len(images)) for index, image in enumerate(images)}
    for fold in range(min(count, len(images))):
        held_out = [index for index, annotated in enumerate(answers) if fold_of[annotated.image] == fold]
        training = [index for index, annotated in enumerate(answers) if fold_of[annotated.image] != fold]
        yield training, held_out


def cross_validated_labels(
    answers: Sequence[AnnotatedAnswer],
    folds_count: int = 10,
    seed: int = 0,
    embedder: SentenceEmbedder | None = None,
) -> list[list[Label]]:
    """A label for each sub-sentence of each answer, by a recogniser that has not seen its image."""
    embedder = embedder or SentenceEmbedder()
    predicted: list[list[Label]] = [[] for _ in answers]
    for training, held_out in folds(answers, folds_count, seed):
        recogniser = Recogniser(train([answers[index] for index in training], embedder))
        for index in held_out:
            units, _ = labelled_units(answers[index])
            chances = recogniser.probabilities(units, embedder.encode([unit.text for unit in units]))
            predicted[index] = [Label.DESCRIPTIVE if p >= 0.5 else Label.ANALYTICAL for p in chances]
    return predicted


def cross_validate(
    answers: Sequence[AnnotatedAnswer],
    folds: int = 10,
    seed: int = 0,
    embedder: SentenceEmbedder | None = None,
) -> float:
    """The share of sub-sentences labelled as people labelled them, in folds by image."""
    predicted = cross_validated_labels(answers, folds, seed, embedder)
    pairs = [
        (mine, theirs)
        for annotated, labels in zip(answers, predicted, strict=True)
        for mine, theirs in zip(labels, labelled_units(annotated)[1], strict=True)
    ]
    return sum(mine is theirs for mine, theirs in pairs) / len(pairs)


def main() -> None:
    """Train on a file and write the coefficients into the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("annotation", type=Path, help="FaithScore's annotation file (JSON lines)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name(COEFFICIENTS))
    arguments = parser.parse_args()
    try:
        coefficients = train(read_annotations(arguments.annotation))
    except UsageError as error:
        parser.exit(2, f"{error}\n")
    arguments.out.write_bytes(msgspec.json.encode(coefficients) + b"\n")


if __name__ == "__main__":
    main()
