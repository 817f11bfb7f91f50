"""The scoring service: judged claims in, the one outcome of each response and protocol out."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import ChainAdvanced, ClaimsMatched, ClaimsVerified
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.service import StageService, find_protocol
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics

Judged = ClaimsVerified | ClaimsMatched | ChainAdvanced


class ScoringService(StageService):
    """Does each protocol's arithmetic and writes the outcome. Pure but for the clock."""

    def __init__(self, settings: Settings, bus: Bus | None, metrics: Metrics) -> None:
        super().__init__(Stage.SCORING.value, settings, bus, metrics)
        self.consume(Judged, self.handle, settings.scoring, None)

    async def handle(self, works: Sequence[Work[Judged]]) -> Sequence[Result | GroundwatchError]:
        """One outcome for each event."""
        results: list[Result | GroundwatchError] = []
        for work in works:
            event = work.event
            name = event.protocol if isinstance(event, ChainAdvanced) else event.extracted.protocol
            protocol = find_protocol(name)
            if isinstance(protocol, GroundwatchError):
                results.append(protocol)
                continue
            outcome = outcomes.outcome_of(event, protocol)
            results.append(Result(publications=(self.publication_of(outcome),)))
        return results
