"""Spans that nobody should send: each ends as itself, and the gateway goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from tests.gateway.otlp.made import PROTOBUF, logs, record, said, span, traces

YEARS = 100 * 365 * 86_400 * 10**9


async def sent(gateway: Any, request: Any, path: str = "/v1/traces") -> int:
    """How many were rejected."""
    reply = await gateway.http.post(path, content=request.SerializeToString(), headers=PROTOBUF)
    assert reply.status_code == 200, reply.content
    return ExportTraceServiceResponse.FromString(reply.content).partial_success.rejected_spans


@pytest.mark.parametrize(
    "wrong",
    [7, 2.5, True, b"\xff\xfe", [], [1, [2, {"a": b"x"}]], {"a": {"b": None}}, None, "", "{", "\x00"],
    ids=repr,
)
async def test_wrong_types_of_every_attribute(gateway, wrong):
    good = said("a" * 20)
    several = [
        span({**good, key: wrong}, span_id=number.to_bytes(8, "big")) for number, key in enumerate(good, 1)
    ]
    several.append(span(dict.fromkeys(good, wrong), span_id=b"\x09" * 8))
    whole = span(said("z" * 20, answer="A cat."), trace_id=b"\x0a" * 16)
    await sent(gateway, traces(*several, whole))
    assert "A cat." in [event.answer for event in await gateway.events()]


async def test_sizes_ids_parents_and_clocks(gateway):
    many = said("a" * 20) | {f"key.{number}": number for number in range(10_000)}
    assert await sent(gateway, traces(span(many))) == 0
    assert await sent(gateway, traces(span(said("b" * 20, answer="x" * 20_000_000)))) == 0
    zero = span(said(), trace_id=bytes(16), span_id=bytes(8))
    none = span(said(answer="A cat."), trace_id=b"", span_id=b"")
    assert await sent(gateway, traces(zero, none)) == 0
    cycle = [
        span(said(f"{name}" * 20), span_id=own, parent_span_id=parent)
        for name, own, parent in (("c", b"\x01" * 8, b"\x02" * 8), ("d", b"\x02" * 8, b"\x01" * 8))
    ]
    assert await sent(gateway, traces(*cycle)) == 0
    for number, at in enumerate((0, 1, YEARS, 2**64 - 1)):
        late = span(said(f"{number}" * 20), start_time_unix_nano=YEARS, end_time_unix_nano=at)
        assert await sent(gateway, traces(late)) == 0
    before = len(await gateway.events())
    assert before == 2 + 2 + 2 + 4
    nested: Any = "x"
    for _ in range(30):
        nested = [nested]
    deep = said("e" * 20) | {"gen_ai.input.messages": json.dumps([nested]), "more": nested}
    await sent(gateway, traces(span(deep)))
    assert (
        await sent(gateway, logs(record("gen_ai.choice", nested, trace_id=b"", span_id=b"")), "/v1/logs") == 1
    )


async def test_a_collector_that_repeats_for_ever_adds_nothing(gateway):
    request = traces(span(said("a" * 20)), span(said("b" * 20, model="m" * 300), span_id=b"\x06" * 8))
    for _ in range(20):
        assert await sent(gateway, request) == 0
    declined = {event.id: set(event.declined.values()) for event in await gateway.events()}
    assert declined == {"a" * 20: set(), "b" * 20: {"invalid"}}


async def test_a_token_records_for_its_tenant_alone(gateway_factory, tmp_path):
    (tmp_path / "tokens").write_text("acme 0123456789abcdef\nother fedcba9876543210\n")
    gateway = await gateway_factory(tokens_file=str(tmp_path / "tokens"))
    for token in ("0123456789abcdef", "fedcba9876543210"):
        gateway.http.headers["Authorization"] = f"Bearer {token}"
        assert await sent(gateway, traces(span(said("a" * 20) | {"tenant": "acme"}))) == 0
    assert sorted(event.tenant for event in await gateway.events()) == ["acme", "other"]
