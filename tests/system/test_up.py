"""The whole system on one machine: room on the disk, when it is ready, and what is told while models load."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support import llm_server
from tests.support.command_line import CommandLine

from groundwatch.cli.output import loading_shown
from groundwatch.errors import UsageError
from groundwatch.events import LIVE, Decision
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.local.triton_server import LoadProgress
from groundwatch.runtime.settings import CacheSettings, NatsSettings, Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.settings.reading import with_endpoint
from groundwatch.system.connecting import ADDRESS_FILE
from groundwatch.system.up import little_room, named_models, whole_system
from groundwatch.terminal import Console


def progress(model: str, loaded: bool, done: int) -> LoadProgress:
    return LoadProgress(model=model, loaded=loaded, done=done, total=2, seconds=3.2)


@pytest.mark.parametrize("terminal", (False, True))
def test_loading_is_told_model_by_model(terminal: bool) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=120)
    with loading_shown(console, "starting Triton with a, b;") as tell:
        tell(progress("a", False, 0))
        tell(progress("b[/x]", False, 0))
        if terminal:
            console.print("")  # Draws the line anew.
        tell(progress("a", True, 1))
        tell(progress("b[/x]", True, 2))
    said = shown.getvalue()
    if terminal:
        assert "starting Triton with a, b;" in said
        return
    assert said.splitlines() == [
        "starting Triton with a, b;",
        "loading a…",
        "loading b[/x]…",
        "loaded a (1 of 2 models loaded after 3 s)",
        "loaded b[/x] (2 of 2 models loaded after 3 s)",
    ]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, small, that can be made smaller."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(place)), capture_output=True
    )
    if mounting.returncode:
        pytest.skip(f"needs the right to mount: {mounting.stderr.decode().strip()}")
    yield place
    subprocess.run(("umount", "--lazy", str(place)), check=True)


HERE = Settings(gateway=GatewaySettings(port=0))


async def test_little_room_is_enough_to_start(disk: Path) -> None:
    assert "GB free" in little_room(HERE, disk)
    for _ in range(2):
        async with whole_system(HERE, disk) as system:
            # What is stored takes from what is free, and not from what the streams may hold.
            await system.bus.js.publish("gw.recorded.live.x", bytes(1024))
        (disk / "ballast").write_bytes(bytes(100 * 1024 * 1024))


def test_too_little_room_is_one_line_that_says_what_is_needed(disk: Path) -> None:
    (disk / "ballast").write_bytes(bytes(350 * 1024 * 1024))
    done = CommandLine(disk, apart=True)("up", "--folder", disk / "data", "--port", 0)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "needed to start" in line]
    assert len(said) == 1 and f"{disk / 'data'} has" in said[0] and "67 MB are needed" in said[0]
    assert "Traceback" not in done.stderr


async def test_limits_that_do_not_fit_are_one_line(own_server: NatsServer) -> None:
    """A server of somebody else's, with less room than the streams are to have."""
    bus = Bus(NatsSettings(url=own_server.url), name="provision")
    await bus.connect()
    try:
        with pytest.raises(UsageError, match=r"no room for bucket gw-cache, .* larger store"):
            await provision(bus.js, cache=CacheSettings(max_bytes=10**16))
    finally:
        await bus.close()


async def test_it_is_ready_when_other_commands_find_it(tmp_path: Path) -> None:
    address, port = tmp_path / ADDRESS_FILE, free_port()
    settings = Settings(gateway=GatewaySettings(port=port))
    seen: list[tuple[int, bool]] = []

    async def look() -> None:
        async with httpx.AsyncClient() as http:
            while not seen or seen[-1][0] != 200:
                before = address.exists()
                with contextlib.suppress(httpx.TransportError):
                    status = (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code
                    seen.append((status, address.exists() if status == 200 else before))
                await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    async with whole_system(settings, tmp_path):
        await asyncio.wait_for(looking, 60)
    assert seen[-1] == (200, True)
    assert not address.exists()


async def test_one_endpoint_reads_and_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `up --judge URL --judge-model NAME` has it: its model takes answers apart, and looks at images."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with llm_server.running() as server:
        settings = with_endpoint(HERE, server.base_url, "ok")
        async with whole_system(settings, tmp_path) as system, httpx.AsyncClient() as http:
            picture = base64.b64encode(llm_server.picture("a red ball")).decode()
            answer = {
                "id": "1",
                "model": "m",
                "answer": "A red ball. A dog.",
                "images": [f"data:image/png;base64,{picture}"],
            }
            reply = await http.post(f"{system.gateway_url}/v1/responses", json=answer, timeout=30)
            assert reply.status_code in (200, 202), reply.text
            async with asyncio.timeout(60):
                outcome = await anext(read_outcomes(system.bus, LIVE, follow=True))
    assert server.requests and {request["model"] for request in server.requests} == {"ok"}
    assert outcome.judges["verification"].engine == "visual"
    assert all(claim.probability is not None for claim in outcome.claims)
    decisions = {claim.text: claim.decision for claim in outcome.claims}
    assert decisions["There is a ball."] is Decision.SUPPORTED
    assert decisions["There is a dog."] is Decision.REFUTED


@pytest.mark.parametrize(
    ("typed", "missing"), [("--judge", "--judge-model"), ("--judge-model", "--judge URL")]
)
def test_a_judge_needs_an_address_and_a_model(tmp_path: Path, typed: str, missing: str) -> None:
    done = CommandLine(tmp_path)("up", typed, "http://127.0.0.1:1/v1")
    assert done.returncode == 2
    assert missing in done.stderr


def test_a_folder_of_ones_own_goes_before_a_preset_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_models("small")
    (tmp_path / "small").mkdir()
    with pytest.raises(UsageError, match="no models at small: "):
        named_models("small")


def test_models_of_the_hub_need_the_hub(tmp_path: Path) -> None:
    done = CommandLine(tmp_path, apart=True)(
        "up", "--models", "small", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path)
    )
    assert done.returncode == 2
    (wrong,) = [line for line in done.stderr.splitlines() if line.startswith("groundwatch: ")]
    assert "Qwen/Qwen3-VL-2B-Instruct is not in the hub's cache here" in wrong
    assert "about 7 GB, Apache-2.0" in done.stderr
