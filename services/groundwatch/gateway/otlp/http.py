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
from starlette.routing import Route

from groundwatch.counting import TooLong
from groundwatch.errors import InputError, TransientError
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.bodies import TooLarge, body_of, share_of
from groundwatch.gateway.http.middleware import caller_of
from groundwatch.gateway.http.replies import media_type, one_line, problem
from groundwatch.gateway.intake.results import RETRY_AFTER, OverRate
from groundwatch.gateway.otlp.decoding import JSON, PROTOBUF, decompressed, read_request, weigh
from groundwatch.gateway.otlp.receiver import Receiver

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
            Route("/v1/traces", self.traces, methods=["POST"]),
            Route("/v1/logs", self.logs, methods=["POST"]),
            Route("/api/public/otel/v1/traces", self.traces, methods=["POST"]),
            Route("/api/public/media", self.media, methods=["POST"]),
        ]

    async def traces(self, request: Request) -> Response:
        return await self._answered(request, ExportTraceServiceRequest, self._receiver.traces)

    async def logs(self, request: Request) -> Response:
        return await self._answered(request, ExportLogsServiceRequest, self._receiver.logs)

    async def media(self, request: Request) -> Response:
        return problem(422, LANGFUSE_MEDIA)

    async def _answered(
        self, request: Request, form: type[R], record: Callable[[R, Caller], Awaitable[Message]]
    ) -> Response:
        kind = media_type(request)
        if kind not in (PROTOBUF, JSON):
            return problem(415, f"send {PROTOBUF} or {JSON}")
        try:
            body = await self._body(request)
            caller = caller_of(request)
            size = await self._reading.run(caller.sender, weigh, body, kind, form.DESCRIPTOR)
            share_of(request).hold(size)
            said = await self._reading.run(caller.sender, read_request, body, kind, form)
            del body
            return _reply(200, await record(said, caller), kind)
        except TooLong as error:
            return _failure(413, code_pb2.INVALID_ARGUMENT, str(error), kind)
        except OverRate as error:
            return _failure(429, code_pb2.RESOURCE_EXHAUSTED, str(error), kind, error.after)
        except TransientError as error:
            return _failure(503, code_pb2.UNAVAILABLE, str(error), kind, RETRY_AFTER)
        except InputError as error:
            return _failure(400, code_pb2.INVALID_ARGUMENT, str(error), kind)

    async def _body(self, request: Request) -> bytes:
        limit = self._core.settings.logged_calls.max_batch
        body = await body_of(request, limit)
        if isinstance(body, TooLarge):
            raise TooLong(f"the body has more than {body.limit} bytes: send smaller batches")
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


def _failure(status: int, code: int, message: str, kind: str, after: int = 0) -> Response:
    """`after` so many seconds the same may be sent again; 0: never."""
    told = status_pb2.Status(code=code, message=one_line(message))
    return _reply(status, told, kind, {"Retry-After": str(after)} if after else None)
