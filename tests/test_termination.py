"""SIGTERM in the first seconds: the process ends by itself, whatever it was about to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LOADING = """
import runpy, signal, sys, importlib.abc, os
from groundwatch import termination

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Finder())
sys.argv = ["groundwatch", *{command!r}.split()]
runpy.run_module("groundwatch", run_name="__main__")
"""


def run(module: str, command: str) -> subprocess.CompletedProcess[str]:
    code = LOADING.format(module=module, command=command)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("module", "command", "status"),
    (
        ("groundwatch.cli", "serve scoring", 0),
        ("msgspec", "up", 0),
        ("groundwatch.cli", "submit x", 143),
        ("msgspec", "report", 143),
    ),
)
def test_while_it_loads(module: str, command: str, status: int) -> None:
    ended = run(module, command)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert ended.stderr == "groundwatch: ended by SIGTERM\n"


@pytest.mark.parametrize(
    ("command", "status"),
    (
        ("serve extraction --nats nats://127.0.0.1:9 --wait 60", 0),
        ("audit --nats nats://127.0.0.1:9 --every 1h", 0),
        ("watch --nats nats://127.0.0.1:9", 143),
    ),
)
def test_while_it_waits_for_nats(command: str, status: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "groundwatch", *command.split()],
        stderr=subprocess.PIPE,
        env=os.environ | {"GROUNDWATCH_DATA_DIR": str(tmp_path)},
    ) as process:
        # In each of these it must end by itself, whether it still loads or waits already.
        time.sleep(2.0)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == status, said.decode()
    assert b"Traceback" not in said


def test_up_that_is_ended_while_it_starts_leaves_no_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "groundwatch", "up", "--port", "0", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        lock, deadline = tmp_path / "nats" / "lock", time.monotonic() + 60
        while not (lock.is_file() and lock.read_text()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        server = int(lock.read_text().split()[1])
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()
    assert b"Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
