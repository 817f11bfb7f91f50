"""A NATS server of our own, as a child process, for `groundwatch up`, the demo and the tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.runtime.logs import logger

READY_SECONDS = 20.0
STOP_SECONDS = 10.0
LOCK_FILE = "lock"


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def find_binary() -> str:
    """The nats-server binary: beside this interpreter, or on PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise MissingExtraError("nats-server", "embedded")
    return found


class NatsServer:
    """One nats-server with JetStream, its data under `data_dir`, listening on loopback only.

    It carries a name of its own, checked when it starts: if the port turns out to be somebody else's
    server, we stop instead of writing into their streams.
    """

    def __init__(self, data_dir: Path, *, port: int = 0, max_payload: int = 8 * 1024 * 1024) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.monitor_port = free_port()
        self.name = f"groundwatch-{os.getpid()}-{self.port}"
        self._max_payload = max_payload
        self._process: asyncio.subprocess.Process | None = None
        self._lock: int | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the child and wait until JetStream answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        log = self.data_dir / "nats-server.log"
        with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as config:
            config.write(
                f'server_name: "{self.name}"\nhost: "127.0.0.1"\nport: {self.port}\n'
                f'http: "127.0.0.1:{self.monitor_port}"\nmax_payload: {self._max_payload}\n'
                f'jetstream {{ store_dir: "{self.data_dir}" }}\nlog_file: "{log}"\n'
                f"logfile_size_limit: 10MB\nlogfile_max_num: 3\n"
            )
        try:
            self._process = await asyncio.create_subprocess_exec(
                find_binary(),
                "-c",
                config.name,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                # Ctrl-C in the terminal is ours to answer: services drain first, then the server stops.
                start_new_session=True,
                # It holds the lock with us: if we are killed, it goes on writing to the folder.
                pass_fds=(self._lock,) if self._lock is not None else (),
            )
            self._note_owner()
            await self._wait_ready(log)
        except BaseException:
            await self.stop()
            raise
        finally:
            os.unlink(config.name)  # noqa: PTH108
        logger.info("nats.started", url=self.url, data_dir=str(self.data_dir), pid=self.pid)

    async def stop(self) -> None:
        """Stop the child by its process id and wait for it."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        self._release_lock()

    async def restart(self) -> None:
        """Start again on the same port and data, after the child has died."""
        self._release_lock()
        self._process = None
        await self.start()

    def clear(self) -> None:
        """Remove what an earlier server stored here. Raises `UsageError` when one still runs."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            for path in self.data_dir.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != LOCK_FILE:
                    path.unlink()
        finally:
            self._release_lock()

    def kill(self) -> None:
        """Kill −9, for fault tests."""
        if self._process is not None:
            self._process.kill()

    async def wait(self) -> int:
        """Wait until the child ends, and return its status."""
        if self._process is None:
            return 0
        return await self._process.wait()

    def _take_lock(self) -> None:
        """Two servers on one data folder would destroy it."""
        import fcntl

        handle = os.open(self.data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not deadline:
                    deadline = time.monotonic() + (STOP_SECONDS if _stop_orphan(handle) else 0)
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                os.close(handle)
                raise UsageError(
                    f"another groundwatch already uses {self.data_dir}: stop it, "
                    "or name another folder with --data-dir"
                ) from error
        self._lock = handle

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _note_owner(self) -> None:
        """Write into the lock whose server this is, for whoever finds it after we were killed."""
        if self._lock is not None and self.pid is not None:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()} {self.pid}".encode(), 0)

    async def _wait_ready(self, log: Path) -> None:
        import nats

        assert self._process is not None
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if self._process.returncode is not None:
                raise UsageError(f"nats-server ended with status {self._process.returncode}; see {log}")
            with contextlib.suppress(OSError, TimeoutError, nats.errors.Error, nats.js.errors.Error):
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
                    return
                finally:
                    await client.close()
            await asyncio.sleep(0.05)
        raise UsageError(f"nats-server did not become ready in {READY_SECONDS:.0f} s; see {log}")


def _stop_orphan(lock: int) -> bool:
    """Stop the server that holds the lock if whoever started it is gone; tells whether there was one."""
    try:
        owner, server = map(int, os.pread(lock, 64, 0).split())
        process = psutil.Process(server)
        orphan = not psutil.pid_exists(owner) and process.name() == Path(find_binary()).name
    except (ValueError, psutil.Error):
        return False
    if orphan:
        logger.warning("nats.orphan_stopped", pid=server)
        with contextlib.suppress(psutil.Error):
            process.terminate()
    return orphan
