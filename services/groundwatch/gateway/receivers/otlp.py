"""OTLP: requests read within bounds, and what becomes of their spans and log records."""

import base64
import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.conversations.conversation import Attributes, Conversation, Unreadable, repeat_key
from groundwatch.conversations.spans import LogPart, joined, read_log, read_span
from groundwatch.counting import FIELD_BYTES, MOST_VALUES, TooLong, count_fields, count_values
from groundwatch.errors import InputError, TransientError
from groundwatch.events import DEFAULT_TENANT
from groundwatch.gateway.auth import SEND, Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, body_of, caller_of, media_type, share_of
from groundwatch.gateway.intake.logged import NOT_LOST
from groundwatch.gateway.receivers.joining import Family, Half, Head, Joiner
from groundwatch.gateway.refusals import Recorded, Refused, one_line, refusal_of
from groundwatch.keys import digest

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


def weigh(body: bytes, form: Descriptor, media_type: str = PROTOBUF) -> int:
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


REMEMBERED = 20_000
"""Calls whose repeats under another id are known when they come in a later request."""


class _Told(msgspec.Struct, frozen=True):
    """A span that tells of a call, and whether it has the server's id of the answer.

    The id itself may be as long as its sender likes, and so may not be remembered.
    """

    span_id: str
    named: bool


class Repeats:
    """Calls that were recorded, by what two spans of one call have in common.

    A repeat under the same id is known to the stream of responses itself, for ever.
    """

    def __init__(self) -> None:
        self._recorded: OrderedDict[tuple[str, str], _Told] = OrderedDict()

    def kept(self, calls: Sequence[Conversation], tenant: str) -> list[Conversation]:
        """One conversation of each call: the one with the most images, and with the server's id of it."""
        ids: set[str] = set()
        keys: dict[str, _Told] = {}
        best: list[Conversation] = []
        for call in sorted(calls, key=_worth, reverse=True):
            key, told = repeat_key(call), _told(call)
            known = keys.get(key) or self._recorded.get((tenant, key))
            if (call.id and call.id in ids) or (key and known is not None and _is_repeat(told, known)):
                continue
            ids.add(call.id)
            keys.setdefault(key, told)
            best.append(call)
        return best

    def recorded(self, call: Conversation, tenant: str) -> None:
        if key := repeat_key(call):
            self._recorded[(tenant, key)] = _told(call)
            if len(self._recorded) > REMEMBERED:
                self._recorded.popitem(last=False)


def _told(call: Conversation) -> _Told:
    return _Told(call.span_id, bool(call.response_id))


def _is_repeat(told: _Told, known: _Told) -> bool:
    """Whether both tell of one call: not the same span again, and not two answers of the server."""
    return told.span_id != known.span_id and not (told.named and known.named)


def _worth(call: Conversation) -> tuple[bool, int, bool]:
    return not call.left_out, len(call.images), bool(call.response_id)


SPAN, ASKED, ANSWERED = "span", "asked", "answered"
"""What halves hold: the span of the call, messages to the model, messages of the model."""

_ENCODER = msgspec.msgpack.Encoder()
_SPAN = msgspec.msgpack.Decoder(Conversation)
_LOG = msgspec.msgpack.Decoder(LogPart)

_Read = tuple[Conversation | Unreadable | Half | None, str]
"""What a span or a log record is of (None: of no call), and the key of its call, where a span says it."""


class Receiver:
    """Records the calls of a request, or keeps what is to be joined, before it is acknowledged.

    Raises `TransientError` when that could not be done for no fault of the request: the whole of it is to
    come again, and what was recorded is recorded once.
    """

    def __init__(self, core: GatewayCore, joiner: Joiner) -> None:
        self._logged = core.logged
        self._reading = core.threads
        self._intake = core.intake
        self._repeats = Repeats()
        self._joiner = joiner
        settings = core.settings.logged_calls
        self._family = joiner.add(
            Family(
                source="otlp",
                whole=_is_whole,
                read=_read_joined,
                record=self._record_joined,
                wait=settings.join_wait,
                timeout=settings.join_timeout,
                crowded=settings.join_wait,
                rated=True,
                remembered=True,
            )
        )

    async def traces(self, request: ExportTraceServiceRequest, caller: Caller) -> ExportTraceServiceResponse:
        lost = await self._receive(request, _read_spans, caller)
        partly = ExportTracePartialSuccess(rejected_spans=len(lost), error_message=lost[0]) if lost else None
        return ExportTraceServiceResponse(partial_success=partly)

    async def logs(self, request: ExportLogsServiceRequest, caller: Caller) -> ExportLogsServiceResponse:
        lost = await self._receive(request, _read_records, caller)
        partly = (
            ExportLogsPartialSuccess(rejected_log_records=len(lost), error_message=lost[0]) if lost else None
        )
        return ExportLogsServiceResponse(partial_success=partly)

    async def _receive(
        self, request: R, read_all: Callable[[R, Caller], Sequence[_Read]], caller: Caller
    ) -> list[str]:
        """Why some are rejected for good, one line each."""
        reads = await self._reading.run(caller.sender, read_all, request, caller)
        calls: list[Conversation | Unreadable] = []
        lost: list[str] = []
        for read, key in reads:
            if read is None:
                self._logged.count("otlp", "ignored")
            elif isinstance(read, Half):
                lost += await self._keep(read)
            else:
                calls.append(read)
                if key and isinstance(read, Unreadable) and read.reason in NOT_LOST:
                    # The log records of a call that failed wait for nothing.
                    self._joiner.end(self._family, key)
        return lost + await self._record(calls, caller)

    async def _keep(self, half: Half) -> list[str]:
        """Keep a half of a call; in the list why it is lost, if it is."""
        try:
            await self._joiner.keep(self._family, half)
        except Refused as error:
            if error.passing:
                raise
            self._logged.count("otlp", "refused")
            self._intake.count(error)
            return [_line(error)]
        return []

    async def _record_joined(
        self, call: Conversation | Unreadable, caller: Caller, name: str
    ) -> Recorded | Refused:
        if isinstance(call, Unreadable) and call.reason in NOT_LOST:
            self._logged.count("otlp", "ignored")
            return Refused(id=call.id, reason="malformed", message=call.message)
        tenant = _tenant(caller)
        if isinstance(call, Conversation):
            kept = await self._reading.run(caller.sender, self._repeats.kept, [call], tenant)
            if not kept:
                self._logged.count("otlp", "duplicate")
                return Recorded(id=call.id, status="duplicate")
        ended = await self._logged.record_acknowledged(call, caller, "otlp", name=name)
        if isinstance(ended, Recorded) and isinstance(call, Conversation):
            self._repeats.recorded(call, tenant)
        return ended

    async def _record(self, calls: Sequence[Conversation | Unreadable], caller: Caller) -> list[str]:
        """Why some were rejected for good, one line each."""
        tenant = _tenant(caller)
        whole = [call for call in calls if isinstance(call, Conversation)]
        kept = await self._reading.run(caller.sender, self._repeats.kept, whole, tenant)
        self._logged.count("otlp", "duplicate", len(whole) - len(kept))
        lost = [one for one in calls if isinstance(one, Unreadable) and one.reason not in NOT_LOST]
        self._logged.count("otlp", "ignored", len(calls) - len(whole) - len(lost))
        ended = await self._logged.record_all([*kept, *lost], caller, "otlp")
        for call, one in zip(kept, ended, strict=False):
            if isinstance(one, Recorded):
                self._repeats.recorded(call, tenant)
                if call.trace_id and call.span_id:
                    self._joiner.end(self._family, _key(tenant, call.trace_id, call.span_id))
        # Another span of the same call, whose text differs a little, is no loss.
        return [_line(one) for one in ended if isinstance(one, Refused) and one.reason != "conflict"]


def _is_half(call: Conversation) -> bool:
    """Whether log records may have what the span lacks."""
    return not call.answer and not call.references and bool(call.trace_id and call.span_id)


def _half(read: Conversation | LogPart, part: str, caller: Caller) -> Half:
    """What was read of a span or a log record, to be joined with the rest of its call."""
    tenant, body = _tenant(caller), _ENCODER.encode(read)
    if isinstance(read, Conversation):
        sides = {SPAN: True, ASKED: bool(read.prompt or read.images), ANSWERED: False}
    else:
        sides = {SPAN: False, ASKED: bool(read.inputs), ANSWERED: bool(read.outputs)}
    return Half(
        key=_key(tenant, read.trace_id, read.span_id),
        part=part or hashlib.sha256(body).hexdigest()[:32],
        head=Head(tenant, f"{read.trace_id}:{read.span_id}"),
        holds=tuple(side for side, there in sides.items() if there),
        body=body,
    )


def _key(tenant: str, trace_id: str, span_id: str) -> str:
    return digest(tenant, trace_id, span_id)[:32]


def _is_whole(sides: frozenset[str]) -> bool:
    return sides >= {SPAN, ASKED, ANSWERED}


def _read_joined(head: Head, bodies: Mapping[str, bytes]) -> Conversation | Unreadable:
    span = _SPAN.decode(bodies[SPAN]) if SPAN in bodies else None
    return joined(span, [_LOG.decode(body) for part, body in bodies.items() if part != SPAN])


def _tenant(caller: Caller) -> str:
    return caller.only or DEFAULT_TENANT


def _whole(part: LogPart) -> Conversation | None:
    """The call of a log record that needs no span: it has the model, the answer, and what was asked."""
    if part.model and part.inputs and part.outputs:
        call = joined(None, (part,))
        return call if isinstance(call, Conversation) and call.answer else None
    return None


def _read_spans(request: ExportTraceServiceRequest, caller: Caller) -> list[_Read]:
    return [_read_span(scope, span, caller) for scope, span in spans_of(request)]


def _read_span(scope: str, span: Span, caller: Caller) -> _Read:
    read = _span(scope, span)
    if isinstance(read, Conversation) and _is_half(read):
        return _half(read, SPAN, caller), ""
    return read, _key(_tenant(caller), span.trace_id.hex(), span.span_id.hex())


def _read_records(request: ExportLogsServiceRequest, caller: Caller) -> list[_Read]:
    reads = (_log(scope, record) for scope, record in records_of(request))
    return [
        ((_whole(read) or _half(read, "", caller)) if isinstance(read, LogPart) else read, "")
        for read in reads
    ]


def _span(scope: str, span: Span) -> Conversation | Unreadable | None:
    try:
        return read_span(
            span.name,
            attributes_of(span.attributes),
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            at=seconds(span.end_time_unix_nano),
            events=[(event.name, attributes_of(event.attributes)) for event in span.events],
            scope=scope,
        )
    except InputError as error:
        return Unreadable("unreadable", f"the span {span.name[:80]} {error}")


def _log(scope: str, record: LogRecord) -> LogPart | Unreadable | None:
    name = event_name(record)
    try:
        return read_log(
            name,
            attributes_of(record.attributes),
            value_of(record.body),
            trace_id=record.trace_id.hex(),
            span_id=record.span_id.hex(),
            at=seconds(record.time_unix_nano or record.observed_time_unix_nano),
            scope=scope,
        )
    except InputError as error:
        return Unreadable("unreadable", f"the log record {name[:80]} {error}")


def _line(refused: Refused) -> str:
    return one_line(": ".join(filter(None, (refused.id, refused.field, refused.message))))


COMPRESSED = frozenset({"gzip", "deflate"})
LANGFUSE_MEDIA = (
    "media is not taken here: with LANGFUSE_MEDIA_UPLOAD_ENABLED=false the SDK leaves images in its spans"
)


class OtlpRoutes:
    def __init__(self, core: GatewayCore, receiver: Receiver) -> None:
        self._core = core
        self._receiver = receiver
        self._reading = core.threads

    def routes(self) -> list[Route]:
        return [
            Route("/v1/traces", self.traces, SEND, methods=["POST"]),
            Route("/v1/logs", self.logs, SEND, methods=["POST"]),
            Route("/api/public/otel/v1/traces", self.traces, SEND, methods=["POST"]),
            Route("/api/public/media", self.media, SEND, methods=["POST"]),
        ]

    async def traces(self, request: Request) -> Response:
        return await self._answered(request, ExportTraceServiceRequest, self._receiver.traces)

    async def logs(self, request: Request) -> Response:
        return await self._answered(request, ExportLogsServiceRequest, self._receiver.logs)

    async def media(self, request: Request) -> Response:
        raise Refused("invalid", LANGFUSE_MEDIA)

    async def _answered(
        self, request: Request, form: type[R], record: Callable[[R, Caller], Awaitable[Message]]
    ) -> Response:
        kind = media_type(request)
        if kind not in (PROTOBUF, JSON):
            raise Refused("media_type", f"send {PROTOBUF} or {JSON}")
        try:
            body = await self._body(request)
            caller = caller_of(request)
            size = await self._reading.run(caller.sender, weigh, body, form.DESCRIPTOR, kind)
            share_of(request).hold(size)
            said = await self._reading.run(caller.sender, read_request, body, kind, form)
            del body
            return _reply(200, await record(said, caller), kind)
        except TooLong as error:
            return _failure(Refused("too_large", str(error)), kind)
        except (Refused, TransientError, InputError) as error:
            return _failure(refusal_of(error), kind)

    async def _body(self, request: Request) -> bytes:
        limit = self._core.settings.logged_calls.max_batch
        try:
            body = await body_of(request, limit)
        except Refused as error:
            if error.reason == "too_large":
                raise TooLong(f"{error}: send smaller batches") from error
            raise
        encoding = request.headers.get("content-encoding", "").strip().lower()
        if encoding in ("", "identity"):
            return body
        if encoding not in COMPRESSED:
            raise InputError(f"Content-Encoding {encoding[:40]} is not read: send gzip")
        return await self._reading.run(caller_of(request).sender, decompressed, body, limit)


def _reply(status: int, message: Message, kind: str, headers: dict[str, str] | None = None) -> Response:
    if kind == JSON:
        # Numbers of 64 bits are text in protobuf's JSON, which is what the protocol wants.
        return Response(json_format.MessageToJson(message, indent=None), status, headers, JSON)
    return Response(message.SerializeToString(), status, headers, PROTOBUF)


def _failure(refused: Refused, kind: str) -> Response:
    """The protocol's own form; to it, what is wrong with a request is 400."""
    status, code = refused.status
    told = status_pb2.Status(code=code_pb2.Code.Value(code), message=one_line(refused.message))
    headers = {"Retry-After": str(refused.retry_after)} if refused.passing else None
    return _reply(400 if status == 422 else status, told, kind, headers)
