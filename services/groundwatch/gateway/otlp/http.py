"""OTLP over HTTP: at the protocol's own paths, and where Langfuse's SDK sends it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.counting import TooLong
from groundwatch.errors import InputError, TransientError
from groundwatch.gateway.access.roles import SEND
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.bodies import body_of, share_of
from groundwatch.gateway.http.middleware import caller_of
from groundwatch.gateway.http.replies import media_type
from groundwatch.gateway.http.routing import Route
from groundwatch.gateway.otlp.decoding import JSON, PROTOBUF, decompressed, read_request, weigh
from groundwatch.gateway.otlp.receiver import Receiver
from groundwatch.gateway.refusals import Refused, one_line, refusal_of

R = TypeVar("R", ExportTraceServiceRequest, ExportLogsServiceRequest)

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
            size = await self._reading.run(caller.sender, weigh, body, kind, form.DESCRIPTOR)
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
