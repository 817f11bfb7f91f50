"""Trains the recogniser: `python -m tools.recogniser ANNOTATION.jsonl`.

The same file gives the same coefficients. `--folds N` writes nothing: it prints what `validate faithscore`
prints, with recognisers that never saw the image whose answers they label.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
from sklearn.linear_model import LogisticRegression

from groundwatch.errors import GroundwatchError, UsageError
from groundwatch.events import Judge, Label, ResponseRecorded, SubSentence
from groundwatch.extraction.engines.base import Extraction
from groundwatch.extraction.engines.linguistic import recogniser
from groundwatch.extraction.engines.linguistic.decomposer import decompose
from groundwatch.extraction.engines.linguistic.recogniser import (
    COEFFICIENTS,
    DENSE,
    WIDTH,
    Coefficients,
    Recogniser,
    features,
)
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, annotated_response, read_annotations
from groundwatch.protocols.faithscore.validation import agreement, labelled_units, predicted
from groundwatch.protocols.method import Result

REGULARISATION = 0.2
"""scikit-learn's C, chosen by cross-validation: accuracy is flat within 0.4 points from 0.1 to 0.5."""

_VIEWS = (slice(0, WIDTH), slice(DENSE, WIDTH), slice(0, DENSE))
"""The columns that each of the averaged regressions sees: all, words and grammar, vectors.

Where both tell the same, a regression over all lets the 1,152 vector columns decide; the average of the
three errs less on images that none has seen.
"""


def train(answers: Sequence[AnnotatedAnswer], embedder: SentenceEmbedder) -> Coefficients:
    """Fit the recogniser on annotated answers. Raises `UsageError` when only one label occurs."""
    rows = []
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
    answers: Sequence[AnnotatedAnswer], count: int, embedder: SentenceEmbedder, seed: int = 0
) -> list[list[Label]]:
    """A label for each sub-sentence of each answer, by a recogniser that has not seen its image."""
    labels: list[list[Label]] = [[] for _ in answers]
    for training, held_out in folds(answers, count, seed):
        fold = Recogniser(train([answers[index] for index in training], embedder))
        for index in held_out:
            labels[index] = predicted(answers[index], fold, embedder)
    return labels


class HeldOut:
    """An extraction engine whose recogniser never saw the image that it labels."""

    batch = 64
    languages: ClassVar[frozenset[str] | None] = None

    def __init__(self, answers: Sequence[AnnotatedAnswer], labels: Sequence[Sequence[Label]]) -> None:
        self._extractions = {
            annotated_response(number, annotated).id: _extraction(annotated, own)
            for number, (annotated, own) in enumerate(zip(answers, labels, strict=True), start=1)
        }

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="linguistic", model="cross-validated")

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        return [self._extractions[response.id] for response in responses]

    async def close(self) -> None:
        return None


def _extraction(annotated: AnnotatedAnswer, labels: Sequence[Label]) -> Extraction:
    units = labelled_units(annotated)[0]
    return Extraction(
        units=tuple(
            SubSentence(start=unit.start, end=unit.end, text=unit.text, label=label)
            for unit, label in zip(units, labels, strict=True)
        ),
        claims=tuple(
            decompose([unit.text for unit in units], [label is Label.DESCRIPTIVE for label in labels])
        ),
    )


async def cross_validate(answers: Sequence[AnnotatedAnswer], count: int) -> Result:
    """How far the engines agree with people when the recogniser is trained again in folds by image."""
    labels = cross_validated_labels(answers, count, SentenceEmbedder(cached=20_000))
    return await agreement(answers, HeldOut(answers, labels), labels)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("annotation", type=Path, help="FaithScore's annotation file (JSON lines)")
    parser.add_argument("--out", type=Path, default=Path(recogniser.__file__).with_name(COEFFICIENTS))
    parser.add_argument(
        "--folds", type=int, help="only print how far it agrees with people, in so many folds"
    )
    arguments = parser.parse_args()
    try:
        answers = read_annotations(arguments.annotation)
        if arguments.folds:
            print(msgspec.json.encode(asyncio.run(cross_validate(answers, arguments.folds))).decode())
        else:
            coefficients = train(answers, SentenceEmbedder())
            arguments.out.write_bytes(msgspec.json.encode(coefficients) + b"\n")
    except GroundwatchError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
