"""What one caller can have the gateway hold, and for how long: raw sockets against real ports."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from PIL import Image
from pydantic import ValidationError

from groundwatch.runtime.settings import Settings
from groundwatch.section import in_words

SOON = 5.0
LIMITS = {"max_line": 10_000, "max_image_bytes": 10_000}
POST = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
JSON = POST + "Content-Type: application/json\r\n"
BULK = POST + "Content-Type: application/x-ndjson\r\n"


class Raw:
    """A connection on which anything can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: str | bytes) -> None:
        """Send; a server that has closed already is no error here."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data if isinstance(data, bytes) else data.encode())
            await self.writer.drain()

    async def reply(self) -> tuple[int, dict[str, str], Any]:
        """The next reply: status, headers and what its JSON says."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), SOON)).decode().split("\r\n")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head[1:-2]}
        body = await asyncio.wait_for(self.reader.readexactly(int(headers["content-length"])), SOON)
        assert headers["content-type"] == "application/json"
        return int(head[0].split()[1]), headers, json.loads(body)

    async def closed(self) -> bool:
        """Whether the server closes soon, having sent nothing more."""
        try:
            return await asyncio.wait_for(self.reader.read(1), SOON) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


@contextlib.asynccontextmanager
async def connected(gateway: Any) -> AsyncIterator[Raw]:
    """A connection to it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.service.port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def hasty(gateway_factory: Any) -> Any:
    """A gateway that waits for nobody."""
    return await gateway_factory(http={"head_timeout": 0.3, "body_timeout": 0.4, "min_rate": 1_000})


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 100_000 + "\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n" + "X: y\r\n" * 50_000 + "\r\n",
        "GET /" + "x" * 100_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 5_000_000,
        "GET / HTTP/1.1\r\nHost: localhost\r\n" + "x" * 5_000_000,
    ],
    ids=["a-value", "many", "address", "without-end", "a-name"],
)
async def test_a_head_has_a_bound_before_any_token_is_asked(gateway, head):
    async with connected(gateway) as raw:
        sending = asyncio.create_task(raw.send(head))
        status, headers, told = await raw.reply()
        assert (status, headers["connection"]) == (431, "close")
        assert "65536 bytes" in told["error"]
        assert await raw.closed()
        sending.cancel()


async def test_trailers_and_what_stands_beside_chunks_have_a_bound(gateway):
    for endless in (
        b"0\r\n" + b"X: y\r\n" * 200_000,
        b"0\r\nX: " + b"y" * 1_000_000,
        b"1;" + b"x" * 1_000_000,
    ):
        async with connected(gateway) as raw:
            await raw.send(BULK + "Transfer-Encoding: chunked\r\n\r\n")
            sending = asyncio.create_task(raw.send(endless))
            status, _, told = await raw.reply()
            assert status in (400, 431), told
            assert await raw.closed()
            sending.cancel()


async def test_a_head_that_comes_slowly_is_cut(hasty):
    async with connected(hasty) as raw:
        await raw.send("GET / HTTP/1.1\r\nHost:")
        for _ in range(4):
            await asyncio.sleep(0.1)
            await raw.send("x")
        status, headers, told = await raw.reply()
        assert (status, headers["connection"]) == (408, "close")
        assert "0.3 s" in told["error"]
        assert await raw.closed()


@pytest.mark.parametrize("drop", [b"", b"\r\n"])
async def test_a_connection_that_asks_nothing_is_closed(hasty, drop):
    async with connected(hasty) as raw, asyncio.timeout(SOON):
        while not raw.reader.at_eof():
            await raw.send(drop)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await raw.reader.read(1000)


async def test_the_next_request_on_a_connection_is_cut_too(hasty):
    async with connected(hasty) as raw:
        await raw.send("GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await raw.reply())[0] == 404
        await raw.send("GET /v1/nothing HTTP/1.1\r\n")
        assert (await raw.reply())[0] == 408


async def test_a_body_that_comes_slowly_is_cut(hasty, response):
    for kind in (JSON, JSON.replace("responses", "images").replace("application/json", "image/png")):
        async with connected(hasty) as raw:
            await raw.send(kind + "Content-Length: 1000\r\n\r\n{")
            for _ in range(3):
                await asyncio.sleep(0.1)
                await raw.send(" ")
            status, headers, told = await raw.reply()
            assert (status, told["reason"], headers["connection"]) == (408, "slow", "close")
            assert "\n" not in told["error"]
            assert await raw.closed()


async def test_who_goes_on_sending_slowly_is_told_all_the_same(hasty):
    async with connected(hasty) as raw:
        await raw.send(JSON + "Content-Length: 1000\r\n\r\n{")
        for _ in range(8):
            await asyncio.sleep(0.1)
            await raw.send(" ")
        status, _, told = await raw.reply()
        assert (status, told["reason"]) == (408, "slow")


async def test_a_bulk_that_stops_is_told_what_was_recorded_of_it(hasty, response):
    lines = [json.dumps(response()) for _ in range(3)]
    async with connected(hasty) as raw:
        await raw.send(BULK + "Content-Length: 100000\r\n\r\n" + "\n".join(lines))
        status, _, told = await raw.reply()
    assert (status, told["reason"]) == (408, "slow")
    assert (told["accepted"], told["retry_from"]) == (2, 3)
    assert [event.id for event in await hasty.events()] == ["r1", "r2"]


async def test_a_steady_sender_is_not_cut(hasty, response):
    async with connected(hasty) as raw:
        await raw.send(BULK + "Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.15)
            line = json.dumps(response(tags={"padding": "x" * 500})).encode() + b"\n"
            await raw.send(b"%x\r\n%b\r\n" % (len(line), line))
        await raw.send("0\r\n\r\n")
        status, _, told = await raw.reply()
    assert (status, told["accepted"]) == (200, 8)


async def test_what_is_sent_behind_an_answer_is_not_read_for_ever(hasty):
    async with connected(hasty) as raw, asyncio.timeout(SOON):
        await raw.send(POST + "Content-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n")
        assert (await raw.reply())[0] == 415
        # Closed, or reset where the last bytes met a closed socket.
        with contextlib.suppress(ConnectionError):
            while not raw.reader.at_eof():
                await raw.send(" ")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await raw.reader.read(1)


async def test_bodies_that_are_open_have_a_bound_together(gateway_factory, response):
    gateway = await gateway_factory(intake=LIMITS, http={"max_receiving": 25_000})
    body = json.dumps(response(answer="x" * 8_900)).encode()
    length = f"Content-Length: {len(body)}\r\n\r\n"
    async with connected(gateway) as one, connected(gateway) as two, connected(gateway) as three:
        for raw in (one, two):
            await raw.send((JSON + length).encode() + body[:-1])
        await asyncio.sleep(0.2)
        await three.send(JSON + length)
        status, headers, told = await three.reply()
        assert (status, headers["retry-after"], told["reason"]) == (503, "5", "unavailable")
        assert "25,000" in told["error"]
        await three.send(body)
        # Those that are there already come to their end, and make room.
        for raw, wanted in ((one, 202), (two, 200)):
            await raw.send(body[-1:])
            assert (await raw.reply())[0] == wanted
        await three.send((JSON + length).encode() + body)
        assert (await three.reply())[0] == 200


async def test_what_does_not_say_how_long_it_is_has_the_same_bound(gateway_factory, response):
    gateway = await gateway_factory(intake=LIMITS, http={"max_receiving": 25_000})
    line = json.dumps(response(answer="x" * 8_000)).encode()
    async with contextlib.AsyncExitStack() as stack:
        open_ = [await stack.enter_async_context(connected(gateway)) for _ in range(4)]
        for kind, raw in zip((JSON, BULK, JSON, BULK), open_, strict=True):
            await raw.send(kind + "Transfer-Encoding: chunked\r\n\r\n")
            await raw.send(b"%x\r\n%b\r\n" % (len(line), line))
            await asyncio.sleep(0.1)
        status, headers, told = await open_[3].reply()
        assert (status, headers["retry-after"]) == (503, "5")
        assert (told["accepted"], told["retry_from"]) == (0, 1)
        for raw in open_[:3]:
            await raw.send("0\r\n\r\n")
            assert (await raw.reply())[0] in (200, 202)
    reply = await gateway.post(response())
    assert reply.status_code == 202


async def test_a_reader_who_takes_nothing_is_cut(gateway_factory):
    gateway = await gateway_factory(http={"body_timeout": 0.2, "min_rate": 1_000_000})
    out = io.BytesIO()
    Image.frombytes("RGB", (1500, 1500), os.urandom(1500 * 1500 * 3)).save(out, "PNG", compress_level=0)
    data = out.getvalue()
    sent = await gateway.http.post("/v1/images", content=data, headers={"Content-Type": "image/png"})
    path = f"/v1/images/{sent.json()['sha256']}"
    assert (await gateway.http.get(path)).content == data
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.service.port, limit=1024)
    for _ in range(3):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await asyncio.sleep(1.5)
    got = 0
    with contextlib.suppress(ConnectionError):
        while piece := await asyncio.wait_for(reader.read(1 << 20), SOON):
            got += len(piece)
    assert got < 3 * len(data)
    writer.close()


async def test_connections_have_a_bound(gateway_factory):
    gateway = await gateway_factory(http={"max_connections": 3})
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            raw = await stack.enter_async_context(connected(gateway))
            await raw.send("GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await raw.reply())[0] == 404
        more = await stack.enter_async_context(connected(gateway))
        status, headers, told = await more.reply()
        assert (status, headers["retry-after"]) == (503, "5")
        assert "3 connections" in told["error"]
        assert await more.closed()
    await asyncio.sleep(0.1)
    assert (await gateway.http.get("/healthz")).status_code == 200


async def test_who_reads_the_past_is_counted_among_those_who_watch(gateway_factory, publish):
    gateway = await gateway_factory(http={"watchers": 2})
    for number in range(3):
        await publish(f"r{number}")
    ask = "GET /v1/scores?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with connected(gateway) as one, connected(gateway) as three:
        async with connected(gateway) as two:
            for raw in (one, two):
                await raw.send(ask)
                await asyncio.wait_for(raw.reader.readuntil(b"200 OK"), SOON)
            await three.send(ask)
            status, headers, told = await three.reply()
            assert (status, headers["retry-after"]) == (503, "5")
            assert "2 others" in told["error"]
        for _ in range(50):
            await three.send(ask)
            if b"200" in await asyncio.wait_for(three.reader.readline(), SOON):
                break
            await three.reader.readuntil(b"}")
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("the place of who has gone is not free again")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"max_head": 10}, "max_head"),
        ({"head_timeout": 0}, "head_timeout"),
        ({"body_timeout": float("inf")}, "body_timeout"),
        ({"min_rate": -1}, "min_rate"),
        ({"max_receiving": 1_000_000}, "max_receiving"),
        ({"max_connections": 0}, "max_connections"),
    ],
)
def test_a_bound_that_is_none_is_told(settings, key):
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"gateway": {"http": settings}})
    assert in_words(caught.value).startswith(f"gateway.http.{key} must be")
