"""up, serve and admin provision, and what every command does with mistakes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.nats_relay import nats_relay

from groundwatch.addresses import shown_address
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.system.services import SERVED

COMMANDS = ["audit", "report", "watch", "admin dead list", "admin provision", "up", "serve scoring"]


def test_up_says_where_it_is(up):
    assert up.gateway in up.first_line
    assert shown_address(up.nats) in up.first_line
    assert httpx.get(f"{up.gateway}/readyz").json() == {"ready": True, "problems": []}


def test_what_up_keeps_is_for_this_user_alone(up):
    token = urlsplit(up.nats).username
    assert token
    assert token not in up.first_line and token not in (up.folder / "up.log").read_text()
    assert stat.S_IMODE((up.folder / "running.json").stat().st_mode) == 0o600
    for kept in ("nats", "archive"):
        assert stat.S_IMODE((up.folder / kept).stat().st_mode) == 0o700, kept
    place = up.nats.replace(f"{token}@", "")
    told = up.complaint("report", "--nats", place)
    assert "wants to know who this is" in told and token not in told


def test_a_second_up_on_the_same_data(up):
    told = up.complaint("up", "--port", 0, "--folder", up.folder)
    assert "another groundwatch already uses" in told
    assert "--folder" in told
    assert (up.folder / "running.json").exists()
    assert up.json("audit")["balanced"] is True


def test_a_second_up_on_the_same_port(up, nobody):
    port = up.gateway.rpartition(":")[2]
    done = nobody("up", "--port", port)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_up_keeps_its_data_and_finds_its_end(tmp_path, written, answer):
    from tests.support.command_line import Up

    judges = {"GROUNDWATCH_EXTRACTION__ENGINE": "noop", "GROUNDWATCH_VERIFICATION__ENGINE": "noop"}
    first = Up(tmp_path, **judges)
    first.json("submit", written(answer("kept")))
    assert first.settled(1)["scored"] == 1
    assert first.stop() == 0
    assert not (tmp_path / "running.json").exists()
    second = Up(tmp_path, **judges)
    assert second.json("audit")["scored"] == 1
    assert second.json("submit", written(answer("kept")))["duplicates"] == 1
    told = [second.process.stdout.readline() for _ in range(2)]
    title, judged = told[1].split(maxsplit=1)
    assert title == "judges"
    assert {"faithscore noop", "tri-he noop", "vlm2 noop"} <= set(judged.strip().split(" · "))
    assert {one.split()[1] for one in judged.split(" · ")} == {"noop"}
    assert second.stop() == 0


def test_provision_changes_nothing_that_is_right(up):
    done = up.json("admin", "provision")
    assert set(done.values()) == {"unchanged"}
    assert {"GW_RESPONSES", "GW_DEAD", "extraction", "scoring-retry", "gw-images"} <= done.keys()
    assert "unchanged  stream    GW_RESPONSES" in up("admin", "provision").stdout


def test_provision_a_bare_server_then_serve(nobody, tmp_path):
    async def work() -> None:
        server = NatsServer(tmp_path / "bare")
        await server.start()
        try:
            await asyncio.to_thread(check, server.url)
        finally:
            await server.stop()

    def check(url: str) -> None:
        told = nobody.complaint("serve", "scoring", "--nats", url)
        assert "GW_RESPONSES" in told
        assert "run groundwatch admin provision first" in told
        port = free_port()
        serving = nobody.start(
            "serve", "scoring", "--nats", url, "--metrics-port", port, "--wait", 100, stderr=subprocess.PIPE
        )
        try:
            waiting = json.loads(serving.stderr.readline())
            assert waiting["event"] == "serve.waiting"
            assert waiting["reason"] == told
            assert set(nobody.json("admin", "provision", "--nats", url).values()) == {"created"}
            assert ready(port) == {"ready": True, "problems": []}
            assert "groundwatch_consumer_up" in httpx.get(f"http://127.0.0.1:{port}/metrics").text
        finally:
            serving.send_signal(signal.SIGTERM)
            _, log = serving.communicate(timeout=60)
        assert serving.returncode == 0, log
        assert all(json.loads(line)["level"] == "info" for line in log.splitlines()), log

    asyncio.run(work())


@pytest.mark.slow
def test_who_waits_for_a_server_stops_when_told(nobody):
    """In a container it is the first process, which SIGTERM does not end by itself."""
    nowhere = f"nats://127.0.0.1:{free_port()}"
    # A signal that nobody handles would end this one with -15.
    serving = nobody.start("serve", "scoring", "--nats", nowhere, "--wait", 600, stderr=subprocess.PIPE)
    assert json.loads(serving.stderr.readline())["event"] == "serve.waiting"
    serving.send_signal(signal.SIGTERM)
    _, log = serving.communicate(timeout=60)
    assert serving.returncode == 0, log
    assert json.loads(log.splitlines()[-1])["event"] == "serve.stopped"


@pytest.mark.parametrize("service", ["scoring", "gateway"])
@pytest.mark.slow
def test_one_whose_connection_is_closed_for_good_ends(nobody, tmp_path, service):
    """Whoever looks after it starts it again: over that connection nothing would ever work."""

    async def work() -> None:
        server = NatsServer(tmp_path / "nats")
        await server.start()
        try:
            await asyncio.to_thread(check, server.url)
        finally:
            await server.stop()

    def check(url: str) -> None:
        nobody.json("admin", "provision", "--nats", url)
        with nats_relay(url) as relay:
            port = free_port()
            serving = nobody.start(
                "serve", service, "--nats", relay.url, "--metrics-port", port, stderr=subprocess.PIPE
            )
            try:
                assert ready(port) == {"ready": True, "problems": []}
                relay.say(b"-ERR 'maximum control line exceeded'\r\n")
                _, log = serving.communicate(timeout=60)
            finally:
                serving.kill()
        assert serving.returncode == 1, log
        assert "Traceback" not in log
        last = log.splitlines()[-1]
        assert last.startswith("groundwatch: the connection to NATS at nats://…@127.0.0.1:"), log
        assert "maximum control line exceeded" in last

    asyncio.run(work())


def ready(port: int) -> dict:
    """What /readyz says once it says yes, or at the end of patience."""
    deadline = time.monotonic() + 60
    while True:
        try:
            reply = httpx.get(f"http://127.0.0.1:{port}/readyz")
            if reply.status_code == 200 or time.monotonic() > deadline:
                return reply.json()
        except httpx.TransportError:
            assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_unknown_stage(nobody):
    told = nobody.complaint("serve", "nonsense")
    assert told == "no service 'nonsense'; there are " + ", ".join(SERVED)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("audit --run", "x" * 4_200),
        ("audit --run", "*"),
        ("report --run", "x" * 4_200),
        ("replay show", "x" * 4_200),
        ("compare live", "x" * 4_200),
    ],
)
def test_what_can_be_no_runs_name_is_told(up, command, name):
    told = up.complaint(*command.split(), name)
    assert len(told) < 1_000


def test_serve_needs_to_know_the_server(nobody):
    assert "'nats.url'" in nobody.complaint("serve", "scoring")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_setting_is_named(nobody, tmp_path, command):
    config = tmp_path / "groundwatch.toml"
    config.write_text("[gateway]\nprot = 8787\n")
    told = nobody.complaint(*command.split(), "--config", config)
    assert told == f"{config}: setting 'gateway.prot': no such setting; did you mean gateway.port?"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("GROUNDWATCH_GATEWAY__PROT", "1", "setting 'gateway.prot': no such setting"),
        ("GROUNDWATCH_GATEWAY__PORT", "high", "setting 'gateway.port': must be a valid integer"),
        ("GROUNDWATCH_RETRY__ATTEMPTS", "0", "setting 'retry.attempts': must be at least 1"),
        (
            "GROUNDWATCH_GATEWAY__PROTOCOLS",
            '["nonsense"]',
            "setting 'gateway.protocols[0]': no protocol 'nonsense'",
        ),
        ("GROUNDWATCH_EXTRACTION__ENGINE", "nonsense", "extraction"),
        ("GROUNDWATCH_CONFIG", "gone.toml", "gone.toml: cannot be read"),
    ],
)
def test_a_wrong_variable_is_named(nobody, variable, value, told):
    done = nobody("up", "--port", 0, **{variable: value})
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert told in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nonsense", "No such command 'nonsense'. (see groundwatch --help)"),
        ("audit --nonsense", "No such option: --nonsense (see groundwatch audit --help)"),
        ("submit", "(see groundwatch submit --help)"),
        ("watch --seconds soon", "Invalid value for '--seconds'"),
        ("admin dead nonsense", "(see groundwatch admin dead --help)"),
    ],
)
def test_a_mistyped_command_is_one_line(nobody, line, told):
    assert told in nobody.complaint(*line.split())


def test_version_and_help(nobody):
    assert nobody("--version").stdout.startswith("groundwatch 0")
    for command in ("", *COMMANDS, "submit", "admin dead retry"):
        done = nobody(*command.split(), "--help")
        assert done.returncode == 0
        assert "Usage: groundwatch" in done.stdout


@pytest.mark.parametrize("command", ["report", "admin provision", "report --json"])
def test_a_reader_who_went_away_is_no_error(up, command):
    reading, writing = os.pipe()
    running = up.start(*command.split(), stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    os.close(reading)
    _, told = running.communicate(timeout=60)
    assert (running.returncode, told) == (0, "")


def test_the_address_of_one_that_was_killed_is_not_believed(nobody, written, answer):
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    nobody.folder.mkdir(parents=True)
    (nobody.folder / "running.json").write_text(
        json.dumps({"nats": "nats://127.0.0.1:1", "gateway": "http://127.0.0.1:1", "pid": int(gone.stdout)})
    )
    assert "start one with groundwatch up" in nobody.complaint("submit", written(answer("x")))
