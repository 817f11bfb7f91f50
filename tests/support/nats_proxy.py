"""Stands between a client and a real nats-server, and leaves requests unanswered that a test names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit


class NatsProxy:
    """What is published to a subject that contains one of `silent`, or that `drops` names, never arrives."""

    def __init__(self, server_url: str) -> None:
        there = urlsplit(server_url)
        self._host, self._port = there.hostname or "127.0.0.1", there.port or 4222
        self.user = there.netloc.rpartition("@")[0]
        self.silent: set[str] = set()
        self.drops: Callable[[str], bool] = lambda subject: any(word in subject for word in self.silent)
        self.dropped = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection."""
        from_server, to_server = await asyncio.open_connection(self._host, self._port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, to_server))
                both.create_task(_copy(from_server, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, to_server):
                each.close()

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            verb, *words = line.split()
            data = b""
            if verb in (b"PUB", b"HPUB"):
                data = await reader.readexactly(int(words[-1]) + 2)
                if self.drops(words[0].decode()):
                    self.dropped += 1
                    continue
            server.write(line + data)
            await server.drain()
        raise ConnectionResetError


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError


@contextlib.asynccontextmanager
async def nats_proxy(server_url: str) -> AsyncIterator[NatsProxy]:
    """A proxy on a free port while the block runs."""
    proxy = NatsProxy(server_url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
    user = f"{proxy.user}@" if proxy.user else ""
    proxy.url = f"nats://{user}127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
