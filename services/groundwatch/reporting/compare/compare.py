"""Two runs side by side, response by response: what differs, and whether chance could have done it. Pure.

Runs are paired by response and protocol; only responses that both runs scored enter a rate, and beside every
rate stands how much of each side that is. Where several sets of judges judged a run, each pair of sets has a
section of its own: scores of different judges are never pooled.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from groundwatch.events import Judge, OutcomeKind
from groundwatch.reporting.compare.numbers import RESAMPLES, bootstrap_ratios, share_bins, verdicts
from groundwatch.reporting.compare.outcomes import (
    ChangedResponse,
    Coverage,
    GroupComparison,
    OutcomeTable,
    Pair,
    RunOutcome,
    SectionComparison,
    change_of,
    differs,
    facts,
    total_of,
)
from groundwatch.statistics.intervals import wilson

K = TypeVar("K")
N = TypeVar("N", int, float)

Pairs = Sequence[tuple[RunOutcome, RunOutcome]]
CHANGED = 20
"""Responses that are told as the most changed, when nothing else is asked for."""

GROUPS = 30
"""Groups of one dimension that are told, the largest; how many more there are is told too."""

FEW = 20
"""Units below which a percentile interval is too narrow to be believed."""


def compare_section(
    pairs: Pairs,
    sides: OutcomeTable,
    judges: tuple[str, str],
    *,
    units: Mapping[str, str] | None = None,
    top: int = CHANGED,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> SectionComparison:
    """One section of the pairs of one protocol and one set of judges on each side.

    `units` maps a response's key to what it was drawn with, such as its image; a response without is drawn
    by itself. The most changed responses carry no texts of claims: whoever has the outcomes adds them.
    """
    pairs = sorted(pairs, key=lambda pair: pair[0].key)
    units = units or {}
    both = [_pair(a, b, sides, units) for a, b in pairs if a.scored and b.scored]
    first, second = (sides.judges.get(name, {}) for name in judges)
    claims_first = sum(len(pair.first.claims) for pair in both)
    claims_second = sum(len(pair.second.claims) for pair in both)
    matched = sum(pair.matched for pair in both)
    same_claims = matched == claims_first == claims_second
    extraction = first.get("extraction") == second.get("extraction")
    groups, left_out = _groups(both, pairs, testing=extraction or same_claims, seed=seed, resamples=resamples)
    changed = sum(map(differs, both))
    drawn = len({pair.unit for pair in both})
    notes = list(_notes(both, judges, extraction, same_claims, (claims_first, claims_second, matched), drawn))
    notes += [f"{number} more by {name} are not told one by one." for name, number in left_out.items()]
    return SectionComparison(
        protocol=pairs[0][0].protocol if pairs else "",
        judges_first={stage: _judge(one) for stage, one in sorted(first.items())},
        judges_second={stage: _judge(one) for stage, one in sorted(second.items())},
        same_judges=judges[0] == judges[1],
        paired=len(pairs),
        scored=len(both),
        scored_first=sum(a.scored and not b.scored for a, b in pairs),
        scored_second=sum(b.scored and not a.scored for a, b in pairs),
        changed=wilson(changed, len(both)) if both else None,
        claims_first=claims_first,
        claims_second=claims_second,
        claims_matched=matched,
        unit="image" if drawn < len(both) else "response",
        units=drawn,
        groups=groups,
        most_changed=tuple(_most_changed(both, top)),
        histogram=tuple(share_bins([change_of(pair) for pair in both])),
        notes=tuple(notes),
    )


def _pair(first: RunOutcome, second: RunOutcome, sides: OutcomeTable, units: Mapping[str, str]) -> Pair:
    found, matched = facts(first, second, sides.categories)
    unit = units.get(first.key, first.key)
    # With different chances, a pair stands for as many responses as by the smaller one.
    each = max(first.weight, second.weight)
    return Pair(first, second, each, found, total_of(found), matched, unit)


def _groups(
    both: Sequence[Pair], pairs: Pairs, *, testing: bool, seed: int, resamples: int
) -> tuple[tuple[GroupComparison, ...], dict[str, int]]:
    """Every group's numbers, the whole first, and how many groups of a dimension are left out."""
    names, left_out = _names(both, pairs)
    index = {name: number for number, name in enumerate(names)}
    rates: dict[str, dict[int, list[float]]] = {}
    scores: dict[str, dict[int, list[float]]] = {}
    flips: list[dict[str, list[int]]] = [{} for _ in names]
    parts = [0] * len(names)
    for pair in both:
        rated, averaged = rates.setdefault(pair.unit, {}), scores.setdefault(pair.unit, {})
        named = [(("all", ""), pair.total), (("model", pair.first.model), pair.total)]
        named += [(("tenant", pair.first.tenant), pair.total)]
        named += [(("category", category), one) for category, one in pair.facts.items()]
        for name, one in named:
            if (at := index.get(name)) is None:
                continue
            parts[at] += 1
            w = pair.weight
            counts = (one.refuted_first, one.decided_first, one.refuted_second, one.decided_second)
            _add(rated, at, [w * count for count in counts])
            if name[0] != "category" and pair.first.score is not None and pair.second.score is not None:
                _add(averaged, at, [w * pair.first.score, w, w * pair.second.score, w])
            _add(flips[at], pair.unit, [one.both, one.only_first, one.only_second])
    rate = bootstrap_ratios(list(rates.values()), len(names), seed=seed, resamples=resamples)
    score = bootstrap_ratios(list(scores.values()), len(names), seed=seed, resamples=resamples)
    covered: dict[tuple[str, str, int], list[RunOutcome]] = {}
    for sides in pairs:
        for number, side in enumerate(sides):
            for name in (("all", ""), ("model", side.model), ("tenant", side.tenant)):
                covered.setdefault((*name, number), []).append(side)
    return tuple(
        GroupComparison(
            dimension=name[0],
            name=name[1],
            responses=parts[at],
            rate_first=rate[at][0],
            rate_second=rate[at][1],
            rate=rate[at][2],
            score_first=score[at][0],
            score_second=score[at][1],
            score=score[at][2],
            verdicts=verdicts(list(flips[at].values())) if testing else None,
            first=_coverage(covered.get((*name, 0))),
            second=_coverage(covered.get((*name, 1))),
        )
        for at, name in enumerate(names)
    ), left_out


def _names(both: Sequence[Pair], pairs: Pairs) -> tuple[list[tuple[str, str]], dict[str, int]]:
    found: list[tuple[str, str]] = [("all", "")]
    left_out: dict[str, int] = {}
    for dimension, counted in (
        ("category", Counter(name for pair in both for name in pair.facts)),
        ("model", Counter(a.model for a, _ in pairs)),
        ("tenant", Counter(a.tenant for a, _ in pairs)),
    ):
        ordered = sorted(counted, key=lambda name: (-counted[name], name))
        if len(ordered) > GROUPS:
            left_out[dimension] = len(ordered) - GROUPS
        found += [(dimension, name) for name in sorted(ordered[:GROUPS])]
    return found, left_out


def _add(to: dict[K, list[N]], at: K, more: list[N]) -> None:
    if (before := to.setdefault(at, more)) is not more:
        for place, number in enumerate(more):
            before[place] += number


def _coverage(found: Sequence[RunOutcome] | None) -> Coverage | None:
    if found is None:
        return None
    judged = [side for side in found if side.outcome is not OutcomeKind.DECLINED]
    declined = Counter(side.reason for side in found if side.outcome is OutcomeKind.DECLINED)
    scored = sum(side.scored for side in found)
    eligible, decided = sum(side.eligible for side in judged), sum(side.decided for side in judged)
    return Coverage(
        responses=len(found),
        scored=scored,
        unscored=dict(sorted(Counter(side.reason for side in judged if not side.scored).items())),
        declined=dict(sorted(declined.items())),
        eligible=eligible,
        decided=decided,
        scored_share=scored / len(judged) if judged else None,
        coverage=decided / eligible if eligible else None,
    )


def _most_changed(both: Sequence[Pair], top: int) -> Iterator[ChangedResponse]:
    ranked = [
        (abs(change), pair.total.only_first + pair.total.only_second, pair.first.key, pair, change)
        for pair in both
        if (change := change_of(pair)) or differs(pair)
    ]
    for *_, pair, change in heapq.nsmallest(top, ranked, key=lambda one: (-one[0], -one[1], one[2])):
        counts = ("refuted_first", "decided_first", "refuted_second", "decided_second")
        yield ChangedResponse(
            **{name: getattr(pair.first, name) for name in ("id", "tenant", "model", "key")},
            **{name: getattr(pair.total, name) for name in counts},
            change=change,
            score_first=pair.first.score,
            score_second=pair.second.score,
        )


def _notes(
    both: Sequence[Pair],
    judges: tuple[str, str],
    extraction: bool,
    same_claims: bool,
    claims: tuple[int, int, int],
    drawn: int,
) -> Iterator[str]:
    if judges[0] == judges[1]:
        yield "The judges are the same: whatever differs is their non-determinism, not a change of judge."
    if not both:
        yield "No response was scored in both runs: there is coverage to compare, and no rate."
        return
    if not same_claims:
        told = f"{claims[2]:,} claims stand in both runs, of {claims[0]:,} in the first and {claims[1]:,}"
        yield f"{told} in the second." + (
            "" if extraction else " Extraction differs, so verdicts are not tested; rates are by response."
        )
    if drawn < FEW:
        yield f"Only {drawn} units to draw from: intervals are too narrow to be relied upon."
    if len({pair.weight for pair in both}) > 1:
        yield (
            "Responses were judged with different probabilities: in rates each weighs 1 / probability; the "
            "tests of verdicts weigh all alike."
        )


def _judge(judge: Judge) -> str:
    return " ".join(filter(None, (judge.engine, judge.model, f"({judge.fingerprint})")))


def sections(
    pairs: Mapping[str, Pairs],
    sides: OutcomeTable,
    *,
    units: Mapping[str, str] | None = None,
    top: int = CHANGED,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[SectionComparison, ...]:
    """A section for each protocol and pair of sets of judges, the largest of a protocol first.

    A response that one run did not score may have met only some judges there, or none: it counts in the
    largest section whose judges say nothing else, and where there is none in one of its own.
    """
    found = []
    for _, several in sorted(pairs.items()):
        for judges, part in _by_judges(several, sides):
            found.append(
                compare_section(part, sides, judges, units=units, top=top, seed=seed, resamples=resamples)
            )
    return tuple(found)


def _by_judges(
    pairs: Pairs, sides: OutcomeTable
) -> list[tuple[tuple[str, str], list[tuple[RunOutcome, RunOutcome]]]]:
    scored: dict[tuple[str, str], list[tuple[RunOutcome, RunOutcome]]] = {}
    others: dict[tuple[str, str], list[tuple[RunOutcome, RunOutcome]]] = {}
    for a, b in pairs:
        (scored if a.scored and b.scored else others).setdefault((a.judges, b.judges), []).append((a, b))
    hosts = sorted(scored, key=lambda name: (-len(scored[name]), name))
    for name, part in others.items():
        host = next((one for one in hosts if all(map(sides.within, name, one))), name)
        scored.setdefault(host, []).extend(part)
    return sorted(scored.items(), key=lambda item: (-len(item[1]), item[0]))
