"""What HTTP and gRPC are translations of: everything that a call may need, made once for both."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from groundwatch.events import LIVE, ResponseRecorded, ResponseScored, response_key
from groundwatch.gateway.callers import Tokens
from groundwatch.gateway.comparing import last_event
from groundwatch.gateway.intake.intake import Intake
from groundwatch.gateway.intake.results import Recorded, Refused, bounded
from groundwatch.gateway.intake.submissions import Submission
from groundwatch.gateway.live.backlog import Backlog
from groundwatch.gateway.live.live import Live
from groundwatch.gateway.replays import Replays
from groundwatch.records import Limits
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.recording import limits
from groundwatch.runtime.settings import GatewaySettings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES, RESPONSES, outcome_subject, recorded_subject

_RECORDED = msgspec.json.Decoder(ResponseRecorded)
_SCORED = msgspec.json.Decoder(ResponseScored)


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
        return limits(self.settings.intake)

    async def record(self, read: Callable[[], Submission | Refused]) -> Recorded | Refused:
        """Record, or ask, the one response of a request, if it may be: nobody waits for a full backlog."""
        submission = self.backlog.refusal() or read()
        if isinstance(submission, Refused):
            return self.intake.refuse(submission)
        if submission.strategy is not None:
            return await self.intake.ask(submission, submission.strategy)
        ended = await self.intake.record(submission)
        if isinstance(ended, Recorded) and ended.status == "recorded":
            self.backlog.sent()
        return ended


async def look_up(bus: Bus, tenant: str, response_id: str) -> dict[str, Any] | None:
    """`response`, its `outcomes` by protocol and the protocols still `waiting`; None if not recorded.

    Raises `TransientError` when the streams cannot be read, or not in time.
    """
    key = response_key(tenant, response_id)
    async with bounded():
        read = await last_event(bus, RESPONSES, recorded_subject(LIVE, key))
        if read is None:
            return None
        response = _RECORDED.decode(read.data)
        found = await asyncio.gather(
            *(last_event(bus, OUTCOMES, outcome_subject(LIVE, name, key)) for name in response.protocols)
        )
    outcomes = {
        protocol: _SCORED.decode(outcome.data)
        for protocol, outcome in zip(response.protocols, found, strict=True)
        if outcome is not None
    }
    waiting = [protocol for protocol in response.protocols if protocol not in outcomes]
    return {"response": response, "outcomes": outcomes, "waiting": waiting}
