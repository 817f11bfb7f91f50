"""What HTTP and gRPC are translations of: everything that a call may need, made once for both."""

from collections.abc import Callable
from dataclasses import dataclass

from groundwatch.gateway.auth.callers import Tokens
from groundwatch.gateway.intake.intake import Intake
from groundwatch.gateway.intake.parsing import Submission, limits
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.gateway.live.backlog import Backlog
from groundwatch.gateway.live.live import Live
from groundwatch.gateway.replays import Replays
from groundwatch.records import Limits
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import GatewaySettings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class GatewayCore:
    """The gateway without its servers. `problems` are why responses are not taken, or would not be judged."""

    settings: GatewaySettings
    bus: Bus
    metrics: Metrics
    store: ImageStore
    intake: Intake
    backlog: Backlog
    live: Live
    tokens: Tokens
    replays: Replays | None
    problems: Callable[[], list[str]]

    @property
    def bounds(self) -> Limits:
        """What one response may hold."""
        return limits(self.settings.intake)

    async def record(self, read: Callable[[], Submission | Refused]) -> Recorded | Refused:
        """Record the one response of a request, if it may be: nobody waits for a full backlog."""
        submission = self.backlog.refusal() or read()
        if isinstance(submission, Refused):
            return self.intake.refuse(submission)
        ended = await self.intake.record(submission.response, submission.images, sender=submission.sender)
        if isinstance(ended, Recorded) and ended.status == "recorded":
            self.backlog.sent()
        return ended
