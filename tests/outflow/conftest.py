"""Receivers of a test's own, real servers that can be told to misbehave; and a service that tells them."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.receivers import HttpTarget, listening

from groundwatch.events import (
    AlarmRaised,
    Decision,
    Judge,
    JudgedClaim,
    OutcomeKind,
    ResponseScored,
)
from groundwatch.outflow.service import OutflowService
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.settings import RetrySettings, Settings
from groundwatch.runtime.settings.outflow import OutflowSettings, ReceiverSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ALARMS, OUTCOMES, OUTFLOW, subject_of

FAST = RetrySettings(attempts=4, first_delay=0.05, max_delay=0.2)
PATIENT = RetrySettings(attempts=100, first_delay=0.05, max_delay=0.2)
TRACE = "5b8efff798038103d269b633813fc60c"
SPAN = "eee19b7ec3c1b174"
KEY = "whsec_" + base64.b64encode(b"a key of thirty-two random bytes").decode()
QUICK: dict[str, Any] = {
    "retries": 0,
    "patience": 0.0,
    "first_wait": 0.01,
    "breaker_pause": 0.1,
    "timeout": 20.0,
}


@pytest.fixture
async def http_target() -> AsyncIterator[HttpTarget]:
    target = HttpTarget()
    async with listening(target):
        yield target


@pytest.fixture
async def other_target() -> AsyncIterator[HttpTarget]:
    target = HttpTarget()
    async with listening(target):
        yield target


def outcome(name: str, **changes: Any) -> ResponseScored:
    """A scored outcome of a response that came as a span."""
    claims = (
        JudgedClaim(text="There is a dog.", category="entity", unit=0, decision=Decision.SUPPORTED),
        JudgedClaim(text="The ball is red.", category="color", unit=0, decision=Decision.REFUTED),
    )
    return ResponseScored(
        **{
            "id": name,
            "model": "heron-7b",
            "protocol": "faithscore",
            "outcome": OutcomeKind.SCORED,
            "score": 0.5,
            "claims": claims,
            "eligible": 2,
            "decided": 2,
            "judges": {"verification": Judge(engine="reference")},
            "tags": {"trace_id": TRACE, "span_id": SPAN},
            "recorded_at": 1_700_000_000.0,
            "scored_at": 1_700_000_001.5,
        }
        | changes
    )


def unscored(name: str, **changes: Any) -> ResponseScored:
    return outcome(
        name,
        **{
            "outcome": OutcomeKind.UNSCORED,
            "score": None,
            "claims": (),
            "reason": "no_reference",
            "detail": "why",
        }
        | changes,
    )


def alarm(name: str = "r", **changes: Any) -> AlarmRaised:
    return AlarmRaised(
        **{
            "model": "heron-7b",
            "protocol": "faithscore",
            "category": "color",
            "base": 0.1,
            "after": 0.4,
            "raised_at": 1_700_000_000.0,
            "raised_response": 7,
            "response_id": name,
        }
        | changes
    )


async def publish(bus: Bus, *events: ResponseScored | AlarmRaised) -> None:
    """What scoring, or the gateway, does with them."""
    for event in events:
        if isinstance(event, ResponseScored):
            await bus.create(outgoing(event))
        else:
            subject = subject_of("alarm", event.run, event.protocol, event.key)
            await bus.create(Outgoing(subject=subject, payload=ENCODER.encode(event), expect=None))


class Told:
    """A running service, and how far it has come."""

    def __init__(self, service: OutflowService, bus: Bus, metrics: Metrics) -> None:
        self.service = service
        self.bus = bus
        self.metrics = metrics

    async def done(self, receiver: str = "it", stream: str = OUTCOMES) -> bool:
        """Whether everything in the stream has been answered for."""
        info = await self.bus.js.consumer_info(stream, f"{OUTFLOW}-to-{receiver}")
        last = (await self.bus.js.stream_info(stream)).state.last_seq
        return info.ack_floor is not None and info.ack_floor.stream_seq >= last

    async def alarms_done(self) -> bool:
        return await self.done(stream=ALARMS)

    def count(self, result: str, receiver: str = "it") -> float:
        labels = {"receiver": receiver, "result": result}
        return self.metrics.registry.get_sample_value("groundwatch_receiver_events_total", labels) or 0.0

    def away(self, receiver: str = "it") -> float:
        labels = {"receiver": receiver}
        return self.metrics.registry.get_sample_value("groundwatch_receiver_away_seconds", labels) or 0.0


Start = Callable[..., Awaitable[Told]]


@pytest.fixture
async def outflow(bus_factory: Any, clean_streams: None) -> AsyncIterator[Start]:
    """Starts a service: `await outflow(it={"kind": …, "url": …})`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(retry: RetrySettings = PATIENT, **receivers: dict[str, Any]) -> Told:
            bus = await bus_factory("outflow")
            settings = Settings(
                retry=retry,
                outflow=OutflowSettings(
                    receivers={name: ReceiverSettings(**QUICK | one) for name, one in receivers.items()}
                ),
            )
            metrics = Metrics()
            service = OutflowService(settings, bus, metrics)
            await service.start()
            stack.push_async_callback(service.drain, 1)
            return Told(service, bus, metrics)

        yield start
