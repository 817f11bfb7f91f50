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
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.http.replies import one_line
from groundwatch.gateway.intake.logged import LoggedCalls
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.gateway.otlp.decoding import (
    attributes_of,
    event_name,
    records_of,
    seconds,
    spans_of,
    value_of,
)
from groundwatch.gateway.otlp.repeats import Repeats

PAUSE = 64
"""Spans that are read before others have a turn."""

NOT_LOST = frozenset({"failed", "tool_call"})
"""Reasons of calls that have no answer to judge: nobody has to mend anything."""


class Receiver:
    """Records the calls of a request before it is acknowledged.

    Raises `TransientError` when one could not be recorded for no fault of its own: the whole request is to
    come again, and what was recorded is recorded once.
    """

    def __init__(self, logged: LoggedCalls) -> None:
        self._logged = logged
        self._repeats = Repeats()

    async def traces(self, request: ExportTraceServiceRequest, caller: Caller) -> ExportTraceServiceResponse:
        calls: list[Conversation | Unreadable] = []
        for number, (scope, span) in enumerate(spans_of(request)):
            if number % PAUSE == 0:
                await asyncio.sleep(0)
            read = _span(scope, span)
            if read is None:
                self._logged.count("otlp", "ignored")
            elif isinstance(read, Conversation) and not read.answer and not read.references:
                calls.append(joined(read, ()))
            else:
                calls.append(read)
        rejected = await self._record(calls, caller)
        if not rejected:
            return ExportTraceServiceResponse()
        told = ExportTracePartialSuccess(rejected_spans=len(rejected), error_message=rejected[0])
        return ExportTraceServiceResponse(partial_success=told)

    async def logs(self, request: ExportLogsServiceRequest, caller: Caller) -> ExportLogsServiceResponse:
        calls: list[Conversation | Unreadable] = []
        for number, (scope, record) in enumerate(records_of(request)):
            if number % PAUSE == 0:
                await asyncio.sleep(0)
            read = _log(scope, record)
            if read is None:
                self._logged.count("otlp", "ignored")
            elif isinstance(read, LogPart):
                calls.append(joined(None, (read,)))
            else:
                calls.append(read)
        rejected = await self._record(calls, caller)
        if not rejected:
            return ExportLogsServiceResponse()
        told = ExportLogsPartialSuccess(rejected_log_records=len(rejected), error_message=rejected[0])
        return ExportLogsServiceResponse(partial_success=told)

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
