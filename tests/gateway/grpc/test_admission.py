"""What one caller can have the gRPC door hold, and for how long: real clients, and raw HTTP/2."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from tests.gateway.grpc.test_server import channel_to, code_of, submitted

from groundwatch.gateway.grpc.generated import monitor_pb2 as pb

SUBMIT = "/groundwatch.v1.MonitorService/Submit"
DATA, HEADERS, RST, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_HEADERS, END_STREAM = 4, 1
SOON = 10.0


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def head(path: str, **more: str) -> bytes:
    """The block of a call's headers, with nothing packed."""
    said = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    said |= {"content-type": "application/grpc", "te": "trailers"} | more
    out = b""
    for name, value in said.items():
        out += bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return out


@contextlib.asynccontextmanager
async def raw(gateway: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.service.grpc_port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
    try:
        yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether a stream, or the connection, is ended soon."""
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        async with asyncio.timeout(SOON):
            while True:
                said = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(said[:3], "big"))
                if said[3] in (RST, GOAWAY) or (said[3] == HEADERS and said[4] & END_STREAM):
                    return True
    return reader.at_eof()


async def test_a_message_that_does_not_come_is_not_waited_for(gateway_factory, stub_factory):
    gateway = await gateway_factory(grpc_port=0, grpc={"calls": 1}, http={"body_timeout": 0.5})
    stub = await stub_factory(gateway)
    async with raw(gateway) as (reader, writer):
        writer.write(frame(HEADERS, END_HEADERS, 1, head(SUBMIT)))
        writer.write(frame(DATA, 0, 1, b"\0" + (1000).to_bytes(4, "big") + b"x" * 10))
        await asyncio.sleep(0.1)
        # It has the only place: who comes behind it waits, and is answered.
        assert (await stub.Submit(submitted(), timeout=10)).status == pb.SUBMIT_STATUS_RECORDED
        assert await ended(reader)


async def test_the_token_is_looked_at_before_the_message(gateway_factory, tmp_path: Path):
    path = tmp_path / "tokens"
    path.write_text("* every-token-0123456789\n")
    gateway = await gateway_factory(grpc_port=0, tokens_file=str(path))
    async with raw(gateway) as (reader, writer):
        writer.write(frame(HEADERS, END_HEADERS, 1, head(SUBMIT)))
        assert await ended(reader)


async def test_what_is_no_message_is_told(gateway):
    async with channel_to(gateway) as channel:
        plain = channel.unary_unary(SUBMIT)
        code, told = await code_of(plain(b"\xff\xff\xff", timeout=10))
        assert (code, "does not decode" in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        stream = channel.stream_stream("/groundwatch.v1.MonitorService/SubmitStream")
        code, told = await code_of(anext(aiter(stream(iter([b"\xff\xff\xff"]), timeout=10))))
        assert (code, "does not decode" in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        none = channel.stream_unary(SUBMIT)
        code, told = await code_of(none(iter(()), timeout=10))
        assert (code, "no message" in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_metadata_and_messages_have_bounds(gateway_factory, stub_factory):
    gateway = await gateway_factory(grpc_port=0, intake={"max_line": 100_000})
    stub = await stub_factory(gateway)
    code, _ = await code_of(stub.Submit(submitted(), metadata=(("x", "y" * 100_000),), timeout=10))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    code, _ = await code_of(stub.Submit(submitted(answer="x" * 150_000), timeout=10))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await stub.Submit(submitted(), timeout=10)).status == pb.SUBMIT_STATUS_RECORDED


async def test_streams_of_responses_have_a_bound(gateway_factory, stub_factory):
    gateway = await gateway_factory(grpc_port=0, grpc={"calls": 2})
    stub = await stub_factory(gateway)
    open_ = [stub.SubmitStream() for _ in range(2)]
    for number, call in enumerate(open_):
        await call.write(pb.SubmitStreamRequest(responses=[submitted(f"s{number}").response]))
        assert (await call.read()).results[0].status == pb.SUBMIT_STATUS_RECORDED
    code, told = await code_of(anext(aiter(stub.SubmitStream(iter([]), timeout=10))))
    assert (code, "2 streams" in told) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    # They take no place from calls of one message.
    assert (await stub.Submit(submitted(), timeout=10)).status == pb.SUBMIT_STATUS_RECORDED
    for call in open_:
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK


async def test_bytes_that_are_no_call_leave_the_others_alone(gateway, stub):
    for sent in (
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(1000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000,
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.service.grpc_port)
        writer.write(sent)
        await asyncio.sleep(0.05)
        writer.close()
    assert (await stub.Submit(submitted(), timeout=10)).status == pb.SUBMIT_STATUS_RECORDED
