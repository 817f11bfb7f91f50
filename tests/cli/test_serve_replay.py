"""`groundwatch serve replay` as a process: it takes up what waits, dies, and another goes on."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from tests.replay.conftest import Replays, record, response, settings_of
from tests.runtime.conftest import eventually
from tests.support.command_line import CommandLine

from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.ledger.ledger import audit
from groundwatch.replay.runs import Run, Runs
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.local.servers import NatsServer

PATIENCE = 90.0
JUDGES = {"GROUNDWATCH_EXTRACTION__ENGINE": "noop", "GROUNDWATCH_VERIFICATION__ENGINE": "noop"}


@pytest.fixture
def shell(nats_server: NatsServer, tmp_path: Path) -> CommandLine:
    """A shell that knows this test process's server, and judges that do nothing."""

    class Shell(CommandLine):
        def start(self, *arguments: object, **options: object) -> subprocess.Popen[str]:
            return super().start(*arguments, "--nats", nats_server.url, **options)

        def __call__(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
            return super().__call__(*arguments, "--nats", nats_server.url, **(JUDGES | env))

    return Shell(tmp_path, apart=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def reached(bus: Bus, name: str, outcomes: int, status: str = "") -> Run:
    runs, deadline = await Runs.open(bus.js), time.monotonic() + PATIENCE
    while True:
        run = await runs.get(name)
        if run.counts.outcomes >= outcomes and status in ("", run.status):
            return run
        assert time.monotonic() < deadline, run
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_run_outlives_those_who_work_at_it(
    shell: CommandLine, bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in JUDGES.items():
        monkeypatch.setenv(name, value)
    began = time.time()
    await record(bus, *(response(f"r{number}", recorded_at=began + number / 2) for number in range(60)))
    port = free_port()
    first = shell.start("serve", "replay", "--metrics-port", port, stderr=subprocess.DEVNULL)
    working = re.compile(r'^groundwatch_replay_state\{run="long",state="working"\} 1.0$', re.MULTILINE)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as http:

        async def ready() -> bool:
            try:
                return (await http.get("/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        async def told() -> bool:
            # The gauges look every few seconds.
            return working.search((await http.get("/metrics")).text) is not None

        await eventually(ready, within=PATIENCE)
        # At the recorded pace that takes 30 s: long enough to be seen, and to die in the middle.
        await Replays(bus).begin("long", settings_of(bus), speed=1.0)
        await eventually(told, within=60)
    await reached(bus, "long", 5)
    first.kill()
    first.wait(20)
    # Else the second would have nothing left, and be stopped before it listens to signals.
    assert (await (await Runs.open(bus.js)).get("long")).status != "done"
    second = shell.start("serve", "replay", stderr=subprocess.DEVNULL)
    run = await reached(bus, "long", 60, "done")
    second.send_signal(signal.SIGTERM)
    assert second.wait(40) == 0
    assert run.counts.scored == run.counts.outcomes == 60
    ledger = await audit(bus.js, "long")
    assert (ledger.balanced, ledger.scored) == (True, 60)


@pytest.mark.slow
async def test_faults_are_told_and_judged_again(
    shell: CommandLine, bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(bus, *(response(f"r{number}") for number in range(4)))
    extract = NoopExtractionEngine.extract

    async def broken(self, responses, protocol):
        from groundwatch.errors import InputError

        found = await extract(self, responses, protocol)
        return [
            InputError("the judge's key is wrong [401]") if one.id == "r1" else made
            for one, made in zip(responses, found, strict=True)
        ]

    with monkeypatch.context() as patched:
        patched.setattr(NoopExtractionEngine, "extract", broken)
        await Replays(bus).done("faulty", settings_of(bus))
    shown = shell("replay", "show", "faulty").stdout
    assert "unscored for faults of judges: 1 × extraction: the judge's key is wrong [401]" in shown
    assert "groundwatch replay retry faulty" in shown
    assert json.loads(shell("replay", "faults", "faulty", "--json").stdout)["faults"] == {
        "extraction: the judge's key is wrong [401]": 1
    }
    done = json.loads(shell("replay", "retry", "faulty", "--json").stdout)
    assert (done["found"], done["scored"], done["faulty"]) == (1, 1, 0)
    assert "no outcome that is unscored" in shell("replay", "faults", "faulty").stdout
    nobody = shell("replay", "retry", "nobody")
    assert (nobody.returncode, nobody.stderr.count("\n")) == (2, 1)
