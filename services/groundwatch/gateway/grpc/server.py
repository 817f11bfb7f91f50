"""The server beside HTTP: where it listens, for how much, what comes before a call, and how it goes down."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

from groundwatch.counting import TooLong
from groundwatch.errors import InputError, SettingsError, TransientError, UsageError
from groundwatch.gateway.auth import SEND, Access, Caller, Need
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import add_MonitorServiceServicer_to_server
from groundwatch.gateway.grpc.monitor import NEEDS, Context, Monitor, caller_of, end, ended
from groundwatch.gateway.grpc.monitor import weigh as weigh_message
from groundwatch.gateway.http.bodies import SMALL, Held, Reading, Share, holding
from groundwatch.gateway.receivers.otlp import PROTOBUF, Receiver
from groundwatch.gateway.receivers.otlp import weigh as weigh_request
from groundwatch.gateway.refusals import Refused, refusal_of
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings.gateway import GrpcSettings
from groundwatch.runtime.telemetry.certificates import show_end
from groundwatch.runtime.telemetry.logs import logger

R = TypeVar("R", bound=Message)
A = TypeVar("A", bound=Message)

TRACES = traces.DESCRIPTOR.services_by_name["TraceService"].full_name
LOGS = logs.DESCRIPTOR.services_by_name["LogsService"].full_name
OTLP_SERVICES = (TRACES, LOGS)
EXPORT_NEEDS = {"Export": SEND}

BATCHES = 4
"""Requests under way at once: each may have `gateway.logged_calls.max_batch` bytes."""


def add_to_server(receiver: Receiver, access: Access, server: grpc.aio.Server) -> None:
    for service, form, export in (
        (TRACES, traces.ExportTraceServiceRequest, _export(receiver.traces, access)),
        (LOGS, logs.ExportLogsServiceRequest, _export(receiver.logs, access)),
    ):
        handler: Any = grpc.unary_unary_rpc_method_handler(export, form.FromString, _serialized)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))


def weigh_batch(data: bytes, form: Descriptor) -> int:
    """How many bytes a request will take. Raises `InputError`, `TooLong`."""
    return weigh_request(data, PROTOBUF, form)


def _serialized(answer: Message) -> bytes:
    return answer.SerializeToString()


def _export(
    record: Callable[[R, Caller], Awaitable[A]], access: Access
) -> Callable[[R, Context], Awaitable[A]]:
    async def export(request: R, context: Context) -> A:
        async with ended(context):
            return await record(request, caller_of(access, context))
        raise AssertionError

    return export


SERVICE = pb.DESCRIPTOR.services_by_name["MonitorService"].full_name
HEALTH_SECONDS = 0.5
STREAMS = 256
MAX_CALLS = 1_000
"""Calls at once besides those who watch; one that waits to be read holds some 64 KiB."""

METADATA = 16 * 1024
HANDSHAKE_SECONDS = 10
IDLE_SECONDS = 300


class GrpcServer:
    """`groundwatch.v1.MonitorService` with health and reflection, inside the running event loop."""

    def __init__(self, core: GatewayCore, receiver: Receiver) -> None:
        self._core = core
        self._settings = core.settings
        self._telling = SupervisedTask("grpc-health", self._tell_health)
        self._monitor = Monitor(core)
        self._receiver = receiver
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen, then serve. Raises `UsageError` when the port cannot be had."""
        settings = self._settings
        credentials = _credentials(settings.grpc)
        if settings.grpc.tls_cert:
            show_end(self._core.metrics, "gateway.grpc.tls_cert", settings.grpc.tls_cert)
        admission = Admission(
            SERVICE,
            needs=NEEDS,
            access=self._core.access,
            calls=settings.grpc.calls,
            timeout=settings.http.body_timeout,
            limit=settings.intake.max_line,
            held=self._core.held,
            weigh=weigh_message,
            reading=self._core.threads,
        )
        of_batches = Admission(
            *OTLP_SERVICES,
            needs=EXPORT_NEEDS,
            access=self._core.access,
            calls=BATCHES,
            timeout=settings.http.body_timeout,
            limit=settings.logged_calls.max_batch,
            held=self._core.held,
            weigh=weigh_batch,
            reading=self._core.threads,
        )
        self._server = server = grpc.aio.server(
            interceptors=[admission, of_batches],
            options=self._options(),
            maximum_concurrent_rpcs=settings.grpc.watchers + MAX_CALLS,
        )
        add_MonitorServiceServicer_to_server(self._monitor, server)  # type: ignore[no-untyped-call]
        add_to_server(self._receiver, self._core.access, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, *OTLP_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        host = settings.host or "[::]"
        address = f"{f'[{host}]' if ':' in host and host[0] != '[' else host}:{settings.grpc_port}"
        try:
            if credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise UsageError(
                f"cannot listen on {address} for gRPC: choose another port (gateway.grpc_port)"
            ) from error
        await server.start()
        self._telling.start()
        logger.info("grpc.listening", address=f"{host}:{self.port}", tls=credentials is not None)

    @property
    def problem(self) -> str:
        """Why the health that callers ask for is not the gateway's; empty while it is."""
        return self._telling.problem if self._server is not None else ""

    async def stop(self, timeout: float) -> None:
        await self._telling.stop()
        await self._health.enter_graceful_shutdown()
        self._monitor.close()
        if self._server is not None:
            await self._server.stop(timeout)
        await self._monitor.finished()

    async def _tell_health(self) -> None:
        answer = health_pb2.HealthCheckResponse
        while True:
            status = answer.NOT_SERVING if self._core.problems() else answer.SERVING
            for name in ("", SERVICE):
                await self._health.set(name, status)
            await asyncio.sleep(HEALTH_SECONDS)

    def _options(self) -> list[tuple[str, int]]:
        batch = self._settings.logged_calls.max_batch
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", max(self._settings.intake.max_line, batch)),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", STREAMS),
            ("grpc.max_metadata_size", METADATA),
            ("grpc.absolute_max_metadata_size", METADATA),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1_000),
            ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1_000),
            # A watcher that has gone without a word is noticed.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ]


def _credentials(settings: GrpcSettings) -> grpc.ServerCredentials | None:
    if not settings.tls_cert:
        return None
    files = {"tls_key": settings.tls_key, "tls_cert": settings.tls_cert}
    pair = []
    for name, path in files.items():
        try:
            pair.append(Path(path).read_bytes())
        except OSError as error:
            raise SettingsError(
                f"setting 'gateway.grpc.{name}': cannot read {path} ({error.strerror})"
            ) from error
    try:
        # The library would listen with what is no certificate, and refuse every caller.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except ssl.SSLError as error:
        raise SettingsError(
            f"setting 'gateway.grpc.tls_cert': {settings.tls_cert} and {settings.tls_key} are no certificate "
            f"and its key in PEM ({error.reason})"
        ) from error
    return grpc.ssl_server_credentials([(pair[0], pair[1])])


Handler = Any
"""`grpc.RpcMethodHandler`, whose attributes its types do not know."""


class Admission(grpc.aio.ServerInterceptor):
    """Before every call of some services."""

    def __init__(
        self,
        *services: str,
        needs: Mapping[str, Need],
        access: Access,
        calls: int,
        timeout: float,
        limit: int,
        held: Held,
        weigh: Callable[[bytes, Descriptor], int],
        reading: Reading,
    ) -> None:
        """`calls` with a message of at most `limit` bytes are under way at once; each message must be there
        after `timeout` seconds. `weigh` says how many bytes it will take of what is `held`, and raises
        `InputError` for one that holds too much."""
        self._prefixes = tuple(f"/{service}/" for service in services)
        self._limit = limit
        self._needs = needs
        self._access = access
        self._timeout = timeout
        self._held = held
        self._weigh = weigh
        self._reading = reading
        self._calls = asyncio.Semaphore(calls)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(self._prefixes):
            return handler
        need = self._needs[method.rpartition("/")[2]]
        form = descriptor_pool.Default().FindMethodByName(method[1:].replace("/", ".")).input_type  # type: ignore[no-untyped-call]

        def weigh(data: bytes) -> int:
            """How many bytes the message will take. Raises `Refused`."""
            if len(data) > self._limit:
                message = f"the message has {len(data)} bytes; at most {self._limit} are taken"
                raise Refused("message_too_large", message)
            try:
                return self._weigh(data, form)
            except TooLong as error:
                raise Refused("too_large", f"the message {error}") from error
            except InputError as error:
                raise Refused("invalid", "is no message of this call: it does not decode") from error

        def decode(data: bytes) -> Any:
            try:
                return handler.request_deserializer(data)
            except DecodeError as error:
                raise Refused("invalid", "is no message of this call: it does not decode") from error

        def read(data: bytes) -> Any:
            """One message of a stream, or why it is none."""
            try:
                weigh(data)
                return decode(data)
            except Refused as error:
                return error

        async def checked(context: Context) -> None:
            try:
                caller_of(self._access, context).check(need)
            except Refused as error:
                await end(context, error)

        async def message(requests: AsyncIterator[bytes], context: Context, share: Share) -> Any:
            try:
                async with asyncio.timeout(self._timeout):
                    data = await anext(requests)
                if len(data) <= SMALL:
                    share.hold(weigh(data))
                    return decode(data)
                share.hold(len(data))
                sender = caller_of(self._access, context).sender
                share.hold(await self._reading.run(sender, weigh, data))
                return await self._reading.run(sender, decode, data)
            except (Refused, TransientError) as error:
                ended = refusal_of(error)
            except TimeoutError:
                ended = Refused("slow", f"the call's message was not there after {self._timeout:g} s")
            except StopAsyncIteration:
                ended = Refused("invalid", "the call has no message")
            return await end(context, ended)

        async def one(requests: AsyncIterator[bytes], context: Context) -> Any:
            await checked(context)
            async with self._calls:
                with holding(self._held) as share:
                    return await handler.unary_unary(await message(requests, context, share), context)

        async def many(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            await checked(context)
            async with self._calls:
                with holding(self._held) as share:
                    asked = await message(requests, context, share)
            async for answer in handler.unary_stream(asked, context):
                yield answer

        async def streamed(requests: AsyncIterator[Any], context: Context) -> None:
            await checked(context)
            await handler.stream_stream(requests, context)

        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(streamed, read, handler.response_serializer)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(many, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(one, None, handler.response_serializer)
