"""Clients that do not speak HTTP as they should: bytes on a raw socket."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import struct

from tests.faults.campaign.hostile.findings import Findings

ANSWER_SECONDS = 40.0
JSON = b'{"id": "raw", "model": "m", "answer": "x"}'


class Sockets:
    """Opens connections and misbehaves; some stay open until the end."""

    def __init__(self, port: int, findings: Findings, seed: int) -> None:
        self._port = port
        self._findings = findings
        self._random = random.Random(f"sockets {seed}")
        self._left: list[asyncio.StreamWriter] = []

    async def close(self) -> None:
        """Hang up on those that were left open."""
        for writer in self._left:
            writer.transport.abort()

    async def misbehave(self) -> None:
        """One connection."""
        kind, data, how = self._choose()
        self._findings.count(f"socket: {kind}")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            self._findings.add("unhealthy", f"cannot connect: {error!r}")
            return
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        if how == "leave":
            self._left.append(writer)
            return
        if how == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER with 0: a reset in place of an end
            writer.transport.abort()
            return
        answer = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                if how == "end":
                    writer.write_eof()
                while not re.match(rb"HTTP/1.1 \d{3}", answer) and (more := await reader.read(65_536)):
                    answer += more
        found = re.match(rb"HTTP/1.1 (\d{3})", answer)
        self._findings.status(found[1].decode() if found else "closed")
        if found and found[1] >= b"500" and found[1] != b"503":
            self._findings.add("answers of 500", f"{kind}: {answer[:300]!r} to {data[:200]!r}")
        writer.transport.abort()

    def _choose(self) -> tuple[str, bytes, str]:
        chance = self._random
        post = b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        length = b"Content-Length: %d\r\n\r\n" % len(JSON)
        kinds: tuple[tuple[str, bytes, str], ...] = (
            ("nothing", b"", "leave"),
            ("a slow head", b"GET /v1/report HT", "leave"),
            ("a head without end", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", "leave"),
            ("a body that stops", post + b"Content-Length: 1000\r\n\r\n{", "leave"),
            ("a body that ends early", post + b"Content-Length: 1000\r\n\r\n{", "end"),
            ("reset in the body", post + b"Content-Length: 1000\r\n\r\n{", "reset"),
            ("chunks that stop", post + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", "leave"),
            ("a chunk without end", post + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{", "end"),
            ("a negative chunk", post + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc", "read"),
            ("a chunk of letters", post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc", "read"),
            ("a negative length", post + b"Content-Length: -1\r\n\r\n" + JSON, "read"),
            ("a length of letters", post + b"Content-Length: ten\r\n\r\n" + JSON, "read"),
            ("a huge length", post + b"Content-Length: 99999999999999999999\r\n\r\n" + JSON, "end"),
            ("two lengths", post + b"Content-Length: 1\r\n" + length + JSON, "read"),
            ("length and chunks", post + b"Transfer-Encoding: chunked\r\n" + length + JSON, "read"),
            ("an unknown encoding", post + b"Transfer-Encoding: x\r\n" + length + JSON, "end"),
            ("a header without colon", b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n", "read"),
            ("a folded header", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n b\r\n\r\n", "read"),
            ("nul in a header", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: \x00\r\n\r\n", "read"),
            ("no host", b"GET /v1/report HTTP/1.1\r\n\r\n", "read"),
            (
                "two hosts",
                b"GET /v1/report HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
                "read",
            ),
            ("a large header", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 2_000_000, "read"),
            ("many headers", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n", "read"),
            ("a long path", b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n", "read"),
            (
                "a whole address",
                b"GET http://evil.example/v1/report HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                "read",
            ),
            (
                "an address of bytes",
                b"GET /v1/responses/\xff\xfe\x80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                "read",
            ),
            ("a bad escape", b"GET /v1/responses/%zz%00%ff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "read"),
            ("HTTP 0.9", b"GET /\r\n", "end"),
            ("HTTP 3", b"GET / HTTP/3.0\r\nHost: 127.0.0.1\r\n\r\n", "read"),
            ("HTTP 2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), "read"),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500), "read"),
            ("noise", chance.randbytes(chance.randrange(1, 5_000)), "end"),
            ("CONNECT", b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "read"),
            (
                "an upgrade",
                b"GET /v1/scores HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                "read",
            ),
            ("expectations", post + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "leave"),
            ("a hundred at once", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100, "read"),
            ("answers unread", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200, "leave"),
        )
        return chance.choice(kinds)
