"""What tests of several rooms share: a real NATS server for each test process, provisioned."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import hypothesis
import nats.errors
import pytest
import structlog
from xdist.scheduler import LoadGroupScheduling

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.telemetry.logs import outage
from groundwatch.topology import STREAMS
from tests.support.command_line import answer, nobody, up, written
from tests.support.provisioning import make_as_new, provision_again

if TYPE_CHECKING:
    from tests.support.triton import LiveTriton

__all__ = ["answer", "nobody", "up", "written"]

SHARED = ("triton", "up")
"""Fixtures of the whole session that take long to start: all tests that ask for one run in one process."""


class ByFile(LoadGroupScheduling):
    """Tests of a group run in one process, all others with those of their file."""

    def _split_scope(self, nodeid: str) -> str:
        return str(super()._split_scope(nodeid)).partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """For `--dist loadgroup`, the only way that the Makefile names."""
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Nothing of what is collected is let go again: to look for garbage in it would take a fifth of the time
    in each process, and more whenever a test looks for some later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, Any, Any]:
    """Put tests into the group of what they share, and files with slow ones first: the last process to end
    should not have begun a long one when the others had nothing left."""
    for item in items:
        for name in SHARED:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))
    result = yield
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)
    return result


BusFactory = Callable[..., Awaitable[Bus]]

# How long an example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile(
    "groundwatch", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("groundwatch")


@pytest.fixture(autouse=True)
def _logs_as_at_first() -> Iterator[None]:
    """A command that a test runs in this process sets logging up for the process."""
    yield
    structlog.reset_defaults()
    outage.end(0.0)


@pytest.fixture(autouse=True, scope="session")
def _as_nice_as_at_first() -> Iterator[None]:
    """A replay that a test does in this process would let all later tests, and their servers, go last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "nice", lambda _more: 0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _certificates_read_once() -> Iterator[None]:
    """Each HTTP client reads the authorities that are trusted, which takes as long as most tests."""
    read = httpx.create_ssl_context

    @functools.lru_cache
    def read_once(_named: tuple[str | None, ...], **given: Any) -> ssl.SSLContext:
        return read(**given)

    def create_ssl_context(**given: Any) -> ssl.SSLContext:
        return read_once((os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")), **given)

    with pytest.MonkeyPatch.context() as patch:
        for where in (httpx, httpx._transports.default):
            patch.setattr(where, "create_ssl_context", create_ssl_context)
        yield


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A nats-server of this test process alone, provisioned. It outlives every test's event loop, so a
    thread with a loop of its own looks after the child."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="nats-server", daemon=True)
    thread.start()

    async def start(folder: Path) -> NatsServer:
        server = NatsServer(folder, monitored=True)
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="provision")
        await bus.connect()
        await provision(bus.js)
        await bus.close()
        return server

    with tempfile.TemporaryDirectory(prefix="groundwatch-test-", ignore_cleanup_errors=True) as folder:
        server = asyncio.run_coroutine_threadsafe(start(Path(folder)), loop).result(60)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)


@pytest.fixture(scope="session")
def triton() -> Iterator[LiveTriton]:
    """The real tritonserver of this test process with tiny checkpoints: see tests/support/triton.py."""
    # Here, since it imports torch, which takes seconds.
    from tests.support.triton import live

    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-triton-", ignore_cleanup_errors=True) as folder,
        live(Path(folder)) as triton,
    ):
        yield triton


@pytest.fixture
async def bus_factory(nats_server: NatsServer) -> AsyncIterator[BusFactory]:
    """Makes connected buses, closed after the test: `await bus_factory("name", publish_timeout=1.0)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(name: str = "test", **settings: object) -> Bus:
            bus = Bus(NatsSettings(**({"url": nats_server.url} | settings)), name=name)
            await bus.connect()
            stack.push_async_callback(bus.close)
            return bus

        yield make


@pytest.fixture
async def bus(bus_factory: BusFactory) -> Bus:
    """A connected bus."""
    return await bus_factory()


@pytest.fixture
async def clean_streams(bus: Bus) -> AsyncIterator[None]:
    """Streams, consumers and buckets as new; afterwards all are there again, whatever the test deleted."""
    await make_as_new(bus.js)
    yield
    with contextlib.suppress(nats.errors.Error, TimeoutError):
        there = await bus.js._api_request("$JS.API.STREAM.NAMES")
        if not {spec.name for spec in STREAMS} <= set(there["streams"] or ()):
            await provision_again(bus.js)


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server of this test alone, to be stopped and killed."""
    server = NatsServer(tmp_path / "nats")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
