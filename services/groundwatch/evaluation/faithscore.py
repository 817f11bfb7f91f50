"""How far the embedded engines agree with people on FaithScore's annotated answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import msgspec

from groundwatch.errors import GroundwatchError, UsageError
from groundwatch.events import (
    Decision,
    Judge,
    Label,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    SubSentence,
)
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, annotated_response
from groundwatch.protocols.faithscore.scoring import likert
from groundwatch.replay.judging import Judging
from groundwatch.statistics.agreement import accuracy, correlations, f1
from groundwatch.statistics.intervals import Interval


class Recogniser(msgspec.Struct, frozen=True, kw_only=True):
    """People's sub-sentences, labelled as people did; in folds by image where `folds` is set.

    `f1` is per label, None for one that neither side ever gives.
    """

    accuracy: float
    f1: dict[str, float | None]
    folds: int | None = None


class Decomposer(msgspec.Struct, frozen=True, kw_only=True):
    """Facts found in people's descriptive sub-sentences against people's facts, pooled over answers."""

    precision: float
    recall: float
    f1: float
    matched: int
    found: int
    expected: int


class Correlations(msgspec.Struct, frozen=True, kw_only=True):
    """Automatic with human scores; None where a coefficient is undefined."""

    pearson: Interval | None
    spearman: Interval | None
    kendall: Interval | None


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """Mean scores over the answers that both could score (table 6 of the paper)."""

    human: float | None
    automatic: float | None


class Agreement(Correlations, frozen=True, kw_only=True):
    """`compared` answers have a human and an automatic score.

    `likert` are the correlations after both sides are mapped as in Appendix A. `coverage` is the share of
    automatic facts that the reference judge could decide.
    """

    recogniser: Recogniser
    decomposer: Decomposer
    likert: Correlations
    mean: Means
    answers: int
    compared: int
    coverage: float | None


class HeldOut:
    """An extraction engine whose recogniser never saw the image that it labels."""

    batch = 64

    def __init__(self, found: dict[str, Extraction]) -> None:
        self._found = found

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="linguistic", model="cross-validated")

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        return [self._found[response.id] for response in responses]

    async def close(self) -> None:
        return None


async def agreement(answers: Sequence[AnnotatedAnswer], *, folds: int | None, seed: int = 0) -> Agreement:
    """Apply the shipped engines to annotated answers; with `folds`, retrain the recogniser by image.

    The reference judge decides facts against those that people labelled, so the correlations tell how
    well facts are found and recognised again, not how well a model would see. Raises `UsageError` when
    there is nothing to compare, `MissingExtraError` without the extra `embedded`.
    """
    from groundwatch.extraction.engines.linguistic.evaluate import decomposer_prf

    if not any(annotated.labels for annotated in answers):
        raise UsageError("no labelled sub-sentences to agree with")
    embedder = SentenceEmbedder()
    labels = _labels(answers, folds, seed, embedder)
    facts = decomposer_prf(answers, embedder)
    outcomes = await _judge(answers, None if folds is None else labels)
    compared = [
        (annotated, outcome)
        for annotated, outcome in zip(answers, outcomes, strict=True)
        if annotated.facts and outcome.outcome is OutcomeKind.SCORED
    ]
    human = [fmean(annotated.facts.values()) for annotated, _ in compared]
    automatic = [outcome.score or 0.0 for _, outcome in compared]
    plain = _correlate(human, automatic, seed)
    eligible = sum(outcome.eligible for outcome in outcomes)
    return Agreement(
        recogniser=_recogniser(answers, labels, folds),
        decomposer=Decomposer(
            precision=facts.precision,
            recall=facts.recall,
            f1=facts.f1,
            matched=facts.matched,
            found=facts.found,
            expected=facts.expected,
        ),
        pearson=plain.pearson,
        spearman=plain.spearman,
        kendall=plain.kendall,
        likert=_correlate(
            [likert(_false(annotated.facts.values()), len(annotated.facts)) for annotated, _ in compared],
            [likert(_refuted(outcome), outcome.decided) for _, outcome in compared],
            seed,
        ),
        mean=Means(human=fmean(human) if human else None, automatic=fmean(automatic) if automatic else None),
        answers=len(answers),
        compared=len(compared),
        coverage=sum(outcome.decided for outcome in outcomes) / eligible if eligible else None,
    )


def _labels(
    answers: Sequence[AnnotatedAnswer], folds: int | None, seed: int, embedder: SentenceEmbedder
) -> list[list[Label]]:
    """A label for each of people's sub-sentences: the shipped recogniser's, or those of one for each fold."""
    from groundwatch.extraction.engines.linguistic.evaluate import labelled_units
    from groundwatch.extraction.engines.linguistic.recogniser import shipped
    from groundwatch.extraction.engines.linguistic.train import cross_validated_labels

    if folds is not None:
        return cross_validated_labels(answers, folds, seed, embedder)
    recogniser = shipped()
    found = []
    for annotated in answers:
        units, _ = labelled_units(annotated)
        chances = recogniser.probabilities(units, embedder.encode([unit.text for unit in units]))
        found.append([Label.DESCRIPTIVE if chance >= 0.5 else Label.ANALYTICAL for chance in chances])
    return found


def _recogniser(
    answers: Sequence[AnnotatedAnswer], labels: Sequence[Sequence[Label]], folds: int | None
) -> Recogniser:
    from groundwatch.extraction.engines.linguistic.evaluate import labelled_units

    pairs = [
        (theirs.value, mine.value)
        for annotated, found in zip(answers, labels, strict=True)
        for theirs, mine in zip(labelled_units(annotated)[1], found, strict=True)
    ]
    right = accuracy(pairs)
    if right is None:
        raise UsageError("no labelled sub-sentences to agree with")
    return Recogniser(
        accuracy=right.value, f1={label.value: f1(pairs, label.value) for label in Label}, folds=folds
    )


async def _judge(
    answers: Sequence[AnnotatedAnswer], labels: Sequence[Sequence[Label]] | None
) -> list[ResponseScored]:
    from groundwatch.evaluation.inputs import no_images
    from groundwatch.extraction import engines as extraction
    from groundwatch.runtime.settings import RetrySettings, StageSettings
    from groundwatch.verification import engines as verification

    responses = [annotated_response(number, one) for number, one in enumerate(answers, start=1)]
    engine: ExtractionEngine
    if labels is None:
        engine = extraction.build(StageSettings(engine="linguistic"))
    else:
        engine = HeldOut(_held_out(answers, responses, labels))
    judging = Judging(
        registry.get("faithscore"),
        engine,
        verification.build(StageSettings(engine="reference"), load_image=no_images),
        RetrySettings(),
    )
    try:
        return [outcome async for outcome in judging.outcomes(responses)]
    finally:
        await judging.close()


def _held_out(
    answers: Sequence[AnnotatedAnswer],
    responses: Sequence[ResponseRecorded],
    predicted: Sequence[Sequence[Label]],
) -> dict[str, Extraction]:
    """Extractions from people's sub-sentences with labels of recognisers that did not see the image."""
    from groundwatch.extraction.engines.linguistic.decomposer import decompose
    from groundwatch.extraction.engines.linguistic.evaluate import labelled_units

    found = {}
    for annotated, response, labels in zip(answers, responses, predicted, strict=True):
        units = labelled_units(annotated)[0]
        descriptive = [label is Label.DESCRIPTIVE for label in labels]
        found[response.id] = Extraction(
            units=tuple(
                SubSentence(start=unit.start, end=unit.end, text=unit.text, label=label)
                for unit, label in zip(units, labels, strict=True)
            ),
            claims=tuple(decompose([unit.text for unit in units], descriptive)),
        )
    return found


def _correlate(first: Sequence[float], second: Sequence[float], seed: int) -> Correlations:
    found: dict[str, Any] = correlations(first, second, seed=seed)
    return Correlations(**found)


def _false(values: Iterable[bool]) -> int:
    return sum(not value for value in values)


def _refuted(outcome: ResponseScored) -> int:
    return sum(claim.decision is Decision.REFUTED for claim in outcome.claims)
