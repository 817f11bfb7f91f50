"""A request that is cut into parts as it comes is the same request."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from tests.gateway.otlp.made import PROTOBUF, pairs, said, span, traces

from groundwatch.counting import TooLong
from groundwatch.errors import InputError
from groundwatch.gateway.receivers import batches, otlp
from groundwatch.gateway.receivers.batches import Decompressor, Parts


def decompressed(body: bytes) -> bytes:
    reader = Decompressor()
    found = b"".join(reader.feed(body))
    reader.finish()
    return found


def made(sizes: list[list[list[int]]]) -> ExportTraceServiceRequest:
    """Resources with scopes with spans, each of about so many bytes."""
    request = ExportTraceServiceRequest()
    for number, scopes in enumerate(sizes):
        resource = ResourceSpans(schema_url=f"schema {number}")
        resource.resource.attributes.extend(pairs({"service.name": f"service {number}"}))
        for at, spans in enumerate(scopes):
            scope = ScopeSpans(spans=[Span(name=f"{number} {at} {one} " + "x" * one) for one in spans])
            scope.scope.name = f"scope {at}"
            resource.scope_spans.append(scope)
        request.resource_spans.append(resource)
    return request


def named(request: ExportTraceServiceRequest) -> list[tuple[str, str, str]]:
    return [
        (resource.resource.attributes[0].value.string_value, scope.scope.name, one.name)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for one in scope.spans
    ]


SIZES = st.lists(st.lists(st.lists(st.integers(0, 400), max_size=6), max_size=4), max_size=4)


@given(sizes=SIZES, enough=st.integers(1, 600), step=st.integers(1, 300))
def test_the_parts_have_every_span_once_with_its_scope_and_resource(sizes, enough, step):
    request = made(sizes)
    body = request.SerializeToString()
    parts = Parts(len(body), 10_000, None, enough)
    found: list[tuple[str, str, str]] = []
    for start in range(0, len(body), step):
        for part in parts.feed(body[start : start + step]):
            found += named(ExportTraceServiceRequest.FromString(part))
            # What is held is not more than an item, what stands beside it, and what came last.
            assert parts.held <= max(enough, 2 * 600) + step
    found += named(ExportTraceServiceRequest.FromString(parts.finish()))
    assert found == named(request)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_what_is_no_request_is_told(body, enough):
    parts = Parts(1_000, 1_000, None, enough)
    try:
        found = [*parts.feed(body), parts.finish()]
    except InputError:
        return
    assert sum(map(len, found)) >= len(body)


def test_decompression_reads_members_and_deflate():
    assert decompressed(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"
    assert decompressed(zlib.compress(b"ab")) == b"ab"
    assert decompressed(b"") == b""
    for wrong in (gzip.compress(b"x" * 1000)[:-9], b"no gzip"):
        with pytest.raises(InputError):
            decompressed(wrong)


def test_a_span_that_is_too_large_and_a_bomb_are_refused():
    body = made([[[5_000]]]).SerializeToString()
    parts = Parts(10_000, 1_000, None, 100)
    with pytest.raises(TooLong, match="a span or a log record"):
        for start in range(0, len(body), 100):
            list(parts.feed(body[start : start + 100]))
    with pytest.raises(TooLong, match="decompressed"):
        list(Parts(10_000, 10_000, Decompressor(), 20_000).feed(gzip.compress(bytes(100_000))))


async def test_a_request_in_many_parts_is_answered_once(gateway, monkeypatch):
    monkeypatch.setattr(otlp, "PART", 2_000)
    monkeypatch.setattr(otlp, "FED", 1_000)
    monkeypatch.setattr(batches, "PIECE", 700)
    parts: list[int] = []
    read = otlp.read_request
    monkeypatch.setattr(
        otlp, "read_request", lambda body, *more: parts.append(len(body)) or read(body, *more)
    )
    spans = [
        span(said(f"{number:02}" * 10, answer=f"A dog {number}."), span_id=number.to_bytes(8, "big"))
        for number in range(1, 41)
    ]
    wrong = [
        span(said(name * 20, model="m" * 300, answer=name), span_id=name.encode() * 8) for name in ("y", "z")
    ]
    request = traces(wrong[0], *spans, wrong[1])
    content = gzip.compress(request.SerializeToString())
    for is_new in (True, False):
        headers = PROTOBUF | {"Content-Encoding": "gzip"}
        reply = await gateway.http.post("/v1/traces", content=content, headers=headers)
        assert reply.status_code == 200
        told = ExportTraceServiceResponse.FromString(reply.content).partial_success
        # They are in the ledger as declined, and told all the same.
        assert (told.rejected_spans, "model" in told.error_message) == (0, is_new)
    assert len(parts) > 10 and max(parts) < 5_000
    assert len(await gateway.events()) == 42


async def test_the_answers_to_parts_are_one_answer(gateway, monkeypatch):
    for module, name, size in ((otlp, "PART", 2_000), (otlp, "FED", 1_000), (batches, "PIECE", 700)):
        monkeypatch.setattr(module, name, size)
    told = iter([(0, ""), (2, "first"), (0, ""), (3, "second")])

    async def receive(self, request, caller):
        return next(told, (0, ""))

    monkeypatch.setattr(otlp.Receiver, "receive", receive)
    spans = (span(said(f"{n:02}" * 10, answer=f"A {n}."), span_id=n.to_bytes(8, "big")) for n in range(1, 41))
    content = gzip.compress(traces(*spans).SerializeToString())
    headers = PROTOBUF | {"Content-Encoding": "gzip"}
    reply = await gateway.http.post("/v1/traces", content=content, headers=headers)
    partly = ExportTraceServiceResponse.FromString(reply.content).partial_success
    assert next(told, None) is None
    assert (partly.rejected_spans, partly.error_message) == (5, "first")


async def test_what_is_whole_of_a_request_that_is_cut_off_is_recorded(gateway, monkeypatch):
    monkeypatch.setattr(otlp, "PART", 1_000)
    spans = (span(said(f"{n:02}" * 10, answer=f"A {n}."), span_id=n.to_bytes(8, "big")) for n in range(1, 21))
    content = traces(*spans).SerializeToString()[:-10]
    reply = await gateway.http.post("/v1/traces", content=content, headers=PROTOBUF)
    assert reply.status_code == 400
    assert 0 < len(await gateway.events()) < 20
