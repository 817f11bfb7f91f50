"""What becomes of the spans and log records of one request."""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
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
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from groundwatch.conversations.conversation import Conversation, Unreadable
from groundwatch.conversations.logs import LogPart, joined, read_log
from groundwatch.conversations.spans import read_span
from groundwatch.errors import InputError
from groundwatch.events import DEFAULT_TENANT
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.halves import Half, Head
from groundwatch.gateway.intake.logged import NOT_LOST
from groundwatch.gateway.intake.results import Recorded
from groundwatch.gateway.joining import Family, Joiner
from groundwatch.gateway.otlp.decoding import (
    attributes_of,
    event_name,
    records_of,
    seconds,
    spans_of,
    value_of,
)
from groundwatch.gateway.otlp.repeats import Repeats
from groundwatch.gateway.refusals import Refused, one_line
from groundwatch.keys import digest

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
        reads = await self._reading.run(caller.sender, _read_spans, request, caller)
        rejected = await self._receive(reads, caller)
        if not rejected:
            return ExportTraceServiceResponse()
        told = ExportTracePartialSuccess(rejected_spans=len(rejected), error_message=rejected[0])
        return ExportTraceServiceResponse(partial_success=told)

    async def logs(self, request: ExportLogsServiceRequest, caller: Caller) -> ExportLogsServiceResponse:
        reads = await self._reading.run(caller.sender, _read_records, request, caller)
        rejected = await self._receive(reads, caller)
        if not rejected:
            return ExportLogsServiceResponse()
        told = ExportLogsPartialSuccess(rejected_log_records=len(rejected), error_message=rejected[0])
        return ExportLogsServiceResponse(partial_success=told)

    async def _receive(self, reads: Sequence[_Read], caller: Caller) -> list[str]:
        """Why some are rejected for good, one line each."""
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
        kept = await self._joiner.keep(self._family, half)
        if not isinstance(kept, Refused):
            return []
        if kept.passing:
            raise kept
        self._logged.count("otlp", "refused")
        self._intake.refuse(kept)
        return [_line(kept)]

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
