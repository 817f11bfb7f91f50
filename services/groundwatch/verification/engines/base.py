"""What every verification engine is, and the one that measures everything around engines."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError, MissingExtraError, Unavailable
from groundwatch.events import ClaimsExtracted, Decision, Judge, Usage, Verdict
from groundwatch.models.engines import Engine
from groundwatch.protocols.base import EvaluationProtocol

NOT_JUDGED = "not judged"
"""What the evidence begins with where a single statement could not be judged."""

RETRY_AFTER = 30.0
"""Seconds until it is looked again whether an extra has been installed."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for every claim, in the claims' order."""

    verdicts: tuple[Verdict, ...] = ()
    usage: Usage = Usage()

    @property
    def whole(self) -> bool:
        """Whether every claim was judged, if only as undecided: another time may give no more."""
        return not any(verdict.evidence.startswith(NOT_JUDGED) for verdict in self.verdicts)


class VerificationEngine(Engine, Protocol):
    """Decides whether claims hold."""

    def judge(self, protocol: EvaluationProtocol) -> Judge: ...

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order; an error stands in the place of its event's result."""
        ...


async def verify_with(
    engine: VerificationEngine, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
) -> Sequence[Verification | GroundwatchError]:
    """What the engine says. Without the extra that it needs, it is for later."""
    try:
        return await engine.verify(extracted, protocol)
    except MissingExtraError as error:
        # The operator's to mend, as a wrong key is: nothing may be lost meanwhile.
        judge = engine.judge(protocol).engine
        return [Unavailable(str(error), judge=judge, retry_after=RETRY_AFTER)] * len(extracted)


class NoopVerificationEngine(VerificationEngine):
    """Supports every claim without looking."""

    batch = 200

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="noop")

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        supported = Verdict(decision=Decision.SUPPORTED)
        return [Verification(verdicts=(supported,) * len(event.claims)) for event in extracted]
