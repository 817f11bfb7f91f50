"""What a service answers about itself, and how a process starts and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import httpx
import pytest
from tests.runtime.conftest import response

from groundwatch.errors import UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.run import problems_of, running, until_told_to_stop
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import telemetry_server


@pytest.fixture
async def server():
    """A telemetry server with problems to be told."""
    problems: list[str] = []
    metrics = Metrics()
    made = telemetry_server(metrics, lambda: problems, host="127.0.0.1", port=0)
    await made.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{made.port}") as http:
        yield http, problems, metrics
    await made.stop(1)


async def test_health_readiness_metrics(server) -> None:
    http, problems, metrics = server
    assert (await http.get("/healthz")).text == "ok\n"
    ready = await http.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "problems": []})
    problems.append("extraction: consumer extraction: gone")
    ready = await http.get("/readyz")
    assert ready.status_code == 503
    assert ready.json()["problems"] == problems
    problems += ["judge: away"] * 20
    assert (await http.get("/readyz")).json()["problems"] == [problems[0], "judge: away (20 times)"]
    # Restarting would not mend it, so the process counts as alive.
    assert (await http.get("/healthz")).status_code == 200
    metrics.response(response("r"))
    page = await http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'groundwatch_responses_total{model="heron-7b",tenant="default"} 1.0' in page.text
    assert "process_resident_memory_bytes" in page.text


async def test_a_taken_port_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}.*another port"):
            await telemetry_server(Metrics(), list, host="127.0.0.1", port=port).start()


async def test_a_host_that_is_not_ours_is_told() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1:0"):
        await telemetry_server(Metrics(), list, host="192.0.2.1", port=0).start()


class Recorded:
    """A service that writes down what happens to it."""

    def __init__(self, name: str, log: list[str], *, broken: str = "") -> None:
        self.name = name
        self._log = log
        self._broken = broken

    async def start(self) -> None:
        self._log.append(f"start {self.name}")
        if self._broken == "start":
            raise UsageError("cannot start")

    async def drain(self, patience: float) -> None:
        self._log.append(f"drain {self.name}")
        if self._broken == "drain":
            raise RuntimeError("cannot drain")

    def problems(self) -> list[str]:
        return [f"{self.name}: broken"] if self._broken else []


async def test_services_are_drained_and_then_disconnected(bus_factory) -> None:
    log: list[str] = []
    bus: Bus = await bus_factory("run")
    async with running([Recorded("a", log), Recorded("b", log)], bus):
        log.append("work")
    assert log == ["start a", "start b", "work", "drain a", "drain b"]
    assert not bus.connected


async def test_one_that_does_not_start_stops_those_that_did(bus_factory) -> None:
    log: list[str] = []
    bus: Bus = await bus_factory("run")
    with pytest.raises(UsageError, match="cannot start"):
        async with running([Recorded("a", log), Recorded("b", log, broken="start")], bus):
            log.append("work")
    assert log == ["start a", "start b", "drain a"]
    assert not bus.connected


async def test_one_that_does_not_drain_does_not_keep_others_from_it(bus_factory) -> None:
    log: list[str] = []
    bus: Bus = await bus_factory("run")
    async with running([Recorded("a", log, broken="drain"), Recorded("b", log)], bus):
        pass
    assert log == ["start a", "start b", "drain a", "drain b"]
    assert not bus.connected


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
async def test_a_signal_ends_the_waiting(number: int) -> None:
    waiting = asyncio.create_task(until_told_to_stop())
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), number)
    await asyncio.wait_for(waiting, 2)


def test_problems_of_all() -> None:
    services = [Recorded("a", []), Recorded("b", [], broken="x"), Recorded("c", [], broken="x")]
    assert problems_of(services) == ["b: broken", "c: broken"]
