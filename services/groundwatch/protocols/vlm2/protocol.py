"""The metric on VLM²-Bench as the services see it: one response answers one question about a sequence.

Tags carry what the benchmark knows: `sequence`, `task`, `level` (coarse or fine) and `truth`. A response is
scored by itself, 1 for right and 0 for wrong; the gate and the sums need a sequence's responses together,
and `groundwatch tally vlm2` does them over written outcomes. No claim leaves the extraction, so no
verification engine has a say: the truth is known.
"""

from __future__ import annotations

from typing import ClassVar

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import Claim, ClaimsMatched, ClaimsVerified, ResponseRecorded, SubSentence, Verdict
from groundwatch.protocols.base import Score, Stage, Step
from groundwatch.protocols.vlm2.replies import is_right

SEQUENCE, TASK, LEVEL, TRUTH = "sequence", "task", "level", "truth"
LEVELS = ("coarse", "fine")

NO_TRUTH = "no_truth"
NO_SEQUENCE = "no_sequence"
UNREADABLE = "unreadable_reply"


class Vlm2:
    """Reads a reply by the kind of its truth: yes or no, a number, a choice, or words."""

    name: ClassVar[str] = "vlm2"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """1 or 0. Raises `Unscorable` for a reply that cannot be read and for tags that are missing."""
        response = judged.extracted.response
        truth = response.tags.get(TRUTH, "")
        if not truth.strip():
            raise Unscorable(NO_TRUTH, f"no tag '{TRUTH}' says what is right")
        if not response.tags.get(SEQUENCE) or response.tags.get(LEVEL) not in LEVELS:
            raise Unscorable(NO_SEQUENCE, f"needs tags '{SEQUENCE}' and '{LEVEL}' (coarse or fine)")
        right = is_right(response.answer, truth, response.prompt)
        if right is None:
            raise Unscorable(UNREADABLE, response.answer[:200])
        return Score(score=float(right), values={"right": float(right)})

    def prompt_digest(self, stage: Stage) -> str:
        return ""

    def extraction_steps(self) -> int:
        return 0

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        return None

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
        return (), ()

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        raise InputError("vlm2 has no claims to verify")

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        raise InputError("vlm2 has no claims to verify")
