"""Scores of whole answers against people's, and how many of the objects were found.

One JSON object a line, the response by `id` (and `tenant`), with `scores` as people give them, each under the
name of the number that it is held against, and the objects that the answer names (`mentioned`), those of them
that are not in the image also in `hallucinated`. Tables 4 and 6 of VALOR-Eval, table 3 of Tri-HE and tables 3
and 7 of FaithScore are made of such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from groundwatch.cli.output import table_of
from groundwatch.errors import UsageError
from groundwatch.events import Decision, ResponseScored
from groundwatch.protocols.base import folded
from groundwatch.protocols.method import CommandResult
from groundwatch.statistics.intervals import Interval, bootstrap
from groundwatch.terminal import RenderableType
from groundwatch_benchmarks.coefficients import correlations
from groundwatch_benchmarks.json_files import Place, read_lines


def validate(
    file: Annotated[Path, Meta(description="Outcomes (JSON lines), as score --out writes them.")],
    people: Annotated[
        Path,
        Meta(description="What people say of them (JSON lines: id, scores, mentioned, hallucinated)."),
    ],
) -> CommandResult:
    """Scores of answers against people's: correlations, and how many of the objects were found."""
    outcomes = (outcome for _, outcome in read_lines(file, ResponseScored))
    found = score_agreement(read_lines(people, PersonsScores), outcomes)
    return CommandResult(numbers={"agreement": found}, table=_table(found))


def _table(found: Sequence[ScoreAgreement]) -> RenderableType:
    table = table_of(
        "Agreement of scores with people", "", "", "number", "value (95 % interval)", "n", left=3
    )
    for one in found:
        numbers = {
            f"{score}: {name}": interval
            for score, each in one.scores.items()
            for name, interval in each.items()
        }
        if one.accuracy_coverage is not None:
            numbers |= {"Acc (F)": one.accuracy_faithfulness, "Acc (C)": one.accuracy_coverage}
        for name, interval in numbers.items():
            table.add_row(one.protocol, one.model, name, _shown(interval), str(interval.n if interval else 0))
    return table


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


class PersonsScores(msgspec.Struct, frozen=True, kw_only=True):
    """What people say of one whole answer: a line of the file."""

    id: str
    tenant: str = "default"
    scores: dict[str, float] = {}
    mentioned: tuple[str, ...] = ()
    hallucinated: tuple[str, ...] = ()


class FoundObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one answer: `detected` by a metric, which `flagged` some, beside people's."""

    detected: frozenset[str]
    flagged: frozenset[str]
    mentioned: frozenset[str]
    hallucinated: frozenset[str]


class ScoreAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What `groundwatch validate scores` prints for one model under one protocol.

    `scores` has for each that people gave the coefficients of correlation with the outcomes' number of that
    name; None where fewer than three answers have both, or one side never varies. `accuracy_faithfulness`
    and `accuracy_coverage` are Acc (F) and Acc (C) of VALOR-Eval's table 6, over the answers whose objects
    people named.
    """

    protocol: str
    model: str
    answers: int
    scores: dict[str, dict[str, Interval | None]]
    accuracy_faithfulness: Interval | None
    accuracy_coverage: Interval | None


def score_agreement(
    people: Iterable[tuple[Place, PersonsScores]], outcomes: Iterable[ResponseScored]
) -> list[ScoreAgreement]:
    """By protocol and model; intervals draw answers.

    Raises `FileFormatError` for what people say twice, or of an answer that has no outcome; `UsageError`
    where a stage had different judges, whose scores never mix. `MissingExtraError` without scipy.
    """
    judged: dict[tuple[str, str], list[ResponseScored]] = {}
    for outcome in outcomes:
        judged.setdefault((outcome.tenant, outcome.id), []).append(outcome)
    seen: dict[tuple[str, str], int] = {}
    pairs: dict[tuple[str, str], list[tuple[PersonsScores, ResponseScored]]] = {}
    for place, said in people:
        key = said.tenant, said.id
        if key not in judged:
            raise place.wrong(f"key 'id': there is no outcome of response '{said.id}'")
        if seen.setdefault(key, place.line) != place.line:
            raise place.wrong(f"key 'id': response '{said.id}' is in line {seen[key]} already")
        for outcome in judged[key]:
            pairs.setdefault((outcome.protocol, outcome.model), []).append((said, outcome))
    return [_score_agreement(*whose, found) for whose, found in sorted(pairs.items())]


def _score_agreement(
    protocol: str, model: str, pairs: Sequence[tuple[PersonsScores, ResponseScored]]
) -> ScoreAgreement:
    judges = {(stage, judge) for _, outcome in pairs for stage, judge in outcome.judges.items()}
    for stage, number in Counter(stage for stage, _ in judges).items():
        if number > 1:
            raise UsageError(f"{protocol}: answers of {model} had different judges at {stage}; give one's")
    scores = {}
    for name in sorted({name for said, _ in pairs for name in said.scores}):
        both = [
            (said.scores[name], value)
            for said, outcome in pairs
            if name in said.scores
            and (value := outcome.score if name == "score" else outcome.values.get(name)) is not None
        ]
        scores[name] = correlations([first for first, _ in both], [second for _, second in both])
    # One without values was not judged; one without claims was, and nothing was found.
    objects = [_objects(said, outcome) for said, outcome in pairs if said.mentioned and outcome.values]
    return ScoreAgreement(
        protocol=protocol,
        model=model,
        answers=len(pairs),
        scores=scores,
        accuracy_faithfulness=bootstrap(objects, lambda drawn: object_accuracy(drawn)[0]),
        accuracy_coverage=bootstrap(objects, lambda drawn: object_accuracy(drawn)[1]),
    )


def _objects(said: PersonsScores, outcome: ResponseScored) -> FoundObjects:
    """A claim's object goes by people's name for it, where one is the claim's text or one of its parts."""
    hallucinated = frozenset(map(folded, said.hallucinated))
    mentioned = frozenset(map(folded, said.mentioned)) | hallucinated
    named = [
        (min(names & mentioned or names), claim.decision)
        for claim in outcome.claims
        if (names := {folded(text) for text in (claim.text, *claim.parts)})
    ]
    return FoundObjects(
        detected=frozenset(name for name, _ in named),
        flagged=frozenset(name for name, decision in named if decision is Decision.REFUTED),
        mentioned=mentioned,
        hallucinated=hallucinated,
    )


def object_accuracy(answers: Sequence[FoundObjects]) -> tuple[float | None, float | None]:
    """Acc (F) and Acc (C) of VALOR-Eval's section 5.3, in shares; None where people found nothing to detect.

    Acc (F): hallucinated objects that the metric flagged, less one for each object that it flagged wrongly,
    over all hallucinated ones; it may be negative. Acc (C): objects that the metric detected over the
    unique objects of the captions. Both are sums over the captions divided once, as the table's figures
    (11.11 of 9, 30.00 of 10, 5.88 of 17) show.
    """
    flagged = sum(
        len(one.flagged & one.hallucinated) - len(one.flagged - one.hallucinated) for one in answers
    )
    detected = sum(len(one.detected & one.mentioned) for one in answers)
    return (
        _share(flagged, sum(len(one.hallucinated) for one in answers)),
        _share(detected, sum(len(one.mentioned) for one in answers)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
