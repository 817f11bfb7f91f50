"""A client that speaks NATS' protocol over a plain socket, one thing at a time."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from groundwatch.errors import CheckFailed

CHUNK = 4_000
"""So many messages are sent before the server is waited for. It drops what lies beyond 10,000 unstored."""

AT_ONCE = 2_000
"""So many messages of a consumer are asked for, of the 5,000 that it hands out at the most."""

ASKED_SECONDS = 5.0


class PlainClient:
    """Connected until `close`. Raises `CheckFailed` for whatever the server refuses."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=120.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb", buffering=1 << 20)
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._lines.readline()
        options = {"verbose": False, "headers": True, "no_responders": True, "auth_token": parts.username}
        self._socket.sendall(f"CONNECT {json.dumps(options)}\r\nSUB {self._inbox} 1\r\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._lines.close()
        self._socket.close()

    def create(self, subject: str, body: bytes) -> None:
        """Publish where nothing is yet, and wait until it is stored."""
        self._socket.sendall(_expecting_none(subject, self._inbox, body))
        self._stored()

    def fill(self, subjects: Iterable[str], body: Callable[[int], bytes]) -> None:
        """Publish one message on each subject, `body` by its number."""
        waiting: list[bytes] = []
        for number, subject in enumerate(subjects):
            data = body(number)
            last = len(waiting) == CHUNK - 1
            reply = f" {self._inbox}" if last else ""
            waiting.append(f"PUB {subject}{reply} {len(data)}\r\n".encode() + data + b"\r\n")
            if last:
                self._send(waiting)
        if waiting:
            data = waiting.pop()
            subject, rest = data.removeprefix(b"PUB ").split(b" ", 1)
            waiting.append(b"PUB %s %s %s" % (subject, self._inbox.encode(), rest))
            self._send(waiting)

    def publish(self, together: Iterable[tuple[str, Mapping[str, str], bytes]]) -> None:
        """Publish these, each with its headers, and wait until the server has stored them all."""
        messages = [_headed(subject, self._inbox, headers, body) for subject, headers, body in together]
        self._socket.sendall(b"".join(messages))
        for _ in messages:
            self._stored()

    def acknowledge(self, stream: str, consumer: str, count: int) -> None:
        """Take so many messages of a consumer and acknowledge each."""
        request = json.dumps({"batch": AT_ONCE, "expires": int(ASKED_SECONDS * 1e9)})
        asked = (
            f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer} {self._inbox} {len(request)}\r\n{request}\r\n"
        )
        while count > 0:
            self._socket.sendall(asked.encode())
            answers = []
            while len(answers) < AT_ONCE and (reply := self._handed()):
                answers.append(b"PUB %s 4\r\n+ACK\r\n" % reply)
            self._socket.sendall(b"".join(answers))
            count -= len(answers)

    def _handed(self) -> bytes:
        """Where the next message that a consumer hands out is acknowledged; empty when it has no more."""
        while True:
            line = self._lines.readline()
            match line.split():
                case [b"MSG", _, _, reply, size] | [b"HMSG", _, _, reply, _, size]:
                    self._lines.read(int(size) + 2)
                    return bytes(reply)
                case [b"HMSG", _, _, _, size]:
                    self._lines.read(int(size) + 2)
                    return b""
                case [b"PING"]:
                    self._socket.sendall(b"PONG\r\n")
                case [b"-ERR", *_] | []:
                    raise CheckFailed(f"the server hung up: {line!r}")

    def _send(self, waiting: list[bytes]) -> None:
        self._socket.sendall(b"".join(waiting))
        waiting.clear()
        self._stored()

    def _stored(self) -> None:
        answer = self._answer()
        if "seq" not in answer:
            raise CheckFailed(f"the server did not store a message: {answer}")

    def _answer(self) -> dict[str, Any]:
        while True:
            line = self._lines.readline()
            match line.split():
                case [b"MSG", _, _, size]:
                    return dict(json.loads(self._lines.read(int(size) + 2)))
                case [b"HMSG", *_, size]:
                    raise CheckFailed(f"no stream keeps it: {self._lines.read(int(size) + 2)!r}")
                case [b"PING"]:
                    self._socket.sendall(b"PONG\r\n")
                case [b"-ERR", *_] | []:
                    raise CheckFailed(f"the server hung up: {line!r}")


def _expecting_none(subject: str, reply: str, body: bytes) -> bytes:
    return _headed(subject, reply, {"Nats-Expected-Last-Subject-Sequence": "0"}, body)


def _headed(subject: str, reply: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    sizes = f"{len(head)} {len(head) + len(body)}"
    return f"HPUB {subject} {reply} {sizes}\r\n".encode() + head + body + b"\r\n"
