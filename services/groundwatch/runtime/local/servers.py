"""Servers of our own on this machine: a child process with a folder for itself alone, and ports; and the NATS
server for `groundwatch up`, the demo and the tests, which is for this user alone: who connects needs a token,
made anew for each server, and its folder is private.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

from groundwatch.addresses import shown_address
from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.runtime.delivery.provisioning import reserved_bytes
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
    starter was killed is found by its `program`, ended and waited for; whoever is to end has `stop_seconds`.
    `refusal` is what to tell when somebody else has the folder.
    """

    program: str
    refusal: str
    stop_seconds: float

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._process: asyncio.subprocess.Process | None = None
        self._lock: int | None = None

    @property
    def log(self) -> Path:
        return self.data_dir / f"{self.program}.log"

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
                    deadline = time.monotonic() + (self.stop_seconds if self._stop_orphan(handle) else 0)
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                os.close(handle)
                raise UsageError(
                    f"{self.refusal} {self.data_dir}: stop it, or name another folder", "folder"
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
                orphan = orphan and psutil.Process(server).name() == self.program
        except (ValueError, psutil.Error):
            return False
        if orphan:
            logger.warning("server.orphan_stopped", folder=str(self.data_dir), pid=server)
            with contextlib.suppress(psutil.Error):
                self._stop_process(server)
        return orphan

    def _stop_process(self, pid: int) -> None:
        psutil.Process(pid).terminate()

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
                    f"{self.program} ended with status {self._process.returncode}; see {self.log}"
                )
            if await answers():
                return
            await asyncio.sleep(0.05)
        raise UsageError(f"{self.program} did not become ready in {seconds:.0f} s; see {self.log}")

    async def _end(self) -> int | None:
        """Stop the child by its process id and wait for it; tells the id of one that was there."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), self.stop_seconds)
            except TimeoutError:
                process.kill()
                await process.wait()
        return process.pid


READY_SECONDS = 20.0


def find_binary() -> str:
    """The nats-server binary: beside this interpreter, or on PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise MissingExtraError("nats-server", "embedded")
    return found


class NatsServer(ChildServer):
    """One nats-server with JetStream, its data under `data_dir`, listening on loopback only.

    It carries a name of its own, checked when it starts: if the port turns out to be somebody else's
    server, we stop instead of writing into their streams. `monitored`: it answers at `monitor_port` what
    anybody on this machine asks about it.
    """

    program = "nats-server"
    refusal = "another groundwatch already uses"
    stop_seconds = 10.0

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        max_payload: int = 8 * 1024 * 1024,
        monitored: bool = False,
        reserved: int | None = None,
    ) -> None:
        """`reserved` bytes are set aside for limits of streams, however little room there is."""
        super().__init__(data_dir)
        self.port = port or free_port()
        self.monitor_port = free_port() if monitored else 0
        self._token = secrets.token_hex(24)
        self.name = f"groundwatch-{os.getpid()}-{self.port}"
        self._max_payload = max_payload
        self._reserved = reserved_bytes() if reserved is None else reserved

    @property
    def url(self) -> str:
        """Where clients connect, with the token that lets them: a secret."""
        return f"nats://{self._token}@127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start the child and wait until JetStream answers."""
        self._lock_folder()
        # Only its owner can read a file that is made so.
        with tempfile.NamedTemporaryFile(suffix=".conf", delete=False) as config:
            config.write(msgspec.json.encode(self._configuration()))
        try:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            await self._start_subprocess(find_binary(), "-c", config.name, **quiet)
            await self._until_ready(self._answers, READY_SECONDS)
        except BaseException:
            await self.stop()
            raise
        finally:
            os.unlink(config.name)  # noqa: PTH108
        logger.info("nats.started", url=shown_address(self.url), data_dir=str(self.data_dir), pid=self.pid)

    async def stop(self) -> None:
        await self._end()
        self._release_folder()

    async def restart(self) -> None:
        """Start again on the same port and data, after the child has died."""
        self._release_folder()
        self._process = None
        await self.start()

    def clear(self) -> None:
        """Remove what an earlier server stored here. Raises `UsageError` when one still runs."""
        self._lock_folder()
        try:
            for path in self.data_dir.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != LOCK_FILE:
                    path.unlink()
        finally:
            self._release_folder()

    def terminate(self) -> None:
        """Have the child end by itself; `wait` tells when it has."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def _configuration(self) -> dict[str, object]:
        """As JSON, which nats-server reads like its own format."""
        return {
            "server_name": self.name,
            "host": "127.0.0.1",
            "port": self.port,
            "authorization": {"token": self._token},
            "max_payload": self._max_payload,
            "jetstream": {"store_dir": str(self.data_dir), "max_file_store": self._most_stored()},
            "log_file": str(self.log),
            "logfile_size_limit": 10_000_000,
            "logfile_max_num": 3,
            **({"http": f"127.0.0.1:{self.monitor_port}"} if self.monitor_port else {}),
        }

    def _most_stored(self) -> int:
        """Three quarters of what is free beside what is stored, but never less than the streams' limits: by
        itself the server would not count what is stored, and refuse to make streams on a small disk. A disk
        that is full refuses what comes, by itself.
        """
        stored = sum(path.stat().st_size for path in self.data_dir.rglob("*") if path.is_file())
        return stored + max(shutil.disk_usage(self.data_dir).free * 3 // 4, self._reserved)

    async def _answers(self) -> bool:
        import nats

        with contextlib.suppress(OSError, nats.errors.Error):
            client = await nats.connect(
                self.url,
                connect_timeout=1,
                allow_reconnect=False,
                max_reconnect_attempts=0,
                reconnect_time_wait=0,
            )
            try:
                if client.connected_server_version and client._server_info["server_name"] != self.name:
                    raise UsageError(f"port {self.port} belongs to another NATS server; name a free one")
                await client.jetstream(timeout=2).account_info()
                return True
            finally:
                await client.close()
        return False
