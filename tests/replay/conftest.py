"""Replays over a real server: recorded responses, judged by rules that any test can follow."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from groundwatch.events import Reference, ResponseRecorded, ResponseScored
from groundwatch.replay.running import begin
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import Replayer
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, wait_acks
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import ExtractionSettings, RetrySettings, Settings, StageSettings
from groundwatch.topology import HEADER_PROTOCOLS, OUTCOMES, subject_of

NOW = time.time()


def response(name: str, **changes: Any) -> ResponseRecorded:
    """A recorded response whose reference decides its facts: the ball is not blue."""
    return ResponseRecorded(
        **{
            "id": name,
            "model": "heron-7b",
            "answer": "A dog sits beside a blue ball.",
            "reference": Reference(
                objects=("dog", "ball"),
                triplets=(("ball", "is", "red"), ("dog", "beside", "ball")),
                complete=True,
            ),
            "protocols": ("faithscore",),
            "recorded_at": NOW,
        }
        | changes
    )


async def record(bus: Bus, *responses: ResponseRecorded, run: str = "live") -> None:
    """What the gateway does with them."""
    receipts = [
        await bus.start_create(
            Outgoing(
                subject=subject_of("recorded", run, one.key),
                payload=ENCODER.encode(one),
                message_id=f"{run}-{one.key}",
                headers={HEADER_PROTOCOLS: ",".join(one.protocols)},
            )
        )
        for one in responses
    ]
    await wait_acks(receipts)
    for receipt in receipts:
        receipt.result()


def settings_of(bus: Bus, *, extraction: str = "noop", verification: str = "noop") -> Settings:
    """Judges by name; faults that pass are tried again at once."""
    return Settings(
        extraction=ExtractionSettings(engine=extraction),
        verification=StageSettings(engine=verification),
        retry=RetrySettings(attempts=3, first_delay=0.01, max_delay=0.02),
        nats=bus._settings,
    )


async def outcomes(bus: Bus, run: str) -> dict[str, ResponseScored]:
    """A run's outcomes by id and protocol; two for one are an error."""
    import msgspec

    found: dict[str, ResponseScored] = {}
    async for message in read_stream(bus.js, OUTCOMES, subjects=(f"gw.outcome.{run}.>",)):
        outcome = msgspec.json.decode(message.data, type=ResponseScored)
        name = f"{outcome.id} {outcome.protocol}"
        assert name not in found, name
        assert outcome.run == run
        found[name] = outcome
    return found


class Replays:
    """Begins and works at replays."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def begin(self, name: str, settings: Settings | None = None, **spec: Any) -> Run:
        """A run that nobody works at yet."""
        settings = settings or settings_of(self.bus)
        wanted = Spec(**({"run": name} | spec))
        return await begin(self.bus, settings, wanted)

    async def replayer(self, run: Run, settings: Settings | None = None, **options: Any) -> Replayer:
        """Somebody who can work at it."""
        runs = await Runs.open(self.bus.js)
        return Replayer(self.bus, runs, settings or settings_of(self.bus), run, **options)

    async def done(self, name: str, settings: Settings | None = None, **spec: Any) -> Run:
        """A run, worked at until it is over."""
        run = await self.begin(name, settings, **spec)
        return await (await self.replayer(run, settings)).work()


Recording = Callable[..., Awaitable[None]]


@pytest.fixture
async def replays(bus: Bus, clean_streams: None) -> AsyncIterator[Replays]:
    """Replays on a server without any event."""
    yield Replays(bus)
