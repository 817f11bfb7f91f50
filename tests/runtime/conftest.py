"""Stages of a test's own: a consumer with little patience, a handler, and what became of it all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from groundwatch.events import OutcomeKind, ResponseRecorded
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, Stored
from groundwatch.runtime.delivery.provisioning import consumer_config
from groundwatch.runtime.delivery.stage import Stage
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.settings import RetrySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import HEADER_PROTOCOLS, RESPONSES, ConsumerSpec, subject_of

FAST = RetrySettings(attempts=4, first_delay=0.05, max_delay=0.2)


async def eventually(holds: Callable[[], Any], *, within: float = 60.0) -> None:
    """Wait until it holds; a coroutine function is awaited."""
    deadline = time.monotonic() + within
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"still {found!r} after {within} s"
        await asyncio.sleep(0.02)


def response(name: str, **changes: Any) -> ResponseRecorded:
    """A recorded response."""
    return ResponseRecorded(
        **{
            "id": name,
            "model": "heron-7b",
            "answer": "A dog.",
            "protocols": ("faithscore",),
            "recorded_at": time.time(),
        }
        | changes
    )


async def record(bus: Bus, event: ResponseRecorded, *, payload: bytes | None = None) -> None:
    """What the gateway does with it; `payload` puts other bytes in its place."""
    await bus.create(
        Outgoing(
            subject=subject_of("recorded", event.run, event.key),
            payload=ENCODER.encode(event) if payload is None else payload,
            message_id=f"{event.run}-{event.key}",
            headers={HEADER_PROTOCOLS: ",".join(event.protocols)},
        )
    )


def done(work: Work[ResponseRecorded]) -> Result:
    """The response's outcome, as scored 1."""
    event = work.event
    publications = []
    for protocol in event.protocols:
        outcome = msgspec.structs.replace(
            outcomes.without_score(event, protocol, OutcomeKind.SCORED, ""), score=1.0
        )
        publications.append(outcomes.outgoing(outcome))
    return Result(publications=tuple(publications))


class Running:
    """A started stage over the recorded responses."""

    def __init__(self, stage: Stage[Any], bus: Bus, metrics: Metrics, spec: ConsumerSpec) -> None:
        self.stage = stage
        self.bus = bus
        self.metrics = metrics
        self.spec = spec

    async def held(self) -> int:
        """Messages given out and not acknowledged."""
        return int((await self.bus.js.consumer_info(self.spec.stream, self.spec.name)).num_ack_pending or 0)

    async def pending(self) -> int:
        """Messages not given out."""
        return int((await self.bus.js.consumer_info(self.spec.stream, self.spec.name)).num_pending or 0)

    async def settled(self) -> bool:
        """Whether everything there is has been acknowledged.

        By position as well: the server tells a consumer of a new message after it has acknowledged that
        message to its sender, so that for a moment nothing is pending.
        """
        last = (await self.bus.js.get_last_msg(self.spec.stream, self.spec.filters[0])).seq or 0
        info = await self.bus.js.consumer_info(self.spec.stream, self.spec.name)
        return info.delivered.stream_seq >= last and not info.num_ack_pending and not info.num_pending

    def count(self, name: str, **labels: str) -> float:
        """A metric's value, 0 when it was never counted."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


StageFactory = Callable[..., Awaitable[Running]]


@pytest.fixture
async def stage_factory(bus_factory, clean_streams) -> AsyncIterator[StageFactory]:
    """Starts stages: `await stage_factory(handler, batch=…, concurrency=…, ack_wait=…)`."""
    names = (f"test-{number}" for number in itertools.count())
    async with contextlib.AsyncExitStack() as stack:

        async def make(
            handler: Any,
            *,
            batch: int = 10,
            concurrency: int = 1,
            retries: RetrySettings = FAST,
            name: str = "",
            bus: Bus | None = None,
            start: bool = True,
            timeout: float = 60.0,
            judges: int = 1,
            event: Any = ResponseRecorded,
            **consumer: Any,
        ) -> Running:
            bus = bus or await bus_factory("stage")
            spec = ConsumerSpec(
                name=name or next(names),
                stream=RESPONSES,
                filters=("gw.recorded.live.>",),
                description="",
                **consumer,
            )
            await bus.js.add_consumer(RESPONSES, consumer_config(spec, 1))
            metrics = Metrics()
            stage: Stage[Any] = Stage(
                name="extraction",
                consumer=spec,
                event=event,
                handler=handler,
                bus=bus,
                metrics=metrics,
                retries=retries,
                batch=batch,
                concurrency=concurrency,
                timeout=timeout,
                judges=AwayJudges("extraction", metrics, number=judges),
            )
            if start:
                await stage.start()
                stack.push_async_callback(stage.drain, 0.05)
            return Running(stage, bus, metrics, spec)

        yield make


@pytest.fixture
def stored() -> Iterator[type[Stored]]:
    """What a creation can lead to."""
    yield Stored
