"""SubmitStream: acknowledgements in order, a bounded number in the air, and how a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub


def numbered(
    count: int, size: int = 1, prefix: str = "r"
) -> Callable[[], AsyncIterator[pb.SubmitStreamRequest]]:
    async def requests() -> AsyncIterator[pb.SubmitStreamRequest]:
        for start in range(0, count, size):
            yield pb.SubmitStreamRequest(
                responses=[
                    pb.Response(id=f"{prefix}{number}", model="m", answer="A dog.")
                    for number in range(start, min(start + size, count))
                ]
            )

    return requests


async def collect(call: Any) -> tuple[list[pb.SubmitResult], grpc.aio.AioRpcError | None]:
    """Every result, and how it ended if not well."""
    found: list[pb.SubmitResult] = []
    try:
        async for told in call:
            assert told.first == len(found) + 1
            found += told.results
    except grpc.aio.AioRpcError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("size", [1, 7, 500])
async def test_acknowledgements_come_in_the_order_sent(gateway, stub, size):
    found, error = await collect(stub.SubmitStream(numbered(1_000, size)(), timeout=60))
    assert error is None
    assert [result.id for result in found] == [f"r{number}" for number in range(1_000)]
    assert {result.status for result in found} == {pb.SUBMIT_STATUS_RECORDED}
    assert len(await gateway.events()) == 1_000


async def test_each_is_acknowledged_while_the_stream_stays_open(gateway, stub):
    call = stub.SubmitStream(timeout=30)
    for number in range(5):
        response = pb.Response(id=f"r{number}", model="m", answer="A dog.")
        await call.write(pb.SubmitStreamRequest(responses=[response]))
        told = await call.read()
        assert (told.first, [result.id for result in told.results]) == (number + 1, [f"r{number}"])
        assert len(await gateway.events()) == number + 1
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_an_empty_stream_is_none(stub):
    assert await collect(stub.SubmitStream(numbered(0)(), timeout=10)) == ([], None)


async def test_who_does_not_read_is_not_read_from(gateway_factory, bus):
    gateway = await gateway_factory(grpc_port=0, intake={"in_flight": 8})
    options = [("grpc.http2.lookahead_bytes", 1_024), ("grpc.http2.bdp_probe", 0)]
    address = f"127.0.0.1:{gateway.service.grpc_port}"
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        call = MonitorServiceStub(channel).SubmitStream(numbered(3_000, prefix="i" * 200)(), timeout=60)
        recorded, before = 0, -1
        while recorded != before:
            await asyncio.sleep(1.5)
            before, recorded = recorded, (await bus.js.stream_info("GW_RESPONSES")).state.messages
        assert 8 <= recorded < 3_000, "the gateway goes on although nobody reads its acknowledgements"
        found, error = await collect(call)
    assert error is None
    assert len(found) == 3_000
    assert gateway.count("groundwatch_responses_total", tenant="default", model="m") == 3_000


async def test_a_caller_that_goes_leaves_nothing_half_done(gateway, stub):
    call = stub.SubmitStream(timeout=30)
    responses = [pb.Response(id=f"r{number}", model="m", answer="A dog.") for number in range(200)]
    await call.write(pb.SubmitStreamRequest(responses=responses))
    await call.read()
    call.cancel()
    found, error = await collect(stub.SubmitStream(numbered(200)(), timeout=30))
    assert error is None
    assert {result.status for result in found} <= {pb.SUBMIT_STATUS_RECORDED, pb.SUBMIT_STATUS_DUPLICATE}
    assert len(await gateway.events()) == 200
    for _ in range(100):
        counted = gateway.count("groundwatch_responses_total", tenant="default", model="m")
        if counted == 200:
            break
        await asyncio.sleep(0.05)
    assert counted == 200


async def test_a_full_backlog_ends_the_stream_and_what_was_acknowledged_counts(
    gateway_factory, stub_factory, monkeypatch
):
    monkeypatch.setattr("groundwatch.gateway.intake.window.TIMEOUT", 0.2)
    # Fewer in the air than are sent: else all might be on their way before the first is counted.
    gateway = await gateway_factory(grpc_port=0, intake={"max_backlog": 10, "in_flight": 20})
    stub = await stub_factory(gateway)
    found, error = await collect(stub.SubmitStream(numbered(100)(), timeout=30))
    assert error is not None
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    recorded = [result.id for result in found if result.status == pb.SUBMIT_STATUS_RECORDED]
    assert recorded == [f"r{number}" for number in range(len(recorded))]
    assert {event.id for event in await gateway.events()} == set(recorded)
    assert {result.reason for result in found[len(recorded) :]} <= {"backlog"}


async def test_a_stream_of_events_that_is_gone_ends_it(gateway_factory, stub_factory, bus, monkeypatch):
    monkeypatch.setattr("groundwatch.gateway.intake.window.TIMEOUT", 0.3)
    gateway = await gateway_factory(grpc_port=0, nats={"publish_timeout": 0.3})
    stub = await stub_factory(gateway)
    await bus.js.delete_stream("GW_RESPONSES")
    found, error = await collect(stub.SubmitStream(numbered(100)(), timeout=30))
    assert error is not None
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert {result.reason for result in found} == {"unavailable"}


async def test_a_gateway_that_goes_down_acknowledges_what_it_has(gateway, stub):
    call = stub.SubmitStream(timeout=30)
    responses = [pb.Response(id=f"r{number}", model="m", answer="A dog.") for number in range(50)]
    await call.write(pb.SubmitStreamRequest(responses=responses))
    told = await call.read()
    assert len(told.results) > 0
    draining = asyncio.create_task(gateway.service.drain(5.0))
    found, error = await collect_rest(call)
    await draining
    assert error is not None
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert len(await gateway.events()) == len(told.results) + len(found)


async def collect_rest(call: Any) -> tuple[list[pb.SubmitResult], grpc.aio.AioRpcError | None]:
    """What is left of a stream that was read from before."""
    found: list[pb.SubmitResult] = []
    try:
        while (told := await call.read()) is not grpc.aio.EOF:
            found += told.results
        if await call.code() is grpc.StatusCode.OK:
            return found, None
        raise await _error(call)
    except grpc.aio.AioRpcError as error:
        return found, error


async def _error(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        await call.code(), grpc.aio.Metadata(), grpc.aio.Metadata(), await call.details()
    )
