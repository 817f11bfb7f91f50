"""NATS goes away while something starts, or while it closes."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any, cast

import nats.errors
import pytest
import structlog
from tests.runtime.conftest import eventually

from groundwatch.errors import TransientError
from groundwatch.events import ResponseRecorded
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.services import run
from groundwatch.runtime.services.run import running
from groundwatch.runtime.services.service import Service, StageService
from groundwatch.runtime.settings import NatsSettings, Settings, StageSettings
from groundwatch.runtime.telemetry.logs import Outage
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system import services as serve


class SlowEngine:
    """Loads until it is let go."""

    batch = 1

    def __init__(self) -> None:
        self.loading, self.loaded = asyncio.Event(), asyncio.Event()

    async def warm_up(self) -> None:
        self.loading.set()
        await self.loaded.wait()

    async def close(self) -> None: ...


async def nothing(works: Any) -> list[Any]:
    raise AssertionError("nothing was sent")


async def bus_of(server: NatsServer) -> Bus:
    bus = Bus(NatsSettings(url=server.url, publish_timeout=0.5), name="scoring")
    await bus.connect()
    await provision(bus.js)
    return bus


async def test_nats_goes_away_while_an_engine_loads(own_server: NatsServer) -> None:
    bus, engine = await bus_of(own_server), SlowEngine()
    service = StageService("scoring", Settings(), bus, Metrics())
    service.consume(ResponseRecorded, nothing, StageSettings(concurrency=2), engine)
    starting = asyncio.create_task(service.start())
    await engine.loading.wait()
    own_server.kill()
    await own_server.wait()
    engine.loaded.set()
    await starting
    assert "scoring: not connected to NATS" in service.problems()
    await own_server.restart()
    await eventually(lambda: not service.problems())
    await service.drain(1.0)
    await bus.close()


class Faulty:
    """A service that cannot start."""

    name = "scoring"

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    async def start(self) -> None:
        if self.error is None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        else:
            raise self.error

    async def drain(self, patience: float) -> None: ...

    def problems(self) -> list[str]:
        return []


@pytest.mark.parametrize("error", (nats.errors.TimeoutError(), nats.errors.ConnectionClosedError()))
async def test_a_service_that_cannot_start_is_one_line(bus: Bus, error: Exception) -> None:
    with pytest.raises(TransientError, match="scoring cannot start, NATS is away"):
        async with running([Faulty(error)], bus):
            pass


@pytest.mark.usefixtures("clean_streams")
@pytest.mark.parametrize("failures", (0, 2))
async def test_serve_begins_again_and_ends_when_told_while_it_starts(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """The last one never comes up, and SIGTERM comes while it tries."""
    faults: list[Exception | None] = [nats.errors.TimeoutError() for _ in range(failures)]
    faults.append(None)
    monkeypatch.setattr(serve, "make_service", lambda *_: Faulty(faults.pop(0)))
    settings = Settings(nats=NatsSettings(url=nats_server.url))
    async with asyncio.timeout(30):
        await serve.serve("scoring", settings, 10.0)
    assert not faults


@pytest.mark.parametrize("error", (ConnectionResetError(), asyncio.CancelledError(), AttributeError("x")))
async def test_a_connection_that_dies_while_it_closes(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    bus = Bus(NatsSettings(url=nats_server.url), name="test")
    await bus.connect()
    stop = bus.broker.stop

    async def dying() -> None:
        await stop()
        raise error

    monkeypatch.setattr(bus.broker, "stop", dying)
    await bus.close()
    assert not bus.connected


async def test_who_is_cancelled_while_it_closes_is_cancelled(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = Bus(NatsSettings(url=nats_server.url), name="test")
    await bus.connect()
    monkeypatch.setattr(bus.broker, "stop", asyncio.Event().wait)
    closing = asyncio.create_task(bus.close())
    await asyncio.sleep(0.05)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not bus.connected


async def test_what_stays_wrong_after_nats_is_back_is_told_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line fell into the outage, and was left out."""
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.01)
    outage, problems = Outage(), list[str]()
    bus = SimpleNamespace(reconnects=0, outage=outage)
    one = SimpleNamespace(name="scoring", problems=lambda: problems, notes=lambda: ["known before"])
    task = asyncio.create_task(run.tell_what_stays([cast(Service, one)], cast(Bus, bus)))
    try:
        with structlog.testing.capture_logs() as lines:
            await asyncio.sleep(0.05)
            outage.begin()
            problems.append("scoring: no stream")
            bus.reconnects += 1
            await asyncio.sleep(0.05)
            assert lines == []
            outage.end(0.0)
            await eventually(lambda: bool(lines), within=5)
            await asyncio.sleep(0.05)
        assert [(line["event"], line["problem"]) for line in lines] == [
            ("service.still_wrong", "scoring: no stream")
        ]
    finally:
        task.cancel()
