"""Commands on the data of an `up` or a demo that is over, and the folder in which a demo keeps its own."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.support.command_line import CommandLine

from groundwatch.addresses import shown_address
from groundwatch.cli.messages import place_of, program
from groundwatch.demo.shared import MARK, kept
from groundwatch.errors import UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, Settings
from groundwatch.system.connecting import connected
from groundwatch.topology import OUTCOMES

PAYLOAD = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an `up` leaves that nobody sent anything."""
    folder = tmp_path_factory.mktemp("data")

    async def make() -> None:
        server = NatsServer(folder / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="test")
        await bus.connect()
        await provision(bus.js)
        await bus.close()
        await server.stop()

    asyncio.run(make())
    return folder


def servers(folder: Path) -> list[int]:
    """Ids of the NATS servers that have their data there."""
    found = []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "nats-server":
            try:
                opened = [file.path for file in process.open_files()]
            except psutil.Error:
                continue
            if any(path.startswith(str(folder)) for path in opened):
                found.append(process.pid)
    return found


def test_what_is_over_is_opened_for_one_command(nobody, data):
    ledger = nobody.json("audit", "--folder", data)
    assert (ledger["recorded"], ledger["balanced"]) == (0, True)
    assert nobody.json("replay", "list", "--folder", data) == {"runs": []}
    assert servers(data) == []


def test_a_running_one_is_found(up, written, answer):
    assert up.json("audit", "--folder", up.folder)["run"] == "live"
    sent = written(answer("by-folder"))
    assert up.json("submit", sent, "--folder", up.folder)["accepted"] == 1
    assert "models" in up.json("report", "--folder", up.folder)


def test_what_cannot_be_opened_is_one_line(nobody, data, tmp_path):
    none = tmp_path / "none"
    told = nobody.complaint("compare", "live", "x", "--folder", none)
    assert told.startswith(f"{none}: there is no such folder; groundwatch demo")
    assert "holds no streams" in nobody.complaint("report", "--folder", tmp_path)
    assert "do not go together" in nobody.complaint("audit", "--folder", data, "--nats", "nats://x:1")
    assert "no run 'x'; there are: none yet" in nobody.complaint("replay", "show", "x", "--folder", data)


async def test_one_that_is_in_use_is_one_line(nobody, data):
    server = NatsServer(data / "nats")
    await server.start()
    try:
        told = await asyncio.to_thread(nobody.complaint, "audit", "--folder", data)
        assert told.startswith(f"another groundwatch already uses {data}")
        with pytest.raises(UsageError, match="already uses"):
            server_of_another = NatsServer(data / "nats")
            server_of_another.clear()
    finally:
        await server.stop()
    assert (data / "nats" / "jetstream").is_dir()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left"), "[Errno 28] No space left: make room at /mnt/archive"),
        (PermissionError(errno.EACCES, "denied", "/x"), "[Errno 13] denied: '/x'"),
        (
            ConnectionResetError(errno.ECONNRESET, "reset"),
            "NATS at {}: [Errno 104] reset (ConnectionResetError)",
        ),
    ],
)
async def test_what_breaks_off_a_command_is_told_of_where_it_was(own_server, error, told):
    settings = Settings(nats=NatsSettings(url=own_server.url), archive=ArchiveSettings(url="/mnt/archive"))
    with pytest.raises(UsageError) as raised:
        async with connected(settings):
            raise error
    assert str(raised.value) == told.format(shown_address(own_server.url))


async def test_streams_of_another_version_are_one_line(nobody, data, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(data, older)
    server = NatsServer(older / "nats")
    await server.start()
    bus = Bus(NatsSettings(url=server.url), name="test")
    await bus.connect()
    await bus.js.delete_stream(OUTCOMES)
    await bus.close()
    await server.stop()
    told = await asyncio.to_thread(nobody.complaint, "audit", "--folder", older)
    assert f"groundwatch up --folder {older} brings the data up to date" in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_server_behind(data, number):
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from groundwatch.system.connecting import opened\n"
        "async def wait():\n"
        f"    async with opened(Path(sys.argv[1]), max_payload={PAYLOAD}):\n"
        "        print('open', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "from groundwatch.system.connecting import run\n"
        "run(wait())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(data)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line == "open\n":
                break
        assert len(servers(data)) == 1
        running.send_signal(number)
        assert running.wait(timeout=60) == (143 if number == signal.SIGTERM else -signal.SIGINT)
    deadline = time.monotonic() + 20
    while servers(data):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_demo_takes_the_place_of_the_one_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with kept(None, print) as place:
        assert place.stays
        (place.path / "nats" / "jetstream").mkdir()
        (place.path / "nats" / "jetstream" / "block").write_text("x")
        place.judge.write_text("x")
        assert place.size == 1
    assert (tmp_path / ".groundwatch" / "demo" / MARK).is_file()
    with kept(None, print) as place:
        assert not (place.path / "nats" / "jetstream").exists()
        assert not place.judge.exists()


def test_ctrl_c_removes_half_a_demo_but_no_folder_that_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for named in (None, tmp_path / "named"):
        with pytest.raises(KeyboardInterrupt), kept(named, print):
            raise KeyboardInterrupt
    assert [one.name for one in tmp_path.iterdir()] == ["named"]


def test_a_demo_empties_no_folder_of_others(tmp_path, data):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for folder in (mine, data):
        with pytest.raises(UsageError, match="holds something else than a demo"), kept(folder, print):
            pass
    assert (mine / "thesis.txt").read_text() == "years of work"
    assert (data / "nats" / "jetstream").is_dir()


def test_where_nothing_can_be_written_a_demo_runs_and_says_that_nothing_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".groundwatch").write_text("a file")
    with kept(None, print) as place:
        assert not place.stays
        assert place.path.is_dir()
    assert not place.path.exists()
    assert "cannot be written" in (told := capsys.readouterr().out)
    assert "nothing of this demo stays" in told
    with pytest.raises(UsageError, match="name another folder"), kept(tmp_path / ".groundwatch" / "x", print):
        pass


def test_commands_are_told_as_they_are_typed_here(tmp_path, monkeypatch):
    script = tmp_path / "v" / "bin" / "groundwatch"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["v/bin/groundwatch", "demo"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == "v/bin/groundwatch"
    monkeypatch.chdir(tmp_path / "v" / "bin")
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    assert program() == "./groundwatch"
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "groundwatch"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert program() == f"{sys.executable} -m groundwatch"
    assert place_of(Path("a b")) == " --folder 'a b'"
    assert place_of(None) == ""


def test_the_mark_is_json(tmp_path):
    with kept(tmp_path / "demo", print) as place:
        assert json.loads((place.path / MARK).read_bytes()).keys() == {"groundwatch"}


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/none/of/ours", "/proc"])
def test_up_says_in_one_line_that_a_place_cannot_be_written(tmp_path, place):
    (tmp_path / "a-file").touch()
    done = CommandLine(tmp_path)("up", "--folder", tmp_path / place)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "cannot be written" in done.stderr
    assert "--folder" in done.stderr
