"""Each protocol's own embedded judge: what verification does where settings name no engine."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, MissingExtraError, Unavailable
from groundwatch.events import ClaimsExtracted, Judge
from groundwatch.protocols.base import EvaluationProtocol, load
from groundwatch.verification.engines.base import Verification, VerificationEngine
from groundwatch.verification.engines.reference.engine import ReferenceEngine
from groundwatch.verification.engines.similarity import SimilarityEngine

RETRY_AFTER = 30.0
"""Seconds until it is looked again whether an extra has been installed."""


class EmbeddedEngine:
    """A protocol's claims go to the verifier that it names, which judges under its own name.

    The embedding model is loaded at the first triplet: a system that is never asked for one never loads it.
    """

    batch = ReferenceEngine.batch
    judges = 2

    def __init__(self, similarity: SimilarityEngine) -> None:
        self._engines: dict[str, VerificationEngine] = {
            "reference": ReferenceEngine(),
            "similarity": similarity,
        }

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return self._of(protocol).judge(protocol)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order. Without the extra that a judge needs, it is for later."""
        try:
            return await self._of(protocol).verify(extracted, protocol)
        except MissingExtraError as error:
            # The operator's to mend, as a wrong key is: nothing may be lost meanwhile.
            judge = self.judge(protocol).engine
            away = Unavailable(str(error), judge=judge, retry_after=RETRY_AFTER)
            return [away] * len(extracted)

    async def close(self) -> None:
        for engine in self._engines.values():
            await engine.close()

    def _of(self, protocol: EvaluationProtocol) -> VerificationEngine:
        if protocol.verifier not in self._engines:
            self._engines[protocol.verifier] = load(protocol.verifier)()
        return self._engines[protocol.verifier]
