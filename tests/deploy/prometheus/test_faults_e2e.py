"""The real Prometheus and Alertmanager while the real things break, one after the other.

The rules are the shipped ones with the times of the alerts about the pipeline divided by `SCALE`. One system
in this process, with a NATS server, a judge, a receiver and an archive of its own; each fault is waited for
by the state of its alert, and, where it can be mended, until the alert is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
import trustme
from nats.js.api import StorageType, StreamConfig
from tests.deploy.prometheus.test_alerts_e2e import Webhook, monitoring
from tests.support.llm_server import LlmServer
from tests.support.receivers import HttpTarget, listening

from groundwatch.gateway.live import gauges
from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import ArchiveSettings, ExtractionSettings, NatsSettings, Settings
from groundwatch.runtime.settings.gateway import GatewaySettings, GrpcSettings
from groundwatch.runtime.settings.outflow import OutflowSettings, ReceiverSettings
from groundwatch.system.up import whole_system

SCALE = 120
WHERE = {"cluster": "east", "namespace": "watch"}
LONGEST = 90.0
"""Seconds until an alert must have come or gone, where nobody else works at most ten."""

STORE = 8 * 1024 * 1024
MAX_PENDING = 8 * 1024 * 1024

FAULTS = (
    "GroundwatchArchiveCannotWrite",
    "GroundwatchAuditOverdue",
    "GroundwatchCertificateEnds",
    "GroundwatchJudgeAway",
    "GroundwatchNatsAway",
    "GroundwatchNatsMemoryHigh",
    "GroundwatchNatsServerAway",
    "GroundwatchNatsSlowConsumers",
    "GroundwatchNatsStorageFull",
    "GroundwatchNotScraped",
    "GroundwatchReceiverAway",
    "GroundwatchServiceNotReady",
)


class SmallServer(NatsServer):
    """A server with little room in memory, which cuts off slow readers soon."""

    def _configuration(self) -> dict[str, object]:
        return super()._configuration() | {
            "jetstream": {"store_dir": str(self.data_dir), "max_memory_store": STORE},
            "max_pending": MAX_PENDING,
            "write_deadline": "1s",
        }


class Alerts:
    """What Prometheus says is firing."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def firing(self) -> list[dict[str, str]]:
        found = (await self._http.get("/api/v1/alerts")).json()["data"]["alerts"]
        return [one["labels"] for one in found if one["state"] == "firing"]

    async def until(self, name: str, *, fires: bool = True, **labels: str) -> None:
        """Wait until such an alert fires, or none does any more."""
        deadline = time.monotonic() + LONGEST
        while True:
            found = await self.firing()
            mine = [
                one
                for one in found
                if one["alertname"] == f"Groundwatch{name}" and labels.items() <= one.items()
            ]
            if bool(mine) is fires:
                assert all(one.items() >= WHERE.items() for one in mine), mine
                return
            assert time.monotonic() < deadline, (name, fires, found)
            await asyncio.sleep(0.2)


class Sender:
    """Sends responses, each under an id of its own."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._sent = 0

    async def send(self) -> str:
        self._sent += 1
        answer = {"id": f"e2e-{self._sent}", "model": "heron-7b", "answer": f"There are {self._sent} dogs."}
        answer |= {"reference": {"objects": ["dog"], "complete": True}}
        async with httpx.AsyncClient(base_url=self._gateway, timeout=60) as http:
            reply = await http.post("/v1/responses", json=answer)
            assert reply.status_code == 202, reply.text
        return str(answer["id"])


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """Files of a certificate that ends tomorrow."""
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    issued = trustme.CA().issue_cert("localhost", not_after=tomorrow)
    files = {"tls_cert": tmp_path / "grpc.crt", "tls_key": tmp_path / "grpc.key"}
    files["tls_cert"].write_bytes(issued.cert_chain_pems[0].bytes())
    files["tls_key"].write_bytes(issued.private_key_pem.bytes())
    return {name: str(path) for name, path in files.items()}


@contextlib.contextmanager
def judge() -> Iterator[LlmServer]:
    """A judge, which the block may stop."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(LlmServer())
        server.stop = stack.close  # type: ignore[attr-defined]
        yield server


async def fill(server: NatsServer) -> None:
    """Fill the memory store, and empty it again."""
    client = await nats.connect(server.url)
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="FILLER", subjects=["filler"], storage=StorageType.MEMORY))
    for _ in range(62):
        await js.publish("filler", b"x" * (STORE // 64))
    await client.close()


async def empty(server: NatsServer) -> None:
    client = await nats.connect(server.url)
    await client.jetstream().delete_stream("FILLER")
    await client.close()


async def read_nothing(server: NatsServer) -> None:
    """Be a client that asks for much and reads nothing of it, until the server has cut it off."""
    token = server.url.removeprefix("nats://").partition("@")[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    await reader.readline()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    hello = json.dumps({"auth_token": token, "verbose": False})
    writer.write(f"CONNECT {hello}\r\nSUB slow 1\r\nPING\r\n".encode())
    await writer.drain()
    client = await nats.connect(server.url)
    for _ in range(64):
        await client.publish("slow", b"x" * 1024 * 1024)
        await client.flush()
    await client.close()
    writer.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_each_fault_has_its_alert(
    tmp_path: Path, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "LOOK_SECONDS", 0.5)
    # Go cannot do with so little: the server is above its limit from the start on.
    monkeypatch.setenv("GOMEMLIMIT", "8MiB")
    archive = tmp_path / "archive"
    receiver = HttpTarget()
    port = free_port()
    gateway = f"http://127.0.0.1:{port}"
    server = SmallServer(tmp_path / "nats", monitored=True)
    async with contextlib.AsyncExitStack() as stack:
        llm: Any = stack.enter_context(judge())
        await stack.enter_async_context(listening(receiver))
        stack.push_async_callback(server.stop)
        await server.start()
        webhook = stack.enter_context(Webhook())
        prometheus = stack.enter_context(
            monitoring(tmp_path, gateway, webhook.url, "--machines", str(SCALE), labels=WHERE)
        )
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=prometheus, timeout=30))
        alerts, sender = Alerts(http), Sender(gateway)
        settings = Settings(
            nats=NatsSettings(url=server.url, monitor_url=f"http://127.0.0.1:{server.monitor_port}"),
            gateway=GatewaySettings(port=port, grpc_port=0, grpc=GrpcSettings(**certificate)),
            extraction=ExtractionSettings(
                engine="llm", llm=ChatSettings(base_url=llm.base_url, model="ok", retries=0, patience=0.1)
            ),
            archive=ArchiveSettings(url=str(archive), flush_seconds=0.2),
            outflow=OutflowSettings(
                receivers={"collector": ReceiverSettings(kind="otlp-http", url=receiver.url, retries=0)}
            ),
        )
        async with whole_system(settings, tmp_path / "system"):
            await sender.send()
            await until(lambda: receiver.bodies)
            await until(lambda: list(archive.rglob("*.parquet")))

            # As it was set up: a certificate that ends tomorrow, little memory, no auditor.
            await alerts.until("CertificateEnds", severity="critical", certificate="gateway.grpc.tls_cert")
            await alerts.until("NatsMemoryHigh")
            await alerts.until("AuditOverdue")
            found = {one["alertname"] for one in await alerts.firing()}
            assert found <= {
                f"Groundwatch{one}" for one in ("CertificateEnds", "NatsMemoryHigh", "AuditOverdue")
            }

            await fill(server)
            await alerts.until("NatsStorageFull", severity="critical", store="memory")
            await empty(server)
            await alerts.until("NatsStorageFull", fires=False)

            await read_nothing(server)
            await alerts.until("NatsSlowConsumers")

            receiver.answers = [503]
            await sender.send()
            await alerts.until("ReceiverAway", receiver="collector")
            receiver.answers = [200]
            await alerts.until("ReceiverAway", fires=False)

            archive.rename(tmp_path / "elsewhere")
            archive.write_text("no folder")
            await sender.send()
            await alerts.until("ArchiveCannotWrite")
            await alerts.until("ServiceNotReady", service="archive")
            archive.unlink()
            (tmp_path / "elsewhere").rename(archive)
            await alerts.until("ServiceNotReady", fires=False)

            llm.stop()
            # Several, since one that fails alone may be to blame itself.
            for _ in range(ChatSettings.model_fields["breaker_failures"].default + 1):
                await sender.send()
            await alerts.until("JudgeAway", stage="extraction")

            server.kill()
            await server.wait()
            await alerts.until("NatsAway", of="all")
            await alerts.until("NatsServerAway")
            # It tells senders to come again, for which they must reach it.
            await alerts.until("GatewayNotReady", fires=False)
            await server.restart()
            for name in ("NatsAway", "NatsServerAway"):
                await alerts.until(name, fires=False)
        await alerts.until("NotScraped")
        await until(lambda: {one["alertname"] for one in webhook.firing()} >= set(FAULTS))


async def until(holds: Any) -> None:
    deadline = time.monotonic() + LONGEST
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
