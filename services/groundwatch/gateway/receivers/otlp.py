"""OTLP: requests read within bounds, and what becomes of their spans and log records."""

import base64
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.conversations.conversation import (
    Attributes,
    Conversation,
    Origin,
    Unreadable,
    content_digest,
    repeat_key,
    text_of,
)
from groundwatch.conversations.spans import LogPart, dialect_of, joined, read_log, read_span
from groundwatch.counting import FIELD_BYTES, MOST_VALUES, TooLong, count_fields, count_values
from groundwatch.errors import InputError, TransientError
from groundwatch.events import DEFAULT_TENANT
from groundwatch.gateway.auth import SEND, Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, Share, caller_of, media_type, share_of
from groundwatch.gateway.intake.logged import LONGEST_NAME, NOT_LOST
from groundwatch.gateway.receivers.batches import MANY, MOST_ITEMS, PART, Decompressor, Parts
from groundwatch.gateway.receivers.joining import Family, Half, Head, Joiner
from groundwatch.gateway.refusals import Recorded, Refused, one_line, refusal_of
from groundwatch.keys import digest

Export = ExportTraceServiceRequest | ExportLogsServiceRequest | ExportMetricsServiceRequest
R = TypeVar("R", ExportTraceServiceRequest, ExportLogsServiceRequest)

ANSWERS: dict[type[Message], type[Message]] = {
    ExportTraceServiceRequest: ExportTraceServiceResponse,
    ExportLogsServiceRequest: ExportLogsServiceResponse,
    ExportMetricsServiceRequest: ExportMetricsServiceResponse,
}

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
FED = 1024 * 1024
"""Bytes that are fed at once: each time a thread is waited for."""

MOST_FIELDS = 1_000_000
MOST_JSON = 400_000
"""Fields of all messages of a request, or values of its JSON, of which each takes longer."""

SMALLER = "send smaller batches"
METRICS = (
    "otlp: metrics come, which nobody reads here: OTEL_METRICS_EXPORTER=none spares them, or a pipeline of "
    "the collector without them"
)

KEYS, LONGEST_KEY = 8, 40
"""Of an example of what is of no call: how many are named, and how many characters of each."""

NANOSECONDS = 1e9
_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
_ITEMS = {
    ExportTraceServiceRequest.DESCRIPTOR.full_name: Span.DESCRIPTOR,
    ExportLogsServiceRequest.DESCRIPTOR.full_name: LogRecord.DESCRIPTOR,
    ExportMetricsServiceRequest.DESCRIPTOR.full_name: Metric.DESCRIPTOR,
}


class Scope(NamedTuple):
    """The name of what wrote spans, as long as it may be, and who sent them."""

    name: str
    origin: Origin


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
        raise TooLong(MANY)


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


def spans_of(request: ExportTraceServiceRequest) -> Iterator[tuple[Scope, Span]]:
    """Every span, with its scope."""
    for resource in request.resource_spans:
        for several in resource.scope_spans:
            scope = _scope(resource.resource, several.scope)
            for span in several.spans:
                yield scope, span


def records_of(request: ExportLogsServiceRequest) -> Iterator[tuple[Scope, LogRecord]]:
    """Every log record, with its scope."""
    for resource in request.resource_logs:
        for several in resource.scope_logs:
            scope = _scope(resource.resource, several.scope)
            for record in several.log_records:
                yield scope, record


def _scope(resource: Resource, scope: InstrumentationScope) -> Scope:
    named = (one.value.string_value for one in resource.attributes if one.key == "service.name")
    service = next(named, "")
    if service.startswith("unknown_service"):
        service = ""
    texts = (one_line(text_of(text[:LONGEST_NAME])) for text in (service, scope.name, scope.version))
    return Scope(scope.name, Origin(**dict(zip(("service", "library", "version"), texts, strict=True))))


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
"""Keys of calls, three of each, whose repeats under another id are known when they come later."""


MOST_OF_ONE_KEY = 16
"""Calls of one trace that are the same in all, of which one after the other is remembered."""


class _Told(msgspec.Struct, frozen=True):
    """A span that tells of a call, whether it has the server's id of the answer, a digest of its texts, and
    how many images it has: -1 where something was left out.

    The id itself may be as long as its sender likes, and so may not be remembered.
    """

    span_id: str
    parent_id: str
    scope: str
    named: bool
    said: str
    images: int


class Repeats:
    """Calls that were recorded, by what two spans of one call have in common.

    A repeat under the same id is known to the stream of responses itself, for ever.
    """

    def __init__(self) -> None:
        self._recorded: OrderedDict[tuple[str, str], tuple[_Told, ...]] = OrderedDict()

    def kept(self, calls: Sequence[Conversation], tenant: str) -> list[Conversation]:
        """One conversation of each call: the one with the most images, and with the server's id of it."""
        ids: set[str] = set()
        keys: dict[str, list[_Told]] = {}
        best: list[Conversation] = []

        def known(key: str) -> list[_Told]:
            return keys.setdefault(key, [*self._recorded.get((tenant, key), ())])

        for call in sorted(calls, key=_worth, reverse=True):
            told, shared = _told(call), repeat_key(call)
            again = any(_is_repeat(told, one) for one in known(shared) if shared)
            again = again or any(_is_poorer(told, one) for key in _beside(call) for one in known(key))
            if again or (call.id and call.id in ids):
                continue
            ids.add(call.id)
            for key in _keys(call):
                known(key).append(told)
            best.append(call)
        return best

    def recorded(self, call: Conversation, tenant: str) -> None:
        told = _told(call)
        for key in _keys(call):
            known = self._recorded.get((tenant, key), ())
            self._recorded[tenant, key] = (*known[1 - MOST_OF_ONE_KEY :], told)
            if len(self._recorded) > REMEMBERED:
                self._recorded.popitem(last=False)


def _keys(call: Conversation) -> list[str]:
    """By what a call is known of which nothing was left out: what was said and shown, its span, and that it
    is within another one."""
    shared, trace = repeat_key(call), call.trace_id
    return [shared, f"{trace}/{call.span_id}", f"{trace}/{call.parent_id}/"] if shared else []


def _beside(call: Conversation) -> list[str]:
    """By what calls are known whose span is around or within that of a call."""
    if not call.trace_id or not (call.answer or call.left_out):
        return []
    around = [f"{call.trace_id}/{call.parent_id}"] if call.parent_id else []
    return [*around, f"{call.trace_id}/{call.span_id}/"]


def _told(call: Conversation) -> _Told:
    said = content_digest(msgspec.structs.replace(call, images=()))[:16] if call.answer else ""
    images = -1 if call.left_out else len(call.images)
    return _Told(call.span_id, call.parent_id, call.scope, bool(call.response_id), said, images)


def _is_repeat(told: _Told, known: _Told) -> bool:
    """Whether both tell of one call: not the same span again, not two answers of the server, and not two
    calls of one instrumentation, side by side."""
    if told.span_id == known.span_id or (told.named and known.named):
        return False
    nested = told.parent_id == known.span_id or known.parent_id == told.span_id
    return told.named != known.named or told.scope != known.scope or nested


def _is_poorer(told: _Told, known: _Told) -> bool:
    """Whether a span around or within another one has no images, or nothing of what was said, where that has
    both."""
    return told.images < known.images and told.said in ("", known.said)


def _worth(call: Conversation) -> tuple[bool, int, bool]:
    return not call.left_out, len(call.images), bool(call.response_id)


SPAN, ASKED, ANSWERED = "span", "asked", "answered"
"""What halves hold: the span of the call, messages to the model, messages of the model."""

_ENCODER = msgspec.msgpack.Encoder()
_SPAN = msgspec.msgpack.Decoder(Conversation)
_LOG = msgspec.msgpack.Decoder(LogPart)

_Read = tuple[Conversation | Unreadable | Half | None, str]
"""What a span or a log record is of (None: of no call), and the key of its call, where a span says it."""

_All = tuple[list[_Read], dict[Origin, tuple[int, str]]]
"""Those that are of calls; and how many are not, with an example, by who sent them."""

S = TypeVar("S", Span, LogRecord)


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

    async def export(self, request: Export, caller: Caller) -> Message:
        return answer_to(type(request), *await self.receive(request, caller))

    async def receive(self, request: Export, caller: Caller) -> tuple[int, str]:
        """How many of its items are not recorded at all, and why the first that is refused is."""
        match request:
            case ExportTraceServiceRequest():
                refused = await self._receive(spans_of(request), _read_span, caller)
            case ExportLogsServiceRequest():
                refused = await self._receive(records_of(request), _read_record, caller)
            case _:
                # Nothing is kept of them. Many send them unasked, and whoever is refused fills a log with it.
                self._intake.left_out.note("otlp_metrics", METRICS)
                refused = []
        first = next(iter(refused), None)
        told = (first.id, first.field, first.message) if first is not None else ()
        return sum(not one.kept for one in refused), one_line(": ".join(filter(None, told)))

    async def _receive(
        self, items: Iterable[tuple[Scope, S]], read_one: Callable[[Scope, S, Caller], _Read], caller: Caller
    ) -> list[Refused]:
        """Those that are refused for good, also those that are recorded as declined."""
        reads, ignored = await self._reading.run(caller.sender, _read_all, items, read_one, caller)
        for origin, (number, example) in ignored.items():
            self._logged.ignore(origin, caller, "otlp", number, example)
        calls: list[Conversation | Unreadable] = []
        lost: list[Refused] = []
        for read, key in reads:
            if isinstance(read, Half):
                lost += await self._keep(read)
            elif read is not None:
                calls.append(read)
                if key and isinstance(read, Unreadable) and read.reason in NOT_LOST:
                    # The log records of a call that failed wait for nothing.
                    self._joiner.end(self._family, key)
        return lost + await self._record(calls, caller)

    async def _keep(self, half: Half) -> list[Refused]:
        """Keep a half of a call; in the list why it is lost, if it is."""
        try:
            await self._joiner.keep(self._family, half)
        except Refused as error:
            if error.passing:
                raise
            self._logged.count("otlp", "refused")
            self._intake.count(error)
            return [error.but()]
        return []

    async def _record_joined(
        self, call: Conversation | Unreadable, caller: Caller, name: str
    ) -> Recorded | Refused:
        tenant = _tenant(caller)
        if isinstance(call, Conversation):
            kept = await self._reading.run(caller.sender, self._repeats.kept, [call], tenant)
            if not kept:
                self._logged.count("otlp", "duplicate")
                return Recorded(id=call.id, status="duplicate")
        ended = await self._logged.record_or_decline(call, caller, "otlp", name=name)
        if isinstance(ended, Recorded) and isinstance(call, Conversation):
            self._repeats.recorded(call, tenant)
        return ended

    async def _record(self, calls: Sequence[Conversation | Unreadable], caller: Caller) -> list[Refused]:
        tenant = _tenant(caller)
        whole = [call for call in calls if isinstance(call, Conversation)]
        kept = await self._reading.run(caller.sender, self._repeats.kept, whole, tenant)
        self._logged.count("otlp", "duplicate", len(whole) - len(kept))
        ended = await self._logged.record_all(kept, caller, "otlp")
        for call, one in zip(kept, ended, strict=True):
            if isinstance(one, Recorded):
                self._repeats.recorded(call, tenant)
                if call.trace_id and call.span_id:
                    self._joiner.end(self._family, _key(tenant, call.trace_id, call.span_id))
        # Last, since another span of the same call may have been read.
        unread = [one for one in calls if isinstance(one, Unreadable) and one.reason not in NOT_LOST]
        ended += await self._logged.record_all(unread, caller, "otlp")
        self._logged.count("otlp", "ignored", len(calls) - len(whole) - len(unread))
        # Another span of the same call, whose text differs a little, is no loss.
        return [one for one in ended if isinstance(one, Refused) and one.reason != "conflict"]


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


def _read_all(
    items: Iterable[tuple[Scope, S]], read_one: Callable[[Scope, S, Caller], _Read], caller: Caller
) -> _All:
    reads: list[_Read] = []
    ignored: dict[Origin, tuple[int, str]] = {}
    for scope, item in items:
        read = read_one(scope, item, caller)
        if read[0] is not None:
            reads.append(read)
            continue
        number, example = ignored.get(scope.origin) or (0, _example(item))
        ignored[scope.origin] = number + 1, example
    return reads, ignored


def _example(item: Span | LogRecord) -> str:
    name = item.name if isinstance(item, Span) else event_name(item)
    keys = ", ".join(one.key[:LONGEST_KEY] for one in item.attributes[:KEYS])
    return one_line(text_of(f"{name[:LONGEST_NAME]} with {keys or 'no attributes'}"))


def _read_span(scope: Scope, span: Span, caller: Caller) -> _Read:
    read = _span(scope, span)
    if isinstance(read, Conversation) and _is_half(read):
        return _half(read, SPAN, caller), ""
    return read, _key(_tenant(caller), span.trace_id.hex(), span.span_id.hex())


def _read_record(scope: Scope, record: LogRecord, caller: Caller) -> _Read:
    read = _log(scope, record)
    if not isinstance(read, LogPart):
        return read, ""
    whole = _whole(read)
    if whole is None:
        return _half(read, "", caller), ""
    return msgspec.structs.replace(whole, origin=scope.origin), ""


def _span(scope: Scope, span: Span) -> Conversation | Unreadable | None:
    try:
        attributes = attributes_of(span.attributes)
        read = read_span(
            span.name,
            attributes,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            at=seconds(span.end_time_unix_nano),
            events=[(event.name, attributes_of(event.attributes)) for event in span.events],
            scope=scope.name,
            parent_id=span.parent_span_id.hex(),
        )
    except InputError as error:
        return Unreadable("unreadable", f"the span {span.name[:80]} {error}", origin=scope.origin)
    if read is None:
        return None
    origin = msgspec.structs.replace(scope.origin, dialect=dialect_of(attributes))
    return msgspec.structs.replace(read, origin=origin)


def _log(scope: Scope, record: LogRecord) -> LogPart | Unreadable | None:
    name = event_name(record)
    try:
        return read_log(
            name,
            attributes_of(record.attributes),
            value_of(record.body),
            trace_id=record.trace_id.hex(),
            span_id=record.span_id.hex(),
            at=seconds(record.time_unix_nano or record.observed_time_unix_nano),
            scope=scope.name,
        )
    except InputError as error:
        return Unreadable("unreadable", f"the log record {name[:80]} {error}", origin=scope.origin)


def answer_to(form: type[Message], number: int, why: str) -> Message:
    """What is answered to a request of which so many items are not recorded."""
    answer: Any = ANSWERS[form]()
    if why:
        partly = answer.partial_success
        setattr(partly, partly.DESCRIPTOR.fields[0].name, number)
        partly.error_message = why
    told: Message = answer
    return told


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
            Route("/v1/metrics", self.metrics, SEND, methods=["POST"]),
            Route("/api/public/otel/v1/traces", self.traces, SEND, methods=["POST"]),
            Route("/api/public/media", self.media, SEND, methods=["POST"]),
        ]

    async def traces(self, request: Request) -> Response:
        return await self._answered(request, ExportTraceServiceRequest)

    async def logs(self, request: Request) -> Response:
        return await self._answered(request, ExportLogsServiceRequest)

    async def metrics(self, request: Request) -> Response:
        kind = JSON if media_type(request) == JSON else PROTOBUF
        return _reply(
            200, await self._receiver.export(ExportMetricsServiceRequest(), caller_of(request)), kind
        )

    async def media(self, request: Request) -> Response:
        raise Refused("invalid", LANGFUSE_MEDIA)

    async def _answered(self, request: Request, form: type[R]) -> Response:
        kind = media_type(request)
        if kind not in (PROTOBUF, JSON):
            raise Refused("media_type", f"send {PROTOBUF} or {JSON}")
        caller = caller_of(request)
        number, why = 0, ""
        try:
            async with contextlib.aclosing(self._parts(request, kind, form, caller)) as parts:
                async for part in parts:
                    more, cause = await self._receiver.receive(part, caller)
                    del part
                    number, why = number + more, why or cause
            return _reply(200, answer_to(form, number, why), kind)
        except (Refused, TransientError, InputError) as error:
            refused = refusal_of(error)
            await self._core.batch_refused("otlp", refused, caller)
            return _failure(refused, kind)

    async def _parts(
        self, request: Request, kind: str, form: type[R], caller: Caller
    ) -> AsyncGenerator[R, None]:
        """The request in parts, each of which is recorded before more is read; JSON as a whole."""
        settings, share = self._core.settings, share_of(request)
        limit = settings.logged_calls.max_batch if kind == PROTOBUF else settings.max_whole
        enough = PART if kind == PROTOBUF else limit + 1
        length = request.headers.get("content-length", "")
        if length.isascii() and length.isdigit():
            if int(length) > limit:
                raise Refused("too_large", f"the body has more than {limit} bytes: {SMALLER}")
            share.expect(min(int(length), enough))
        parts = Parts(limit, settings.max_whole, _decompressor(request), enough)
        waiting = bytearray()
        async for chunk in request.stream():
            waiting += chunk
            share.hold(parts.held + len(waiting))
            if chunk and len(waiting) < FED:
                continue
            fed = parts.feed(bytes(waiting))
            waiting.clear()
            while (part := await self._reading.run(caller.sender, _next, fed)) is not None:
                read = await self._read(part, kind, form, caller, share, parts)
                del part
                yield read
                del read
        yield await self._read(parts.finish(), kind, form, caller, share, parts)

    async def _read(
        self, part: bytes, kind: str, form: type[R], caller: Caller, share: Share, parts: Parts
    ) -> R:
        size = await self._reading.run(caller.sender, weigh, part, form.DESCRIPTOR, kind)
        parts.fields += (size - len(part)) // FIELD_BYTES
        if parts.fields > MOST_FIELDS:
            raise TooLong(f"holds more than {MOST_FIELDS:,} fields: {SMALLER}")
        share.hold(parts.held + size)
        return await self._reading.run(caller.sender, read_request, part, kind, form)


def _next(parts: Iterator[bytes]) -> bytes | None:
    return next(parts, None)


def _decompressor(request: Request) -> Decompressor | None:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in COMPRESSED:
        raise InputError(f"Content-Encoding {encoding[:40]} is not read: send gzip")
    return Decompressor()


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
