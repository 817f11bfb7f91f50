"""A process that is there and does nothing: a server that is frozen, a machine that swaps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil


@contextlib.contextmanager
def frozen(pid: int | None) -> Iterator[psutil.Process]:
    """Stopped (SIGSTOP) with every thread once this begins; it goes on afterwards, if it is still there."""
    process = psutil.Process(pid)
    process.suspend()
    while not _stopped(process):
        time.sleep(0.005)
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _stopped(process: psutil.Process) -> bool:
    """On Linux its threads stop one by one, and those that wait for a core run on until they have had it."""
    threads = Path(f"/proc/{process.pid}/task")
    if not threads.is_dir():
        return process.status() == psutil.STATUS_STOPPED
    with contextlib.suppress(FileNotFoundError):
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads.glob("*/stat"))
    return False
