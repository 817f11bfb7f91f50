"""A gateway and a tenant's program, each with its own user and no more rights than that."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import nats
import pytest
from tests.runtime.conftest import eventually
from tests.support.secured import Secured, secured

from groundwatch.gateway.core import look_up
from groundwatch.gateway.service import GatewayService
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.security.users import CA_CERTIFICATE, seed_file
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import (
    COMMAND_LINE,
    GATEWAY,
    INTAKE,
    REPORT_BUCKET,
    RETRY,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Secured]:
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-serving-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder)) as started,
    ):
        yield started


async def emptied(bus: Bus, stream: str) -> None:
    async def empty() -> bool:
        return not (await bus.js.stream_info(stream)).state.messages

    await eventually(empty, within=30)


async def test_a_tenants_program_is_recorded_and_its_dead_letter_sent_again(server: Secured) -> None:
    gateway_bus = Bus(server.settings(GATEWAY), name=GATEWAY)
    operator = Bus(server.settings(COMMAND_LINE), name=COMMAND_LINE)
    await gateway_bus.connect()
    await operator.connect()
    service = GatewayService(Settings(gateway=GatewaySettings(port=0)), gateway_bus, Metrics())
    await service.start()
    program = await nats.connect(
        server.url,
        nkeys_seed=str(seed_file(server.auth, "tenant-acme")),
        tls=ssl.create_default_context(cafile=str(server.auth / CA_CERTIFICATE)),
        inbox_prefix=b"_INBOX_tenant-acme",
    )
    try:
        js = program.jetstream()
        body = {"id": "n-1", "model": "heron-7b", "answer": "A dog.", "protocols": ["chair"]}
        await js.publish("gw.intake.acme", msgspec.json.encode(body))
        await js.publish("gw.intake.acme", b"broken")
        await emptied(gateway_bus, INTAKE)
        found = await look_up(gateway_bus, "acme", "n-1")
        assert found is not None
        [letter] = [one async for one in dead_letters(operator)]
        assert (letter.stage, letter.payload) == ("gateway", b"broken")
        await send_again(operator, letter)
        await emptied(operator, RETRY)
        [again] = [one async for one in dead_letters(operator)]
        assert again.retries == 1
        assert [why for why in service.notes() if "does not let" in why] == []
        # Another one goes on from the report of this one.
        await service.drain(5)
        service = GatewayService(Settings(gateway=GatewaySettings(port=0)), gateway_bus, Metrics())
        await service.start()
        assert service.core is not None
        async with asyncio.timeout(30):
            await service.core.live._caught_up.wait()
        assert await (await gateway_bus.js.key_value(REPORT_BUCKET)).get("live")
        assert [why for why in service.notes() if "does not let" in why] == []
    finally:
        await program.close()
        await service.drain(5)
        await gateway_bus.close()
        await operator.close()
