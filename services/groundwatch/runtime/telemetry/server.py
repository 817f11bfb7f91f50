"""The small HTTP server beside every service: metrics for Prometheus, health for Kubernetes."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from groundwatch.addresses import concealed
from groundwatch.errors import UsageError
from groundwatch.runtime.security.same_origin import SameOrigin
from groundwatch.runtime.settings import HttpSettings
from groundwatch.runtime.telemetry.http_protocol import bounded
from groundwatch.runtime.telemetry.metrics import Metrics


def nothing() -> str:
    """No reason to end."""
    return ""


def telemetry_routes(
    metrics: Metrics, problems: Callable[[], Sequence[str]], fault: Callable[[], str] = nothing
) -> list[Route]:
    """`/metrics`, `/healthz` and `/readyz`, the last two 503 with what is wrong.

    `problems` are what the process waits to see end; `fault` is what only another process mends.
    """

    async def show_metrics(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def healthz(_: Request) -> Response:
        found = fault()
        return PlainTextResponse(f"{found or 'ok'}\n", status_code=503 if found else 200)

    async def readyz(_: Request) -> Response:
        found = [concealed(one) for one in problems()]
        return JSONResponse({"ready": not found, "problems": found}, status_code=503 if found else 200)

    return [
        Route("/metrics", show_metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]


class _Embedded(uvicorn.Server):
    """A uvicorn server that leaves signals to the run loop."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


class HttpServer:
    """An ASGI app on a port, inside the running event loop."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, limits: HttpSettings | None = None) -> None:
        self._host = host
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
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Raises `UsageError` when the port is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self.port))
        except OSError as error:
            listener.close()
            raise UsageError(
                f"cannot listen on {self._host}:{self.port} ({error.strerror}): choose another port"
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
    fault: Callable[[], str] = nothing,
    *,
    host: str,
    port: int,
    hosts: Sequence[str] = (),
) -> HttpServer:
    """A server with nothing but the telemetry, reached under `hosts`."""
    app = Starlette(routes=telemetry_routes(metrics, problems, fault))
    return HttpServer(SameOrigin(app, (*hosts, host), setting="telemetry.hosts"), host=host, port=port)
