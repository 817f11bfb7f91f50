"""An engine that finds one fixed claim in every answer: for measuring everything around engines."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, Judge, Label, ResponseRecorded, SubSentence
from groundwatch.extraction.engines.base import Extraction
from groundwatch.protocols.base import EvaluationProtocol


class NoopExtractionEngine:
    """Calls the whole answer descriptive, and says that something is there."""

    batch = 200

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """Named so that nobody takes its scores for judgements."""
        return Judge(engine="noop")

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        claims = (Claim(text="There is something.", category="entity"),)
        return [
            Extraction(
                units=(
                    SubSentence(
                        start=0, end=len(response.answer), text=response.answer, label=Label.DESCRIPTIVE
                    ),
                ),
                claims=claims,
            )
            for response in responses
        ]

    async def close(self) -> None:
        pass
