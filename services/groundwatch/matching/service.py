"""The matching service: claims in, their counterparts in the reference annotation out."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, ClaimsMatched, Judge
from groundwatch.matching.engines import Matching, MatchingEngine, build
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.stages import ClaimService
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics


class MatchingService(ClaimService):
    """Matches claims with references, for the protocols whose route leads here."""

    engine: MatchingEngine

    def __init__(
        self, settings: Settings, bus: Bus | None, metrics: Metrics, engine: MatchingEngine | None = None
    ) -> None:
        super().__init__(Stage.MATCHING.value, settings, bus, metrics)
        engine = engine or build(settings.matching, on_call=self.count_request)
        self.consume(ClaimsExtracted, self.handle, settings.matching, engine)

    async def handle(self, works: Sequence[Work[ClaimsExtracted]]) -> Sequence[Result | GroundwatchError]:
        return await self.judge_claims(works, self.engine.judge, self.engine.match, _event, Matching())


def _event(extracted: ClaimsExtracted, judge: Judge, found: Matching) -> ClaimsMatched:
    return ClaimsMatched(extracted=extracted, judge=judge, matches=found.matches, usage=found.usage)
