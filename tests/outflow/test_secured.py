"""The outflow as the NATS user that it is in a cluster: nothing that it needs is refused."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.outflow.conftest import FAST, KEY, QUICK, alarm, outcome, publish
from tests.runtime.conftest import eventually
from tests.support.receivers import HttpTarget, listening
from tests.support.secured import Secured, secured

from groundwatch.outflow.service import OutflowService
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.outflow import OutflowSettings, ReceiverSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import COMMAND_LINE, GATEWAY, OUTFLOW


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids="in-{}".format)
def server(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-outflow-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder), request.param) as started,
    ):
        yield started


async def test_outflow_has_the_rights_that_it_needs(server: Secured, monkeypatch) -> None:
    monkeypatch.setenv("HOOK", KEY)
    target = HttpTarget()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(listening(target))

        async def connected(user: str) -> Bus:
            bus = Bus(server.settings(user), name=user)
            await bus.connect()
            stack.push_async_callback(bus.close)
            return bus

        bus, scoring, gateway, cli = [
            await connected(user) for user in (OUTFLOW, "scoring", GATEWAY, COMMAND_LINE)
        ]
        receivers = {
            "collector": ReceiverSettings(**QUICK, kind="phoenix", url=target.url),
            "hook": ReceiverSettings(**QUICK, kind="webhook", url=target.url, secret_env="HOOK"),
        }
        settings = Settings(
            nats=server.settings(OUTFLOW), retry=FAST, outflow=OutflowSettings(receivers=receivers)
        )
        service = OutflowService(settings, bus, Metrics())
        await service.start()
        stack.push_async_callback(service.drain, 5)
        target.answers = [lambda body: 400 if b"bad-one" in body else 500 if b"poison" in body else 200]
        last = server.partitions - 1
        await publish(
            scoring, outcome("good", partition=last), outcome("bad-one"), outcome("poison", partition=last)
        )
        await publish(gateway, alarm("r"))
        await eventually(lambda: len(target.bodies) == 2, within=30)

        async def buried() -> int:
            return len([one async for one in dead_letters(cli)])

        async def both() -> bool:
            return await buried() == 2

        await eventually(both, within=30)
        target.answers = [200]
        for letter in [one async for one in dead_letters(cli)]:
            await send_again(cli, letter)
        await eventually(lambda: len(target.bodies) == 4, within=30)
        assert service.problems() == [] and bus.problems() == []
        log = (server.auth.parent / "nats.log").read_text()
        assert "Violation" not in log, log[-2000:]
