"""Questions at the gateway's door: what is taken, what is refused, and what the stream then holds."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import msgspec
import pytest

from groundwatch.events import QuestionAsked, Strategy
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.topology import ASKED, HEADER_PROTOCOLS, parse_subject

QUESTION = {"id": "q", "model": "heron-7b", "prompt": "What is it?", "tags": {"suite": "s"}}


async def ask(gateway: Any, body: object, kind: str = "application/json") -> httpx.Response:
    return await gateway.http.post(
        "/v1/questions", content=msgspec.json.encode(body), headers={"Content-Type": kind}
    )


async def test_a_question_waits_for_captioning(gateway, pictures) -> None:
    image = {"base64": base64.b64encode(pictures.encoded("PNG")).decode()}
    reply = await ask(gateway, QUESTION | {"images": [image], "strategy": "triplets-first"})
    assert (reply.status_code, reply.json()) == (202, {"id": "q", "status": "recorded"})
    (read,) = [read async for read in read_stream(gateway.bus.js, ASKED)]
    address = parse_subject(read.subject)
    assert address is not None and (address.kind, address.stage) == ("asked", "captioning")
    assert read.headers[HEADER_PROTOCOLS] == "faithscore"
    event = msgspec.json.decode(read.data, type=QuestionAsked)
    assert event.strategy is Strategy.TRIPLETS_FIRST
    assert (event.response.prompt, event.response.answer) == ("What is it?", "")
    assert len(event.response.images[0]) == 64
    assert await gateway.events() == []
    assert gateway.count("groundwatch_responses_total", tenant="default", model="heron-7b") == 0


async def test_the_same_again_adds_nothing_and_another_is_a_conflict(gateway) -> None:
    assert (await ask(gateway, QUESTION)).status_code == 202
    again = await ask(gateway, QUESTION)
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    other = await ask(gateway, QUESTION | {"strategy": "triplets-first"})
    assert (other.status_code, other.json()["reason"]) == (409, "conflict")


async def test_the_id_of_a_response_is_taken(gateway, response) -> None:
    assert (await gateway.post(response(id="q"))).status_code == 202
    reply = await ask(gateway, QUESTION)
    assert (reply.status_code, reply.json()["reason"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"answer": "A dog."}, "answer", "leave it out"),
        ({"prompt": " "}, "prompt", "is missing"),
        ({"strategy": "guess"}, "strategy", "Invalid enum value"),
        ({"protocols": ["nonsense"]}, "protocols", "no protocol"),
        ({"images": ["a" * 64]}, "images[0]", "is stored"),
        ({"model": ""}, "model", ""),
    ],
)
async def test_a_question_that_cannot_be_asked(gateway, changes, field, message) -> None:
    reply = await ask(gateway, QUESTION | changes)
    assert (reply.status_code, reply.json()["field"]) == (422, field)
    assert message in reply.json()["error"]


async def test_only_json_is_read(gateway) -> None:
    assert (await ask(gateway, QUESTION, "text/plain")).status_code == 415


async def test_a_body_that_is_too_large(gateway_factory) -> None:
    gateway = await gateway_factory(intake={"max_line": 1_000})
    assert (await ask(gateway, QUESTION | {"prompt": "x" * 2_000})).status_code == 413
