"""POST /v1/responses with many lines: each on its own, counted, held up rather than held."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import time

import psutil
from tests.support.provisioning import provision_again

from groundwatch.events import ResponseRecorded
from groundwatch.gateway.auth import EVERYBODY
from groundwatch.gateway.http.requests import Lines
from groundwatch.gateway.intake import window
from groundwatch.gateway.intake.submissions import Submission
from groundwatch.gateway.refusals import Refused


def lines(*records: object) -> bytes:
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records)


async def test_good_and_bad_lines(gateway, response, pictures):
    good, same = response(), response()
    image = pictures.encoded("PNG")
    body = lines(
        good,
        b"{not json",
        same,
        same,
        {"id": "x", "answer": "no model"},
        b"",
        same | {"answer": "another"},
        response(images=[{"base64": base64.b64encode(image).decode()}]),
        response(images=["https://example.com/a.png"]),
        response(protocols=["vibes"]),
        b'{"id":"s","model":"m","answer":"\\ud800"}',
        b"\xff\xfe",
        response(images=["0" * 64]),
    )
    reply = await gateway.post(body, bulk=True)
    assert reply.status_code == 200
    told = reply.json()
    assert (told["accepted"], told["duplicates"], told["refused"]) == (3, 1, 8)
    assert told["retry_from"] is None
    errors = {error["line"]: error for error in told["errors"]}
    assert {line: error.get("field", "") for line, error in errors.items()} == {
        2: "",
        5: "model",
        7: "id",
        9: "images[0]",
        10: "protocols",
        11: "answer",
        12: "",
        13: "images[0]",
    }
    assert errors[5]["id"] == "x"
    assert errors[7]["reason"] == "conflict"
    assert len(await gateway.events()) == 3
    assert gateway.count("groundwatch_responses_total", tenant="default", model="heron-7b") == 3
    assert gateway.count("groundwatch_refused_responses_total", reason="malformed") == 2


async def test_line_ends_and_blank_lines(gateway, response):
    first, second, third = (json.dumps(response()).encode() for _ in range(3))
    body = b"\xef\xbb\xbf" + first + b"\r\n\r\n  \n" + second + b"\n\n" + third
    told = (await gateway.post(body, bulk=True)).json()
    assert (told["accepted"], told["refused"]) == (3, 0)


async def test_lines_that_are_refused_are_not_held(gateway):
    bulk = window.Bulk(gateway.service.core, EVERYBODY, lambda held: None)
    for number, line in enumerate((b"{not json", b'{"id": "x", "answer": "no model"}'), 1):
        await bulk._take(number, line)
    # The frames of a traceback have the line.
    assert [waiting.ending.__traceback__ for waiting in bulk._waiting] == [None, None]
    await bulk.drain()
    assert bulk.summary.refused == 2


async def test_what_is_in_the_air_outlives_who_waits_for_it(gateway, pictures):
    """With an image of its own a response is recorded beside the others, in a task."""
    bulk = window.Bulk(gateway.service.core, EVERYBODY, lambda held: None)
    response = ResponseRecorded(id="r1", model="heron-7b", answer="A dog.")
    sent = Submission(response=response, images=(pictures.encoded("PNG"),), sender="a")
    await bulk.put(1, 10, lambda: sent)
    waiting = asyncio.create_task(bulk.drain())
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    await bulk.drain()
    assert waiting.cancelled() and bulk.summary.accepted == 1
    assert [event.id for event in await gateway.events()] == ["r1"]


async def test_nothing_is_fine(gateway):
    told = (await gateway.post(b"", bulk=True)).json()
    assert (told["accepted"], told["refused"], told["errors"]) == (0, 0, [])


async def test_only_the_first_hundred_errors_are_told(gateway):
    told = (await gateway.post(b"{\n" * 1_000, bulk=True)).json()
    assert (told["refused"], len(told["errors"])) == (1_000, 100)
    assert told["errors"][-1]["line"] == 100


async def test_a_line_that_is_too_long_is_skipped(gateway_factory, response):
    gateway = await gateway_factory(intake={"max_line": 2_000})
    body = lines(response(), response(answer="x" * 500_000), response())
    told = (await gateway.post(body, bulk=True)).json()
    assert (told["accepted"], told["refused"]) == (2, 1)
    assert told["errors"] == [
        {"line": 2, "error": "the line has more than 2000 bytes", "reason": "too_large"}
    ]


async def test_a_repeat_of_a_bulk_adds_nothing(gateway, response):
    body = lines(*(response() for _ in range(300)))
    assert (await gateway.post(body, bulk=True)).json()["accepted"] == 300
    assert (await gateway.post(body, bulk=True)).json()["duplicates"] == 300
    assert len(await gateway.events()) == 300


async def test_what_a_sender_sent_before_going_away_is_recorded(gateway, response):
    body = lines(*(response() for _ in range(50)))
    with socket.create_connection(("127.0.0.1", gateway.service.port)) as connection:
        connection.sendall(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: 1000000\r\n\r\n" + body
        )
        await asyncio.sleep(0.3)
    await asyncio.sleep(0.5)
    assert len(await gateway.events()) == 50


async def test_a_full_backlog_refuses_the_rest_and_says_from_where(gateway_factory, response, monkeypatch):
    monkeypatch.setattr(window, "TIMEOUT", 0.3)
    gateway = await gateway_factory(intake={"max_backlog": 100, "in_flight": 10})
    records = [response() for _ in range(500)]
    told = (await gateway.post(lines(*records), bulk=True)).json()
    assert told["accepted"] + told["refused"] == 500
    assert 100 <= told["accepted"] <= 111
    assert told["errors"][0]["reason"] == "backlog"
    assert told["retry_from"] == told["accepted"] + 1
    recorded = {event.id for event in await gateway.events()}
    assert recorded == {record["id"] for record in records[: told["accepted"]]}


async def test_a_bulk_waits_until_there_is_room(gateway_factory, response, bus):
    gateway = await gateway_factory(intake={"max_backlog": 50, "in_flight": 10})

    async def consume() -> None:
        consumer = await bus.js.pull_subscribe_bind("extraction", "GW_RESPONSES")
        handled = 0
        while handled < 200:
            for message in await consumer.fetch(10, timeout=20):
                await message.ack()
                handled += 1

    consuming = asyncio.create_task(consume())
    told = (await gateway.post(lines(*(response() for _ in range(200))), bulk=True)).json()
    assert (told["accepted"], told["refused"]) == (200, 0)
    await consuming


async def test_an_absent_stream_refuses_quickly(gateway_factory, response, bus, monkeypatch):
    monkeypatch.setattr(window, "TIMEOUT", 0.5)
    gateway = await gateway_factory(nats={"publish_timeout": 1.0})
    await bus.js.delete_stream("GW_RESPONSES")
    began = time.monotonic()
    told = (await gateway.post(lines(*(response() for _ in range(2_000))), bulk=True)).json()
    assert (told["accepted"], told["refused"], told["retry_from"]) == (0, 2_000, 1)
    assert time.monotonic() - began < 10


async def test_a_stream_that_comes_back_takes_everything(gateway_factory, response, bus):
    gateway = await gateway_factory(nats={"publish_timeout": 1.0})
    await bus.js.delete_stream("GW_RESPONSES")
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(gateway.post(lines(*(response() for _ in range(500))), bulk=True))
        await asyncio.sleep(1.0)
        await provision_again(bus.js)
    told = sending.result().json()
    assert (told["accepted"], told["refused"]) == (500, 0)
    assert len(await gateway.events()) == 500


async def test_memory_does_not_depend_on_the_size_of_a_request(gateway, response):
    """20,000 lines of 3 kB, from a sender that is faster than the stream."""
    answer = "The man wears a red hat. " * 120

    async def body():
        for start in range(0, 20_000, 100):
            yield lines(*({"id": f"b{start + n}", "model": "m", "answer": answer} for n in range(100)))

    await gateway.post(lines(*(response(answer=answer) for _ in range(500))), bulk=True)
    process = psutil.Process(os.getpid())
    before, peak = process.memory_info().rss, 0

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, process.memory_info().rss)
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    reply = await gateway.http.post(
        "/v1/responses", content=body(), headers={"Content-Type": "application/x-ndjson"}, timeout=120
    )
    watching.cancel()
    assert reply.json()["accepted"] == 20_000
    assert peak - before < 60 * 1024 * 1024


async def test_many_senders_at_once(gateway):
    async def send(sender: int) -> dict[str, object]:
        body = lines(*({"id": f"{sender}-{n}", "model": "m", "answer": "a"} for n in range(200)))
        reply: dict[str, object] = (await gateway.post(body, bulk=True)).json()
        return reply

    told = await asyncio.gather(*(send(sender) for sender in range(10)))
    assert sum(one["accepted"] for one in told) == 2_000
    assert len(await gateway.events()) == 2_000


def test_lines_are_cut_alike_whatever_the_chunks():
    text = b"one\n\ntwo \n" + b"x" * 50 + b"\n three"
    expected = [(1, b"one"), (3, b"two "), (4, "too_large"), (5, b" three")]
    for size in range(1, len(text) + 1):
        cutter = Lines(20)
        found = [
            line for start in range(0, len(text), size) for line in cutter.feed(text[start : start + size])
        ]
        told = [
            (at, one.reason if isinstance(one, Refused) else one) for at, one in (*found, *cutter.finish())
        ]
        assert told == expected
