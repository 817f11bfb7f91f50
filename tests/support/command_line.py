"""The command line as a user types it, against a real `groundwatch up`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from groundwatch import __main__, termination
from groundwatch.cli import main
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import NatsSettings

COMMAND = [sys.executable, "-m", "groundwatch"]
READY_SECONDS = 120.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What a user's shell has, without settings of the machine that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GROUNDWATCH_")}
    return kept | {"GROUNDWATCH_DATA_DIR": str(folder), "COLUMNS": "140", "NO_COLOR": "1"} | more


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """What a command does about signals is undone with the block."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with mock.patch.multiple(termination, _begun=False, _came=False):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


class CommandLine:
    """Types commands for the `groundwatch up` of one data folder, with these variables besides.

    They run in this process, since Python takes seconds to load it all for each. With `apart`, and in a
    thread, where no command can listen to signals, each is a process.
    """

    def __init__(self, folder: Path, *, apart: bool = False, **env: str) -> None:
        self.folder = folder
        self._env = env
        self._apart = apart

    def __call__(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        if self._apart or threading.current_thread() is not threading.main_thread():
            return self._process(*arguments, **env)
        typed = [str(Path(__main__.__file__)), *map(str, arguments)]
        out, err = io.StringIO(), io.StringIO()
        status: Any = 0
        with (
            mock.patch.dict(os.environ, environment(self.folder, **(self._env | env)), clear=True),
            mock.patch.multiple(sys, argv=typed, stdin=io.StringIO()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            signals_kept(),
        ):
            try:
                main()
            except SystemExit as error:
                status = error.code
        return subprocess.CompletedProcess(typed, status, out.getvalue(), err.getvalue())

    def _process(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=240,
            env=environment(self.folder, **(self._env | env)),
        )

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Run beside the test, as from a terminal: a shell starts what it does not wait for, such as these
        tests, so that Ctrl-C does nothing."""
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            text=True,
            env=environment(self.folder, **self._env),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **options,
        )

    def json(self, *arguments: object, status: int = 0) -> dict[str, Any]:
        """The one JSON object that `--json` prints; nothing else on either stream when all is well."""
        done = self(*arguments, "--json")
        assert done.returncode == status, done.stderr
        if status == 0:
            assert done.stderr == "", done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def complaint(self, *arguments: object, status: int = 2, **env: str) -> str:
        """The one line on standard error; nothing on standard output."""
        done = self(*arguments, **env)
        assert done.returncode == status, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith("groundwatch: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.removeprefix("groundwatch: ").rstrip()


class Up(CommandLine):
    """A running `groundwatch up`."""

    def __init__(self, folder: Path, *, apart: bool = False, **env: str) -> None:
        super().__init__(folder, apart=apart, **env)
        self._log = (folder / "up.log").open("w")
        self.process = self.start(
            "up", "--port", 0, "--folder", folder, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        assert self.first_line.startswith("groundwatch is up: "), (folder / "up.log").read_text()
        where = json.loads((folder / "running.json").read_bytes())
        self.gateway: str = where["gateway"]
        self.nats: str = where["nats"]

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self._log.close()
        return self.process.returncode

    def settled(self, recorded: int) -> dict[str, Any]:
        """The ledger once at least `recorded` are in and nothing is in flight."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            # While something is in flight it may not be known yet whether the ledger balances.
            done = self("audit", "--json", "--wait", 0)
            ledger: dict[str, Any] = json.loads(done.stdout)
            if ledger["recorded"] >= recorded and ledger["in_flight"] == 0:
                assert done.returncode == 0, done.stderr
                return ledger
            assert time.monotonic() < deadline, ledger
            time.sleep(0.2)

    def publish(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        """Put a message into the streams past the gateway, as no service would."""

        async def put() -> None:
            bus = Bus(NatsSettings(url=self.nats), name="intruder")
            await bus.connect()
            await bus.js.publish(subject, payload, headers=headers)
            await bus.close()

        asyncio.run(put())


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One system for all tests of the command line: its judges take seconds to load."""
    system = Up(tmp_path_factory.mktemp("groundwatch"))
    yield system
    system.stop()


@pytest.fixture
def nobody(tmp_path: Path) -> CommandLine:
    """The command line on a machine where nothing runs."""
    return CommandLine(tmp_path / "nothing")


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes lines, objects or raw text, into a file."""

    def write(*lines: object, name: str = "responses.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
        return path

    return write


@pytest.fixture
def answer() -> Callable[..., dict[str, Any]]:
    """A recorded response whose reference decides its facts: the ball is not blue."""

    def make(name: str, **changes: Any) -> dict[str, Any]:
        return {
            "id": name,
            "model": "heron-7b",
            "prompt": "Describe the image.",
            "answer": "A dog sits beside a blue ball.",
            "reference": {
                "objects": ["dog", "ball"],
                "triplets": [["ball", "is", "red"], ["dog", "beside", "ball"]],
                "complete": True,
            },
        } | changes

    return make
