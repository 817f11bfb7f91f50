"""A TCP proxy of ours before the servers: it cuts, swallows, refuses and delays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Literal

Mode = Literal["pass", "hole", "refuse", "slow"]

CHUNK = 65_536
CONNECT_SECONDS = 2.0


class Proxy:
    """Stands before servers and gives each new connection to the first of them that answers.

    `hole` forwards nothing and says nothing, `refuse` hangs up on whoever comes, `slow` waits before each
    piece.
    """

    def __init__(self, targets: Sequence[int], *, delay: float = 0.1) -> None:
        self._targets = list(targets)
        self._delay = delay
        self._mode: Mode = "pass"
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of this machine."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            self._server.close()
        self.cut()
        self._open.set()

    def set(self, mode: Mode) -> None:
        """Behave so from now on."""
        self._mode = mode
        if mode == "hole":
            self._open.clear()
        else:
            self._open.set()
        if mode == "refuse":
            self.cut()

    def cut(self) -> None:
        """Reset every connection there is."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond: asyncio.StreamWriter | None = None
        self._writers.add(writer)
        try:
            await self._open.wait()
            if self._mode == "refuse":
                return
            answered, beyond = await self._connect()
            self._writers.add(beyond)
            await asyncio.gather(self._pump(reader, beyond), self._pump(answered, writer))
        except (OSError, RuntimeError):
            # uvloop's word for a connection that was cut.
            return
        finally:
            for each in filter(None, (writer, beyond)):
                self._writers.discard(each)
                each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self._targets:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection("127.0.0.1", self._targets[0])
            self._targets.append(self._targets.pop(0))
        raise ConnectionRefusedError

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK):
                await self._open.wait()
                if self._mode == "slow":
                    await asyncio.sleep(self._delay)
                writer.write(data)
                await writer.drain()
        finally:
            writer.transport.abort()
