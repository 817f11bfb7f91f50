"""Who sends, as a page and as JSON: libraries with their versions, what is missing, and what mends it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.gateway.otlp.made import JSON, PROTOBUF, calls, pairs, recorded, said, span, traces
from tests.support.pages import address, check_page


async def senders_of(gateway: Any, **headers: str) -> list[dict[str, Any]]:
    reply = await gateway.http.get("/v1/connect", headers=headers)
    assert reply.status_code == 200
    return reply.json()["senders"]


async def test_each_sender_is_told_with_its_library_and_what_is_missing(gateway, response):
    for path, body in recorded("openinference-redacted"):
        await gateway.http.post(path, json=body)
    for path, body in recorded("litellm-proxy-single-images"):
        await gateway.http.post(path, content=body, headers=JSON)
    await gateway.http.post("/v1/responses", json=response(), headers={"User-Agent": "shop/1.0"})
    told = {one["library"]: one for one in await senders_of(gateway)}
    inference = told["openinference.instrumentation.openai"]
    assert (inference["source"], inference["service"], inference["version"], inference["dialect"]) == (
        "otlp",
        "pictures",
        "0.1.66",
        "openinference",
    )
    assert inference["calls"] == len(calls("openinference-redacted"))
    problems = {one["kind"]: one for one in inference["problems"]}
    assert "OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH" in problems["openinference_redacted"]["setting"]
    assert (told["litellm"]["source"], told["litellm"]["images"] > 0) == ("litellm", True)
    assert (told["shop/1.0"]["source"], told["shop/1.0"]["calls"]) == ("responses", 1)
    shown = (await gateway.http.get("/connect")).text
    assert "OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH" in shown and "0.1.66" in shown
    assert "/connect" in (await gateway.http.get("/health")).text


async def test_spans_that_are_not_understood_are_told_by_an_examples_keys(gateway):
    request = traces(
        span({"http.request.method": "GET", "url.path": "/"}, name="GET /"),
        span({"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([{"utterance": "x"}])}),
        scope="opentelemetry.instrumentation.asgi",
    )
    request.resource_spans[0].resource.attributes.extend(pairs({"service.name": "shop\u202e" + "x" * 500}))
    await gateway.http.post("/v1/traces", content=request.SerializeToString(), headers=PROTOBUF)
    told = {problem["kind"]: problem for one in await senders_of(gateway) for problem in one["problems"]}
    assert "GET / with http.request.method, url.path" in told["ignored"]["what"]
    assert "utterance" in told["refused"]["what"]
    services = {one["service"] for one in await senders_of(gateway)}
    assert len(services) == 1 and len(services.pop()) <= 80


async def test_a_batch_that_is_refused_is_told_with_who_sent_it(gateway_factory):
    gateway = await gateway_factory(logged_calls={"max_batch": 10})
    content = traces(span(said("a" * 20))).SerializeToString()
    headers = PROTOBUF | {"User-Agent": "OTel-OTLP-Exporter-Python/1.38.0"}
    await gateway.http.post("/v1/traces", content=content, headers=headers)
    (one,) = await senders_of(gateway)
    assert (one["library"], one["missing"]) == ("OTel-OTLP-Exporter-Python/1.38.0", {"batch_refused": 1})
    assert "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16" in one["problems"][0]["setting"]


async def test_service_and_library_are_tags_and_how_an_answer_ended_where_it_says_something(gateway):
    ended = said("a" * 20) | {"gen_ai.response.finish_reasons": ["length"]}
    whole = said("b" * 20, answer="A cat.") | {"gen_ai.response.finish_reasons": ["stop"]}
    request = traces(span(ended), span(whole, span_id=b"\x03" * 8), scope="langfuse-sdk")
    request.resource_spans[0].resource.attributes.extend(pairs({"service.name": "shop"}))
    # The same call, as another library logs it, is the same response.
    again = traces(span(ended, span_id=b"\x04" * 8), scope="openinference.instrumentation.openai")
    for one in (request, again):
        await gateway.http.post("/v1/traces", content=one.SerializeToString(), headers=PROTOBUF)
    first, second = sorted(await gateway.events(), key=lambda event: event.id)
    assert (first.tags["service"], first.tags["library"], first.tags["finish_reason"]) == (
        "shop",
        "langfuse",
        "length",
    )
    assert "finish_reason" not in second.tags
    assert gateway.count("groundwatch_refused_responses_total", reason="conflict") == 0


async def test_a_tenant_sees_its_own_senders(gateway_factory, tmp_path):
    (tmp_path / "tokens").write_text("acme 0123456789abcdef\nother fedcba9876543210\n* all-0123456789abcd\n")
    gateway = await gateway_factory(tokens_file=str(tmp_path / "tokens"))
    for token in ("0123456789abcdef", "fedcba9876543210"):
        content = traces(span(said("a" * 20))).SerializeToString()
        headers = PROTOBUF | {"Authorization": f"Bearer {token}"}
        await gateway.http.post("/v1/traces", content=content, headers=headers)
    (one,) = await senders_of(gateway, Authorization="Bearer 0123456789abcdef")
    assert one["tenant"] == "acme"
    assert len(await senders_of(gateway, Authorization="Bearer all-0123456789abcd")) == 2


async def test_a_model_whose_answers_have_no_image_is_a_note(gateway, response, pictures):
    for number in range(100):
        await gateway.post(response(model="bare", id=f"b{number}"))
    notes = gateway.service.notes()
    assert any("the last 100 answers" in note and "'bare'" in note for note in notes)
    await gateway.post(
        response(model="bare", images=[{"base64": base64.b64encode(pictures.encoded("PNG")).decode()}])
    )
    assert not any("'bare'" in note for note in gateway.service.notes())


@pytest.mark.slow
async def test_it_fits_every_screen_and_has_no_serious_fault(browser, gateway):
    await check_page(browser, address(gateway, "/connect"))
    for path, body in recorded("openinference-redacted"):
        await gateway.http.post(path, json=body)
    hostile = traces(span({"<script>alert(1)</script>" + "w" * 300: "x"}), scope="<b>" + "w" * 300)
    await gateway.http.post("/v1/traces", content=hostile.SerializeToString(), headers=PROTOBUF)
    await check_page(browser, address(gateway, "/connect"))
    assert "<script>alert" not in (await gateway.http.get("/connect")).text
