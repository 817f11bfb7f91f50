"""A server of images that misbehaves as it is told, at 127.0.0.1 and 127.0.0.2."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

BODY = b"\x89PNG and so on"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]


class Server:
    """`asked` are the requests' first lines and headers, by where they arrived."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.connections: list[str] = []
        self.answers: dict[str, bytes | Handler] = {}
        self.port = 0

    def reply(self, path: str, body: bytes = BODY, status: str = "200 OK", **headers: str) -> None:
        """What is answered for a path; an empty header is left out."""
        said = {"Content-Length": str(len(body))} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        head = "".join(f"{name}: {text}\r\n" for name, text in said.items() if text)
        self.answers[path] = f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body

    def redirect(self, path: str, location: str, status: str = "302 Found") -> None:
        self.reply(path, b"", status, Location=location)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here = writer.get_extra_info("sockname")[0]
        self.connections.append(here)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.strip().split("\r\n")
                path = first.split(" ")[1]
                self.asked.append((here, path, dict(line.split(": ", 1) for line in lines)))
                answer = self.answers.get(path.partition("?")[0], b"HTTP/1.1 404 Not Found\r\n\r\n")
                if callable(answer):
                    await answer(reader, writer, path)
                else:
                    writer.write(answer)
                    await writer.drain()
        finally:
            writer.close()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """A byte now and then, so that no wait for the next is long."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    await reader.read()


async def endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
        await writer.drain()


async def endless_hints(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        await writer.drain()


BOMB = gzip.compress(bytes(10_000_000))


@contextlib.asynccontextmanager
async def image_servers() -> AsyncIterator[Server]:
    made = Server()
    first = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = first.sockets[0].getsockname()[1]
    second = await asyncio.start_server(made.take, "127.0.0.2", made.port)
    yield made
    for one in (first, second):
        one.close()
