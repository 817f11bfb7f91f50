"""Requests of OTLP read: bodies decompressed within a bound, protobuf and JSON alike, values as Python's."""

import base64
import zlib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from groundwatch.conversations.conversation import Attributes
from groundwatch.errors import InputError

R = TypeVar("R", ExportTraceServiceRequest, ExportLogsServiceRequest)

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
PIECE = 1024 * 1024
NANOSECONDS = 1e9
_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
_WINDOW = zlib.MAX_WBITS | 32
"""Of gzip and zlib alike."""


class TooLong(InputError):
    """A body that is larger than it may be once it is decompressed."""


def decompressed(body: bytes, limit: int) -> bytes:
    """The body, of gzip or deflate. Raises `TooLong` as soon as there are more than `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    try:
        while body:
            reader = zlib.decompressobj(_WINDOW)
            while body and not reader.eof:
                pieces.append(reader.decompress(body, PIECE))
                size += len(pieces[-1])
                if size > limit:
                    raise TooLong(f"has more than {limit} bytes when it is decompressed")
                body = reader.unconsumed_tail
            if not reader.eof:
                raise InputError("the compressed body is cut off")
            body = reader.unused_data
    except zlib.error as error:
        raise InputError(f"does not decompress: {error}") from error
    return b"".join(pieces)


def read_request(body: bytes, media_type: str, kind: type[R]) -> R:
    """The request in a body. Raises `InputError` for what is none."""
    if media_type != JSON:
        try:
            return kind.FromString(body)
        except DecodeError as error:
            raise InputError(f"is no {kind.DESCRIPTOR.name} in protobuf") from error
    try:
        said = msgspec.json.decode(body)
        _ids_as_base64(said)
        return json_format.ParseDict(said, kind(), ignore_unknown_fields=True)
    except (ValueError, TypeError, AttributeError, RecursionError, json_format.Error) as error:
        raise InputError(f"is no {kind.DESCRIPTOR.name} in JSON: {str(error)[:300]}") from error


def _ids_as_base64(said: Any) -> None:
    """OTLP writes ids in hex, where protobuf's own JSON has base64. Links are not read."""
    for resource, scope, items in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resource_spans", "scope_spans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
        ("resource_logs", "scope_logs", "log_records"),
    ):
        for one in said.get(resource) or ():
            for several in one.get(scope) or ():
                for item in several.get(items) or ():
                    item.pop("links", None)
                    for name in _IDS:
                        if found := item.get(name):
                            item[name] = base64.b64encode(bytes.fromhex(found)).decode()


def spans_of(request: ExportTraceServiceRequest) -> Iterator[tuple[str, Span]]:
    """Every span, with the name of its scope."""
    for resource in request.resource_spans:
        for several in resource.scope_spans:
            for span in several.spans:
                yield several.scope.name, span


def records_of(request: ExportLogsServiceRequest) -> Iterator[tuple[str, LogRecord]]:
    """Every log record, with the name of its scope."""
    for resource in request.resource_logs:
        for several in resource.scope_logs:
            for record in several.log_records:
                yield several.scope.name, record


def event_name(record: LogRecord) -> str:
    """The name of the event that a log record is; older libraries say it in an attribute."""
    if record.event_name:
        return record.event_name
    return next((one.value.string_value for one in record.attributes if one.key == "event.name"), "")


def attributes_of(attributes: Any) -> Attributes:
    return {one.key: value_of(one.value) for one in attributes}


def value_of(value: AnyValue) -> Any:
    """As Python has it; an empty value is None."""
    match value.WhichOneof("value"):
        case "array_value":
            return [value_of(one) for one in value.array_value.values]
        case "kvlist_value":
            return attributes_of(value.kvlist_value.values)
        case None:
            return None
        case kind:
            return getattr(value, kind)


def seconds(nanoseconds: int) -> float:
    return nanoseconds / NANOSECONDS
