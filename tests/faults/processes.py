"""One process of a system under test, started as often as it takes and stopped by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""On Linux, a test run that is itself killed leaves no process behind. Not `preexec_fn`: that forks, and a
process in which gRPC has threads does not survive every fork."""


class Child:
    """One process with its log; started as often as it takes."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        launcher = (sys.executable, "-ISc", _DIE_WITH_PARENT) if sys.platform == "linux" else ()
        self._command = [*launcher, *command]
        self.environment = environment
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._process.poll() if self._process is not None else None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def start(self, **environment: str) -> None:
        """Start it, with these variables for this once."""
        assert not self.alive, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started = time.monotonic()

    def send(self, number: int) -> None:
        """Signal it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def end(self, number: int = signal.SIGTERM, *, patience: float = 40.0) -> int:
        """Signal it and wait; returns its status. Killed when it does not end in time."""
        if self._process is None:
            return 0
        self.send(number)
        return self.wait(patience)

    def wait(self, patience: float = 40.0) -> int:
        """Wait for its end and return its status."""
        assert self._process is not None
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not end in {patience} s; see {self.log}") from None
