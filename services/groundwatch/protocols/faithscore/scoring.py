"""The arithmetic of FaithScore (section 3.2 of the paper): pure functions from judgements to numbers.

Where the paper is silent, these decisions hold; docs/faithscore.md tells them with their reasons:

- A fact that the judge left undecided is in neither numerator nor denominator; coverage is told beside.
- Only facts of descriptive sub-sentences count, as in the paper, whose decomposer sees no others.
- A descriptive sub-sentence counts in S unless it has facts of which none was decided. With a judge that
  decides everything, S is therefore the paper's: every descriptive sub-sentence.
- Nothing to verify, or nothing decided, raises `Unscorable`; it is never 0 or 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import ClaimsVerified, Decision, Label
from groundwatch.protocols.base import Score, count_words

CATEGORIES = ("entity", "relation", "color", "count", "other")
"""The five categories of atomic facts; a category that is none of them counts as `other`."""

NOTHING_TO_VERIFY = "nothing_to_verify"
NOTHING_DECIDED = "nothing_decided"

EQUAL_WEIGHTS: Mapping[str, float] = MappingProxyType(dict.fromkeys(CATEGORIES, 1.0))
"""The paper's choice: every fact weighs 1."""


class Fact(msgspec.Struct, frozen=True):
    """What the arithmetic needs of one atomic fact: its category, its sub-sentence, the verdict."""

    category: str
    unit: int
    decision: Decision


class _Counted:
    """Facts by number, of one category. `units` has for each of their sub-sentences the verdicts seen there,
    as a sum of `_SUPPORTED`, `_REFUTED` and `_OPEN`."""

    __slots__ = ("facts", "refuted", "undecided", "units")

    def __init__(self) -> None:
        self.facts = self.undecided = self.refuted = 0
        self.units: dict[int, int] = {}


_SUPPORTED, _REFUTED, _OPEN = 1, 2, 4


def score_facts(
    facts: Sequence[Fact], descriptive: Sequence[int], weights: Mapping[str, float] = EQUAL_WEIGHTS
) -> Score:
    """Every number that follows from the verdicts alone. Raises `Unscorable` where there is none."""
    units = dict.fromkeys(descriptive, 0)
    if not units:
        raise Unscorable(NOTHING_TO_VERIFY, "no descriptive sub-sentence")
    counted = _count(facts, units)
    if not counted:
        raise Unscorable(NOTHING_TO_VERIFY, "no atomic fact")
    number = undecided = refuted = 0
    for part in counted.values():
        number += part.facts
        undecided += part.undecided
        refuted += part.refuted
    headline = _f_hat(counted, weights)
    if headline is None:
        raise Unscorable(NOTHING_DECIDED, f"none of {number} facts was decided")
    values = {
        "faithscore": headline,
        "descriptive": float(len(units)),
        "facts": float(number),
        "decided": float(number - undecided),
        "refuted": float(refuted),
    }
    sentences = _sentence_level(units)
    if sentences is not None:
        values["sentence_level"] = sentences
    for category in CATEGORIES:
        found = counted.get(category)
        if found is None:
            values.update(_NO_FACTS[category])
            continue
        decided = found.facts - found.undecided
        values[f"facts.{category}"] = float(found.facts)
        values[f"decided.{category}"] = float(decided)
        values[f"refuted.{category}"] = float(found.refuted)
        # Within one category a weight is constant and says nothing, so these numbers go without.
        if decided:
            values[f"faithscore.{category}"] = (decided - found.refuted) / decided
        sentences = _sentence_level(found.units)
        if sentences is not None:
            values[f"sentence_level.{category}"] = sentences
    values["coverage"] = (number - undecided) / number
    return Score(score=headline, values=values)


def score_verified(judged: ClaimsVerified, weights: Mapping[str, float] = EQUAL_WEIGHTS) -> Score:
    """Score one response. Raises `Unscorable`, and `InputError` for what does not fit each other."""
    units, claims = judged.extracted.units, judged.extracted.claims
    if len(claims) != len(judged.verdicts):
        raise InputError(f"{len(judged.verdicts)} verdicts for {len(claims)} claims")
    for index, claim in enumerate(claims):
        if not 0 <= claim.unit < len(units):
            raise InputError(f"claim {index} names sub-sentence {claim.unit} of {len(units)}")
    facts = [
        Fact(claim.category if claim.category in CATEGORIES else "other", claim.unit, verdict.decision)
        for claim, verdict in zip(claims, judged.verdicts, strict=True)
    ]
    descriptive = [index for index, unit in enumerate(units) if unit.label is Label.DESCRIPTIVE]
    score = score_facts(facts, descriptive, weights)
    entities = {
        " ".join(claim.text.split()).casefold()
        for claim in claims
        if claim.category == "entity" and units[claim.unit].label is Label.DESCRIPTIVE
    }
    values = score.values
    values["entities"] = float(len(entities))
    values["answer_words"] = float(count_words(judged.extracted.response.answer))
    return score


def _count(facts: Iterable[Fact], units: dict[int, int]) -> dict[str, _Counted]:
    """Counts by category of the facts of these `units`, which are told their verdicts too.

    One pass: a replay spends more time here than anywhere else.
    """
    counted: dict[str, _Counted] = {}
    for fact in facts:
        unit, decision = fact.unit, fact.decision
        if unit not in units:
            continue
        found = counted.get(fact.category)
        if found is None:
            found = counted[fact.category] = _Counted()
        found.facts += 1
        verdict = _SUPPORTED
        if decision is Decision.UNDECIDED:
            found.undecided += 1
            verdict = _OPEN
        elif decision is Decision.REFUTED:
            found.refuted += 1
            verdict = _REFUTED
        found.units[unit] = found.units.get(unit, 0) | verdict
        units[unit] |= verdict
    return counted


def _f_hat(counted: Mapping[str, _Counted], weights: Mapping[str, float]) -> float | None:
    """Equation 1: sum of w·s over all facts, divided by the number of facts; None without a decided one.

    The denominator is the number of facts and not the sum of the weights, as printed in the paper, so
    that the result lies in [0, largest weight] and passes 1 when weights do.
    """
    total = 0
    weighed = []
    for category, found in counted.items():
        decided = found.facts - found.undecided
        total += decided
        weighed.append(weights.get(category, 1.0) * (decided - found.refuted))
    return math.fsum(weighed) / total if total else None


def _sentence_level(units: Mapping[int, int]) -> float | None:
    """1 - S_h / S over sub-sentences; S_h are those with a refuted fact. None when S is 0.

    A sub-sentence all of whose facts are undecided was not judged and is left out of S; one without any
    fact stays in, as in the paper.
    """
    judged = refuted = 0
    for verdicts in units.values():
        if verdicts != _OPEN:
            judged += 1
            if verdicts & _REFUTED:
                refuted += 1
    return 1.0 - refuted / judged if judged else None


_NO_FACTS: dict[str, dict[str, float]] = {
    category: {f"{what}.{category}": 0.0 for what in ("facts", "decided", "refuted")}
    for category in CATEGORIES
}
