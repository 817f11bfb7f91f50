"""Fits the head that says which sub-sentences describe, on people's labels (FaithScore's annotation)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from groundwatch.errors import UsageError
from groundwatch.events import Label
from groundwatch.reading.document import read_document
from groundwatch.reading.model import ReaderModel
from groundwatch.reading.words import passages
from groundwatch_benchmarks.agreement.faithscore import labelled_units
from groundwatch_benchmarks.methods.faithscore.suite import AnnotatedAnswer, annotated_response

REGULARISATION = 0.05
"""scikit-learn's C: accuracy in ten folds by image is 0.93 from 0.03 to 0.1."""


def fit(model: ReaderModel, answers: Sequence[AnnotatedAnswer]) -> None:
    """Sets the head in place."""
    states, labels, _ = rows(model, answers)
    regression = _regression().fit(states.numpy(), labels)
    with torch.no_grad():
        model.describes.weight.copy_(torch.from_numpy(regression.coef_))
        model.describes.bias.copy_(torch.from_numpy(regression.intercept_))


def _regression() -> Any:
    # Here, since scikit-learn takes seconds to load.
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=REGULARISATION, max_iter=3000)


def cross_validate(model: ReaderModel, answers: Sequence[AnnotatedAnswer], count: int = 10) -> float:
    """Accuracy on images that were held out."""
    states, labels, of = rows(model, answers)
    right = 0
    for training, held_out in folds(answers, count, seed=0):
        inside, outside = (
            [at for at, answer in enumerate(of) if answer in chosen]
            for chosen in (set(training), set(held_out))
        )
        regression = _regression()
        regression.fit(states[inside].numpy(), [labels[at] for at in inside])
        right += sum(regression.predict(states[outside].numpy()) == [labels[at] for at in outside])
    return right / len(labels)


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


def rows(model: ReaderModel, answers: Sequence[AnnotatedAnswer]) -> tuple[Tensor, list[bool], list[int]]:
    """For each labelled sub-sentence the mean of its words' states, its label, and its answer's index."""
    table = [
        (state, label, at)
        for at, answer in enumerate(answers)
        for state, label in _rows(model.eval(), at, answer)
    ]
    return (
        torch.stack([state for state, _, _ in table]),
        [label for _, label, _ in table],
        [at for *_, at in table],
    )


@torch.inference_mode()
def _rows(model: ReaderModel, number: int, answer: AnnotatedAnswer) -> Iterator[tuple[Tensor, bool]]:
    response = annotated_response(number + 1, answer)
    words, states = [], []
    for passage in passages(response.prompt, read_document(response.answer).text):
        state = model.states([passage])[0]
        words += passage.words[passage.fresh :]
        states.append(state[passage.fresh : len(passage.words)])
    known = torch.cat(states)
    for unit, label in zip(*labelled_units(answer), strict=True):
        own = [at for at, word in enumerate(words) if word.start < unit.end and word.end > unit.start]
        yield (known[own].mean(0) if own else known.mean(0)), label is Label.DESCRIPTIVE
