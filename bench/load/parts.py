"""A NATS server with a memory limit, an archive service, and commands, each a process that is looked at."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
from tests.faults.processes import Child

from groundwatch.errors import CheckFailed
from groundwatch.runtime.local.servers import NatsServer, free_port

COMMAND = (sys.executable, "-m", "groundwatch")
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.1


class LimitedServer(NatsServer):
    """As the chart has it: near `memory` its garbage is collected sooner, `disk` is what it may take."""

    def __init__(self, data_dir: Path, *, memory: int, disk: int) -> None:
        super().__init__(data_dir)
        self._disk = disk
        # The server inherits it.
        os.environ["GOMEMLIMIT"] = str(memory)

    def _configuration(self) -> dict[str, object]:
        found = super()._configuration()
        jetstream = {"store_dir": str(self.data_dir), "max_file_store": self._disk, "sync_interval": "10s"}
        return found | {"jetstream": jetstream}


def highest(pid: int) -> int:
    """The most memory that a process has had, in bytes; 0 for one that is over."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 if "VmHWM:" in status else 0


def spent(pid: int) -> float:
    """Seconds of processor that a process has taken."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A command that has ended: what it printed, how long it took, and the most memory that it had."""

    status: int
    printed: Any
    seconds: float
    bytes: int


class Processes:
    """Of one system: `variables` are those of all of them, logs go into `folder`."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = dict(variables)
        self._archive: Child | None = None
        self._archive_before = self._archive_cpu = 0.0
        self.archive_bytes = 0
        """The most memory that one of them has had."""

    async def run(self, *arguments: str) -> Ran:
        """Run a command that prints one JSON object."""
        child = Child(
            arguments[0], (*COMMAND, *arguments), self._variables, self._folder / f"{arguments[0]}.log"
        )
        began, most = time.monotonic(), 0
        child.start()
        while child.alive:
            most = max(most, highest(child.pid))
            await asyncio.sleep(LOOK_SECONDS)
        text = child.log.read_text("utf-8", "replace")
        status = child.status
        if status is None or "{\n" not in text:
            raise CheckFailed(f"{' '.join(arguments)} ended with {status}: {text[-500:]}")
        printed = json.JSONDecoder().raw_decode(text[text.index("{\n") :])[0]
        return Ran(status=status, printed=printed, seconds=time.monotonic() - began, bytes=most)

    def start_archive(self, hot_days: float) -> None:
        """Start an archive service with this hot window."""
        variables = {
            "GROUNDWATCH_ARCHIVE__HOT_DAYS": f"{hot_days:.9f}",
            "GROUNDWATCH_TELEMETRY__PORT": str(free_port()),
        }
        command = (*COMMAND, "serve", "archive", "--wait", "60")
        self._archive = Child("archive", command, self._variables | variables, self._folder / "archive.log")
        self._archive.start()

    def check_archive(self) -> None:
        """Note its memory. Raises `CheckFailed` when it has ended by itself."""
        assert self._archive is not None
        if not self._archive.alive:
            log = self._archive.log.read_text("utf-8", "replace")
            raise CheckFailed(f"the archive service ended with {self._archive.status}: {log[-500:]}")
        self.archive_bytes = max(self.archive_bytes, highest(self._archive.pid))
        self._archive_cpu = spent(self._archive.pid)

    @property
    def archive_cpu(self) -> float:
        """Seconds of processor that archive services have taken, as of the last look."""
        return self._archive_before + self._archive_cpu

    async def stop_archive(self) -> None:
        """End it as Kubernetes does."""
        if self._archive is None:
            return
        if self._archive.alive:
            self.check_archive()
        self._archive_before, self._archive_cpu = self.archive_cpu, 0.0
        await asyncio.to_thread(self._archive.end, signal.SIGTERM, patience=STOP_SECONDS)
        self._archive = None
