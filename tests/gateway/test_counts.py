"""What a body holds is counted before it is built, at every door, and refused in one line."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from typing import Any
from unittest.mock import Mock

import grpc
import msgspec
import pytest
from google.rpc import status_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.gateway.otlp.made import JSON, PROTOBUF, logs, record, said, span, traces

from groundwatch.conversations.conversation import Conversation
from groundwatch.errors import UsageError
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub
from groundwatch.gateway.http.requests import Reading
from groundwatch.gateway.receivers import otlp
from groundwatch.gateway.receivers.batches import MEMBERS, MOST_ITEMS
from groundwatch.gateway.receivers.otlp import Repeats
from groundwatch.reviews.queues import MOST_OF_TENANT, Queues, QueueSpec

LINES = {"content-type": "application/x-ndjson"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


async def told(gateway: Any, path: str, content: bytes, headers: dict[str, str]) -> tuple[int, str]:
    reply = await gateway.http.post(path, content=content, headers=headers)
    if reply.headers["content-type"] == PROTOBUF["Content-Type"]:
        return reply.status_code, status_pb2.Status.FromString(reply.content).message
    if not reply.headers["content-type"].startswith("application/json"):
        return reply.status_code, reply.text
    return reply.status_code, json.loads(reply.content).get("message") or json.loads(reply.content)["error"]


SPANS = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * MOST_ITEMS + b"{}]}]}]}"


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "word"),
    [
        ("/v1/traces", SPANS, JSON, 413, "50,000 spans"),
        ("/v1/traces", b'{"a":[' + b"1," * 1_000_000 + b"1]}", JSON, 413, "400,000 fields"),
        ("/v1/litellm", b"[" + b"1," * 10_000 + b"1]", JSON, 413, "10,000 calls"),
        ("/v1/litellm", b"1\n" * 10_001, JSON, 413, "10,000 calls"),
        ("/v1/litellm", b"[" + b"1," * 1_000_000 + b"1]", JSON, 413, "1,000,000 values"),
        ("/v1/cloudevents", b"[" + b"1," * 1_000_000 + b"1]", BATCH, 413, "1,000,000 values"),
        ("/v1/opinions", b"{}\n" * 100_001, LINES, 422, "100000 lines"),
        ("/v1/opinions", b"[" + b"1," * 200_000 + b"1]", LINES, 422, "200,000 values"),
        ("/alarms/a/acknowledge", b"note=" + b"a" * 65_536, FORM, 413, "65536 bytes"),
        ("/alarms/a/acknowledge", b"a=1&" * 101, FORM, 422, "100 fields"),
        ("/queues", b"a=1&" * 101, FORM, 422, "100 fields"),
    ],
    ids=lambda given: str(given)[:20] if isinstance(given, str | int) else "",
)
async def test_a_body_that_holds_too_much_is_refused(gateway, path, content, headers, status, word):
    got, message = await told(gateway, path, content, headers)
    assert got == status, message
    assert word in message


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
async def test_spans_and_records_without_end_are_refused(gateway, path):
    many = MOST_ITEMS + 1
    made = traces(*[Span()] * many) if path == "/v1/traces" else logs(*[record("", None)] * many)
    body = gzip.compress(made.SerializeToString())
    status, message = await told(gateway, path, body, PROTOBUF | {"content-encoding": "gzip"})
    assert (status, message) == (413, "holds more than 50,000 spans or log records: send smaller batches")


async def test_as_many_spans_as_are_taken_are_taken(gateway):
    made = traces(*[Span()] * 20_000, span(said("a" * 20)))
    reply = await gateway.http.post("/v1/traces", content=made.SerializeToString(), headers=PROTOBUF)
    assert reply.status_code == 200
    assert len(await gateway.events()) == 1
    assert gateway.count("groundwatch_logged_calls_total", source="otlp", result="ignored") == 20_000


async def test_one_call_with_more_values_than_any_has_is_declined_and_others_are_recorded(gateway):
    many = said("a" * 20) | {"gen_ai.input.messages": "[" + "{}," * 200_000 + "{}]"}
    values = said("b" * 20) | {"more": [None] * 200_000}
    whole = span(said("c" * 20), span_id=b"\x07" * 8)
    made = traces(span(many), span(values, span_id=b"\x06" * 8), whole)
    reply = await gateway.http.post("/v1/traces", content=made.SerializeToString(), headers=PROTOBUF)
    assert b"200,000 values" in reply.content
    events = {event.id[0]: event for event in await gateway.events()}
    assert set(events) == {"a", "c"}
    assert events["a"].declined == {"faithscore": "too_many_parts"}


async def test_parts_of_a_compressed_body_have_a_bound(gateway):
    body = gzip.compress(traces(span(said("a" * 20))).SerializeToString())
    headers = PROTOBUF | {"content-encoding": "gzip"}
    empty = gzip.compress(b"")
    reply = await gateway.http.post("/v1/traces", content=empty * 900 + body + empty * 90, headers=headers)
    assert reply.status_code == 200 and len(await gateway.events()) == 1
    status, message = await told(gateway, "/v1/traces", empty * (MEMBERS + 1), headers)
    assert (status, message) == (400, "the compressed body has more than 1,000 parts")


@pytest.mark.parametrize("stream", [True, False])
async def test_messages_of_grpc_are_counted(gateway_factory, stream):
    gateway = await gateway_factory(grpc_port=0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.service.grpc_port}") as channel:
        stub = MonitorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            if stream:
                request = pb.SubmitStreamRequest(responses=[pb.Response()] * 10_001)
                async for _ in stub.SubmitStream(iter([request])):
                    pass
            else:
                await stub.Submit(pb.SubmitRequest(response=pb.Response(protocols=[""] * 200_001)))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "10,000 responses" in (error.value.details() or "")


async def test_what_comes_over_grpc_counts_among_what_all_requests_hold(gateway_factory):
    limits = {"max_line": 10_000, "max_image_bytes": 10_000}
    gateway = await gateway_factory(grpc_port=0, intake=limits, http={"max_receiving": 25_000})
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.service.grpc_port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        for size in (4_000, 20_000, 30_000):
            for number in range(3):
                said_so = said(f"{size}-{number}".ljust(24, "a"), answer="x" * size)
                sending = export(traces(span(said_so)).SerializeToString())
                if size < 25_000:
                    await sending
                    continue
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await sending
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                assert "of at most 25,000 together" in (error.value.details() or "")
    assert len(await gateway.events()) == 6


def test_repeats_are_remembered_in_bounded_memory():
    repeats = Repeats()
    for at in range(50):
        name = f"{at}" * 100_000
        call = Conversation(answer="x", trace_id="a", span_id=f"{at}", response_id=name, prompt=name)
        repeats.recorded(call, "t")
    kept = repr(repeats._recorded)
    assert len(kept) < 50 * 500


WHOLE = Conversation(prompt="What is it?", answer="A dog.", trace_id="t", span_id="b", parent_id="a")
SHOWN = msgspec.structs.replace(WHOLE, images=(b"an image",))
LEFT_OUT = msgspec.structs.replace(WHOLE, left_out=("bare_image",))
BARE = Conversation(trace_id="t", left_out=("no_content",))


@pytest.mark.parametrize(
    ("known", "call", "spans", "one"),
    [
        # Anthropic's client writes spans of its own, within that of LangChain.
        (WHOLE, BARE, ("c", "b"), True),
        (SHOWN, BARE, ("c", "b"), True),
        (SHOWN, BARE, ("a", ""), True),
        (SHOWN, LEFT_OUT, ("a", ""), True),
        (SHOWN, LEFT_OUT, ("c", "b"), True),
        (SHOWN, msgspec.structs.replace(LEFT_OUT, answer="Two dogs."), ("a", ""), False),
        # As the first version of Google's ADK, which says nothing of images.
        (SHOWN, WHOLE, ("a", ""), True),
        (SHOWN, WHOLE, ("c", "a"), False),
        (SHOWN, msgspec.structs.replace(WHOLE, answer="Two dogs."), ("a", ""), False),
        # Beside it, further away, and in another trace they are calls of their own.
        (SHOWN, BARE, ("c", "a"), False),
        (SHOWN, LEFT_OUT, ("c", "a"), False),
        (SHOWN, LEFT_OUT, ("d", "c"), False),
        (SHOWN, msgspec.structs.replace(LEFT_OUT, trace_id="u"), ("a", ""), False),
        (LEFT_OUT, BARE, ("c", "b"), False),
        (SHOWN, msgspec.structs.replace(SHOWN, answer="Two dogs.", scope="other"), ("a", ""), False),
    ],
)
def test_a_span_that_lacks_something_is_a_call_of_its_own_or_not(known, call, spans, one):
    call = msgspec.structs.replace(call, span_id=spans[0], parent_id=spans[1])
    together = Repeats().kept([call, known], "t")
    assert together == [known] if one else len(together) == 2
    later = Repeats()
    later.recorded(known, "t")
    assert later.kept([call], "t") == ([] if one else [call])


def test_calls_beside_each_other_are_not_held_against_each_other(monkeypatch):
    """A trace may have thousands of them."""
    held = Mock(return_value=False)
    monkeypatch.setattr(otlp, "_is_poorer", held)
    calls = [
        msgspec.structs.replace(one, span_id=f"{kind}{at}", answer=f"{at}")
        for at in range(20)
        for kind, one in enumerate((SHOWN, LEFT_OUT))
    ]
    assert len(Repeats().kept(calls, "t")) == len(calls) and not held.called


async def test_who_sends_much_to_be_read_waits_behind_themselves():
    reading, over = Reading(), threading.Event()
    many = [asyncio.create_task(reading.run("tenant a", over.wait, 20)) for _ in range(4)]
    try:
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(reading.run("tenant b", lambda: "read"), 10) == "read"
    finally:
        over.set()
    assert await asyncio.gather(*many) == [True] * 4


async def test_a_tenant_has_its_share_of_queues(bus, clean_streams):
    queues = Queues(bus)
    for at in range(MOST_OF_TENANT):
        await queues.create(QueueSpec(name=f"q{at}", protocol="faithscore", tenant="acme"))
    with pytest.raises(UsageError, match="tenant 'acme' has 50 queues already"):
        await queues.create(QueueSpec(name="more", protocol="faithscore", tenant="acme"))
    await queues.create(QueueSpec(name="more", protocol="faithscore", tenant="other"))
