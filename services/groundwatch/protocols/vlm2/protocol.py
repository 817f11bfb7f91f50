"""The metric on VLM²-Bench as the services see it: one response answers one question about a sequence.

Tags carry what the benchmark knows: `sequence`, `task`, `level` (coarse or fine) and `truth`. A response is
scored by itself, 1 for right and 0 for wrong; the gate and the sums need a sequence's responses together,
and `groundwatch score vlm2 --recorded` does them over written outcomes. No claim leaves the extraction, so no
verification engine has a say: the truth is known.
"""

from typing import ClassVar

from groundwatch.errors import Unscorable
from groundwatch.events import ClaimsMatched, ClaimsVerified
from groundwatch.protocols.base import EvaluationProtocol, ExtractionRules, Score, Stage
from groundwatch.protocols.vlm2.replies import is_right

SEQUENCE, TASK, LEVEL, TRUTH = "sequence", "task", "level", "truth"
LEVELS = ("coarse", "fine")

NO_TRUTH = "no_truth"
NO_SEQUENCE = "no_sequence"
UNREADABLE = "unreadable_reply"


class Vlm2(EvaluationProtocol):
    """Reads a reply by the kind of its truth: yes or no, a number, a choice, or words."""

    name = "vlm2"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(from_answer=lambda response: ((), ()))

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
