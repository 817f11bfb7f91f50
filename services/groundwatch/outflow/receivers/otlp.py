"""A collector: each outcome is an event `gen_ai.evaluation.result`, an OTLP log record, over HTTP.

Its trace and span id are those of the judged span, as the GenAI conventions have it; where the response came
in another way, `gen_ai.response.id` tells which it is.
"""

import gzip
from collections.abc import Mapping

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO, LogRecord

import groundwatch
from groundwatch.addresses import below
from groundwatch.errors import SettingsError
from groundwatch.events import ResponseScored
from groundwatch.models.asking import Fault
from groundwatch.outflow.evaluations import Evaluation, evaluation_of
from groundwatch.outflow.receivers.base import (
    DETAIL,
    HttpReceiver,
    Refusal,
    headers,
    read_secret,
)
from groundwatch.runtime.settings.outflow import ReceiverSettings
from groundwatch.runtime.telemetry.logs import logger

EVENT = "gen_ai.evaluation.result"
PATH = "/v1/logs"


def request_of(outcomes: list[ResponseScored], settings: ReceiverSettings) -> ExportLogsServiceRequest:
    """The outcomes as one request."""
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add()
    logs.resource.attributes.extend(
        _attributes({"service.name": "outflow", "service.namespace": "groundwatch"})
    )
    scope = logs.scope_logs.add()
    scope.scope.name, scope.scope.version = "groundwatch", groundwatch.__version__
    scope.log_records.extend(
        record_of(evaluation_of(one, explanation=settings.explanation)) for one in outcomes
    )
    return request


def record_of(evaluation: Evaluation) -> LogRecord:
    attributes: dict[str, str | float | None] = {
        "gen_ai.evaluation.name": evaluation.name,
        "gen_ai.evaluation.score.value": evaluation.score,
        "gen_ai.evaluation.score.label": evaluation.label or None,
        "gen_ai.evaluation.explanation": evaluation.explanation or None,
        "gen_ai.response.id": evaluation.response,
        "gen_ai.response.model": evaluation.model,
        "error.type": evaluation.error or None,
        "groundwatch.evaluation.id": evaluation.id,
        **{f"groundwatch.{name}": value for name, value in evaluation.details.items()},
    }
    told = evaluation.error if evaluation.score is None else f"{evaluation.score:g}"
    nanoseconds = max(0, int(evaluation.at * 1e9))
    return LogRecord(
        time_unix_nano=nanoseconds,
        observed_time_unix_nano=nanoseconds,
        severity_number=SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        event_name=EVENT,
        body=AnyValue(string_value=f"{evaluation.name}: {told}"),
        attributes=_attributes({name: value for name, value in attributes.items() if value is not None}),
        trace_id=bytes.fromhex(evaluation.trace_id),
        span_id=bytes.fromhex(evaluation.span_id),
        flags=1 if evaluation.span_id else 0,
    )


def _attributes(values: Mapping[str, str | float]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(string_value=value) if isinstance(value, str) else AnyValue(double_value=value),
        )
        for key, value in values.items()
    ]


class OtlpReceiver(HttpReceiver[ResponseScored]):
    """By HTTP with protobuf; its address is the collector's, with or without /v1/logs."""

    most = 64

    async def _tell(self, events: list[ResponseScored]) -> int | Refusal | Fault:
        try:
            given = headers(self.name, read_secret(self.name, self.settings))
        except SettingsError as error:
            return self._misconfigured(str(error))
        sent = {**given, "content-type": "application/x-protobuf", "content-encoding": "gzip"}
        body = gzip.compress(request_of(events, self.settings).SerializeToString(), 1)
        reply = await self._post(below(self.settings.url, PATH), body, sent)
        if not isinstance(reply, bytes):
            return reply
        try:
            return self._accepted(ExportLogsServiceResponse.FromString(reply), len(events))
        except DecodeError:
            # It said 200. Some answer in JSON, or with nothing at all.
            return len(events)

    def _accepted(self, response: ExportLogsServiceResponse, number: int) -> int | Refusal:
        """Nothing may be sent again that a collector took in part: what it took would be there twice."""
        partial = response.partial_success
        rejected = min(max(0, partial.rejected_log_records), number)
        why = " ".join(partial.error_message.split())[:DETAIL]
        if rejected == number:
            return Refusal(why or "rejected")
        if rejected:
            logger.error("receiver.refused_some", receiver=self.name, events=rejected, of=number, why=why)
        elif why:
            logger.warning("receiver.warns", receiver=self.name, why=why)
        return number - rejected
