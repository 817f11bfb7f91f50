"""The gateway as a service: the servers of HTTP and gRPC in the running loop, and what they serve."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from groundwatch.gateway.answers import Index
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.api import HttpApi
from groundwatch.gateway.http.requests import Guard
from groundwatch.gateway.proxy import Proxy
from groundwatch.gateway.receivers.cloudevents import CloudEventRoutes
from groundwatch.gateway.receivers.dynamo import Dynamo
from groundwatch.gateway.receivers.joining import Joiner
from groundwatch.gateway.receivers.nats import SubjectIntake
from groundwatch.gateway.receivers.otlp import Receiver
from groundwatch.gateway.replays import Replays
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import HttpServer

if TYPE_CHECKING:
    from groundwatch.gateway.grpc.server import GrpcServer


class Part(Protocol):
    @property
    def problem(self) -> str: ...


class Running(Part, Protocol):
    """Goes on in the background from its start, which may be awaited, to its stop."""

    def start(self) -> Any: ...

    async def stop(self) -> None: ...


class GatewayService:
    name = "gateway"

    def __init__(
        self,
        settings: Settings,
        bus: Bus,
        metrics: Metrics,
        replays: Replays | None = None,
        run_gauges: Running | None = None,
        answers: Index | None = None,
    ) -> None:
        """`run_gauges` tell Prometheus of replays, which are no business of the gateway's own; `answers`
        is in what answers are found."""
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._replays = replays
        self._run_gauges = run_gauges
        self._answers = answers
        metrics.objective.set(settings.alarm.objective)
        self._server: HttpServer | None = None
        self._grpc: GrpcServer | None = None
        self._joiner: Joiner | None = None
        self._doors: list[Callable[[float], Coroutine[Any, Any, None]]] = []
        """What ends each that something comes in by, within some seconds."""
        self._parts: list[Part] = []
        self._stack = contextlib.AsyncExitStack()
        self._draining = False
        self._timeout = 0.0
        self.held_back = ""
        """Why nobody should be sent here yet, although it serves already."""
        self.any_port = False
        """Whether it listens at another port where its own is taken."""
        self.core: GatewayCore | None = None
        self.app: Guard | None = None
        self.port = 0
        self.grpc_port = 0

    @property
    def url(self) -> str:
        """Where it is reached from this machine."""
        host = self._settings.gateway.host
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Listen, then serve. Raises `UsageError` when a port cannot be had."""
        try:
            await self._start()
        except BaseException:
            await self.drain(0.0)
            raise

    async def _start(self) -> None:
        settings = self._settings.gateway
        self.core = core = GatewayCore(
            self._settings, self._bus, self._metrics, self._replays, self._unready, self._answers
        )
        core.telling.append(self._troubles)
        self._joiner = joiner = Joiner(core)
        receiver, cloud_events = Receiver(core, joiner), CloudEventRoutes(core, joiner)
        await self._run(core.erased)
        await self._run(core.known)
        if settings.grpc_port >= 0:
            # Imported only when wanted: it is a large library.
            from groundwatch.gateway.grpc.server import GrpcServer

            self._grpc = GrpcServer(core, receiver)
        await self._run(core.budgets)
        await core.backlog.look()
        for part in (core.backlog, core.gauges, core.nats_monitor, self._run_gauges, core.live, core.answers):
            if part is not None:
                await self._run(part)
        await self._run(joiner)
        if self._replays is not None:
            self._stack.push_async_callback(self._replays.close)
        self._stack.push_async_callback(core.intake.attachments.close)
        proxy = Proxy(core)
        self._stack.push_async_callback(lambda: proxy.drain(self._timeout))
        self._stack.push_async_callback(self._close_doors)
        self.app = HttpApi(core, receiver, [*cloud_events.routes(), *proxy.routes()]).app()
        server = HttpServer(
            self.app,
            host=settings.host,
            port=settings.port,
            limits=settings.http,
            any_port=self.any_port,
        )
        await server.start()
        self._doors.append(server.stop)
        self._server, self.port = server, server.port
        if self._grpc is not None:
            self._doors.append(self._grpc.stop)
            await self._grpc.start()
            self._parts.append(self._grpc)
            self.grpc_port = self._grpc.port
        subject = SubjectIntake(core)
        self._doors.append(subject.drain)
        await subject.start()
        self._parts.append(subject)
        if settings.dynamo.stream:
            dynamo = Dynamo(core, settings.dynamo, self._settings.nats)
            self._doors.append(dynamo.drain)
            dynamo.start()
        logger.info("gateway.listening", url=self.url)

    async def _run(self, part: Running) -> None:
        """Start it, to be stopped in its turn."""
        self._stack.push_async_callback(part.stop)
        self._parts.append(part)
        if (starting := part.start()) is not None:
            await starting

    async def drain(self, timeout: float) -> None:
        """Say that it is going, and serve on for `gateway.drain_delay`; then accept nothing more, finish open
        requests within `timeout` seconds, and end the streams of live scores."""
        core = self.core
        if core is not None:
            if self._server is not None and not self._draining:
                self._draining = True
                if self.app is not None:
                    self.app.closing = True
                await asyncio.sleep(0.0 if self._bus.lost else self._settings.gateway.drain_delay)
            core.backlog.close()
            core.live.close()
        self._timeout = timeout
        await self._stack.aclose()

    async def _close_doors(self) -> None:
        async with asyncio.TaskGroup() as stopping:
            for close in self._doors:
                stopping.create_task(close(self._timeout))

    def problems(self) -> list[str]:
        """Why nobody should be sent here rather than to another gateway. What all gateways share, such as a
        full backlog or a NATS that is away, is none: this one says so to whoever sends, with `Retry-After`.
        See `notes`."""
        found = [lost] if (lost := self._bus.lost) else []
        if self._server is None:
            found.append("not started")
        elif self._draining:
            found.append("going down")
        return [f"{self.name}: {why}" for why in found]

    def _unready(self) -> list[str]:
        return [*self.problems(), *([f"{self.name}: {self.held_back}"] if self.held_back else [])]

    def notes(self) -> list[str]:
        """What somebody should know although it is no reason to send nobody here."""
        return self.core.notes() if self.core is not None else []

    def _troubles(self) -> list[str]:
        """What does not work here, or not now."""
        found = [away] if (away := self._bus.away) else self._bus.refused()
        core = self.core
        if core is not None and not self._draining and (refusal := core.backlog.refusal()):
            found.append(refusal.message)
        found += [part.problem for part in self._parts if part.problem]
        return [f"{self.name}: {why}" for why in found]
