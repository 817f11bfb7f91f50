"""What a demo ends with at a terminal: its pages, until somebody presses a key."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from tests.demo.test_live import place  # noqa: F401
from tests.support.command_line import COMMAND, environment

WAIT = 300.0


def shown(master: int, process: subprocess.Popen[bytes], wanted: str) -> str:
    """What the terminal has shown when `wanted` is in it."""
    os.set_blocking(master, False)
    text, deadline = "", time.monotonic() + WAIT
    while not re.search(wanted, text):
        assert time.monotonic() < deadline and process.poll() is None, text[-2000:]
        try:
            text += os.read(master, 65536).decode("utf-8", "replace")
        except BlockingIOError:
            time.sleep(0.1)
    return text


@pytest.mark.slow
@pytest.mark.timeout(2 * WAIT)
def test_the_pages_stay_up_until_a_key_is_pressed(tmp_path: Path):
    master, slave = pty.openpty()
    command = (*COMMAND, "demo", "--recorded", "--rate", "200")
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment(tmp_path) | {"TERM": "dumb"}
    )
    os.close(slave)
    try:
        told = shown(master, process, r"Look at it.*Press a key to end")
        (address,) = re.findall(r"Look at it.*?(http://[^\s\x1b]+)", told)
        assert 0 < told.index(f"watch it here: {address}") < told.index("sending 360")
        for path in ("", "queues", "answers", "alarms"):
            assert httpx.get(address + path, timeout=30).status_code == 200, path
        for line in re.findall(r"^  (\S.*(?:replay start|compare live) .*?)\r?$", told, re.M):
            done = subprocess.run(
                line, shell=True, capture_output=True, text=True, timeout=WAIT, env=environment(tmp_path)
            )
            assert (done.returncode, done.stderr) == (0, ""), line
        assert " 360 " in done.stdout and "again" in done.stdout
        assert process.poll() is None
        os.write(master, b"q")
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            try:
                os.read(master, 65536)
            except OSError:
                continue
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(20)
        os.close(master)
