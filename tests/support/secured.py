"""A real nats-server with the very configuration that `groundwatch admin auth --tls` writes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import find_binary, free_port
from groundwatch.runtime.security.users import CA_CERTIFICATE, SERVER_FILE, seed_file, write_auth
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import PROVISIONER

START_SECONDS = 20.0
TENANTS = ("acme", "other")
"""Those that have users of their own."""


class Secured(msgspec.Struct, frozen=True):
    """Where it is, and the folder with its users."""

    url: str
    auth: Path
    process: subprocess.Popen[bytes]
    partitions: int = 1

    def settings(self, user: str, **changes: object) -> NatsSettings:
        """How this user connects."""
        given = {
            "url": self.url,
            "nkey_seed_file": str(seed_file(self.auth, user)),
            "tls_ca": str(self.auth / CA_CERTIFICATE),
            "partitions": self.partitions,
        }
        return NatsSettings(**(given | changes))

    def reload(self) -> None:
        """Have the server read its configuration again."""
        subprocess.run(
            [find_binary(), "--signal", f"reload={self.process.pid}"], check=True, capture_output=True
        )


@contextlib.contextmanager
def secured(folder: Path, partitions: int = 1) -> Iterator[Secured]:
    """Started, provisioned as the provisioning user, and stopped at the end."""
    auth, port = folder / "auth", free_port()
    write_auth(auth, hosts=["127.0.0.1", "localhost"], tenants=TENANTS, partitions=partitions)
    config = folder / "nats.conf"
    config.write_text(
        f'host: "127.0.0.1"\nport: {port}\nmax_payload: 8388608\n'
        f'jetstream {{ store_dir: "{folder / "data"}" }}\nlog_file: "{folder / "nats.log"}"\n'
        f"include auth/{SERVER_FILE}\n"
    )
    process = subprocess.Popen([find_binary(), "-c", str(config)])
    try:
        server = Secured(f"tls://127.0.0.1:{port}", auth, process, partitions)
        asyncio.run(_provision(server))
        yield server
    finally:
        process.terminate()
        process.wait(20)


async def _provision(server: Secured) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        bus = Bus(server.settings(PROVISIONER), name=PROVISIONER)
        try:
            await bus.connect(timeout=3)
            break
        except UsageError:
            assert server.process.poll() is None and time.monotonic() < deadline
    async with bus.unless_refused():
        await provision(bus.js, partitions=server.partitions)
    await bus.close()
