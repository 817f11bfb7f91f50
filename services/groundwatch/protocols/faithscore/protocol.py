"""FaithScore as the services see it: its route, its questions and its arithmetic together.

Source: FAITHSCORE, Fine-grained Evaluations of Hallucinations in Large Vision-Language Models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from groundwatch.errors import InputError
from groundwatch.events import Claim, ClaimsMatched, ClaimsVerified, ResponseRecorded, SubSentence, Verdict
from groundwatch.protocols.base import EvaluationProtocol, ExtractionRules, Score, Stage, Step
from groundwatch.protocols.faithscore import questions
from groundwatch.protocols.faithscore.scoring import EQUAL_WEIGHTS, check_weights, score_verified


class FaithScore(EvaluationProtocol):
    """Recogniser and decomposer, then verifier, then equation 1.

    `weights` are equation 1's, per category, 1 where absent; raises `SettingsError` for a wrong one.
    """

    name = "faithscore"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules()

    def __init__(self, weights: Mapping[str, float] = EQUAL_WEIGHTS) -> None:
        self._weights = check_weights(weights)

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Equation 1 and every number beside it; `InputError` for claims that were matched instead."""
        if not isinstance(judged, ClaimsVerified):
            raise InputError("faithscore scores verified claims, not matched ones")
        return score_verified(judged, self._weights)

    def prompt_digest(self, stage: Stage) -> str:
        return questions.prompt_digest(stage)

    def extraction_steps(self) -> int:
        return questions.EXTRACTION_STEPS

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        return questions.extraction_step(index, response, units)

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
        return questions.read_extraction(index, reply, response, units)

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        return questions.verification_step(response, claims)

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        return questions.read_verification(reply, claims)
