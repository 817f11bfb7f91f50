"""OTLP over gRPC, by the official exporter and by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.gateway.otlp.made import said, span, traces
from tests.support.frozen import frozen

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


async def export(gateway: Any, request: Any, **options: Any) -> Any:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.service.grpc_port}") as channel:
        content = request if isinstance(request, bytes) else request.SerializeToString()
        call = channel.unary_unary(EXPORT, response_deserializer=ExportTraceServiceResponse.FromString)
        return await call(content, timeout=30, **options)


async def failed(gateway: Any, request: Any, **options: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await export(gateway, request, **options)
    return caught.value


async def test_the_official_exporter_is_understood(gateway, pictures):
    exporter = OTLPSpanExporter(f"127.0.0.1:{gateway.service.grpc_port}", insecure=True)

    def work() -> None:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        attributes = said("chatcmpl-aaaaaaaaaaaaaaaaaaaa", image=pictures.encoded("PNG"))
        with provider.get_tracer("app").start_as_current_span("chat", attributes=attributes):
            pass
        provider.shutdown()

    await asyncio.to_thread(work)
    (event,) = await gateway.events()
    assert (event.id, event.answer, len(event.images)) == ("chatcmpl-aaaaaaaaaaaaaaaaaaaa", "A dog.", 1)


async def test_a_large_batch_is_taken_and_a_larger_one_is_not(gateway_factory):
    limits = {"max_line": 100_000, "max_image_bytes": 100_000, "max_answer": 100}
    gateway = await gateway_factory(grpc_port=0, intake=limits, logged_calls={"max_batch": 8_000_000})
    filler = {"note": "x" * 5_000_000}
    answer = await export(gateway, traces(span(said("a" * 20) | filler)), compression=grpc.Compression.Gzip)
    assert not answer.partial_success.rejected_spans
    answer = await export(gateway, traces(span(said("b" * 20, answer="x" * 200))))
    assert not answer.partial_success.rejected_spans
    error = await failed(gateway, traces(span(filler), span(filler)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # It is no use to send the same again.
    assert "grpc-status-details-bin" not in dict(error.trailing_metadata() or ())
    assert gateway.count("groundwatch_logged_calls_total", source="otlp", result="batch_refused") == 1
    notes = (await gateway.http.get("/readyz")).json()["notes"]
    assert any("OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16" in note for note in notes)
    assert (await failed(gateway, b"\xff\xff")).code() is grpc.StatusCode.INVALID_ARGUMENT
    first, second = await gateway.events()
    assert (first.id, first.declined) == ("a" * 20, {})
    assert (second.answer, second.declined) == ("x" * 100, {"faithscore": "answer_too_long"})


async def test_a_batch_above_the_limit_of_logged_calls_alone_is_not_to_come_again(gateway_factory):
    gateway = await gateway_factory(grpc_port=0, logged_calls={"max_batch": 1_000})
    error = await failed(gateway, traces(span({"note": "x" * 5_000})))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    assert not any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)
    assert gateway.count("groundwatch_lost_before_intake_total", reason="batch_refused") == 1


async def test_metrics_are_taken_and_told_once(gateway):
    exporter = OTLPMetricExporter(f"127.0.0.1:{gateway.service.grpc_port}", insecure=True)

    def work() -> None:
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)])
        provider.get_meter("app").create_counter("calls").add(1)
        assert provider.force_flush()
        provider.shutdown()

    await asyncio.to_thread(work)
    (note,) = (await gateway.http.get("/readyz")).json()["notes"]
    assert "OTEL_METRICS_EXPORTER=none" in note


async def test_what_may_come_again_says_when(gateway, nats_server):
    with frozen(nats_server.pid):
        error = await failed(gateway, traces(span(said("a" * 20))))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)


async def test_a_token_is_asked_for(gateway_factory, tmp_path):
    (tmp_path / "tokens").write_text("acme 0123456789abcdef\n")
    gateway = await gateway_factory(grpc_port=0, tokens_file=str(tmp_path / "tokens"))
    request = traces(span(said("a" * 20)))
    assert (await failed(gateway, request)).code() is grpc.StatusCode.UNAUTHENTICATED
    await export(gateway, request, metadata=(("authorization", "Bearer 0123456789abcdef"),))
    assert [event.tenant for event in await gateway.events()] == ["acme"]
