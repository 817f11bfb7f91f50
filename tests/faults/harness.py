"""A whole system of real processes on this machine, to be killed and started again.

Everything is synchronous and stopped by process id; leaving the block leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from groundwatch.events import ResponseScored
from groundwatch.runtime.audit import Ledger, audit
from groundwatch.runtime.bus import Bus
from groundwatch.runtime.natsserver import find_binary, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.streams import read_stream
from groundwatch.topology import EXTRACTED, JUDGED, OUTCOMES, RESPONSES

T = TypeVar("T")

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None

ENTRY = Path(__file__).with_name("entry.py")
SERVICES = ("gateway", "extraction", "verification", "scoring")
NATS = "nats"
ACK_WAIT = 4.0
CHUNK = 50
START_SECONDS = 60.0
SETTLE_SECONDS = 45.0


def _die_with_parent() -> None:
    """On Linux, a test run that is itself killed leaves no process behind."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """One process with its log; started as often as it takes."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self._command = list(command)
        self.environment = environment
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, **environment: str) -> None:
        """Start it, with these variables for this once."""
        assert not self.alive, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    def end(self, number: int = signal.SIGTERM, *, patience: float = 40.0) -> int:
        """Signal it and wait; returns its status. Killed when it does not end in time."""
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        return self.wait(patience)

    def wait(self, patience: float = 40.0) -> int:
        """Wait for its end and return its status."""
        assert self._process is not None
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not end in {patience} s; see {self.log}") from None


class System:
    """NATS and services, each a process of its own."""

    def __init__(self, folder: Path, *, engines: str = "hash") -> None:
        self.folder = folder
        self.gateway_port = free_port()
        self.url = f"nats://127.0.0.1:{free_port()}"
        self._ports = {name: free_port() for name in SERVICES}
        self._environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, (*sys.path[:1], *_own_paths()))),
            "FAULT_ACK_WAIT": str(ACK_WAIT),
            "FAULT_ENGINES": engines,
            "GROUNDWATCH_NATS__URL": self.url,
            "GROUNDWATCH_NATS__PUBLISH_TIMEOUT": "3",
            "GROUNDWATCH_GATEWAY__PORT": str(self.gateway_port),
            "GROUNDWATCH_RETRY__FIRST_DELAY": "0.1",
            "GROUNDWATCH_RETRY__MAX_DELAY": "2",
            "GROUNDWATCH_TELEMETRY__LOG_FORMAT": "json",
        }
        store = folder / "nats"
        self.children = {
            NATS: Child(
                NATS,
                (
                    find_binary(),
                    "-js",
                    "-sd",
                    str(store),
                    "-a",
                    "127.0.0.1",
                    "-p",
                    self.url.rpartition(":")[2],
                ),
                {},
                folder / "nats.log",
            )
        }
        for name in SERVICES:
            self.add(name, name, self._ports[name])

    def add(self, name: str, service: str, port: int) -> Child:
        """Another process of a service."""
        self._ports[name] = port
        child = self.children[name] = Child(
            name,
            (sys.executable, str(ENTRY), "serve", service),
            self._environment | {"GROUNDWATCH_TELEMETRY__PORT": str(port)},
            self.folder / f"{name}.log",
        )
        return child

    def start(self) -> None:
        """Start everything and wait until it is ready."""
        self.children[NATS].start()
        self.ask(lambda _: asyncio.sleep(0), patience=START_SECONDS)
        done = subprocess.run(
            (sys.executable, str(ENTRY), "provision"),
            env=os.environ | self._environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for name in SERVICES:
            self.children[name].start()
        self.wait_ready(*SERVICES)

    def wait_ready(self, *names: str) -> None:
        """Wait until these services say that they are ready."""
        deadline = time.monotonic() + START_SECONDS
        for name in names:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    answer = httpx.get(f"http://127.0.0.1:{self._ports[name]}/readyz", timeout=5)
                    if answer.status_code == 200:
                        break
                assert self.children[name].alive, f"{name} ended: {self.tail(name)}"
                assert time.monotonic() < deadline, f"{name} is not ready: {self.tail(name)}"
                time.sleep(0.1)

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
            await bus.connect(patience=patience)
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
    import groundwatch

    return [str(Path(groundwatch.__file__).parents[1])]


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


PASSING = ("unavailable", "backlog")


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
