"""A whole system of real processes on this machine, to be killed and started again.

Everything is synchronous and stopped by process id; leaving the block leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
from tests.faults.processes import Child
from tests.faults.servers import NATS as NATS
from tests.faults.servers import servers as nats_servers

from groundwatch.archive.cold import cold_events
from groundwatch.events import ResponseScored
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.local.servers import free_port
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings
from groundwatch.topology import EXTRACTED, JUDGED, OUTCOMES, RESPONSES

T = TypeVar("T")

COMMAND = (sys.executable, str(Path(__file__).with_name("entry.py")))
SERVICES = ("gateway", "extraction", "verification", "scoring")
ACK_WAIT = 4.0
CHUNK = 50
START_SECONDS = 240.0
SETTLE_SECONDS = 45.0


class System:
    """NATS and services, each a process of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        engines: str = "hash",
        services: Mapping[str, str] | None = None,
        servers: int = 1,
        stores: Path | None = None,
        wait: float = 0.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`services` are processes by name, each with the service that it is; `servers` is 1 or 3.

        Each `serve` gets `--wait wait`. `settings` are variables for all of them.
        """
        self.folder = folder
        self.services = dict(services) if services is not None else {name: name for name in SERVICES}
        self.gateway_port = free_port()
        self.nats_ports = [free_port() for _ in range(servers)]
        self.url = ",".join(f"nats://127.0.0.1:{port}" for port in self.nats_ports)
        self._wait = wait
        self._ports: dict[str, int] = {}
        self.environment = {
            "PYTHONPATH": os.pathsep.join(_own_paths()),
            "FAULT_ACK_WAIT": str(ACK_WAIT),
            "FAULT_ENGINES": engines,
            "GROUNDWATCH_NATS__URL": self.url,
            "GROUNDWATCH_NATS__PUBLISH_TIMEOUT": "3",
            "GROUNDWATCH_NATS__REPLICAS": str(servers),
            "GROUNDWATCH_GATEWAY__PORT": str(self.gateway_port),
            "GROUNDWATCH_RETRY__FIRST_DELAY": "0.1",
            "GROUNDWATCH_RETRY__MAX_DELAY": "2",
            "GROUNDWATCH_TELEMETRY__LOG_FORMAT": "json",
            **(settings or {}),
        }
        made = nats_servers(folder, stores or folder, self.nats_ports)
        self.children = {child.name: child for child in made}
        self.servers = tuple(self.children)
        for name, service in self.services.items():
            self.add(name, service, free_port())

    def add(self, name: str, service: str, port: int, **environment: str) -> Child:
        """Another process of a service, with variables of its own."""
        self._ports[name] = port
        child = self.children[name] = Child(
            name,
            (*COMMAND, "serve", service, "--wait", str(self._wait)),
            self.environment | {"GROUNDWATCH_TELEMETRY__PORT": str(port)} | environment,
            self.folder / f"{name}.log",
        )
        return child

    def start(self) -> None:
        """Start everything and wait until it is ready."""
        for name in self.servers:
            self.children[name].start()
        self.ask(lambda _: asyncio.sleep(0), patience=START_SECONDS)
        done = subprocess.run(
            (*COMMAND, "admin", "provision"),
            env=os.environ | self.environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for name in self.services:
            self.children[name].start()
        self.wait_ready(*self.services)

    def wait_ready(self, *names: str) -> None:
        """Wait until these services say that they are ready."""
        deadline = time.monotonic() + START_SECONDS
        for name in names:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    answer = httpx.get(self.readiness(name), timeout=5)
                    if answer.status_code == 200:
                        break
                assert self.children[name].alive, f"{name} ended: {self.tail(name)}"
                assert time.monotonic() < deadline, f"{name} is not ready: {self.tail(name)}"
                time.sleep(0.1)

    def readiness(self, name: str) -> str:
        """Where a service says whether it is ready."""
        return f"http://127.0.0.1:{self._ports[name]}/readyz"

    def metrics(self, name: str) -> str:
        """What Prometheus would read from the service."""
        return httpx.get(f"http://127.0.0.1:{self._ports[name]}/metrics", timeout=5).text

    def kill(self, name: str) -> None:
        """Kill −9."""
        self.children[name].end(signal.SIGKILL)

    def kill_and_restart(self, name: str) -> None:
        """Kill −9, and start again as an operator's supervisor would."""
        self.kill(name)
        time.sleep(0.2)
        self.children[name].start()

    def tail(self, name: str) -> str:
        """The end of its log."""
        log = self.children[name].log
        return log.read_text("utf-8", "replace")[-2_000:] if log.exists() else ""

    def stop(self) -> None:
        """Kill whatever still runs."""
        for child in reversed(self.children.values()):
            with contextlib.suppress(AssertionError):
                child.end(signal.SIGKILL, patience=10)

    def ask(self, question: Callable[[Bus], Awaitable[T]], *, patience: float = 30.0) -> T:
        """Ask NATS something over a connection of our own."""

        async def asking() -> T:
            bus = Bus(NatsSettings(url=self.url), name="harness")
            bus.cold = cold_events(ArchiveSettings(url=self.environment.get("GROUNDWATCH_ARCHIVE__URL", "")))
            await bus.connect(timeout=patience)
            try:
                deadline = time.monotonic() + patience
                while True:
                    try:
                        await bus.js.account_info()
                        return await question(bus)
                    except Exception:
                        if time.monotonic() > deadline:
                            raise
                        await asyncio.sleep(0.2)
            finally:
                await bus.close()

        return asyncio.run(asking())

    def audit(self) -> Ledger:
        """The ledger now."""
        return self.ask(lambda bus: audit(bus.js))

    def settle(self) -> Ledger:
        """Wait until nothing is in flight, and return the ledger."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while (ledger := self.audit()).in_flight and time.monotonic() < deadline:
            time.sleep(0.5)
        return ledger

    def outcomes(self, tenant: str) -> dict[str, dict[str, Any]]:
        """By id, all that a tenant's outcomes say but times and the tenant itself."""

        async def read(bus: Bus) -> dict[str, dict[str, Any]]:
            found: dict[str, dict[str, Any]] = {}
            async for message in read_stream(bus.js, OUTCOMES):
                outcome = msgspec.json.decode(message.data, type=ResponseScored)
                if outcome.tenant == tenant:
                    assert outcome.id not in found, f"two outcomes for {outcome.id}"
                    fields = msgspec.to_builtins(outcome)
                    for name in ("scored_at", "recorded_at", "tenant"):
                        fields.pop(name, None)
                    found[outcome.id] = fields
            return found

        return self.ask(read)

    def held(self, consumer: str, stream: str) -> int:
        """How many messages the consumer waits to have acknowledged."""

        async def look(bus: Bus) -> int:
            return int((await bus.js.consumer_info(stream, consumer)).num_ack_pending or 0)

        return self.ask(look)

    def delivered_again(self, name: str) -> int:
        """How often a stage's consumer has given out a message more than once."""
        stream = {"extraction": RESPONSES, "verification": EXTRACTED, "scoring": JUDGED}.get(name)
        if stream is None:
            return 0

        async def look(bus: Bus) -> int:
            info = await bus.js.consumer_info(stream, name)
            messages = (await bus.js.stream_info(stream)).state.messages
            return int(info.delivered.consumer_seq + info.num_pending - messages)

        return self.ask(look)


def _own_paths() -> list[str]:
    """Of the tests and of the product."""
    import groundwatch

    return [str(Path(__file__).parents[2]), str(Path(groundwatch.__file__).parents[1])]


@contextlib.contextmanager
def system(*, engines: str = "hash") -> Iterator[System]:
    """A started system; killed at the end whatever happened."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-faults-", ignore_cleanup_errors=True) as folder:
        made = System(Path(folder), engines=engines)
        try:
            made.start()
            yield made
        finally:
            made.stop()


class Sender(threading.Thread):
    """Sends responses over HTTP as a patient client would: what was not acknowledged is sent again."""

    def __init__(self, gateway_port: int, lines: Sequence[bytes], *, pause: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._address = f"http://127.0.0.1:{gateway_port}/v1/responses"
        self._lines = lines
        self._pause = pause
        self.done = 0
        self.refused: list[Any] = []
        self._stopped = threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=httpx.Timeout(60, connect=2)) as http:
            for start in range(0, len(self._lines), CHUNK):
                self._deliver(http, self._lines[start : start + CHUNK])
                self.done = min(start + CHUNK, len(self._lines))
                if self._stopped.wait(self._pause):
                    return

    def _deliver(self, http: httpx.Client, lines: Sequence[bytes]) -> None:
        while lines and not self._stopped.is_set():
            try:
                reply = http.post(
                    self._address,
                    content=b"\n".join(lines) + b"\n",
                    headers={"content-type": "application/x-ndjson"},
                )
            except httpx.TransportError:
                self._stopped.wait(0.2)
                continue
            if reply.status_code != 200:
                self._stopped.wait(0.2)
                continue
            told = reply.json()
            again = told.get("retry_from")
            self.refused += [error for error in told["errors"] if error["reason"] not in PASSING]
            lines = lines[again - 1 :] if again else ()

    def at(self, count: int, *, patience: float = 120.0) -> None:
        """Wait until so many are sent."""
        deadline = time.monotonic() + patience
        while self.done < count:
            assert time.monotonic() < deadline, f"{self.done} of {count} sent"
            assert self.is_alive(), "the sender has died"
            time.sleep(0.01)

    def finish(self) -> None:
        """Wait until all are sent."""
        self.join(180)
        assert not self.is_alive(), f"only {self.done} of {len(self._lines)} sent"
        assert not self.refused, self.refused[:3]

    def abandon(self) -> None:
        """Send no more."""
        self._stopped.set()
        self.join(70)


PASSING = ("unavailable", "unconfirmed", "backlog")


@contextlib.contextmanager
def sending(system: System, lines: Sequence[bytes], *, pause: float = 0.0) -> Iterator[Sender]:
    """A running sender, finished with the block."""
    sender = Sender(system.gateway_port, lines, pause=pause)
    sender.start()
    try:
        yield sender
        sender.finish()
    finally:
        sender.abandon()


WORDS = "a red dog sits near two blue cups on an old table while birds watch from far trees".split()  # noqa: SIM905


def responses(tenant: str, count: int) -> list[bytes]:
    """As many responses, the same for every tenant."""
    lines = []
    for number in range(count):
        chosen = random.Random(number).sample(WORDS, 4)
        lines.append(
            msgspec.json.encode(
                {
                    "id": f"r{number}",
                    "tenant": tenant,
                    "model": f"model-{number % 3}",
                    "answer": " ".join((*chosen, str(number))),
                }
            )
        )
    return lines
