"""Requests of OTLP, made by hand and as real emitters sent them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

RECORDED = Path(__file__).parents[2] / "conversations" / "recorded"

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
TRACE, SPAN = b"\x01" * 16, b"\x02" * 8
OPENAI = "opentelemetry.instrumentation.openai_v2"


def recorded(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Paths and bodies of the requests that an emitter sent."""
    found = json.loads((RECORDED / f"{name}.json").read_text())
    return [(one["path"], one["body"]) for one in found["requests"]]


def calls(name: str) -> list[dict[str, Any]]:
    """What was asked and answered in a recording."""
    return list(json.loads((RECORDED / f"{name}.json").read_text())["calls"].values())


def value(given: Any) -> AnyValue:
    match given:
        case bool():
            return AnyValue(bool_value=given)
        case str():
            return AnyValue(string_value=given)
        case int():
            return AnyValue(int_value=given)
        case float():
            return AnyValue(double_value=given)
        case bytes():
            return AnyValue(bytes_value=given)
        case list():
            return AnyValue(array_value=ArrayValue(values=map(value, given)))
        case dict():
            return AnyValue(kvlist_value=KeyValueList(values=pairs(given)))
    return AnyValue()


def pairs(given: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value(one)) for key, one in given.items()]


def said(
    name: str = "", *, image: bytes | None = None, answer: str = "A dog.", model: str = "heron-7b"
) -> dict[str, Any]:
    """Attributes of a span in the GenAI conventions."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": "What is it?"}]
    if image is not None:
        encoded = base64.b64encode(image).decode()
        parts.append({"type": "blob", "modality": "image", "mime_type": "image/png", "content": encoded})
    answered = [
        {"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": "stop"}
    ]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": parts}]),
        "gen_ai.output.messages": json.dumps(answered),
    } | ({"gen_ai.response.id": name} if name else {})


def span(attributes: dict[str, Any], **changes: Any) -> Span:
    given = {"name": "chat heron-7b", "trace_id": TRACE, "span_id": SPAN, "end_time_unix_nano": 10**18}
    return Span(**(given | changes), attributes=pairs(attributes))


def traces(*spans: Span, scope: str = "") -> ExportTraceServiceRequest:
    several = ScopeSpans(spans=spans)
    several.scope.name = scope
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[several])])


def record(event: str, body: Any, **changes: Any) -> LogRecord:
    given = {"trace_id": TRACE, "span_id": SPAN, "event_name": event, "time_unix_nano": 10**18}
    return LogRecord(**(given | changes), body=value(body))


def logs(*records: LogRecord, scope: str = OPENAI) -> ExportLogsServiceRequest:
    several = ScopeLogs(log_records=records)
    several.scope.name = scope
    return ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[several])])
