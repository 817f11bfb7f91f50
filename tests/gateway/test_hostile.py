"""Hostile input at every address: answered in one line of JSON, never with 500, and the gateway lives on."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from tests.gateway.test_bounds import Raw, connected

SEED = 12
DEEP = b"[" * 100_000
VALUES: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        1e300,
        2**70,
        "",
        "x",
        "\x00",
        "\ud83d",
        "\u202e",
        "a" * 300,
        "*",
        ">",
        "gw.x",
        "../..",
    ),
    *([], {}, [[]], {"": ""}, {"a": 1}, [None], ["x" * 100], [{"base64": "!"}], {"facts": [{}]}),
]
FIELDS = (
    *("id", "model", "answer", "prompt", "images", "reference", "tags", "tenant", "protocols", "recorded_at"),
    *("strategy", "run", "declined", "x"),
)
KINDS = (
    "application/json",
    "application/x-ndjson",
    "image/png",
    "application/octet-stream",
    "multipart/form-data",
    "multipart/form-data; boundary=b",
    "multipart/form-data; boundary=b; charset=undefined",
    "multipart/form-data; boundary=b; charset=hex",
    "multipart/form-data; boundary=b; charset=idna",
    "multipart/form-data; boundary=" + "b" * 5_000,
    "multipart/form-data; boundary=\xff",
    "application/json; charset=undefined",
    "text/plain",
    "",
)
PATHS = (
    *("/v1/responses", "/v1/questions", "/v1/images", "/v1/report", "/v1/alarms", "/v1/scores", "/metrics"),
    *(
        "/v1/responses/x",
        "/v1/responses/%00",
        "/v1/responses/%ff%fe",
        "/v1/responses/%ed%a0%bd",
        "/v1/responses/",
    ),
    *("/v1/responses/x?tenant=%00", "/v1/responses/x?tenant=" + "t" * 5_000, "/v1/responses/" + "r" * 5_000),
    *("/v1/images/%2e%2e", "/v1/images/" + "0" * 64, "/v1/images/" + "G" * 64, "/v1/scores?since=-1"),
    *(
        "/v1/scores?since=٣",
        "/v1/scores?since=99999999999999999999",
        "//",
        "/%",
        "/?%zz=%",
        "*",
        "/v1/responses?x=\udcff",
    ),
    *("/healthz", "/readyz"),
)
FORM = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n--b%b\r\n'


def record(rng: random.Random) -> bytes:
    """A response with a few wrong values, or what is none."""
    match rng.randrange(6):
        case 0:
            return rng.choice(
                [b"", b"\xff", b"{", b"nul", b'"\\ud800"', b"1e999999", b"\xef\xbb\xbf{}", DEEP]
            )
        case 1:
            return b'{"model": "m", "x": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001
        case 2:
            return b'{"model": 1, "answer": "a", "x": ' + DEEP[:5_000] + b"]" * 5_000 + b"}"
    said: dict[str, Any] = {"model": "m", "answer": "A dog."}
    for _ in range(rng.randrange(1, 4)):
        said[rng.choice(FIELDS)] = rng.choice(VALUES)
    return json.dumps(said).encode()


def body(rng: random.Random) -> bytes:
    """One of them, several on lines, or a form."""
    match rng.randrange(4):
        case 0:
            return b"\n".join(record(rng) for _ in range(rng.randrange(1, 8)))
        case 1:
            name = rng.choice([b"image", b"", b"\xff", b'a"; x="'])
            file = rng.choice(
                [b"", b'; filename="a.png"', b'; filename="\xff"', b"\r\nContent-Type: x", b"\x00"]
            )
            return FORM % (name, file, rng.randbytes(20), rng.choice([b"--", b"", b"\r\n--b"]))
    return record(rng)


@pytest.mark.parametrize("turn", range(4))
async def test_every_address_answers_what_it_does_not_understand(gateway, turn):
    rng = random.Random(SEED + turn)
    seen: set[int] = set()
    for _ in range(120):
        path, kind, sent = rng.choice(PATHS), rng.choice(KINDS), body(rng)
        method = rng.choice(["POST", "POST", "POST", "GET", "PUT", "OPTIONS", "HEAD", "X"])
        if path.startswith("/v1/scores") and method == "GET":
            continue
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        async with connected(gateway) as raw:
            await raw.send(
                head.encode("utf-8", "surrogateescape") + b"Content-Length: %d\r\n\r\n" % len(sent) + sent
            )
            status = await judged(raw, f"{method} {path} {kind} {sent[:200]!r}", head=method == "HEAD")
        seen.add(status)
    assert {404, 405, 415} <= seen
    assert (await gateway.post({"model": "m", "answer": "A dog."})).status_code == 202
    assert (await gateway.http.get("/readyz")).status_code == 200


async def judged(raw: Raw, what: str, *, head: bool = False) -> int:
    """The status of an answer that is as promised."""
    first, _, rest = (await asyncio.wait_for(raw.reader.readuntil(b"\r\n\r\n"), 10)).partition(b"\r\n")
    assert first.startswith(b"HTTP/1.1 "), what
    status = int(first.split()[1])
    assert status < 500, what
    if status >= 400 and not head:
        headers = dict(line.lower().split(b": ", 1) for line in rest.split(b"\r\n") if line)
        assert headers[b"content-type"] == b"application/json", what
        error = json.loads(await raw.reader.readexactly(int(headers[b"content-length"])))["error"]
        assert error, what
        assert error.isprintable(), what
    return status


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_request_is_answered_in_json_too(gateway, request_):
    async with connected(gateway) as raw:
        await raw.send(request_)
        if raw.writer.can_write_eof():
            raw.writer.write_eof()
        await judged(raw, repr(request_))
    assert (await gateway.http.get("/readyz")).status_code == 200


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
async def test_another_protocol_is_not_spoken(gateway, response, upgrade):
    head = f"/v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n"
    sent = json.dumps(response())
    async with connected(gateway) as raw:
        await raw.send(
            f"POST {head}Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n{sent}"
        )
        status, _, told = await raw.reply()
    assert status == 400
    assert "Upgrade" in told["error"]
    async with connected(gateway) as raw:
        await raw.send(f"GET {head}\r\n")
        status, headers, _ = await raw.reply()
        assert (status, headers["connection"]) == (405, "close")
        assert await raw.closed()


async def test_one_line_that_is_nested_too_deeply_stops_no_other(gateway, response):
    bad = b'{"model": "m", "answer": "a", "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    lines = [json.dumps(response()).encode(), bad, json.dumps(response()).encode()]
    reply = await gateway.post(b"\n".join(lines), bulk=True)
    assert reply.status_code == 200
    told = reply.json()
    assert (told["accepted"], told["refused"], told["errors"][0]["line"]) == (2, 1, 2)
    assert "nested too deeply" in told["errors"][0]["error"]
    assert (await gateway.post(bad)).status_code == 422


async def test_our_own_bug_is_told_in_json(gateway, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("groundwatch.gateway.http.api.look_up", broken)
    reply = await gateway.http.get("/v1/responses/x")
    assert reply.status_code == 500
    assert reply.json() == {"error": "the gateway failed; its log says why"}
