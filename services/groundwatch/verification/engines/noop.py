"""An engine that supports every claim without looking: for measuring everything around engines."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, Decision, Judge, Verdict
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.verification.engines.base import Verification


class NoopVerificationEngine:
    """Supports everything."""

    batch = 200

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """Named so that nobody takes its scores for judgements."""
        return Judge(engine="noop")

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        supported = Verdict(decision=Decision.SUPPORTED)
        return [Verification(verdicts=(supported,) * len(event.claims)) for event in extracted]

    async def close(self) -> None:
        pass
