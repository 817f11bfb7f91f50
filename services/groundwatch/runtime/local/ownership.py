"""What a server of our own takes on this machine: a folder for itself alone, and ports."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from groundwatch.errors import UsageError
from groundwatch.runtime.security.private_files import make_private
from groundwatch.runtime.telemetry.logs import logger

LOCK_FILE = "lock"


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    """Whether somebody on this machine listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class FolderLock:
    """One server for a folder: a second would destroy what the first writes there.

    The server inherits the lock (`handles`), so that it is held for as long as either of us lives. A server
    whose starter was killed is found by its `binary`, ended by `stop` and waited for, `timeout` seconds.
    `refusal` is what to tell when somebody else has the folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        binary: Callable[[], str],
        stop: Callable[[int], None],
        timeout: float,
        refusal: str,
    ) -> None:
        self._folder = folder
        self._binary = binary
        self._stop = stop
        self._timeout = timeout
        self._refusal = refusal
        self._handle: int | None = None

    @property
    def handles(self) -> tuple[int, ...]:
        """What the server inherits."""
        return () if self._handle is None else (self._handle,)

    def take(self) -> None:
        """Make the folder, private, and lock it. Raises `UsageError` when somebody else has it."""
        import fcntl

        make_private(self._folder)
        handle = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
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
                    f"{self._refusal} {self._folder}: stop it, or name another folder", "folder"
                ) from error
        self._handle = handle

    def note(self, server: int | None) -> None:
        """Write into the lock whose server this is, for whoever finds it after we were killed."""
        if self._handle is not None and server is not None:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{os.getpid()} {server}".encode(), 0)

    def release(self) -> None:
        """Leave the folder to others, as far as we are concerned."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

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
            logger.warning("server.orphan_stopped", folder=str(self._folder), pid=server)
            with contextlib.suppress(psutil.Error):
                self._stop(server)
        return orphan
