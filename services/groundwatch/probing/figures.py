"""A suite's own figures from its outcomes, with intervals: what its paper reports, by the protocols' tallies.

Outcomes are taken with their questions, because the truth is the question's. Questions about one image are
not independent, so intervals are over units.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.events import ChainAdvanced, Decision, OutcomeKind, ResponseScored, Verdict
from groundwatch.probing.benchmarks import CATEGORY
from groundwatch.probing.suite import Question
from groundwatch.protocols.genception.chain import CATEGORY_TAG
from groundwatch.protocols.genception.scoring import Chain, gc_at
from groundwatch.protocols.genception.tally import tally_chains
from groundwatch.protocols.pope.replies import Answer
from groundwatch.protocols.pope.scoring import Confusion, cell
from groundwatch.protocols.published import Place
from groundwatch.protocols.tally import Result
from groundwatch.protocols.trihe.scoring import JudgedQuestion, JudgedTriplet, rates
from groundwatch.protocols.trihe.tally import tally_questions
from groundwatch.protocols.trihe.wording import blamed
from groundwatch.protocols.valor.features import read_written
from groundwatch.protocols.valor.scoring import Counts, Matched, Subset, count, pool, protocol_name
from groundwatch.protocols.vlm2.outcomes import score_outcomes
from groundwatch.protocols.vlm2.tally import tally_scored
from groundwatch.statistics.intervals import (
    Interval,
    Moments,
    RatioSums,
    bootstrap,
    cluster_rate,
    mean_interval,
)

RESAMPLES = 1000

_HALLUCINATED = {Decision.SUPPORTED: False, Decision.REFUTED: True, Decision.UNDECIDED: None}

Pair = tuple[Question, ResponseScored]


def figures(suite: str, pairs: Sequence[Pair]) -> Result:
    """The suite's numbers; a number that does not exist is None. Chains have `chain_figures`."""
    return _FIGURES[suite](pairs)


def chain_figures(chains: Sequence[ChainAdvanced], length: int) -> Result:
    """GC@T over the chains that were walked to their end, with its interval over seed images."""
    found = [
        Chain(
            image=chain.response.id,
            category=chain.response.tags.get(CATEGORY_TAG, ""),
            similarities=tuple(step.similarity for step in chain.steps if step.similarity is not None),
        )
        for chain in chains
    ]
    moments = Moments()
    for chain in found:
        if (gc := gc_at(chain.similarities, length)) is not None:
            moments.add(gc)
    return {**tally_chains(found, length), "gc_interval": mean_interval(moments, bounds=(-1.0, 1.0))}


def _pope(pairs: Sequence[Pair]) -> Result:
    groups: dict[str, list[Pair]] = defaultdict(list)
    for question, outcome in pairs:
        groups[question.tags.get(CATEGORY, "")].append((question, outcome))
    result = _confusion(pairs)
    if len(groups) > 1 or "" not in groups:
        result["by_category"] = {name: _confusion(found) for name, found in sorted(groups.items())}
    return result


def _confusion(pairs: Sequence[Pair]) -> Result:
    units: dict[str, Counter[str]] = defaultdict(Counter)
    unscored: Counter[str] = Counter()
    for question, outcome in pairs:
        if outcome.outcome is not OutcomeKind.SCORED:
            unscored[outcome.reason] += 1
            continue
        facts = question.reference.facts if question.reference else ()
        said: Answer = "yes" if outcome.claims[0].category == "yes" else "no"
        true: Answer = "yes" if facts and facts[0].holds else "no"
        units[question.unit or question.id][cell(said, true)] += 1
    counts = [Confusion(tp=one["tp"], fp=one["fp"], tn=one["tn"], fn=one["fn"]) for one in units.values()]
    names = ("accuracy", "precision", "recall", "f1", "yes_ratio")
    return {
        **_sum(counts).numbers(),
        "questions": len(pairs),
        "unscored": unscored.total(),
        "unscored_by_reason": dict(sorted(unscored.items())),
        "intervals": {name: _interval(counts, _number(name)) for name in names},
    }


def _number(name: str) -> Callable[[Sequence[Confusion]], float | None]:
    def of(counts: Sequence[Confusion]) -> float | None:
        value: float | None = getattr(_sum(counts), name)
        return value

    return of


def _sum(counts: Iterable[Confusion]) -> Confusion:
    tp = fp = tn = fn = 0
    for one in counts:
        tp, fp, tn, fn = tp + one.tp, fp + one.fp, tn + one.tn, fn + one.fn
    return Confusion(tp=tp, fp=fp, tn=tn, fn=fn)


def _interval(units: Sequence[Any], statistic: Callable[[Sequence[Any]], float | None]) -> Interval | None:
    return bootstrap(units, statistic, resamples=RESAMPLES)


def _vlm2(pairs: Sequence[Pair]) -> Result:
    place = Place(Path("probe"), 0)
    scored = score_outcomes((place, msgspec.to_builtins(outcome)) for _, outcome in pairs)
    moments = Moments()
    for one in scored:
        if one.score is not None:
            moments.add(one.score)
    return {**tally_scored(scored), "score_mean_interval": mean_interval(moments, bounds=(0.0, 1.0))}


def _valor(pairs: Sequence[Pair]) -> Result:
    result: Result = {}
    for subset in Subset:
        found = [
            (question, outcome) for question, outcome in pairs if question.protocol == protocol_name(subset)
        ]
        if found:
            result[subset.value] = _of_subset(found, subset)
    return result


def _of_subset(pairs: Sequence[Pair], subset: Subset) -> Result:
    counts: list[Counts] = []
    unjudged: Counter[str] = Counter()
    faithful, covered = RatioSums(), RatioSums()
    for question, outcome in pairs:
        one = _counts(question, outcome, subset)
        if one is None:
            unjudged[outcome.reason] += 1
            continue
        counts.append(one)
        faithful.add(one.faithful, one.generated)
        covered.add(one.covered, one.reference)
    return {
        **msgspec.structs.asdict(pool(counts)),
        "unjudged": dict(sorted(unjudged.items())),
        "faithfulness_interval": cluster_rate(faithful),
        "coverage_interval": cluster_rate(covered),
    }


def _counts(question: Question, outcome: ResponseScored, subset: Subset) -> Counts | None:
    """None for an answer that was not judged; one without features still leaves all of them uncovered."""
    if outcome.outcome is OutcomeKind.SCORED:
        names = ("faithful", "generated", "covered", "reference")
        return Counts(**{name: int(outcome.values[name]) for name in names})
    if outcome.reason == "no_features":
        objects = question.reference.objects if question.reference else ()
        reference = tuple(read_written(text) for text in objects)
        return count(Matched(image_id=question.id, generated=(), reference=reference), subset)
    return None


def _tri_he(pairs: Sequence[Pair]) -> Result:
    questions = [
        JudgedQuestion(
            image=question.unit or question.id,
            triplets=tuple(
                JudgedTriplet(
                    hallucinated=_HALLUCINATED[claim.decision],
                    part=blamed(Verdict(decision=claim.decision, evidence=claim.evidence)),
                )
                for claim in outcome.claims
            ),
        )
        for question, outcome in pairs
        if outcome.claims
    ]
    unscored = Counter(outcome.reason for _, outcome in pairs if outcome.outcome is not OutcomeKind.SCORED)
    images: dict[str, list[JudgedQuestion]] = defaultdict(list)
    for one in questions:
        images[one.image].append(one)
    units = list(images.values())
    return {
        **tally_questions(questions),
        "unscored_by_reason": dict(sorted(unscored.items())),
        "hallu_q_interval": _interval(units, lambda drawn: _rate(drawn)),
    }


def _rate(images: Sequence[Sequence[JudgedQuestion]]) -> float | None:
    return rates([one for image in images for one in image], undecided_count=True).hallu_q


def _faithscore(pairs: Sequence[Pair]) -> Result:
    moments = Moments()
    for _, outcome in pairs:
        if outcome.score is not None:
            moments.add(outcome.score)
    return {"score": mean_interval(moments, bounds=(0.0, 1.0)), "answers": len(pairs)}


_FIGURES: dict[str, Callable[[Sequence[Pair]], Result]] = {
    "pope": _pope,
    "vlm2": _vlm2,
    "valor": _valor,
    "tri-he": _tri_he,
    "faithscore": _faithscore,
}
