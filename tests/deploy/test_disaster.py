"""What docs/disaster.md says is done: a mirror over a leaf node, and a copy of a stopped server's store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import nats
import nats.errors
import pytest
from nats.js.api import StreamConfig

from groundwatch.demo.shared import settled
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.local.servers import find_binary
from groundwatch.runtime.settings import ExtractionSettings, NatsSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.system.up import whole_system

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "disaster.md"
RESPONSES = 40
NOOP = ExtractionSettings(engine="noop")
LEXICAL = StageSettings(engine="lexical")


def blocks(kind: str) -> list[str]:
    """The page's examples of this language."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def server(*arguments: str) -> Iterator[None]:
    child = subprocess.Popen(
        [find_binary(), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        child.terminate()
        child.wait(30)


async def connected(port: int) -> nats.NATS:
    for _ in range(200):
        with contextlib.suppress(OSError, nats.errors.Error):
            return await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
        await asyncio.sleep(0.05)
    raise AssertionError(f"no NATS at port {port}")


@pytest.fixture
def regions(tmp_path: Path) -> dict[str, tuple[Path, int]]:
    """The page's two configurations, with ports that are free and folders of the test's own."""
    ports = {"4222": free_port(), "4223": free_port(), "7422": free_port()}
    found = {}
    for name, port, text in zip(("hub", "leaf"), ("4222", "4223"), blocks("conf"), strict=True):
        for told, taken in ports.items():
            text = text.replace(f"127.0.0.1:{told}", f"127.0.0.1:{taken}")
        path = tmp_path / f"{name}.conf"
        path.write_text(text.replace("/data/", f"{tmp_path}/"))
        found[name] = (path, ports[port])
    return found


async def judge(port: int, folder: Path) -> None:
    """Responses with their outcomes, on the server at this port."""
    settings = Settings(
        nats=NatsSettings(url=f"nats://127.0.0.1:{port}"),
        gateway=GatewaySettings(port=0),
        extraction=NOOP,
        verification=NOOP,
        matching=LEXICAL,
    )
    lines = [json.dumps({"id": f"r{n}", "model": "m", "answer": "A red ball."}) for n in range(RESPONSES)]
    async with whole_system(settings, folder) as system:
        async with httpx.AsyncClient(base_url=system.gateway_url, timeout=60) as http:
            kind = {"content-type": "application/x-ndjson"}
            sent = await http.post("/v1/responses", content="\n".join(lines), headers=kind)
            assert sent.json()["accepted"] == RESPONSES
        await settled(system)


async def test_a_mirror_survives_its_region_and_a_copy_is_a_backup(
    regions: dict[str, tuple[Path, int]], tmp_path: Path
) -> None:
    (mirror,) = (json.loads(text) for text in blocks("json"))
    (hub, hub_port), (leaf, leaf_port) = regions["hub"], regions["leaf"]
    with server("-c", str(hub)):
        with server("-c", str(leaf)):
            await (await connected(leaf_port)).close()
            await judge(leaf_port, tmp_path / "work")
            client = await connected(hub_port)
            js = client.jetstream()
            await js.add_stream(StreamConfig.from_response(mirror))
            for _ in range(400):
                copied = (await js.stream_info(mirror["name"])).state.messages
                if copied == RESPONSES:
                    break
                await asyncio.sleep(0.05)
            assert copied == RESPONSES
        assert (await js.get_msg(mirror["name"], seq=1)).subject.startswith("gw.outcome.live.")
        await client.close()
    shutil.copytree(tmp_path / "oslo", tmp_path / "backup")
    shutil.rmtree(tmp_path / "oslo")
    port = free_port()
    with server("-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path / "backup")):
        await (await connected(port)).close()
        bus = Bus(NatsSettings(url=f"nats://127.0.0.1:{port}"), name="audit")
        await bus.connect()
        ledger = await audit(bus.js, "live")
        waiting = (await bus.js.consumer_info("GW_RESPONSES", "extraction")).num_pending
        await bus.close()
    assert ledger.balanced
    assert (ledger.recorded, ledger.scored + ledger.unscored, waiting) == (RESPONSES, RESPONSES, 0)
