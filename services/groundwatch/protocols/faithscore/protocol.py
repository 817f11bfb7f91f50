"""FaithScore as the services see it: its route, its questions and its arithmetic together.

Source: FAITHSCORE, Fine-grained Evaluations of Hallucinations in Large Vision-Language Models.
"""

from collections.abc import Mapping
from typing import ClassVar

from groundwatch.errors import InputError
from groundwatch.events import ClaimsMatched, ClaimsVerified
from groundwatch.protocols.base import ExtractionRules, Score, Stage
from groundwatch.protocols.faithscore.questions import FaithScoreQuestions
from groundwatch.protocols.faithscore.scoring import EQUAL_WEIGHTS, score_verified
from groundwatch.protocols.planted import Kind, by_kind


class FaithScore(FaithScoreQuestions):
    """Recogniser and decomposer, then verifier, then equation 1.

    `weights` are equation 1's, per category, 1 where absent.
    """

    name = "faithscore"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules()
    sees = by_kind(
        {
            "entity": [Kind.OBJECT, Kind.THING],
            "color": [Kind.COLOR, Kind.CLOTHING],
            "count": [Kind.COUNT],
            "relation": [Kind.POSITION, Kind.ACTION],
        }
    )

    def __init__(self, weights: Mapping[str, float] = EQUAL_WEIGHTS) -> None:
        self._weights = {**EQUAL_WEIGHTS, **weights}

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Equation 1 and every number beside it; `InputError` for claims that were matched instead."""
        if not isinstance(judged, ClaimsVerified):
            raise InputError("faithscore scores verified claims, not matched ones")
        return score_verified(judged, self._weights)
