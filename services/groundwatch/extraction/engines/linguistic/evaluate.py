"""How far the linguistic engine agrees with people, on FaithScore's annotated answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import Label
from groundwatch.extraction.engines.linguistic.decomposer import decompose
from groundwatch.extraction.engines.linguistic.outline import Unit, place
from groundwatch.extraction.engines.linguistic.recogniser import Recogniser, shipped
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer
from groundwatch.protocols.faithscore.subsentences import Span

SAME_FACT = 0.80
"""MiniLM cosine from which two facts say the same."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Facts found against people's facts, pooled over answers."""

    precision: float
    recall: float
    f1: float
    matched: int
    found: int
    expected: int


def labelled_units(annotated: AnnotatedAnswer) -> tuple[tuple[Unit, ...], tuple[Label, ...]]:
    """The sub-sentences people labelled, placed in their answer, with their labels."""
    spans: list[Span] = []
    labels: list[Label] = []
    at = 0
    for text, label in annotated.labels.items():
        start = annotated.answer.find(text, at)
        if start < 0 or not text:
            continue
        at = start + len(text)
        spans.append(Span(start, at))
        labels.append(label)
    return place(annotated.answer, spans), tuple(labels)


def recogniser_accuracy(
    answers: Sequence[AnnotatedAnswer],
    recogniser: Recogniser | None = None,
    embedder: SentenceEmbedder | None = None,
) -> float:
    """The share of sub-sentences that the recogniser (by default the shipped one) labels as people did.

    On the answers that it was trained on this flatters: see `train.cross_validate`.
    """
    recogniser = recogniser or shipped()
    embedder = embedder or SentenceEmbedder()
    right = total = 0
    for annotated in answers:
        units, labels = labelled_units(annotated)
        chances = recogniser.probabilities(units, embedder.encode([unit.text for unit in units]))
        right += sum(
            (chance >= 0.5) == (label is Label.DESCRIPTIVE)
            for chance, label in zip(chances, labels, strict=True)
        )
        total += len(labels)
    if not total:
        raise UsageError("no labelled sub-sentences")
    return right / total


def found_facts(annotated: AnnotatedAnswer) -> list[str]:
    """The decomposer's facts from the sub-sentences that people called descriptive."""
    units, labels = labelled_units(annotated)
    descriptive = [label is Label.DESCRIPTIVE for label in labels]
    return [claim.text for claim in decompose([unit.text for unit in units], descriptive)]


def decomposer_prf(answers: Sequence[AnnotatedAnswer], embedder: SentenceEmbedder | None = None) -> Agreement:
    """Precision, recall and F1 of the decomposer's facts against people's.

    In each answer facts are paired one to one with the greatest total cosine; pairs of at least
    `SAME_FACT` are then counted over all answers.
    """
    embedder = embedder or SentenceEmbedder()
    matched = found = expected = 0
    for annotated in answers:
        mine, theirs = found_facts(annotated), list(annotated.facts)
        matched += len(pair_facts(mine, theirs, embedder))
        found += len(mine)
        expected += len(theirs)
    precision = matched / found if found else 0.0
    recall = matched / expected if expected else 0.0
    f1 = 2 * precision * recall / (precision + recall) if matched else 0.0
    return Agreement(
        precision=precision, recall=recall, f1=f1, matched=matched, found=found, expected=expected
    )


def pair_facts(
    mine: Sequence[str], theirs: Sequence[str], embedder: SentenceEmbedder
) -> list[tuple[int, int]]:
    """Pairs (index of mine, index of theirs) that say the same, one to one, of the greatest total cosine."""
    if not mine or not theirs:
        return []
    from scipy.optimize import linear_sum_assignment

    cosines = embedder.encode(mine) @ embedder.encode(theirs).T
    rows, columns = linear_sum_assignment(cosines, maximize=True)
    return [
        (int(row), int(column))
        for row, column in zip(rows, columns, strict=True)
        if cosines[row, column] >= SAME_FACT
    ]
