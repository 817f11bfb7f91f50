"""Tri-HE as the services see it: triplets, their judgement, and the rate of hallucinated ones.

Source: Unified Triplet-Level Hallucination Evaluation for Large Vision-Language Models.
"""

from typing import ClassVar

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import ClaimsMatched, ClaimsVerified, Decision
from groundwatch.protocols.base import ExtractionRules, Score, Stage, load
from groundwatch.protocols.planted import RATES
from groundwatch.protocols.trihe.questions import TriHeQuestions
from groundwatch.protocols.trihe.scoring import JudgedTriplet, question_rate
from groundwatch.protocols.triplets import blamed, triplet_of

NO_TRIPLETS = "no_triplets"
NOTHING_DECIDED = "nothing_decided"

HALLUCINATED = {Decision.SUPPORTED: False, Decision.REFUTED: True, Decision.UNDECIDED: None}


class TriHe(TriHeQuestions):
    """Triplet extraction, then a judge, then the inner term of equation 1.

    `score` is the share of triplets that are not hallucinated, so that more is better as for the other
    protocols; `hallu` in its values is the paper's rate.
    """

    name = "tri-he"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(
        from_facts=lambda facts: load("groundwatch.extraction.engines.linguistic.triplets:triplets")(facts)
    )
    verifier = "similarity"
    sees = dict.fromkeys(RATES, frozenset[str]())

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """# HT / # TT over decided triplets; by kind too, where every wrong part is named."""
        found = judged_triplets(judged)
        if not found:
            raise Unscorable(NO_TRIPLETS, "the answer holds no triplet")
        rate = question_rate(found)
        if rate is None:
            raise Unscorable(NOTHING_DECIDED, f"none of {len(found)} triplets was decided")
        wrong = [one for one in found if one.hallucinated]
        values = {
            "hallu": rate,
            "triplets": float(len(found)),
            "decided": float(sum(one.hallucinated is not None for one in found)),
            "hallucinated": float(len(wrong)),
        }
        if all(one.part for one in wrong):
            values["hallu.object"] = question_rate(found, "object") or 0.0
            values["hallu.relation"] = question_rate(found, "relation") or 0.0
        return Score(score=1.0 - rate, values=values)


def judged_triplets(judged: ClaimsVerified | ClaimsMatched) -> tuple[JudgedTriplet, ...]:
    """The triplets of one response as they were judged, each with the tokens needed to say it.

    Tokens are words between white space up to the end of the triplet's sub-sentence. Raises `InputError`
    for claims that were matched instead, and where claims and verdicts do not fit each other.
    """
    if not isinstance(judged, ClaimsVerified):
        raise InputError("tri-he scores verified claims, not matched ones")
    claims, units = judged.extracted.claims, judged.extracted.units
    if len(claims) != len(judged.verdicts):
        raise InputError(f"{len(judged.verdicts)} verdicts for {len(claims)} claims")
    answer = judged.extracted.response.answer
    return tuple(
        JudgedTriplet(
            hallucinated=HALLUCINATED[verdict.decision],
            part=blamed(verdict),
            triplet=triplet_of(claim),
            tokens=len(answer[: units[claim.unit].end].split()) if claim.unit < len(units) else None,
        )
        for claim, verdict in zip(claims, judged.verdicts, strict=True)
    )
