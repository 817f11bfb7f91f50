"""A collector: each outcome is an event `gen_ai.evaluation.result`, an OTLP log record, over HTTP or gRPC.

Its trace and span id are those of the judged span, as the GenAI conventions have it; where the response came
in another way, `gen_ai.response.id` tells which it is.
"""

import asyncio
import gzip
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO, LogRecord

import groundwatch
from groundwatch.errors import SettingsError, TransientError
from groundwatch.events import ResponseScored
from groundwatch.models.asking import CallKind, Fault
from groundwatch.outflow.evaluations import Evaluation, evaluation_of
from groundwatch.outflow.receivers.base import (
    DETAIL,
    HttpReceiver,
    Receiver,
    Refusal,
    below,
    headers,
    read_secret,
    tls,
)
from groundwatch.runtime.settings.outflow import ReceiverSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

EVENT = "gen_ai.evaluation.result"
PATH = "/v1/logs"

_PASSING = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)
_OPERATORS = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.NOT_FOUND,
)


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


class _Collector(Receiver[ResponseScored]):
    most = 64

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


class OtlpHttpReceiver(_Collector, HttpReceiver[ResponseScored]):
    """By HTTP with protobuf; its address is the collector's, with or without /v1/logs."""

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


class OtlpGrpcReceiver(_Collector):
    """By gRPC; with https:// over TLS."""

    def __init__(self, name: str, settings: ReceiverSettings, metrics: Metrics) -> None:
        super().__init__(name, settings, metrics)
        self._stub: LogsServiceStub | None = None
        self._channel: grpc.aio.Channel | None = None
        tls(name, settings)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    def _connected(self) -> LogsServiceStub:
        if self._stub is None:
            at = urlsplit(self.settings.url)
            target = at.netloc if at.port else f"{at.netloc}:{443 if at.scheme == 'https' else 4317}"
            if at.scheme == "https":
                ca = self.settings.tls_ca
                trusted = grpc.ssl_channel_credentials(Path(ca).read_bytes() if ca else None)
                self._channel = grpc.aio.secure_channel(target, trusted)
            else:
                self._channel = grpc.aio.insecure_channel(target)
            self._stub = LogsServiceStub(self._channel)  # type: ignore[no-untyped-call]
        return self._stub

    async def _tell(self, events: list[ResponseScored]) -> int | Refusal | Fault:
        try:
            given = headers(self.name, read_secret(self.name, self.settings))
            stub = self._connected()
        except (SettingsError, OSError, ValueError) as error:
            return self._misconfigured(str(error))
        request = request_of(events, self.settings)
        try:
            async with asyncio.timeout(self.settings.timeout):
                response = await stub.Export(
                    request, metadata=tuple(given.items()), timeout=self.settings.timeout
                )
        except TimeoutError:
            return self._late()
        except grpc.aio.AioRpcError as error:
            return self._fault(error)
        return self._accepted(response, len(events))

    def _fault(self, error: grpc.aio.AioRpcError) -> Fault | Refusal:
        code = error.code()
        said = " ".join((error.details() or "").split())[:DETAIL]
        message = f"{self._whom} answered {code.name}: {said}"
        if code is grpc.StatusCode.UNAVAILABLE:
            return self._unreachable(said, away=True)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._late()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return self._rate_limited(message, None)
        if code in _OPERATORS:
            return self._misconfigured(message)
        if code in _PASSING:
            return Fault(kind=CallKind.SERVER_ERROR, error=TransientError(message), passes=True)
        return Refusal(f"{code.name}: {said}")
