"""HTTP servers inside a service, and the small one beside each, for Prometheus and Kubernetes.

What uvicorn's protocol leaves open has bounds here: heads, slow senders, slow readers, connections.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groundwatch.addresses import concealed
from groundwatch.errors import UsageError
from groundwatch.runtime.security.same_origin import SameOrigin
from groundwatch.runtime.settings.gateway import HttpSettings
from groundwatch.runtime.telemetry.metrics import Metrics

RETRY_AFTER = "5"

BODY_HEADERS = (b"content-length", b"transfer-encoding")

HEADERS = [("cross-origin-resource-policy", "same-origin"), ("x-content-type-options", "nosniff")]
"""Of every reply. What a page of another site has no use for: a browser does not even tell it whether there
was an image."""

LINGER_SECONDS = 1.0
"""So long is read and dropped what a refused caller still sends: closed at once, it would not see why."""


def telemetry_routes(
    metrics: Metrics,
    problems: Callable[[], Sequence[str]],
    fault: Callable[[], str] = lambda: "",
    notes: Callable[[], Sequence[str]] = tuple,
) -> list[Route]:
    """`/metrics`, `/healthz` and `/readyz`, the last two 503 with what is wrong.

    `problems` are what the process waits to see end; `fault` is what only another process mends. `notes` are
    what somebody should know although all is well: `/readyz` tells them beside.
    """

    async def show_metrics(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def healthz(_: Request) -> Response:
        found = fault()
        return PlainTextResponse(f"{found or 'ok'}\n", status_code=503 if found else 200)

    async def readyz(_: Request) -> Response:
        found, beside = _counted(problems()), _counted(notes())
        told = {"ready": not found, "problems": found} | ({"notes": beside} if beside else {})
        return JSONResponse(told, status_code=503 if found else 200)

    return [Route("/metrics", show_metrics), Route("/healthz", healthz), Route("/readyz", readyz)]


def _counted(lines: Sequence[str]) -> list[str]:
    """Those that are alike as one, with their number."""
    told = Counter(map(concealed, lines))
    return [line if number == 1 else f"{line} ({number} times)" for line, number in told.items()]


class _Refused(Exception):
    """Raised in a callback of the parser, which then stops."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Whatever it is refused for, it is told so in one line of JSON."""

    limits = HttpSettings()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._beside = 0
        """Bytes of the head, or since the last piece of the body."""
        self._receiving_head = False
        self._receiving_body = False
        self._refused = False
        self._refusal: tuple[int, str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, f"{self.limits.max_connections} connections are open already")
            return
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._receiving_head and not self._receiving_body:
            self._begin_head()
        self._beside += len(data)
        super().data_received(data)
        if self._beside <= self.limits.max_head:
            return
        if self._receiving_head:
            self._refuse(*self._head_refusal())
        else:
            self._refuse(400, f"more than {self.limits.max_head} bytes that are no part of the body")

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.limits.max_head:
            self._refusal = self._head_refusal()
            raise _Refused
        upgrade = self.parser.should_upgrade()
        if upgrade and any(name in BODY_HEADERS for name, _ in self.headers):
            # The parser leaves the body to the other protocol, so it would be lost.
            self._refusal = 400, "a body with 'Upgrade' is not read: send it by HTTP/1.1 without that header"
            raise _Refused
        self._receiving_head, self._receiving_body = False, True
        self._beside = 0
        self._stop_timer()
        super().on_headers_complete()
        self.cycle.transport = _Answering(self)  # type: ignore[assignment]
        if upgrade:
            # No other protocol is spoken here; the parser reads no further request.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving_body = False
        self._beside = 0
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._receiving_body and not self._refused and not self.transport.is_closing():
            # Answered before all was sent: the rest is read so that the answer is, but not for ever.
            self._stop_timer()
            self._timer = self.loop.call_later(self.limits.body_timeout, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """What the parser refuses; `on_headers_complete` may have said why."""
        status, message = self._refusal or (400, "not a request of HTTP/1.1")
        self._refuse(status, message)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: it is answered as if the header were not there."""

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch_reader(self, waiting: int) -> None:
        seconds = self.limits.body_timeout
        self._reading = self.loop.call_later(seconds, self._look_at_reader, waiting)

    def _look_at_reader(self, waited: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waited - waiting < self.limits.min_rate * self.limits.body_timeout:
            self.transport.abort()
        else:
            self._watch_reader(waiting)

    def _begin_head(self) -> None:
        """A request's head is awaited from now on."""
        self._receiving_head = True
        self._beside = 0
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.head_timeout, self._head_is_late)

    def _head_is_late(self) -> None:
        self._timer = None
        if self._answering():
            # The answer to an earlier request is under way.
            self._timer = self.loop.call_later(self.limits.head_timeout, self._head_is_late)
        elif self._beside:
            self._refuse(408, f"the request's head was not there after {self.limits.head_timeout:g} s")
        else:
            self.transport.close()

    def _head_refusal(self) -> tuple[int, str]:
        return 431, f"the request's head has more than {self.limits.max_head} bytes"

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: int, message: str) -> None:
        """Answer, unless an answer has begun, and close."""
        self._stop_timer()
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        if self._answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        body = msgspec.json.encode({"error": message})
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        head += [f"{name.decode()}: {value.decode()}" for name, value in self.server_state.default_headers]
        head += ["content-type: application/json", f"content-length: {len(body)}", "connection: close"]
        if status == 503:
            head.append(f"retry-after: {RETRY_AFTER}")
        self.transport.write("\r\n".join((*head, "", "")).encode() + body)
        self._linger()

    def end(self) -> None:
        """Close behind an answer."""
        if self._receiving_body:
            self._stop_timer()
            self._refused = True
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Answering:
    """The transport of one answer, which whoever still sends can read before all is closed."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol.transport, name)

    def close(self) -> None:
        self._protocol.end()


def bounded(limits: HttpSettings) -> type[BoundedProtocol]:
    """The protocol with these bounds, as uvicorn takes it."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits})


class _Embedded(uvicorn.Server):
    """A uvicorn server that leaves signals to the run loop."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


class HttpServer:
    """An ASGI app on a port, inside the running event loop."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        limits: HttpSettings | None = None,
        any_port: bool = False,
    ) -> None:
        """With `any_port` another one does where `port` is taken."""
        self._host = host
        self._ports = (port, 0) if any_port else (port,)
        self.port = port
        self._server = _Embedded(
            uvicorn.Config(
                app,
                http=bounded(limits or HttpSettings()),
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_keep_alive=30,
                headers=HEADERS,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Raises `UsageError` when the port is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for port in self._ports:
            try:
                listener.bind((self._host, port))
                break
            except OSError as error:
                if port != self._ports[-1]:
                    continue
                listener.close()
                raise UsageError(
                    f"cannot listen on {self._host}:{port} ({error.strerror}): choose another port"
                ) from error
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name=f"http-{self.port}")
        while not self._server.started and not self._task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def stop(self, timeout: float) -> None:
        """Take no more connections, finish open requests within `timeout` seconds."""
        if self._task is None:
            return
        self._server.should_exit = True
        try:
            await asyncio.wait_for(asyncio.shield(self._task), timeout)
        except TimeoutError:
            self._server.force_exit = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._task, 2)


def telemetry_server(
    metrics: Metrics,
    problems: Callable[[], Sequence[str]],
    fault: Callable[[], str] = lambda: "",
    *,
    host: str,
    port: int,
    hosts: Sequence[str] = (),
    notes: Callable[[], Sequence[str]] = tuple,
) -> HttpServer:
    """A server with nothing but the telemetry, reached under `hosts`."""
    app = Starlette(routes=telemetry_routes(metrics, problems, fault, notes))
    return HttpServer(SameOrigin(app, (*hosts, host), setting="telemetry.hosts"), host=host, port=port)
