"""A server of our own on this machine: a child process that has a folder for itself alone, and ports."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from groundwatch.errors import UsageError
from groundwatch.runtime.security.private_files import make_private
from groundwatch.runtime.telemetry.logs import logger

LOCK_FILE = "lock"


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def is_taken(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


class ChildServer:
    """A server as a child process that has its folder, `data_dir`, to itself: a second would destroy what the
    first writes there.

    The child inherits the folder's lock, so that it is held for as long as either of us lives. One whose
    starter was killed is found by its `binary`, ended by `stop` and waited for; whoever is to end has
    `timeout` seconds. `refusal` is what to tell when somebody else has the folder, `program` what messages
    call the child.
    """

    def __init__(
        self,
        program: str,
        data_dir: Path,
        *,
        binary: Callable[[], str],
        stop: Callable[[int], None],
        timeout: float,
        refusal: str,
    ) -> None:
        self.data_dir = data_dir
        self._program = program
        self._binary = binary
        self._stop = stop
        self._timeout = timeout
        self._refusal = refusal
        self._process: asyncio.subprocess.Process | None = None
        self._lock: int | None = None

    @property
    def log(self) -> Path:
        return self.data_dir / f"{self._program}.log"

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    def kill(self) -> None:
        """Kill −9, for fault tests."""
        if self._process is not None:
            self._process.kill()

    async def wait(self) -> int:
        return 0 if self._process is None else await self._process.wait()

    def _lock_folder(self) -> None:
        """Make the folder, private, and lock it. Raises `UsageError` when somebody else has it."""
        import fcntl

        make_private(self.data_dir)
        handle = os.open(self.data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not deadline:
                    deadline = time.monotonic() + (self._timeout if self._stop_orphan(handle) else 0)
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                os.close(handle)
                raise UsageError(
                    f"{self._refusal} {self.data_dir}: stop it, or name another folder", "folder"
                ) from error
        self._lock = handle

    def _release_folder(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _stop_orphan(self, handle: int) -> bool:
        """Stop the server that holds the lock if whoever started it is gone; tells whether there was one."""
        try:
            owner, server = map(int, os.pread(handle, 64, 0).split())
            orphan = not psutil.pid_exists(owner)
            if psutil.pid_exists(server):
                orphan = orphan and psutil.Process(server).name() == Path(self._binary()).name
        except (ValueError, psutil.Error):
            return False
        if orphan:
            logger.warning("server.orphan_stopped", folder=str(self.data_dir), pid=server)
            with contextlib.suppress(psutil.Error):
                self._stop(server)
        return orphan

    async def _start_subprocess(self, *command: str, **options: Any) -> None:
        assert self._lock is not None
        self._process = await asyncio.create_subprocess_exec(
            *command,
            # Ctrl-C in the terminal is ours to answer: services drain first, then the server stops.
            start_new_session=True,
            # It holds the lock with us: if we are killed, it goes on writing to the folder.
            pass_fds=(self._lock,),
            **options,
        )
        # Whose server this is, for whoever finds it after we were killed.
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()} {self._process.pid}".encode(), 0)

    async def _until_ready(self, answers: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Ask until it answers. Raises `UsageError` when it has ended, or does not answer in time."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process.returncode is not None:
                raise UsageError(
                    f"{self._program} ended with status {self._process.returncode}; see {self.log}"
                )
            if await answers():
                return
            await asyncio.sleep(0.05)
        raise UsageError(f"{self._program} did not become ready in {seconds:.0f} s; see {self.log}")

    async def _end(self) -> int | None:
        """Stop the child by its process id and wait for it; tells the id of one that was there."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), self._timeout)
            except TimeoutError:
                process.kill()
                await process.wait()
        return process.pid
