"""A real gateway for the client, and servers that behave as badly as gateways may."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.gateway.conftest import gateway, gateway_factory, image_server, pictures

__all__ = ["BadGateway", "bad_gateway", "gateway", "gateway_factory", "image_server", "pictures"]


class BadGateway:
    """Does what its script says, request by request, the last of it for ever: a status, with `Retry-After`
    after a colon; `ok`; `slow:SECONDS`; `hang`; `close`; `junk`; `taken`, which takes the lines and hangs up;
    `away:SECONDS`, which hangs up so long, and takes them then; `drip`, which never ends its answer. Notes
    the ids that it took, and losses, to which it answers `losses_status`.
    """

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.ids: list[str] = []
        self.requests: list[tuple[float, int]] = []
        """When each request with responses came, and with how many lines."""
        self.losses: list[dict[str, Any]] = []
        self.losses_status = 200
        self.losses_faults = 0
        self._began = time.monotonic()
        self.freed = threading.Event()
        bad = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                with contextlib.suppress(OSError):
                    bad.serve(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.freed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = _body(request)
        if request.path == "/v1/losses":
            if self.losses_faults:
                self.losses_faults -= 1
                _reply(request, 503, {"error": "away"})
            elif self.losses_status == 200:
                self.losses.append(report := msgspec.json.decode(body))
                named = [one["reason"] for one in report.get("unconfirmed", ()) if one["id"] in self.ids]
                _reply(request, 200, {"counted": 1, "recorded": Counter(named)})
            else:
                _reply(request, self.losses_status, {"error": "away"})
            return
        lines = [msgspec.json.decode(line) for line in body.splitlines()]
        self.requests.append((time.monotonic(), len(lines)))
        what = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        kind, _, value = what.partition(":")
        match kind:
            case "ok" | "slow":
                time.sleep(float(value or 0))
                self.ids += [line["id"] for line in lines]
                _reply(request, 200, {"accepted": len(lines), "duplicates": 0, "refused": 0, "errors": []})
            case "away" if time.monotonic() > self._began + float(value):
                self.ids += [line["id"] for line in lines]
                _reply(request, 200, {"accepted": len(lines), "duplicates": 0, "refused": 0, "errors": []})
            case "taken" | "away":
                if kind == "taken":
                    self.ids += [line["id"] for line in lines]
                request.close_connection = True
            case "drip":
                request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not self.freed.wait(0.1):
                    request.wfile.write(b" ")
            case "hang":
                self.freed.wait(60)
            case "close":
                request.close_connection = True
            case "junk":
                request.wfile.write(b"this is not HTTP\r\n\r\n")
                request.close_connection = True
            case _:
                _reply(request, int(kind), {"error": kind}, {"Retry-After": value} if value else {})


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if "content-length" in request.headers:
        return request.rfile.read(int(request.headers["content-length"]))
    body = b""
    while size := int(request.rfile.readline().strip() or b"0", 16):
        body += request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
    return body


def _reply(
    request: BaseHTTPRequestHandler, status: int, body: object, headers: dict[str, str] | None = None
) -> None:
    data = msgspec.json.encode(body)
    request.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(data)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where reports of losses wait that no gateway took."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "groundwatch" / "losses"


@pytest.fixture
def bad_gateway() -> Iterator[Callable[..., BadGateway]]:
    """Starts them: `bad_gateway("503:1", "ok")`."""
    started: list[BadGateway] = []

    def start(*script: str) -> BadGateway:
        started.append(BadGateway(*script))
        return started[-1]

    yield start
    for one in started:
        one.close()
