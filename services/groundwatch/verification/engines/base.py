"""What every verification engine is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, Judge, Usage, Verdict
from groundwatch.protocols.base import EvaluationProtocol


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for every claim, in the claims' order."""

    verdicts: tuple[Verdict, ...] = ()
    usage: Usage = Usage()


class VerificationEngine(Protocol):
    """Decides whether claims hold. Chosen by name in settings; `batch` as in `ExtractionEngine`."""

    batch: int

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """Who judges when this engine works for this protocol."""
        ...

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order; an error stands in the place of its event's result."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
