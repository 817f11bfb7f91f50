"""How Tri-HE's triplets and the parts that judges blame are written into claims and verdicts."""

from __future__ import annotations

import re

from groundwatch.events import Claim, Decision, Verdict
from groundwatch.protocols.trihe.scoring import Part, Triplet

ATTRIBUTE, RELATION = "attribute", "relation"

_BE = frozenset({"is", "are", "was", "were", "be"})
_PLACES = frozenset(
    {"in", "on", "at", "by", "near", "under", "over", "above", "below", "behind", "beside", "between", "with"}
    | {
        "next",
        "inside",
        "outside",
        "around",
        "along",
        "across",
        "against",
        "atop",
        "beneath",
        "through",
        "of",
    }
)
_BLAMED = re.compile(r"\Awrong: (object1|relation|object2)\b")
_PARTS: dict[str, Part] = {"object1": "object1", "relation": "relation", "object2": "object2"}


def claim_of(triplet: Triplet, *, unit: int = 0) -> Claim:
    """The claim of a triplet: its parts as they are, its text as a short sentence."""
    first, relation, second = triplet
    leads = relation.split(" ")[0].casefold()
    verb = f"is {relation}" if leads in _PLACES or leads.endswith("ing") else relation
    return Claim(
        text=f"{first} {verb} {second}".strip(),
        category=ATTRIBUTE if relation.casefold() in _BE else RELATION,
        unit=unit,
        parts=triplet,
    )


def triplet_of(claim: Claim) -> Triplet | None:
    """The triplet of a claim; None for a claim that is none."""
    return (claim.parts[0], claim.parts[1], claim.parts[2]) if len(claim.parts) == 3 else None


def blame(part: Part | None, why: str = "") -> str:
    """A refuted verdict's evidence: the part that is wrong, in front of what else is to be said."""
    if part is None:
        return why
    return f"wrong: {part}; {why}" if why else f"wrong: {part}"


def blamed(verdict: Verdict) -> Part | None:
    """The part that a refuted verdict names."""
    return part_of(verdict.evidence) if verdict.decision is Decision.REFUTED else None


def part_of(evidence: str) -> Part | None:
    """The part that a refuted verdict's evidence names."""
    found = _BLAMED.match(evidence)
    return _PARTS[found[1]] if found else None
