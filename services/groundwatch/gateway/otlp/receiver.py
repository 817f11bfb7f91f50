"""What becomes of the spans and log records of one request."""

import asyncio
from collections.abc import Sequence

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
from groundwatch.errors import TransientError
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.replies import one_line
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.gateway.otlp.decoding import (
    attributes_of,
    event_name,
    records_of,
    seconds,
    spans_of,
    value_of,
)
from groundwatch.gateway.otlp.joining import Half, Joining
from groundwatch.gateway.otlp.repeats import Repeats
from groundwatch.runtime.telemetry.logs import logger

PAUSE = 64
"""Spans that are read before others have a turn."""

NOT_LOST = frozenset({"failed", "tool_call"})
"""Reasons of calls that have no answer to judge: nobody has to mend anything."""


class Receiver:
    """Records the calls of a request, or keeps what is to be joined, before it is acknowledged.

    Raises `TransientError` when that could not be done for no fault of the request: the whole of it is to
    come again, and what was recorded is recorded once.
    """

    def __init__(self, core: GatewayCore) -> None:
        self._logged = core.logged
        self._repeats = Repeats()
        self.joining = Joining(core.bus, core.settings.logged_calls, self._join)

    async def traces(self, request: ExportTraceServiceRequest, caller: Caller) -> ExportTraceServiceResponse:
        calls: list[Conversation | Unreadable] = []
        lost: list[str] = []
        for number, (scope, span) in enumerate(spans_of(request)):
            if number % PAUSE == 0:
                await asyncio.sleep(0)
            read = _span(scope, span)
            if read is None:
                self._logged.count("otlp", "ignored")
            elif isinstance(read, Conversation) and _is_half(read):
                lost += await self._keep(scope, span, read, caller)
            else:
                calls.append(read)
        rejected = lost + await self._record(calls, caller)
        if not rejected:
            return ExportTraceServiceResponse()
        told = ExportTracePartialSuccess(rejected_spans=len(rejected), error_message=rejected[0])
        return ExportTraceServiceResponse(partial_success=told)

    async def logs(self, request: ExportLogsServiceRequest, caller: Caller) -> ExportLogsServiceResponse:
        calls: list[Conversation | Unreadable] = []
        lost: list[str] = []
        for number, (scope, record) in enumerate(records_of(request)):
            if number % PAUSE == 0:
                await asyncio.sleep(0)
            read = _log(scope, record)
            if read is None:
                self._logged.count("otlp", "ignored")
            elif isinstance(read, Unreadable):
                calls.append(read)
            elif (whole := _whole(read)) is not None:
                calls.append(whole)
            else:
                lost += await self._keep(scope, record, read, caller)
        rejected = lost + await self._record(calls, caller)
        if not rejected:
            return ExportLogsServiceResponse()
        told = ExportLogsPartialSuccess(rejected_log_records=len(rejected), error_message=rejected[0])
        return ExportLogsServiceResponse(partial_success=told)

    async def _keep(
        self, scope: str, message: Span | LogRecord, read: Conversation | LogPart, caller: Caller
    ) -> list[str]:
        """Keep a half of a call; in the list why it is lost, if it is."""
        is_span = isinstance(message, Span)
        half = Half(tenant=caller.only, scope=scope, is_span=is_span, data=message.SerializeToString())
        problem = await self.joining.keep(half, read.trace_id, read.span_id)
        if problem:
            self._logged.count("otlp", "refused")
        return [problem] if problem else []

    async def _join(self, halves: list[Half], caller: Caller) -> bool:
        """Record the call that halves tell of; whether that is done with."""
        span: Conversation | None = None
        parts: list[LogPart] = []
        for half in halves:
            if half.is_span:
                of_span = _span(half.scope, Span.FromString(half.data))
                span = of_span if isinstance(of_span, Conversation) else span
            elif isinstance(part := _log(half.scope, LogRecord.FromString(half.data)), LogPart):
                parts.append(part)
        call = joined(span, parts)
        try:
            lines = await self._record([call], caller)
        except TransientError:
            return False
        if lines:
            logger.warning("gateway.otlp", tenant=caller.only or "", reason=lines[0])
        return True

    async def _record(self, calls: Sequence[Conversation | Unreadable], caller: Caller) -> list[str]:
        """Why some were rejected for good, one line each."""
        tenant = caller.only or ""
        whole = [call for call in calls if isinstance(call, Conversation)]
        kept = self._repeats.kept(whole, tenant)
        self._logged.count("otlp", "duplicate", len(whole) - len(kept))
        lost = [one for one in calls if isinstance(one, Unreadable) and one.reason not in NOT_LOST]
        self._logged.count("otlp", "ignored", len(calls) - len(whole) - len(lost))
        ended = await self._logged.record_all([*kept, *lost], caller, "otlp")
        for call, one in zip(kept, ended, strict=False):
            if isinstance(one, Recorded):
                self._repeats.recorded(call, tenant)
        # Another span of the same call, whose text differs a little, is no loss.
        return [_line(one) for one in ended if isinstance(one, Refused) and one.reason != "conflict"]


def _is_half(call: Conversation) -> bool:
    """Whether log records may have what the span lacks."""
    return not call.answer and not call.references and bool(call.trace_id and call.span_id)


def _whole(part: LogPart) -> Conversation | None:
    """The call of a log record that needs no span: it has the model, the answer, and what was asked."""
    if part.model and part.inputs and part.outputs:
        call = joined(None, (part,))
        return call if isinstance(call, Conversation) and call.answer else None
    return None


def _span(scope: str, span: Span) -> Conversation | Unreadable | None:
    return read_span(
        span.name,
        attributes_of(span.attributes),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        at=seconds(span.end_time_unix_nano),
        events=[(event.name, attributes_of(event.attributes)) for event in span.events],
        scope=scope,
    )


def _log(scope: str, record: LogRecord) -> LogPart | Unreadable | None:
    return read_log(
        event_name(record),
        attributes_of(record.attributes),
        value_of(record.body),
        trace_id=record.trace_id.hex(),
        span_id=record.span_id.hex(),
        at=seconds(record.time_unix_nano or record.observed_time_unix_nano),
        scope=scope,
    )


def _line(refused: Refused) -> str:
    return one_line(": ".join(filter(None, (refused.id, refused.field, refused.message))))
