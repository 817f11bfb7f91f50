"""Stands between a client and a NATS server, to do to the client what a server may."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class NatsRelay:
    """Hands everything on, both ways. `url` is its address. The first `hang_up` callers it hangs up on."""

    def __init__(self, url: str, hang_up: int = 0) -> None:
        self.hang_up = hang_up
        there = urlsplit(url)
        self._target = there.hostname, there.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._clients: list[socket.socket] = []
        self._servers: list[socket.socket] = []
        user, at, _ = there.netloc.rpartition("@")
        self.url = f"nats://{user}{at}127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def say(self, line: bytes) -> None:
        """Tell every client a line as if the server had."""
        for client in self._clients:
            client.sendall(line)

    def close(self) -> None:
        """End every connection and take no more."""
        self._listener.close()
        for one in (*self._clients, *self._servers):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.hang_up:
                    self.hang_up -= 1
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                self._clients.append(client)
                self._servers.append(server)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def nats_relay(url: str, hang_up: int = 0) -> Iterator[NatsRelay]:
    """One for the length of the block."""
    proxy = NatsRelay(url, hang_up)
    try:
        yield proxy
    finally:
        proxy.close()
