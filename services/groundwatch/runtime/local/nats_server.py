"""A NATS server of our own, as a child process, for `groundwatch up`, the demo and the tests.

It is for this user alone: who connects needs a token, made anew for each server, and its folder is private.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]

from groundwatch.addresses import shown_address
from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.runtime.local.ownership import LOCK_FILE, ChildServer, free_port
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


class NatsServer(ChildServer):
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
        super().__init__(
            "nats-server",
            data_dir,
            binary=find_binary,
            stop=lambda server: psutil.Process(server).terminate(),
            timeout=STOP_SECONDS,
            refusal="another groundwatch already uses",
        )
        self.port = port or free_port()
        self.monitor_port = free_port() if monitored else 0
        self._token = secrets.token_hex(24)
        self.name = f"groundwatch-{os.getpid()}-{self.port}"
        self._max_payload = max_payload

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
            "jetstream": {"store_dir": str(self.data_dir)},
            "log_file": str(self.log),
            "logfile_size_limit": 10_000_000,
            "logfile_max_num": 3,
            **({"http": f"127.0.0.1:{self.monitor_port}"} if self.monitor_port else {}),
        }

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
