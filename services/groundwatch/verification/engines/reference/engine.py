"""The verification engine around the reference judge."""

import asyncio
from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge, Reference, Verdict
from groundwatch.language.lexicon import lexicon
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.reference.judge import rule
from groundwatch.verification.engines.reference.knowledge import knowledge

VERSION = "2"


class ReferenceEngine:
    """Judges claims against what the response's own reference says of the image. No model, no image.

    A response without a reference cannot be judged: its result is `Unscorable("no_reference")`.
    """

    batch = 64

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The rules' version and the lexicon's digest: a new word is a new judge."""
        return Judge(engine="reference", version=f"{VERSION}-{lexicon().digest}")

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order; other tasks run between two events."""
        results: list[Verification | GroundwatchError] = []
        for event in extracted:
            results.append(self._verify(event))
            await asyncio.sleep(0)
        return results

    async def close(self) -> None:
        pass

    def _verify(self, event: ClaimsExtracted) -> Verification | GroundwatchError:
        reference = event.response.reference
        if reference is None or reference == Reference(complete=reference.complete):
            return Unscorable("no_reference", "the response says nothing of what is in its image")
        known = knowledge(reference)
        verdicts = []
        for claim in event.claims:
            ruling = rule(claim.text, known)
            verdicts.append(Verdict(decision=ruling.decision, evidence=ruling.evidence))
        return Verification(verdicts=tuple(verdicts))
