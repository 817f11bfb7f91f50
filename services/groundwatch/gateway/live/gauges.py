"""What Prometheus is told of the streams and of the servers of NATS."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime

import httpx
import msgspec
import nats.js.errors
from nats.js.api import ConsumerInfo

from groundwatch.addresses import shown_address
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.security.connecting import tls_context
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import DEAD, ConsumerSpec
from groundwatch.topology.partitions import consumers

SHOW_SECONDS = 5.0
LOOK_SECONDS = 10.0
TIMEOUT_SECONDS = 5.0
MAX_BYTES = 16 * 1024 * 1024
NO_LIMIT = 2**62
"""What Go takes for the memory limit where none is set is near 2^63."""


class Server(msgspec.Struct):
    """Of `/varz`: the process."""

    server_name: str = ""
    mem: int = 0
    gomemlimit: int = 0
    slow_consumers: int = 0
    tls_cert_not_after: datetime | None = None


class Peer(msgspec.Struct):
    """A copy of a stream on another server, as its leader sees it."""

    name: str = ""
    current: bool = False
    offline: bool = False


class Group(msgspec.Struct):
    """Servers that keep copies of one thing. Each knows the leader, who alone knows of the others."""

    leader: str = ""
    replicas: list[Peer] | None = None


class Stream(msgspec.Struct):
    cluster: Group | None = None


class Account(msgspec.Struct):
    stream_detail: list[Stream] = []


class Limits(msgspec.Struct):
    max_memory: int = 0
    max_storage: int = 0


class JetStream(msgspec.Struct):
    """Of `/jsz?streams=true`: what the server stores."""

    disabled: bool = False
    memory: int = 0
    storage: int = 0
    config: Limits = msgspec.field(default_factory=Limits)
    meta_cluster: Group | None = None
    account_details: list[Account] = []

    def groups(self) -> list[Group]:
        """All that the server keeps copies of, with the group that assigns streams to servers."""
        streams = [stream for account in self.account_details for stream in account.stream_detail]
        return [*filter(None, (self.meta_cluster, *(stream.cluster for stream in streams)))]

    def behind(self, leader: str) -> int:
        """How many copies of what this server leads are not up to date."""
        led = [group for group in self.groups() if group.leader == leader]
        return sum(peer.offline or not peer.current for group in led for peer in group.replicas or ())


class NatsMonitor(SupervisedTask):
    """Looks at each server of `nats.monitor_url` every few seconds. What cannot be seen is not shown."""

    def __init__(self, settings: NatsSettings, metrics: Metrics) -> None:
        super().__init__("nats-monitor", self._watch)
        self._metrics = metrics
        self._shown = metrics.nats
        # A monitoring port is near: no proxy of the environment stands before it.
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT_SECONDS, trust_env=False, verify=tls_context(settings) or True
        )
        self._servers = {httpx.URL(url).netloc.decode(): url for url in settings.monitors}
        self._slow: dict[str, int] = {}
        self.seen: dict[str, tuple[Server, JetStream] | None] = {}
        """What each told last, by its address; None where it did not answer."""

    async def stop(self) -> None:
        await super().stop()
        await self._http.aclose()

    async def look(self) -> None:
        """Ask all servers at once; one that does not answer is shown as such."""
        await asyncio.gather(*(self._look_at(name, url) for name, url in self._servers.items()))

    async def _look_at(self, name: str, url: str) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                process = msgspec.json.decode(await self._get(f"{url}/varz"), type=Server)
                stored = msgspec.json.decode(await self._get(f"{url}/jsz?streams=true"), type=JetStream)
        except (httpx.HTTPError, TimeoutError, msgspec.MsgspecError) as error:
            self._forget(name)
            self._shown.monitor_up.labels(name).set(0)
            if self.seen.get(name, ()) is not None:
                logger.warning("nats.monitor", server=shown_address(url), error=repr(error))
            self.seen[name] = None
            return
        self._show(name, process, stored)

    async def _get(self, url: str) -> bytes:
        """Raises `httpx.HTTPError`, also for an answer that is none of a monitoring port."""
        body = bytearray()
        async with self._http.stream("GET", url) as reply:
            async for part in reply.raise_for_status().aiter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise httpx.DecodingError(f"more than {MAX_BYTES} bytes")
        return bytes(body)

    def _show(self, name: str, process: Server, stored: JetStream) -> None:
        shown = self._shown
        shown.monitor_up.labels(name).set(1)
        shown.memory.labels(name).set(process.mem)
        if 0 < process.gomemlimit < NO_LIMIT:
            shown.memory_limit.labels(name).set(process.gomemlimit)
        for store, used, limit in (
            ("file", stored.storage, stored.config.max_storage),
            ("memory", stored.memory, stored.config.max_memory),
        ):
            shown.stored.labels(name, store).set(used)
            shown.store_limit.labels(name, store).set(limit)
        shown.jetstream_up.labels(name).set(not stored.disabled)
        shown.leaderless.labels(name).set(sum(not group.leader for group in stored.groups()))
        shown.replicas_behind.labels(name).set(stored.behind(process.server_name))
        self.seen[name] = process, stored
        # Since the server's start, and less than before when it has started again.
        before = self._slow.get(name, 0)
        self._slow[name] = process.slow_consumers
        grown = process.slow_consumers - before
        shown.slow_consumers.labels(name).inc(grown if grown >= 0 else process.slow_consumers)
        if process.tls_cert_not_after is not None:
            end = process.tls_cert_not_after.timestamp()
            self._metrics.certificate_end.labels(f"nats {name}").set(end)

    def _forget(self, name: str) -> None:
        for gauge in self._shown.figures():
            gauge.remove_by_labels({"server": name})

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)


class StreamGauges(SupervisedTask):
    """Looks at consumers and dead letters every few seconds. What cannot be seen is not shown."""

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
        super().__init__("gateway-gauges", self._watch)
        self._bus = bus
        self._metrics = metrics
        self._blind = False
        self.seen: dict[str, tuple[str, ConsumerInfo | None]] = {}
        """By consumer its stage, and what the server said last; None where it has yet to be provisioned."""

    async def look(self) -> None:
        """Ask the server once. Raises what NATS raises."""
        for spec in consumers(self._bus.partitions):
            await self._look_at(spec)
        with contextlib.suppress(nats.js.errors.NotFoundError):
            letters = (await self._bus.js.stream_info(DEAD)).state.messages
            self._metrics.dead_letters_waiting.set(letters)

    async def _look_at(self, spec: ConsumerSpec) -> None:
        labels = (spec.stage, spec.name)
        metrics = self._metrics
        try:
            info = await self._bus.js.consumer_info(spec.stream, spec.name)
        except nats.js.errors.NotFoundError:
            self.seen[spec.name] = spec.stage, None
            metrics.consumer_up.labels(spec.name).set(0)
            for gauge in (metrics.consumer_lag, metrics.consumer_pulls, metrics.consumer_delivered):
                with contextlib.suppress(KeyError):
                    gauge.remove(*labels)
            return
        metrics.consumer_up.labels(spec.name).set(1)
        metrics.consumer_lag.labels(*labels).set((info.num_pending or 0) + (info.num_ack_pending or 0))
        metrics.consumer_pulls.labels(*labels).set(info.num_waiting or 0)
        self.seen[spec.name] = spec.stage, info
        metrics.consumer_delivered.labels(*labels).set(info.delivered.consumer_seq if info.delivered else 0)

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
                self._blind = False
            except FAULTS as error:
                # A number that nobody has seen for a while is worse than none.
                self.seen.clear()
                self._metrics.consumer_lag.clear()
                self._metrics.consumer_pulls.clear()
                if not self._blind:
                    logger.warning("gateway.gauges", error=repr(error))
                self._blind = True
            await asyncio.sleep(SHOW_SECONDS)
