"""The gateway as a service: the servers of HTTP and gRPC in the running loop, and what they serve."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from groundwatch.gateway.budgets.budgets import Budgets
from groundwatch.gateway.callers import Tokens
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.api import HttpApi
from groundwatch.gateway.intake.intake import Intake
from groundwatch.gateway.live.alarms import AlarmPublisher
from groundwatch.gateway.live.backlog import Backlog, Gauges, StreamGauges
from groundwatch.gateway.live.live import Live
from groundwatch.gateway.replays import Replays
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import HttpServer

if TYPE_CHECKING:
    from groundwatch.gateway.grpc.server import GrpcServer


class GatewayService:
    name = "gateway"

    def __init__(
        self,
        settings: Settings,
        bus: Bus,
        metrics: Metrics,
        replays: Replays | None = None,
        run_gauges: Gauges | None = None,
    ) -> None:
        """`run_gauges` tell Prometheus of replays, which are no business of the gateway's own."""
        self._settings = settings.gateway
        self._replays = replays
        self._run_gauges = run_gauges
        self._bus = bus
        self._metrics = metrics
        self._backlog = Backlog(bus, settings.gateway.intake.max_backlog)
        self._gauges = StreamGauges(bus, metrics)
        metrics.objective.set(settings.alarm.objective)
        self.budgets = Budgets(bus, metrics)
        most = settings.telemetry.max_labels
        alarms = AlarmPublisher(settings.alarm, bus, metrics, most)
        self._live = Live(bus, alarms, self.budgets, most)
        self._server: HttpServer | None = None
        self._erased: Erased | None = None
        self._intake: Intake | None = None
        self._grpc: GrpcServer | None = None
        self.port = 0
        self.grpc_port = 0

    @property
    def url(self) -> str:
        """Where it is reached from this machine."""
        host = self._settings.host
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
        store = ImageStore(self._bus.js)
        self._erased = Erased(self._bus.js, on_image=store.forget)
        await self._erased.start()
        self._intake = Intake(self._settings, self._bus, self._metrics, store, self.budgets, self._erased)
        core = GatewayCore(
            settings=self._settings,
            bus=self._bus,
            metrics=self._metrics,
            store=store,
            intake=self._intake,
            backlog=self._backlog,
            live=self._live,
            tokens=Tokens(self._settings.tokens_file),
            replays=self._replays,
            problems=self.problems,
        )
        if self._settings.grpc_port >= 0:
            # Imported only when wanted: it is a large library.
            from groundwatch.gateway.grpc.server import GrpcServer

            self._grpc = GrpcServer(core)
        await self.budgets.start()
        await self._backlog.look()
        for part in (self._backlog, self._gauges, self._run_gauges, self._live):
            if part is not None:
                part.start()
        server = HttpServer(
            HttpApi(core).app(),
            host=self._settings.host,
            port=self._settings.port,
            limits=self._settings.http,
        )
        await server.start()
        self._server, self.port = server, server.port
        if self._grpc is not None:
            await self._grpc.start()
            self.grpc_port = self._grpc.port
        logger.info("gateway.listening", url=self.url)

    async def drain(self, timeout: float) -> None:
        """Accept nothing more, finish open requests, end the streams of live scores."""
        self._backlog.close()
        self._live.close()
        async with asyncio.TaskGroup() as stopping:
            for server in (self._server, self._grpc):
                if server is not None:
                    stopping.create_task(server.stop(timeout))
        if self._intake is not None:
            await self._intake.attachments.close()
        if self._replays is not None:
            await self._replays.close()
        parts = (self._backlog, self._gauges, self._run_gauges, self._live, self.budgets, self._erased)
        for part in parts:
            if part is not None:
                await part.stop()

    def problems(self) -> list[str]:
        found = self._bus.problems()
        if self._server is None:
            found.append("not started")
        if refusal := self._backlog.refusal():
            found.append(refusal.message)
        watching = (self._gauges, self._run_gauges, self._grpc)
        parts = (self._erased, self._backlog, self._live, self.budgets, *watching)
        found += [part.problem for part in parts if part is not None and part.problem]
        return [f"{self.name}: {why}" for why in found]
