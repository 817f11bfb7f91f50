"""Messages that come as log records are joined to their span, whatever happens in between."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from tests.gateway.otlp.made import PROTOBUF, SPAN, TRACE, calls, logs, record, recorded, said, span, traces
from tests.runtime.conftest import eventually

from groundwatch.gateway.intake import logged
from groundwatch.gateway.receivers import joining, otlp
from groundwatch.gateway.receivers.joining import STREAM, Call

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "heron-7b",
    "gen_ai.response.id": "chatcmpl-aaaaaaaaaaaaaaaaaaaa",
}
QUICK = {"join_wait": 0.2, "join_timeout": 600.0}


def messages() -> Any:
    chosen = {"index": 0, "message": {"role": "assistant", "content": "A dog."}}
    return logs(record("gen_ai.user.message", {"content": "What is it?"}), record("gen_ai.choice", chosen))


async def post(gateway: Any, path: str, request: Any) -> None:
    reply = await gateway.http.post(path, content=request.SerializeToString(), headers=PROTOBUF)
    assert (reply.status_code, reply.content) == (200, b"")


async def events(gateway: Any, count: int = 1) -> list[Any]:
    for _ in range(200):
        found = await gateway.events()
        if len(found) >= count:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(found)


async def nothing_waits(gateway: Any, *, but: int = 0) -> bool:
    return bool((await gateway.bus.js.stream_info(STREAM)).state.messages <= but)


@pytest.mark.parametrize("first", ["span", "logs"])
async def test_in_any_order(gateway_factory, first):
    gateway = await gateway_factory(logged_calls=QUICK)
    requests = [("/v1/traces", traces(span(CALL))), ("/v1/logs", messages())]
    for path, request in requests if first == "span" else reversed(requests):
        await post(gateway, path, request)
    (event,) = await events(gateway)
    assert (event.id, event.model, event.prompt, event.answer) == (
        "chatcmpl-aaaaaaaaaaaaaaaaaaaa",
        "heron-7b",
        "What is it?",
        "A dog.",
    )


async def test_a_real_emitter_with_images(gateway_factory):
    gateway = await gateway_factory(logged_calls=QUICK)
    sent = recorded("openai-v2-content")
    for path, body in sent:
        assert (await gateway.http.post(path, json=body)).status_code == 200
    given = calls("openai-v2-content")
    found = {event.answer: event for event in await events(gateway, len(given))}
    for call in given:
        event = found[call["answer"]]
        assert event.prompt == call["prompt"]
        if call["image"].startswith("data:"):
            image = base64.b64decode(call["image"].partition(",")[2])
            assert event.images == (hashlib.sha256(image).hexdigest(),)


async def test_what_one_gateway_kept_another_joins(gateway_factory):
    slow = await gateway_factory(logged_calls={"join_wait": 3600.0})
    await post(slow, "/v1/logs", messages())
    await post(slow, "/v1/traces", traces(span(CALL)))
    await slow.service.drain(1.0)
    gateway = await gateway_factory(logged_calls=QUICK)
    (event,) = await events(gateway)
    assert event.answer == "A dog."


async def test_logs_that_come_later_than_the_span_waits_for_more(gateway_factory):
    gateway = await gateway_factory(logged_calls=QUICK)
    await post(gateway, "/v1/traces", traces(span(CALL)))
    await asyncio.sleep(1.0)
    await post(gateway, "/v1/logs", messages())
    (event,) = await events(gateway)
    assert (event.answer, event.declined) == ("A dog.", {})


async def test_logs_that_come_one_by_one(gateway_factory):
    gateway = await gateway_factory(logged_calls=QUICK)
    chosen = {"index": 0, "message": {"role": "assistant", "content": "A dog."}}
    await post(gateway, "/v1/logs", logs(record("gen_ai.choice", chosen)))
    await post(gateway, "/v1/traces", traces(span(CALL)))
    await asyncio.sleep(1.0)
    await post(gateway, "/v1/logs", logs(record("gen_ai.user.message", {"content": "What is it?"})))
    (event,) = await events(gateway)
    assert (event.prompt, event.answer, event.declined) == ("What is it?", "A dog.", {})


async def test_what_comes_again_is_no_call_that_misses_a_half(gateway_factory):
    gateway = await gateway_factory(logged_calls={"join_wait": 0.2, "join_timeout": 2.0})
    for _ in range(2):
        await post(gateway, "/v1/logs", messages())
        await post(gateway, "/v1/traces", traces(span(CALL)))
        await events(gateway)
        await asyncio.sleep(0.5)
    await eventually(lambda: nothing_waits(gateway), within=30)
    assert [event.declined for event in await gateway.events()] == [{}]
    results = ("unreadable", "refused", "incomplete")
    counts = [gateway.count("groundwatch_logged_calls_total", source="otlp", result=one) for one in results]
    assert counts == [0, 0, 0]


@pytest.mark.parametrize("first", ["span", "logs"])
async def test_a_span_that_has_all_itself_needs_no_logs(gateway_factory, first):
    """Some libraries write the messages twice: on the span and as log records."""
    gateway = await gateway_factory(logged_calls={"join_wait": 0.2, "join_timeout": 1.0})
    requests = [("/v1/traces", traces(span(said("chatcmpl-aaaaaaaaaaaaaaaaaaaa")))), ("/v1/logs", messages())]
    for path, request in requests if first == "span" else reversed(requests):
        await post(gateway, path, request)
    await events(gateway)
    await eventually(lambda: nothing_waits(gateway), within=30)
    assert [event.answer for event in await gateway.events()] == ["A dog."]


async def test_logs_of_a_call_that_failed_are_no_half(gateway_factory):
    gateway = await gateway_factory(logged_calls={"join_wait": 0.2, "join_timeout": 1.0})
    await post(gateway, "/v1/logs", messages())
    await post(gateway, "/v1/traces", traces(span(CALL | {"error.type": "timeout"})))
    await eventually(lambda: nothing_waits(gateway), within=30)
    await asyncio.sleep(1.5)
    assert await gateway.events() == []


async def test_halves_whose_others_never_come_are_declined(gateway_factory):
    gateway = await gateway_factory(logged_calls={"join_wait": 0.2, "join_timeout": 0.5})
    await post(gateway, "/v1/logs", messages())
    await post(gateway, "/v1/traces", traces(span(CALL, span_id=b"\x07" * 8)))
    declined = {event.id: set(event.declined.values()) for event in await events(gateway, 2)}
    trace = f"{TRACE.hex()}:{SPAN.hex()}"
    assert declined == {CALL["gen_ai.response.id"]: {"no_content"}, trace: {"no_span"}}
    # A span without content is no call that was refused.
    told = gateway.count, "groundwatch_logged_calls_total"
    assert [told[0](told[1], source="otlp", result=one) for one in ("incomplete", "refused")] == [2, 0]
    await eventually(lambda: nothing_waits(gateway), within=30)


async def test_a_gateway_that_starts_gives_senders_time(gateway_factory, monkeypatch):
    """Who was refused while nobody served sends again, each time later."""
    monkeypatch.setattr(joining, "GRACE_SECONDS", 4.0)
    first = await gateway_factory(logged_calls={"join_wait": 3600.0})
    await post(first, "/v1/logs", messages())
    await first.service.drain(1.0)
    # Longer than a busy machine takes to start one.
    await asyncio.sleep(3.5)
    gateway = await gateway_factory(logged_calls={"join_wait": 0.2, "join_timeout": 3.0})
    monkeypatch.undo()
    await asyncio.sleep(0.5)
    await post(gateway, "/v1/traces", traces(span(CALL)))
    (event,) = await events(gateway)
    assert event.answer == "A dog."


async def test_what_cannot_be_read_in_time_is_declined_and_others_go_on(gateway_factory, monkeypatch):
    for name, seconds in (("READ_SECONDS", 0.2), ("AGAIN_SECONDS", 0.1)):
        monkeypatch.setattr(joining, name, seconds)
    read = otlp.joined

    def slow(span: Any, parts: Any) -> Any:
        if span is not None and span.response_id == "chatcmpl-slow-aaaaaaaaaaaaaa":
            time.sleep(0.5)
        return read(span, parts)

    monkeypatch.setattr(otlp, "joined", slow)
    gateway = await gateway_factory(logged_calls=QUICK)
    other = {"trace_id": b"\x09" * 16}
    slowly = CALL | {"gen_ai.response.id": "chatcmpl-slow-aaaaaaaaaaaaaa"}
    chosen = {"index": 0, "message": {"role": "assistant", "content": "A cat."}}
    await post(gateway, "/v1/traces", traces(span(slowly, **other)))
    await post(
        gateway,
        "/v1/logs",
        logs(
            record("gen_ai.user.message", {"content": "What is it?"}, **other),
            record("gen_ai.choice", chosen, **other),
        ),
    )
    await post(gateway, "/v1/traces", traces(span(CALL)))
    await post(gateway, "/v1/logs", messages())
    ended = {event.answer: set(event.declined.values()) for event in await events(gateway, 2)}
    assert ended == {"A dog.": set(), "": {"unreadable"}}
    await eventually(lambda: nothing_waits(gateway, but=2), within=30)


@pytest.mark.parametrize(
    ("module", "name", "error"), [(logged, "submission_of", ValueError), (otlp, "joined", OSError)]
)
async def test_a_bug_over_one_call_holds_up_no_other(gateway_factory, monkeypatch, module, name, error):
    read = getattr(module, name)

    def break_one(call: Any, *others: Any, **named: Any) -> Any:
        if call is not None and call.response_id == "chatcmpl-broken-aaaaaaaaaaaa":
            raise error("nobody has thought of this")
        return read(call, *others, **named)

    monkeypatch.setattr(module, name, break_one)
    gateway = await gateway_factory(logged_calls=QUICK)
    for trace, kind in ((b"\x08" * 16, "broken"), (TRACE, "whole")):
        request = messages()
        for one in request.resource_logs[0].scope_logs[0].log_records:
            one.trace_id = trace
        await post(gateway, "/v1/logs", request)
        called = span(CALL | {"gen_ai.response.id": f"chatcmpl-{kind}-aaaaaaaaaaaa"}, trace_id=trace)
        await post(gateway, "/v1/traces", traces(called))
    ended = {event.answer: set(event.declined.values()) for event in await events(gateway, 2)}
    assert ended == {"A dog.": set(), "": {"unreadable"}}
    await eventually(lambda: nothing_waits(gateway, but=2), within=30)


async def test_halves_that_are_gone_meanwhile_are_no_bug(gateway_factory):
    gateway = await gateway_factory()
    joiner = gateway.service._joiner
    joiner._halves.calls["otlp", "key"] = Call("otlp", "key", "default")
    await joiner.look()
    assert await joiner.join(joiner._families["otlp"], "key", []) is None


async def test_a_choice_may_have_any_number(gateway_factory):
    gateway = await gateway_factory(logged_calls=QUICK)
    text = '{"index": 1234567890123456789012, "message": {"role": "assistant", "content": "A dog."}}'
    asking = record("gen_ai.user.message", {"content": "What is it?"})
    await post(gateway, "/v1/logs", logs(asking, record("gen_ai.choice", text)))
    await post(gateway, "/v1/traces", traces(span(CALL)))
    (event,) = await events(gateway)
    assert event.answer == "A dog."


async def test_a_call_has_a_bound(gateway_factory):
    gateway = await gateway_factory(logged_calls={"join_wait": 3600.0})
    many = [record("gen_ai.user.message", {"content": f"{number}"}) for number in range(300)]
    request = logs(*many).SerializeToString()
    reply = await gateway.http.post("/v1/logs", content=request, headers=PROTOBUF)
    rejected = ExportLogsServiceResponse.FromString(reply.content).partial_success
    assert (reply.status_code, rejected.rejected_log_records) == (200, 300 - joining.MOST_PARTS)
    assert "256 parts" in rejected.error_message


async def test_erasing_a_tenant_takes_what_waits_along(gateway_factory, bus, tmp_path):
    from groundwatch.erasure.erasing import Eraser
    from groundwatch.erasure.finding import Stores, subject

    tokens = {"acme": "an-acme-token-of-length", "other": "another-token-of-length"}
    file = tmp_path / "tokens"
    file.write_text("".join(f"{tenant} {token}\n" for tenant, token in tokens.items()))
    gateway = await gateway_factory(tokens_file=str(file), logged_calls={"join_wait": 3600.0})
    for token in tokens.values():
        headers = PROTOBUF | {"Authorization": f"Bearer {token}"}
        body = traces(span(CALL)).SerializeToString()
        reply = await gateway.http.post("/v1/traces", content=body, headers=headers)
        assert (reply.status_code, reply.content) == (200, b"")
    done = await Eraser(bus.js, subject(None, "acme", None), Stores(), wait=1).erase()
    assert done.counts == {STREAM: 1}
    assert (await bus.js.stream_info(STREAM)).state.messages == 1
