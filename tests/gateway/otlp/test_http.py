"""Spans and log records over HTTP, as real emitters sent them and as nobody should."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import random
from typing import Any

import pytest
from google.rpc import status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from PIL import Image
from tests.emitters.calls import png
from tests.gateway.otlp.made import JSON, PROTOBUF, calls, recorded, said, span, traces
from tests.support.frozen import frozen

from groundwatch.gateway.receivers.otlp import read_request
from groundwatch.ledger.ledger import audit

FORMS = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}


async def post(gateway: Any, request: Any, path: str = "/v1/traces", **headers: str) -> Any:
    content = request if isinstance(request, bytes) else request.SerializeToString()
    return await gateway.http.post(path, content=content, headers=PROTOBUF | headers)


def rejected(reply: Any) -> tuple[int, str]:
    assert reply.status_code == 200
    told = ExportTraceServiceResponse.FromString(reply.content).partial_success
    return told.rejected_spans, told.error_message


@pytest.mark.parametrize("form", ["json", "protobuf", "gzip"])
@pytest.mark.parametrize(
    "emitter",
    ["genai-openai-span", "openinference-default", "openllmetry-images", "litellm-otel", "langfuse-inline"],
)
async def test_what_an_emitter_sends_is_recorded_with_its_image(gateway, emitter, form):
    for path, body in recorded(emitter):
        content, headers = json.dumps(body).encode(), JSON
        if form != "json":
            kind = FORMS[path.rpartition("/")[2]]
            content, headers = read_request(content, "application/json", kind).SerializeToString(), PROTOBUF
        if form == "gzip":
            content, headers = gzip.compress(content), headers | {"Content-Encoding": "gzip"}
        reply = await gateway.http.post(path, content=content, headers=headers)
        assert reply.status_code == 200
        assert reply.headers["content-type"] == headers["Content-Type"]
    events = {event.answer: event for event in await gateway.events()}
    for call in calls(emitter):
        if call["image"].startswith("http"):
            continue
        event = events[call["answer"]]
        assert (event.prompt, event.declined) == (call["prompt"], {})
        image = base64.b64decode(call["image"].partition(",")[2])
        assert event.images == ((hashlib.sha256(image).hexdigest(),) if image else ())


async def test_a_request_again_adds_nothing(gateway, pictures):
    request = traces(span(said("chatcmpl-aaaaaaaaaaaaaaaaaaaa", image=pictures.encoded("PNG"))))
    for _ in range(3):
        assert rejected(await post(gateway, request)) == (0, "")
    assert len(await gateway.events()) == 1


async def test_a_call_that_several_spans_tell_of_is_one_response(gateway, pictures):
    image = pictures.encoded("PNG")
    named = said("chatcmpl-aaaaaaaaaaaaaaaaaaaa", image=image)
    bare = said(image=image)
    assert rejected(await post(gateway, traces(span(bare), span(named, span_id=b"\x03" * 8)))) == (0, "")
    assert rejected(await post(gateway, traces(span(bare, span_id=b"\x04" * 8)))) == (0, "")
    assert [event.id for event in await gateway.events()] == ["chatcmpl-aaaaaaaaaaaaaaaaaaaa"]
    assert gateway.count("groundwatch_logged_calls_total", source="otlp", result="duplicate") == 2


OPENINFERENCE = "openinference.instrumentation."


def apart(number: int, **changes: Any) -> dict[str, Any]:
    return {"span_id": bytes([number]) * 8} | changes


SAME: dict[str, tuple[list[Any], list[str]]] = {
    "three calls without ids": ([traces(*(span(said(), **apart(one)) for one in (1, 2, 3)))], ["", "", ""]),
    "three requests": ([traces(span(said(), **apart(one))) for one in (1, 2, 3)], ["", "", ""]),
    "the same three again": ([traces(*(span(said(), **apart(one)) for one in (1, 2)))] * 3, ["", ""]),
    "two instrumentations": (
        [
            traces(*(span(said(), **apart(one)) for one in (1, 2)), scope=OPENINFERENCE + "openai"),
            traces(*(span(said(), **apart(one)) for one in (3, 4)), scope=OPENINFERENCE + "langchain"),
        ],
        ["", ""],
    ),
    "a span in another": (
        [
            traces(
                span(said(), **apart(2, parent_span_id=b"\x01" * 8)),
                span(said(), **apart(1)),
                span(said(), **apart(4, parent_span_id=b"\x03" * 8)),
                span(said(), **apart(3)),
            )
        ],
        ["", ""],
    ),
    # As Strands' own span is around that of Bedrock's client.
    "a span around one, without its image": (
        [
            traces(
                span(said(image=png(1, 2, 3)), **apart(2, parent_span_id=b"\x01" * 8)),
                span(said(image=png(1, 2, 3)), **apart(5, parent_span_id=b"\x06" * 8)),
                scope=OPENINFERENCE + "bedrock",
            ),
            traces(span(said(image=b""), **apart(1)), span(said(image=b""), **apart(3))),
        ],
        ["", "", ""],
    ),
    "one answer's id in two traces": (
        [
            traces(span(said("a" * 20)), scope=OPENINFERENCE + "openai"),
            traces(span(said("a" * 20), trace_id=b"\x09" * 16), scope=OPENINFERENCE + "langchain"),
            traces(
                span(said("a" * 20) | {"gen_ai.provider.name": "x"}, trace_id=b"\x08" * 16),
                scope="anthropic",
            ),
        ],
        ["a" * 20],
    ),
    "two answers' ids": (
        [traces(span(said("a" * 20)), span(said("b" * 20), **apart(3)))],
        ["a" * 20, "b" * 20],
    ),
}


@pytest.mark.parametrize("name", SAME)
async def test_what_is_one_call_and_what_is_several(gateway, name):
    requests, recorded_as = SAME[name]
    for request in requests:
        assert rejected(await post(gateway, request)) == (0, "")
    ids = [event.tags.get("response_id", "") for event in await gateway.events()]
    assert sorted(ids) == recorded_as
    spans = sum(len(one.resource_spans[0].scope_spans[0].spans) for one in requests)
    again = gateway.count("groundwatch_logged_calls_total", source="otlp", result="duplicate")
    assert again == spans - len(recorded_as)


SPEAKER = json.dumps([{"speaker": "a", "utterance": "What is it?"}])
UNREAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a model with a long name": (said("b" * 20, model="m" * 300), "invalid", "model"),
    "messages in an unknown form": (
        said("b" * 20) | {"gen_ai.input.messages": SPEAKER},
        "unreadable",
        "speaker, utterance",
    ),
    "no model": (said("b" * 20) | {"gen_ai.request.model": ""}, "no_model", "names no model"),
}
"""Attributes of a call that cannot be taken, the reason for which it is declined, and what is told of it."""


@pytest.mark.parametrize("name", UNREAD)
async def test_a_call_that_cannot_be_taken_is_declined_and_told_and_the_rest_recorded(gateway, name):
    attributes, reason, why = UNREAD[name]
    good = span(said("a" * 20))
    other = span({"http.request.method": "GET"}, span_id=b"\x05" * 8)
    failed = span(attributes | {"error.type": "timeout", "gen_ai.output.messages": ""}, span_id=b"\x07" * 8)
    request = traces(good, other, failed, span(attributes, span_id=b"\x06" * 8))
    count, message = rejected(await post(gateway, request))
    assert (count, why in message) == (0, True)
    assert rejected(await post(gateway, request)) == (0, "")
    declined = {event.id: set(event.declined.values()) for event in await gateway.events()}
    assert declined == {"a" * 20: set(), "b" * 20: {reason}}
    assert gateway.count("groundwatch_logged_calls_total", source="otlp", result="ignored") == 4
    assert (await audit(gateway.bus.js)).responses == 2
    in_json = {"resourceSpans": [{"scopeSpans": [{"spans": [_in_json("c" * 20, "m" * 300)]}]}]}
    reply = await gateway.http.post("/v1/traces", json=in_json)
    assert "model" in reply.json()["partialSuccess"]["errorMessage"]


async def test_of_two_spans_of_a_call_the_one_that_is_read_counts(gateway):
    name = "b" * 20
    odd = span(said(name) | {"gen_ai.input.messages": SPEAKER})
    assert rejected(await post(gateway, traces(odd, span(said(name), span_id=b"\x03" * 8)))) == (0, "")
    assert [event.declined for event in await gateway.events()] == [{}]


async def test_what_may_be_no_call_at_all_is_rejected(gateway):
    endless = span({"x": list(range(200_001))})
    count, message = rejected(await post(gateway, traces(endless)))
    assert (count, "values" in message) == (1, True)
    assert await gateway.events() == []


def _in_json(name: str, model: str) -> dict[str, Any]:
    attributes = [
        {"key": k, "value": {"stringValue": v}}
        for k, v in (said(name) | {"gen_ai.request.model": model}).items()
    ]
    return {
        "traceId": "0A" * 16,
        "spanId": "0b" * 8,
        "name": "chat",
        "kind": 3,
        "endTimeUnixNano": "1000000000",
        "attributes": attributes,
        "links": [{"traceId": "0A" * 16}],
        "new": 1,
    }


async def test_a_missing_image_is_a_reason_and_a_note(gateway):
    for path, body in recorded("openinference-redacted"):
        assert (await gateway.http.post(path, json=body)).status_code == 200
    reasons = {event.answer: event.declined.get("faithscore", "") for event in await gateway.events()}
    for call in calls("openinference-redacted"):
        reason = "url_not_fetched" if call["image"].startswith("http") else "openinference_redacted"
        assert reasons[call["answer"]] == (reason if call["image"] else "")
    assert gateway.count("groundwatch_images_left_out_total", reason="url_not_fetched") == 1
    notes = (await gateway.http.get("/readyz")).json()["notes"]
    for setting in ("OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH", "gateway.fetch.allow"):
        assert any(setting in note for note in notes)


GZIP = PROTOBUF | {"Content-Encoding": "gzip"}
WRONG: dict[str, tuple[bytes, dict[str, str], int]] = {
    "no protobuf": (b"\xff\xff\xff", PROTOBUF, 400),
    "no JSON": (b"{", JSON, 400),
    "a list": (b"[]", JSON, 400),
    "a number for a list": (b'{"resourceSpans": 5}', JSON, 400),
    "an id that is not hex": (
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz"}]}]}]}',
        JSON,
        400,
    ),
    "an id that is a number": (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":7}]}]}]}', JSON, 400),
    "nested without end": (b"[" * 100_000, JSON, 400),
    "another encoding": (b"", PROTOBUF | {"Content-Encoding": "br"}, 400),
    "no gzip": (b"no gzip", GZIP, 400),
    "half of a gzip": (gzip.compress(b"x" * 1000)[:-9], GZIP, 400),
    "a bomb": (gzip.compress(bytes(3_000_000)), GZIP, 413),
    "a bomb in pieces": (gzip.compress(bytes(1_000_000)) * 20, GZIP, 413),
    "too large": (bytes(3_000_000), PROTOBUF, 413),
}


async def test_what_is_no_request_is_told(gateway_factory):
    gateway = await gateway_factory(logged_calls={"max_batch": 2_000_000})
    for name, (content, headers, status) in WRONG.items():
        reply = await gateway.http.post("/v1/traces", content=content, headers=headers)
        assert reply.status_code == status, name
        in_json = headers is JSON
        assert reply.json()["message"] if in_json else status_pb2.Status.FromString(reply.content).message
    reply = await gateway.http.post("/v1/traces", content=b"", headers={"Content-Type": "text/x"})
    assert reply.status_code == 415
    reply = await gateway.http.post("/v1/logs", content=b"", headers=PROTOBUF)
    assert ExportLogsServiceResponse.FromString(reply.content) == ExportLogsServiceResponse()


async def test_a_batch_that_is_refused_is_counted_and_told_everywhere(gateway_factory):
    gateway = await gateway_factory(logged_calls={"max_batch": 1_000})
    request = traces(*(span(said(f"{number}" * 20)) for number in range(10)))
    for _ in range(2):
        reply = await post(gateway, request, **{"User-Agent": "OTel-OTLP-Exporter-Python/1.38.0"})
        assert reply.status_code == 413
    assert gateway.count("groundwatch_logged_calls_total", source="otlp", result="batch_refused") == 2
    assert gateway.count("groundwatch_lost_before_intake_total", reason="batch_refused") == 2
    assert (await audit(gateway.bus.js)).lost_before_intake == {"otlp batches": {"batch_refused": 2}}
    (note,) = (await gateway.http.get("/readyz")).json()["notes"]
    assert "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16" in note and "docs/connect.md#batches" in note
    shown = (await gateway.http.get("/health")).text
    assert "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16" in shown and "otlp batches" in shown


async def test_a_batch_that_comes_again_is_not_lost(gateway, nats_server):
    with frozen(nats_server.pid):
        assert (await post(gateway, traces(span(said("a" * 20))))).status_code == 503
    assert gateway.count("groundwatch_logged_calls_total", source="otlp", result="batch_refused") == 0


async def test_batches_of_the_size_that_the_page_names_are_taken_at_defaults(gateway):
    """16 spans, each with an image of 200 kB once in its messages and once as the request itself."""
    spans = []
    for number in range(16):
        noise = random.Random(number).randbytes(3 * 256 * 256)
        out = io.BytesIO()
        Image.frombytes("RGB", (256, 256), noise).save(out, "PNG")
        said_of_one = said(f"{number:02}" * 10, image=out.getvalue(), answer=f"A dog {number}.")
        whole = {"input.value": said_of_one["gen_ai.input.messages"]}
        spans.append(span(said_of_one | whole, span_id=(number + 1).to_bytes(8, "big")))
    assert rejected(await post(gateway, traces(*spans))) == (0, "")
    assert [len(event.images) for event in await gateway.events()] == [1] * 16


@pytest.mark.parametrize("headers", [PROTOBUF, JSON])
async def test_metrics_are_taken_and_told_once(gateway, headers):
    for _ in range(2):
        reply = await gateway.http.post("/v1/metrics", content=b"{}", headers=headers)
        assert (reply.status_code, reply.headers["content-type"]) == (200, headers["Content-Type"])
        assert reply.content == (b"{}" if headers is JSON else b"")
    (note,) = (await gateway.http.get("/readyz")).json()["notes"]
    assert "OTEL_METRICS_EXPORTER=none" in note


async def test_while_nats_is_away_the_request_is_to_come_again(gateway, nats_server):
    request = traces(span(said("a" * 20)))
    with frozen(nats_server.pid):
        reply = await post(gateway, request)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")
    assert status_pb2.Status.FromString(reply.content).code == 14
    assert rejected(await post(gateway, request)) == (0, "")
    assert len(await gateway.events()) == 1


async def test_langfuse_sends_its_key_as_a_password(gateway_factory, tmp_path):
    (tmp_path / "tokens").write_text("acme 0123456789abcdef\n")
    gateway = await gateway_factory(tokens_file=str(tmp_path / "tokens"))
    request, path = traces(span(said("a" * 20))), "/api/public/otel/v1/traces"
    assert (await post(gateway, request, path)).status_code == 401
    basic = "Basic " + base64.b64encode(b"pk-lf-any:0123456789abcdef").decode()
    assert (await post(gateway, request, "/v1/traces", Authorization=basic)).status_code == 401
    assert rejected(await post(gateway, request, path, Authorization=basic)) == (0, "")
    assert [event.tenant for event in await gateway.events()] == ["acme"]
    media = await gateway.http.post("/api/public/media", json={}, headers={"Authorization": basic})
    assert (media.status_code, "LANGFUSE_MEDIA_UPLOAD_ENABLED=false" in media.json()["error"]) == (422, True)
