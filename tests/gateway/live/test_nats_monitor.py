"""NATS' own figures, from real servers: one, a cluster, one that is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pytest
from nats.js.api import StreamConfig
from tests.runtime.conftest import eventually

from groundwatch.errors import SettingsError
from groundwatch.gateway.live import gauges
from groundwatch.gateway.live.gauges import NatsMonitor
from groundwatch.runtime.local.servers import NatsServer, find_binary, free_port
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.settings.reading import load
from groundwatch.runtime.telemetry.metrics import Metrics


class Watched:
    """A monitor and what it shows."""

    def __init__(self, *ports: int) -> None:
        self.metrics = Metrics()
        self.names = [f"127.0.0.1:{port}" for port in ports]
        addresses = ", ".join(f"http://{name}/" for name in self.names)
        self.monitor = NatsMonitor(NatsSettings(monitor_url=addresses), self.metrics)

    def value(self, name: str, at: int = 0, **labels: str) -> float | None:
        labels = {"server": self.names[at]} | labels
        return self.metrics.registry.get_sample_value(f"groundwatch_nats_{name}", labels)


@contextlib.asynccontextmanager
async def watching(*ports: int) -> AsyncIterator[Watched]:
    watched = Watched(*ports)
    try:
        yield watched
    finally:
        await watched.monitor.stop()


async def test_an_answer_without_end_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "MAX_BYTES", 100)
    server = NatsServer(tmp_path / "nats", monitored=True)
    await server.start()
    try:
        async with watching(server.monitor_port) as watched:
            await watched.monitor.look()
            assert watched.value("monitor_up") == 0
    finally:
        await server.stop()


async def test_what_a_server_stores_and_may_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMEMLIMIT", "200MiB")
    server = NatsServer(tmp_path / "nats", monitored=True)
    await server.start()
    try:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="S", subjects=["s"]))
        await js.publish("s", b"x" * 100_000)
        await client.close()
        async with watching(server.monitor_port) as watched:
            await watched.monitor.look()
            assert watched.value("monitor_up") == watched.value("jetstream_up") == 1
            stored, limit = (
                watched.value(name, store="file") for name in ("stored_bytes", "store_limit_bytes")
            )
            assert stored is not None and limit is not None
            assert 100_000 < stored < 110_000 < limit
            assert watched.value("memory_limit_bytes") == 200 * 1024 * 1024
            assert 1e6 < (watched.value("memory_bytes") or 0) < 1e9
            assert watched.value("leaderless_streams") == watched.value("replicas_behind") == 0
            assert watched.value("slow_consumers_total") == 0

            server.kill()
            await server.wait()
            await watched.monitor.look()
            assert watched.value("monitor_up") == 0
            assert watched.value("stored_bytes", store="file") is None
            assert watched.value("jetstream_up") is None

            await server.restart()
            await watched.monitor.look()
            assert watched.value("monitor_up") == 1
            assert watched.value("stored_bytes", store="file") == stored
    finally:
        await server.stop()


async def test_a_server_that_hangs_is_waited_for_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gauges, "TIMEOUT_SECONDS", 0.2)
    hanging = await asyncio.start_server(lambda reader, writer: reader.read(), "127.0.0.1", 0)
    async with hanging, watching(hanging.sockets[0].getsockname()[1]) as watched:
        async with asyncio.timeout(20):
            await watched.monitor.look()
        assert watched.value("monitor_up") == 0


async def test_what_answers_and_is_no_nats_server_is_none() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\n<html>")
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    async with server, watching(server.sockets[0].getsockname()[1]) as watched:
        await watched.monitor.look()
        assert watched.value("monitor_up") == 0


class Member:
    """One server of a cluster, as a child process."""

    def __init__(self, name: str, config: Path, url: str, monitor: int) -> None:
        self.name, self.url, self.monitor = name, url, monitor
        self._config = config
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            [find_binary(), "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Member]]:
    """Three servers of one cluster."""
    routes = [free_port() for _ in range(3)]
    members = []
    try:
        for number, route in enumerate(routes):
            name, port, monitor = f"n{number}", free_port(), free_port()
            config = tmp_path / f"{name}.conf"
            config.write_text(
                json.dumps(
                    {
                        "server_name": name,
                        "host": "127.0.0.1",
                        "port": port,
                        "http": f"127.0.0.1:{monitor}",
                        "jetstream": {"store_dir": str(tmp_path / name), "max_file_store": 1_000_000_000},
                        "cluster": {
                            "name": "c",
                            "host": "127.0.0.1",
                            "port": route,
                            "routes": [f"nats-route://127.0.0.1:{one}" for one in routes if one != route],
                        },
                    }
                )
            )
            members.append(Member(name, config, f"nats://127.0.0.1:{port}", monitor))
        yield members
    finally:
        for member in members:
            member.kill()


@pytest.mark.slow
async def test_a_cluster_without_one_and_without_two_of_its_servers(cluster: list[Member]) -> None:
    client = await nats.connect(
        [one.url for one in cluster], max_reconnect_attempts=-1, reconnect_time_wait=0.2
    )
    js = client.jetstream(timeout=5)

    async def made() -> bool:
        with contextlib.suppress(nats.errors.Error, nats.js.errors.APIError, TimeoutError):
            await js.add_stream(StreamConfig(name="S", subjects=["s"], num_replicas=3))
            return True
        return False

    async with watching(*(one.monitor for one in cluster)) as watched:

        async def shown(name: str, *servers: int) -> list[float | None]:
            await watched.monitor.look()
            return [watched.value(name, at) for at in servers]

        try:
            await eventually(made, within=60)

            async def well() -> bool:
                behind = await shown("replicas_behind", 0, 1, 2)
                return behind == [0, 0, 0] == [watched.value("leaderless_streams", at) for at in range(3)]

            await eventually(well, within=60)

            cluster[2].kill()

            async def one_is_missed() -> bool:
                # By the leader of the stream and by that of the group that assigns streams.
                return sum(filter(None, await shown("replicas_behind", 0, 1))) == 2

            await eventually(one_is_missed, within=60)
            assert watched.value("monitor_up", 2) == 0
            assert [watched.value("leaderless_streams", at) for at in (0, 1)] == [0, 0]

            cluster[1].kill()

            async def nobody_leads() -> bool:
                return (await shown("leaderless_streams", 0))[0] == 2

            await eventually(nobody_leads, within=60)

            for gone in (1, 2):
                cluster[gone].start()
            await eventually(well, within=60)
        finally:
            await client.close()


@pytest.mark.parametrize(
    "url", ["nats:8222", "http://", "http://a:123456", "http://a/varz", "http://u:p@a:8222"]
)
def test_an_address_that_is_none_is_refused_and_no_password_shown(url: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'[nats]\nmonitor_url = "{url}"\n')
    with pytest.raises(SettingsError, match=r"nats\.monitor_url") as refused:
        load(file)
    assert "u:p" not in str(refused.value)


def test_without_an_address_nobody_looks() -> None:
    assert Settings().nats.monitors == []
    assert NatsSettings(monitor_url="http://a:8222, https://[::1]:8222/").monitors == [
        "http://a:8222",
        "https://[::1]:8222",
    ]
