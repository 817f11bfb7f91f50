"""Requests of OTLP read: bodies decompressed within a bound, protobuf and JSON alike, values as Python's.

What a request holds is counted before it is built: empty spans are two bytes each.
"""

import base64
import zlib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from groundwatch.conversations.conversation import Attributes
from groundwatch.counting import FIELD_BYTES, MOST_VALUES, TooLong, count_fields, count_values
from groundwatch.errors import InputError

R = TypeVar("R", ExportTraceServiceRequest, ExportLogsServiceRequest)

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
PIECE = 64 * 1024
MEMBERS = 1_000
"""Parts of a compressed body, each of which may be empty."""

MOST_FIELDS = 1_000_000
MOST_JSON = 400_000
"""Fields of all messages of a request, or values of its JSON, of which each takes longer."""

MOST_ITEMS = 50_000
"""Spans, or log records, of a request."""

SMALLER = "send smaller batches"

NANOSECONDS = 1e9
_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
_ITEMS = {
    ExportTraceServiceRequest.DESCRIPTOR.full_name: Span.DESCRIPTOR,
    ExportLogsServiceRequest.DESCRIPTOR.full_name: LogRecord.DESCRIPTOR,
}
_WINDOW = zlib.MAX_WBITS | 32
"""Of gzip and zlib alike."""


def decompressed(body: bytes, limit: int) -> bytes:
    """The body, of gzip or deflate. Raises `TooLong` as soon as there are more than `limit` bytes."""
    pieces: list[bytes] = []
    size = at = members = 0
    rest = b""
    try:
        while rest or at < len(body):
            members += 1
            if members > MEMBERS:
                raise InputError(f"the compressed body has more than {MEMBERS:,} parts")
            reader = zlib.decompressobj(_WINDOW)
            while not reader.eof and (rest or at < len(body)):
                # A piece at a time: what is left over is copied at the end of each part.
                given, rest = rest or body[at : (at := at + PIECE)], b""
                pieces.append(reader.decompress(given, PIECE))
                size += len(pieces[-1])
                if size > limit:
                    raise TooLong(f"has more than {limit} bytes when it is decompressed")
                rest = reader.unconsumed_tail
            if not reader.eof:
                raise InputError("the compressed body is cut off")
            rest = reader.unused_data
    except zlib.error as error:
        raise InputError(f"does not decompress: {error}") from error
    return b"".join(pieces)


def weigh(body: bytes, media_type: str, form: Descriptor) -> int:
    """How many bytes the request in a body will take.

    Raises `InputError` for what is none, `TooLong` for one that holds too much.
    """
    most = MOST_JSON if media_type == JSON else MOST_FIELDS
    if media_type == JSON:
        fields = count_values(body, most)
    else:
        fields, items = count_fields(body, form, _ITEMS[form.full_name], most)
        _check_items(items)
    if fields > most:
        raise TooLong(f"holds more than {most:,} fields: {SMALLER}")
    return len(body) + fields * FIELD_BYTES


def read_request(body: bytes, media_type: str, kind: type[R]) -> R:
    """The request in a body that was weighed. Raises as that does."""
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


def _check_items(items: int) -> None:
    if items > MOST_ITEMS:
        raise TooLong(f"holds more than {MOST_ITEMS:,} spans or log records: {SMALLER}")


def _ids_as_base64(said: Any) -> None:
    """OTLP writes ids in hex, where protobuf's own JSON has base64. Links are not read."""
    number = 0
    for resource, scope, items in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resource_spans", "scope_spans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
        ("resource_logs", "scope_logs", "log_records"),
    ):
        for one in said.get(resource) or ():
            for several in one.get(scope) or ():
                for item in several.get(items) or ():
                    number += 1
                    item.pop("links", None)
                    for name in _IDS:
                        if found := item.get(name):
                            item[name] = base64.b64encode(bytes.fromhex(found)).decode()
    _check_items(number)


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
    """By their keys. Raises `InputError` where there are more than `MOST_VALUES`, those inside included."""
    return _Values().pairs(attributes)


def value_of(value: AnyValue) -> Any:
    """As Python has it; an empty value is None. Raises as `attributes_of` does."""
    return _Values().value(value)


class _Values:
    def __init__(self) -> None:
        self._left = MOST_VALUES

    def pairs(self, attributes: Any) -> Attributes:
        return {one.key: self.value(one.value) for one in attributes}

    def value(self, value: AnyValue) -> Any:
        self._left -= 1
        if self._left < 0:
            raise InputError(f"has more than {MOST_VALUES:,} values")
        match value.WhichOneof("value"):
            case "array_value":
                return [self.value(one) for one in value.array_value.values]
            case "kvlist_value":
                return self.pairs(value.kvlist_value.values)
            case None:
                return None
            case kind:
                return getattr(value, kind)


def seconds(nanoseconds: int) -> float:
    return nanoseconds / NANOSECONDS
