"""A NATS server of our own, as a child process, for `groundwatch up`, the demo and the tests.

It is for this user alone: who connects needs a token, made anew for each server, and its folder is private.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]

from groundwatch.addresses import shown_address
from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.runtime.local.ownership import LOCK_FILE, FolderLock, free_port
from groundwatch.runtime.telemetry.logs import logger

READY_SECONDS = 20.0
STOP_SECONDS = 10.0


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
    server, we stop instead of writing into their streams. `monitored`: it answers at `monitor_port` what
    anybody on this machine asks about it.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        max_payload: int = 8 * 1024 * 1024,
        monitored: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.monitor_port = free_port() if monitored else 0
        self._token = secrets.token_hex(24)
        self.name = f"groundwatch-{os.getpid()}-{self.port}"
        self._max_payload = max_payload
        self._process: asyncio.subprocess.Process | None = None
        self._lock = FolderLock(
            data_dir,
            binary=find_binary,
            stop=_terminate,
            timeout=STOP_SECONDS,
            refusal="another groundwatch already uses",
        )

    @property
    def url(self) -> str:
        """Where clients connect, with the token that lets them: a secret."""
        return f"nats://{self._token}@127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the child and wait until JetStream answers."""
        self._lock.take()
        log = self.data_dir / "nats-server.log"
        # Only its owner can read a file that is made so.
        with tempfile.NamedTemporaryFile(suffix=".conf", delete=False) as config:
            config.write(msgspec.json.encode(self._configuration(log)))
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
                pass_fds=self._lock.handles,
            )
            self._lock.note(self.pid)
            await self._wait_ready(log)
        except BaseException:
            await self.stop()
            raise
        finally:
            os.unlink(config.name)  # noqa: PTH108
        logger.info("nats.started", url=shown_address(self.url), data_dir=str(self.data_dir), pid=self.pid)

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
        self._lock.release()

    async def restart(self) -> None:
        """Start again on the same port and data, after the child has died."""
        self._lock.release()
        self._process = None
        await self.start()

    def clear(self) -> None:
        """Remove what an earlier server stored here. Raises `UsageError` when one still runs."""
        self._lock.take()
        try:
            for path in self.data_dir.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != LOCK_FILE:
                    path.unlink()
        finally:
            self._lock.release()

    def terminate(self) -> None:
        """Have the child end by itself; `wait` tells when it has."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """Kill −9, for fault tests."""
        if self._process is not None:
            self._process.kill()

    async def wait(self) -> int:
        """Wait until the child ends, and return its status."""
        if self._process is None:
            return 0
        return await self._process.wait()

    def _configuration(self, log: Path) -> dict[str, object]:
        """As JSON, which nats-server reads like its own format."""
        found: dict[str, object] = {
            "server_name": self.name,
            "host": "127.0.0.1",
            "port": self.port,
            "authorization": {"token": self._token},
            "max_payload": self._max_payload,
            "jetstream": {"store_dir": str(self.data_dir)},
            "log_file": str(log),
            "logfile_size_limit": 10_000_000,
            "logfile_max_num": 3,
        }
        if self.monitor_port:
            found["http"] = f"127.0.0.1:{self.monitor_port}"
        return found

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


def _terminate(server: int) -> None:
    psutil.Process(server).terminate()
