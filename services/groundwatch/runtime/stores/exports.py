"""The register of export files, so that an erasure finds what left the streams as a file."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.keys import digest
from groundwatch.topology import EXPORTS_BUCKET


class ExportFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written, and on which machine; `at` in seconds since the epoch."""

    path: str
    host: str
    at: float

    @property
    def here(self) -> bool:
        return self.host == socket.gethostname()


async def register(js: JetStreamContext, path: Path) -> None:
    """Remember a file that is about to be written."""
    file = ExportFile(
        path=str(await asyncio.to_thread(path.resolve)), host=socket.gethostname(), at=time.time()
    )
    bucket = await js.key_value(EXPORTS_BUCKET)
    await bucket.put(digest(file.host, file.path)[:32], msgspec.json.encode(file))


async def registered(js: JetStreamContext) -> AsyncIterator[ExportFile]:
    """Every file that was ever written and not forgotten."""
    bucket = await js.key_value(EXPORTS_BUCKET)
    try:
        keys = await bucket.keys()
    except nats.js.errors.NoKeysError:
        return
    for key in sorted(keys):
        entry = await bucket.get(key)
        yield msgspec.json.decode(entry.value or b"", type=ExportFile)
