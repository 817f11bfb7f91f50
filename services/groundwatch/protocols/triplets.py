"""Triplets and scene graphs: how they, and the parts that judges blame, are written into claims."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from groundwatch.events import Claim, Decision, JudgedClaim, Verdict
from groundwatch.protocols.base import folded

Triplet = tuple[str, str, str]
"""(object1, relation, object2); an attribute reads ("ball", "is", "red")."""

Part = Literal["object1", "relation", "object2"]
"""The part of a triplet that a judge blames."""

ATTRIBUTE, RELATION = "attribute", "relation"

INFERENCE = "inference"
"""The category of a triplet that concludes rather than describes: ("weather", "is", "raining")."""

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


def claim_of(triplet: Triplet, *, unit: int = 0, category: str = "") -> Claim:
    """The claim of a triplet: its parts as they are, its text as a short sentence."""
    first, relation, second = triplet
    leads = relation.split(" ")[0].casefold()
    verb = f"is {relation}" if leads in _PLACES or leads.endswith("ing") else relation
    return Claim(
        text=f"{first} {verb} {second}".strip(),
        category=category or (ATTRIBUTE if relation.casefold() in _BE else RELATION),
        unit=unit,
        parts=triplet,
    )


def triplet_of(claim: Claim | JudgedClaim) -> Triplet | None:
    return (claim.parts[0], claim.parts[1], claim.parts[2]) if len(claim.parts) == 3 else None


def blame(part: Part | None, why: str = "") -> str:
    """A refuted verdict's evidence: the part that is wrong, in front of what else is to be said."""
    if part is None:
        return why
    return f"wrong: {part}; {why}" if why else f"wrong: {part}"


def blamed(judged: Verdict | JudgedClaim) -> Part | None:
    found = _BLAMED.match(judged.evidence) if judged.decision is Decision.REFUTED else None
    return _PARTS[found[1]] if found else None


class Judgement(StrEnum):
    """What section 3.1 calls a triplet, given the image's scene graph."""

    TRUE = "true"
    OBJECT_HALLUCINATION = "object_hallucination"
    RELATION_HALLUCINATION = "relation_hallucination"
    PREDICTION_ERROR = "prediction_error"


class SceneGraph:
    """G = (V, E): objects V and relations E of an image, and the triplets that it consists of.

    V has the objects named and those of the triplets. Names mean the same where they are equal up to case and
    spaces.
    """

    def __init__(self, triplets: Iterable[Triplet], objects: Iterable[str] = ()) -> None:
        self.triplets = tuple(dict.fromkeys(triplets))
        named = [name for first, _, second in self.triplets for name in (first, second)]
        self.objects = tuple(dict.fromkeys((*objects, *named)))
        self.relations = tuple(dict.fromkeys(relation for _, relation, _ in self.triplets))

    def judge(self, triplet: Triplet) -> Judgement:
        """The three-way definition of section 3.1, or true for a triplet of the graph."""
        first, relation, second = map(folded, triplet)
        if not {first, second} <= set(map(folded, self.objects)):
            return Judgement.OBJECT_HALLUCINATION
        if relation not in map(folded, self.relations):
            return Judgement.RELATION_HALLUCINATION
        known = {tuple(map(folded, each)) for each in self.triplets}
        return Judgement.TRUE if (first, relation, second) in known else Judgement.PREDICTION_ERROR
