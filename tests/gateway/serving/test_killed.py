"""A gateway that is killed at any moment: another one goes on where it was."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import httpx
import msgspec
import pytest
from tests.gateway.otlp.made import PROTOBUF, span, traces
from tests.gateway.otlp.test_joining import CALL, messages
from tests.gateway.serving.test_kserve import answered, asked, kept, log
from tests.runtime.conftest import eventually

from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.topology import INTAKE


class Other:
    """A gateway in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], http: httpx.AsyncClient) -> None:
        self.process = process
        self.http = http

    def kill(self) -> None:
        """Kill −9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


@contextlib.contextmanager
def started(server: NatsServer, port: int) -> Iterator[subprocess.Popen[bytes]]:
    variables = {"GROUNDWATCH_NATS__URL": server.url, "GROUNDWATCH_GATEWAY__PORT": str(port)}
    variables |= {"GROUNDWATCH_TELEMETRY__PORT": str(free_port()), "GROUNDWATCH_CONFIG": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "groundwatch", "serve", "gateway"],
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


@pytest.fixture
async def other(nats_server, clean_streams) -> AsyncIterator[Other]:
    port = free_port()
    with started(nats_server, port) as process:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:

            async def ready() -> bool:
                assert process.poll() is None
                with contextlib.suppress(httpx.HTTPError):
                    return (await http.get("/readyz")).status_code == 200
                return False

            await eventually(ready, within=60)
            yield Other(process, http)


async def test_killed_between_the_halves(other: Other, gateway_factory):
    assert (await log(other, "request", asked())).json()["status"] == "waiting"  # type: ignore[arg-type]
    other.kill()
    gateway = await gateway_factory()
    assert (await log(gateway, "response", answered())).json()["status"] == "recorded"
    assert [one.id for one in await gateway.events()] == ["ce-1"]
    assert await kept(gateway) == 0


async def test_killed_after_both_halves_were_kept(other: Other, gateway_factory, bus):
    """As a crash between storing the second one and recording leaves them."""
    from groundwatch.gateway.receivers.joining import Head
    from groundwatch.keys import response_key

    assert (await log(other, "request", asked())).json()["status"] == "waiting"  # type: ignore[arg-type]
    other.kill()
    head = msgspec.json.encode(Head("default", "ce-1"))
    subject = f"$KV.gw-halves.kserve.{response_key('default', 'ce-1')}.response"
    await bus.js.publish(subject, head + b"\n" + msgspec.json.encode(answered()))
    gateway = await gateway_factory(cloud_events={"wait": 2.0})

    async def joined() -> bool:
        return [one.id for one in await gateway.events()] == ["ce-1"]

    await eventually(joined, within=30)


async def test_killed_before_a_span_is_joined_to_its_logs(other: Other, gateway_factory):
    for path, request in (("/v1/logs", messages()), ("/v1/traces", traces(span(CALL)))):
        reply = await other.http.post(path, content=request.SerializeToString(), headers=PROTOBUF)
        assert (reply.status_code, reply.content) == (200, b"")
    other.kill()
    gateway = await gateway_factory(logged_calls={"join_wait": 0.2})

    async def joined() -> bool:
        # What is left is the mark of a call that has ended.
        answers = [one.answer for one in await gateway.events()]
        return answers == ["A dog."] and await kept(gateway) == 1

    await eventually(joined, within=60)


async def test_killed_while_it_records_what_was_published(other: Other, gateway_factory, bus, response):
    names = [f"k{number}" for number in range(300)]
    for name in names:
        await bus.js.publish("gw.intake.acme", msgspec.json.encode(response(id=name)))

    async def begun() -> bool:
        return (await bus.js.stream_info("GW_RESPONSES")).state.messages > 0

    await eventually(begun, within=30)
    other.kill()
    gateway = await gateway_factory()

    async def empty() -> bool:
        return not (await bus.js.stream_info(INTAKE)).state.messages

    await eventually(empty, within=60)
    assert sorted(one.id for one in await gateway.events()) == sorted(names)
