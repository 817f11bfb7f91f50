"""How far the engines agree with people on FaithScore's annotated answers, and any verifier of the settings.

One that looks at the images gives the paper's tables of verifiers: table 2 (accuracy on people's facts),
table 8 (correlation of FaithScore with people's scores) and table 9 (the same on people's facts).
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import msgspec
from msgspec import Meta

from groundwatch.errors import GroundwatchError, UsageError
from groundwatch.events import Decision, Label, OutcomeKind, ResponseScored
from groundwatch.extraction import engines as extraction
from groundwatch.extraction.engines.base import ExtractionEngine
from groundwatch.extraction.engines.reader import ReaderEngine
from groundwatch.judging.files import with_engines
from groundwatch.language.subsentences import Span
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols.base import Stage
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.method import Progress, Result
from groundwatch.reviews.agreement import likert
from groundwatch.runtime.settings import ExtractionSettings, Settings, StageSettings
from groundwatch_benchmarks.agreement.claims import (
    LabelledAnswer,
    claim_agreement,
    judge_labelled,
    labels_of,
    looks,
)
from groundwatch_benchmarks.agreement.judging import JUDGE, JUDGED_IMAGES, judged
from groundwatch_benchmarks.coefficients import accuracy, correlations, f1
from groundwatch_benchmarks.methods.faithscore.suite import (
    AnnotatedAnswer,
    annotated_response,
    read_annotations,
)

SAME_FACT = 0.80
"""MiniLM cosine from which two facts say the same."""

NOTHING_LABELLED = "no labelled sub-sentences to agree with"


async def validate(
    file: Annotated[Path, Meta(description="FaithScore's annotation file (JSON lines).")],
    *,
    images: Annotated[Path | None, Meta(description=JUDGED_IMAGES)] = None,
    judge: Annotated[str, Meta(description=JUDGE)] = "",
    settings: Settings,
    progress: Progress,
) -> Result:
    """FaithScore's engines against people's sub-sentences, facts and scores; its tables 2, 8 and 9."""
    chosen = with_engines(settings, {Stage.VERIFICATION.value: judge}, FaithScore.name)
    return await agreement(read_annotations(file), settings=chosen, images=images, progress=progress)


REFERENCE = Settings(verification=StageSettings(engine="reference"))


async def agreement(
    answers: Sequence[AnnotatedAnswer],
    engine: ExtractionEngine | None = None,
    *,
    settings: Settings = REFERENCE,
    images: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Result:
    """How far an extraction engine, by default the shipped reader, agrees with people.

    The reference judge decides facts against those that people labelled, so the correlations tell how
    well facts are found and recognised again, not how well a model would see. They are over the `compared`
    answers, which have a human and an automatic score; `likert` are those after both sides are mapped as in
    Appendix A, `mean` are table 6's. `coverage` is the share of automatic facts that the judge could decide.
    A judge that looks at images is not told people's labels, and judges their facts too: tables 2 and 9.
    Raises `UsageError` when there is nothing to compare, `MissingExtraError` without the extra `embedded`.
    """
    if not any(annotated.labels for annotated in answers):
        raise UsageError(NOTHING_LABELLED)
    looking = looks(FaithScore.name, settings, images)
    embedder = SentenceEmbedder()
    responses = [annotated_response(number, one) for number, one in enumerate(answers, start=1)]
    if looking:
        responses = [
            msgspec.structs.replace(response, reference=None, images=(one.image,))
            for response, one in zip(responses, answers, strict=True)
        ]
    finder = engine or extraction.build(ExtractionSettings())
    outcomes = await judged(responses, FaithScore.name, settings, images, finder, progress)
    compared = _compared(answers, outcomes)
    human, automatic = _scores(compared)
    eligible = sum(outcome.eligible for outcome in outcomes)
    readings = read(answers)
    found: Result = msgspec.to_builtins(
        {
            "table_8": correlations(human, automatic),
            **(await _verifier_tables(answers, settings, images, progress) if looking else {}),
            "recogniser": labels_agreement(answers, [labels for labels, _ in readings]),
            "decomposer": facts_agreement(answers, [facts for _, facts in readings], embedder),
            "likert": correlations(
                [likert([*one.facts.values()].count(False), len(one.facts)) for one, _ in compared],
                [
                    likert(sum(one.decision is Decision.REFUTED for one in outcome.claims), outcome.decided)
                    for _, outcome in compared
                ],
            ),
            "mean": {
                "human": fmean(human) if human else None,
                "automatic": fmean(automatic) if automatic else None,
            },
            "answers": len(answers),
            "compared": len(compared),
            "coverage": sum(outcome.decided for outcome in outcomes) / eligible if eligible else None,
        }
    )
    return found


def labelled_units(annotated: AnnotatedAnswer) -> tuple[tuple[Span, ...], tuple[Label, ...]]:
    """Where the sub-sentences that people labelled stand in their answer, with their labels."""
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
    return tuple(spans), tuple(labels)


def read(answers: Sequence[AnnotatedAnswer]) -> list[tuple[list[Label], list[str]]]:
    """The reader's labels of people's sub-sentences, and its facts of those that people call descriptive.

    All facts, as people were asked for them, whatever `most_optional` leaves out.
    """
    engine = ReaderEngine()
    found: list[tuple[list[Label], list[str]]] = []
    for at in range(0, len(answers), engine.batch):
        some = answers[at : at + engine.batch]
        units, labels = zip(*map(labelled_units, some), strict=True)
        responses = [annotated_response(number, one) for number, one in enumerate(some, start=1)]
        for own, reading in zip(labels, engine.read(responses, units), strict=True):
            if isinstance(reading, GroundwatchError):
                raise reading
            described = (fact.text for fact in reading.facts if own[fact.unit] is Label.DESCRIPTIVE)
            facts = {text.lower(): text for text in described}
            found.append(([unit.label for unit in reading.units], list(facts.values())))
    return found


def labels_agreement(answers: Sequence[AnnotatedAnswer], labels: Sequence[Sequence[Label]]) -> Result:
    """People's sub-sentences, labelled as people did. On the answers it was trained on it is flattered."""
    pairs = [
        (theirs.value, mine.value)
        for annotated, found in zip(answers, labels, strict=True)
        for theirs, mine in zip(labelled_units(annotated)[1], found, strict=True)
    ]
    right = accuracy(pairs)
    if right is None:
        raise UsageError(NOTHING_LABELLED)
    return {"accuracy": right.value, "f1": {label.value: f1(pairs, label.value) for label in Label}}


def facts_agreement(
    answers: Sequence[AnnotatedAnswer], facts: Sequence[Sequence[str]], embedder: SentenceEmbedder
) -> Result:
    """Precision, recall and F1 of facts against people's.

    The facts are those of the sub-sentences that people called descriptive, in each answer once, as people's
    file holds them. There they are paired one to one with the greatest total cosine; pairs of at least
    `SAME_FACT` are counted over all answers.
    """
    matched = found = expected = 0
    for annotated, texts in zip(answers, facts, strict=True):
        matched += len(pair_facts(texts, list(annotated.facts), embedder))
        found += len(texts)
        expected += len(annotated.facts)
    precision = matched / found if found else 0.0
    recall = matched / expected if expected else 0.0
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if matched else 0.0,
        "matched": matched,
        "found": found,
        "expected": expected,
    }


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


async def _verifier_tables(
    answers: Sequence[AnnotatedAnswer], settings: Settings, images: Path | None, progress: Progress
) -> Result:
    labelled = [
        LabelledAnswer(
            image=one.image,
            answer=one.answer,
            claims=tuple(one.facts),
            hallucinated=tuple(not holds for holds in one.facts.values()),
        )
        for one in answers
    ]
    outcomes = await judge_labelled(labelled, FaithScore.name, settings, images, progress)
    pairs = [labels_of(one, outcome) for one, outcome in zip(labelled, outcomes, strict=True)]
    return {
        "table_2": claim_agreement(pairs),
        "table_9": correlations(*_scores(_compared(answers, outcomes))),
    }


Compared = list[tuple[AnnotatedAnswer, ResponseScored]]


def _compared(answers: Sequence[AnnotatedAnswer], outcomes: Sequence[ResponseScored]) -> Compared:
    return [
        (annotated, outcome)
        for annotated, outcome in zip(answers, outcomes, strict=True)
        if annotated.facts and outcome.outcome is OutcomeKind.SCORED
    ]


def _scores(compared: Compared) -> tuple[list[float], list[float]]:
    """People's scores and the automatic ones."""
    return [fmean(one.facts.values()) for one, _ in compared], [
        outcome.score or 0.0 for _, outcome in compared
    ]
