"""gRPC, the server beside HTTP: its calls, thin translations between messages and what the core does; what
comes before each; where it listens, for how much, and how it goes down."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import msgspec
from google.protobuf import duration_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as measured
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

from groundwatch.counting import FIELD_BYTES, TooLong, count_fields
from groundwatch.errors import InputError, SettingsError, TransientError, UsageError
from groundwatch.events import ResponseRecorded, ResponseScored
from groundwatch.gateway.auth import SEND, VIEW, Access, Caller, Filter, Need, host_of
from groundwatch.gateway.core import GatewayCore, look_up
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.http.requests import LONGEST_AGENT, SMALL, Share
from groundwatch.gateway.intake import window
from groundwatch.gateway.intake.intake import Ready
from groundwatch.gateway.intake.submissions import (
    DIGEST,
    Attachment,
    SentImage,
    Submission,
    read_attachment,
    take_submission,
    wrong_image,
)
from groundwatch.gateway.live.live import Heartbeat, Missed, Shown
from groundwatch.gateway.receivers.otlp import Receiver, weigh
from groundwatch.gateway.refusals import ANSWER_SECONDS, Recorded, Refused, one_line, refusal_of
from groundwatch.records import Limits
from groundwatch.runtime.delivery.bus import ENCODER, Receipt
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings.gateway import GrpcSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import show_end
from groundwatch.topology import HEADER_TRACE

DOMAIN = "groundwatch"
DETAILS = "grpc-status-details-bin"

PASSING = frozenset(
    {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
)
"""With which the same call may succeed later, unless it is too large."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


async def end(context: Context, refused: Refused) -> NoReturn:
    """End the call, with the details as metadata, where clients of every language look for them."""
    code = grpc.StatusCode[refused.status.grpc]
    message = one_line(f"{refused.field}: {refused.message}" if refused.field else refused.message)
    status = status_pb2.Status(code=code.value[0], message=message)
    reason = refused.reason.upper()
    known = {"id": refused.id} if refused.id else {}
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=known)]
    if refused.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=refused.field, description=message, reason=reason
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if code in PASSING and refused.reason != "message_too_large":
        delay = duration_pb2.Duration(seconds=refused.retry_after)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    for detail in details:
        status.details.add().Pack(detail)
    await context.abort(code, message, ((DETAILS, status.SerializeToString()),))
    raise AssertionError


def caller_of(access: Access, context: Context) -> Caller:
    """Who calls. Raises `Refused`."""
    metadata = dict(context.invocation_metadata() or ())
    said = metadata.get("authorization")
    peer = context.peer() or ""
    caller = access.bearer(None if said is None else str(said), host_of(peer))
    agent = one_line(str(metadata.get("user-agent", ""))[:LONGEST_AGENT])
    return msgspec.structs.replace(caller, peer=peer, agent=agent)


M = TypeVar("M", bound=Message)


_RESPONSE: Any = pb.Response.DESCRIPTOR
MOST_FIELDS = 200_000
MOST_RESPONSES = 10_000


def weigh_message(data: bytes, form: Descriptor) -> int:
    """How many bytes a message will take. Raises `TooLong` for one that holds too much, `InputError` for what
    is none."""
    fields, responses = count_fields(data, form, _RESPONSE, MOST_FIELDS)
    if fields > MOST_FIELDS or responses > MOST_RESPONSES:
        raise TooLong(f"holds more than {MOST_RESPONSES:,} responses, or {MOST_FIELDS:,} fields")
    return len(data) + fields * FIELD_BYTES


def submission(sent: pb.Response, caller: Caller, bounds: Limits) -> Submission:
    """Raises `Refused`."""
    values = {
        name: getattr(sent, name) for name in ("id", "model", "answer", "prompt", "recorded_at", "tenant")
    }
    values |= {"protocols": tuple(sent.protocols), "tags": dict(sent.tags)}
    if sent.HasField("reference"):
        known = sent.reference
        values["reference"] = {
            "facts": [{"text": fact.text, "holds": fact.holds} for fact in known.facts],
            "objects": list(known.objects),
            "triplets": [(one.subject, one.relation, one.object) for one in known.triplets],
            "complete": known.complete,
        }
    before = sent.earlier
    values |= {"earlier": before.text, "earlier_images": len(before.images)}
    return take_submission(values, [*before.images, *sent.images], _image, bounds, caller)


def _image(image: pb.Image, index: int) -> Attachment:
    match image.WhichOneof("source"):
        case "data":
            return image.data
        case "sha256" if DIGEST.match(image.sha256):
            return image.sha256
        case "url":
            return read_attachment(SentImage(url=image.url), index)
        case "sha256":
            raise wrong_image(index, "not the SHA-256 of an image in lower-case hex; send the image as data")
    raise wrong_image(index, "has neither sha256 nor data nor url")


def _stored(images: Sequence[str]) -> list[pb.Image]:
    return [pb.Image(sha256=image) for image in images]


def result(ended: Recorded | Refused) -> pb.SubmitResult:
    others = {"status": "SUBMIT_STATUS_REFUSED"} if isinstance(ended, Refused) else {}
    return message(pb.SubmitResult, ended, **others)


def outcome(event: ResponseScored) -> pb.Outcome:
    return message(pb.Outcome, event, kind=f"OUTCOME_KIND_{event.outcome.upper()}")


def message(kind: type[M], value: object, /, **others: Any) -> M:
    """The message with all that `value` has under the names of its fields; `others` have other names there.

    A tuple has the fields in their order; a choice is its enum's value of the same name.
    """
    fields = _fields(kind.DESCRIPTOR)
    if isinstance(value, tuple):
        return kind(**dict(zip(fields, value, strict=True)))
    for name, written in fields.items():
        found = getattr(value, name, None)
        if found is not None and name not in others:
            others[name] = written(found)
    return kind(**others)


@cache
def _fields(descriptor: Descriptor) -> dict[str, Callable[[Any], Any]]:
    return {field.name: _writer(field) for field in descriptor.fields}


def _writer(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        return lambda value: prefix + value.upper()
    inner = field.message_type
    if inner is None:
        return lambda value: value
    if inner.GetOptions().map_entry:
        write = _writer(inner.fields_by_name["value"])
        return lambda value: {key: write(one) for key, one in value.items()}
    kind = GetMessageClass(inner)
    if field.is_repeated:
        return lambda value: [message(kind, one) for one in value]
    return lambda value: message(kind, value)


TOGETHER = 256
LINGER = 0.002
"""Seconds that results wait for others, where others are in the air."""

Write = Callable[[pb.SubmitStreamResponse], Awaitable[None]]


class Stream(window.Window):
    """One stream: one task takes what is sent, another acknowledges it.

    A client that does not read its acknowledgements is not read from either.
    """

    def __init__(self, core: GatewayCore, caller: Caller) -> None:
        super().__init__(core, caller)
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._results: list[pb.SubmitResult] = []
        self._first = 1
        self._taken = 0
        self._all = False
        self._reader: asyncio.Task[None] | None = None
        self._ended_by: Refused | None = None

    async def run(self, requests: AsyncIterator[pb.SubmitStreamRequest | Refused], write: Write) -> None:
        """Until the client has sent all and every result is written. Raises `Refused`."""
        self._reader = asyncio.create_task(self._read(requests), name="grpc-submit-stream")
        try:
            await self._acknowledge(write)
            if not self._reader.cancelled():
                await self._reader
        finally:
            self._reader.cancel()
        if self._ended_by is None and self.given_up is not None:
            self._ended_by = self.given_up
        if self._ended_by is not None:
            raise self._ended_by.but()

    def close(self) -> None:
        """Take nothing more; what is in the air is still acknowledged."""
        self._ended_by = Refused("unavailable", "the gateway is going down; send the rest again")
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self, requests: AsyncIterator[pb.SubmitStreamRequest | Refused]) -> None:
        try:
            async for request in requests:
                if isinstance(request, Refused):
                    self._ended_by = request
                    return
                for sent in request.responses:
                    self._taken += 1
                    await self.put(
                        self._taken, sent.ByteSize(), partial(submission, sent, self._caller, self._bounds)
                    )
                    if self.given_up is not None:
                        return
        finally:
            self._all = True
            self._some.set()

    async def _acknowledge(self, write: Write) -> None:
        lingered = False
        while True:
            if not self._waiting:
                if self._all:
                    return
                self._some.clear()
                await self._some.wait()
                continue
            await self._finish()
            self._room.set()
            if len(self._results) < TOGETHER:
                if self._next_is_known():
                    continue
                if self._waiting and not lingered:
                    lingered = True
                    await asyncio.sleep(LINGER)
                    if self._next_is_known():
                        continue
            lingered = False
            results, self._results = self._results, []
            await write(pb.SubmitStreamResponse(first=self._first, results=results))
            self._first += len(results)

    def _next_is_known(self) -> bool:
        ending = self._waiting[0].ending if self._waiting else None
        if isinstance(ending, Ready):
            ending = ending.receipt.future if isinstance(ending.receipt, Receipt) else None
        return bool(self._waiting) and (not isinstance(ending, asyncio.Future) or ending.done())

    def _added(self) -> None:
        self._some.set()

    async def _make_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    def _tell(self, number: int, ended: Recorded | Refused) -> None:
        if isinstance(ended, Recorded):
            # A stream may live for weeks: what once went wrong does not count for ever.
            self._timeout = window.TIMEOUT
        self._results.append(result(ended))


T = TypeVar("T")
R = TypeVar("R", bound=Message)

CLOSING_SECONDS = 2 * ANSWER_SECONDS
"""What calls still have when the gateway goes down: less than the drain."""

Answer: TypeAlias = Callable[[R, Caller, Context], Awaitable[Message]]
"""What answers a call with one message, for who calls. Raises `Refused`, as all that answers."""


class Monitor:
    """`groundwatch.v1.MonitorService`."""

    def __init__(self, core: GatewayCore) -> None:
        self._core = core
        self._settings = core.settings.grpc
        self._bounds = core.bounds
        self._streams: set[Stream] = set()
        self._limits: set[asyncio.Timeout] = set()
        self._closing = False
        self._watching = 0
        self._behind: set[asyncio.Task[Any]] = set()

    def calls(self, door: Door) -> dict[str, Handler]:
        """By their names."""
        report = Need("viewer", "the report")
        return {
            "Submit": door.one(SEND, pb.SubmitRequest, self._in_time(self._submit)),
            "SubmitStream": door.stream(SEND, pb.SubmitStreamRequest, self._submit_stream),
            "WatchScores": door.many(VIEW, pb.WatchScoresRequest, self._watch_scores),
            "GetResponse": door.one(VIEW, pb.GetResponseRequest, self._in_time(self._get_response)),
            "GetReport": door.one(report, pb.GetReportRequest, self._in_time(self._get_report)),
        }

    def close(self) -> None:
        """Let streams of responses and replays that are followed come to their end."""
        latest = asyncio.get_running_loop().time() + CLOSING_SECONDS
        self._closing = True
        for limit in self._limits:
            limit.reschedule(min(limit.when() or latest, latest))
        for stream in self._streams:
            stream.close()

    async def finished(self) -> None:
        """Wait for what callers have left in the air."""
        if self._behind:
            await asyncio.wait(self._behind)

    def _in_time(self, answer: Answer[R]) -> Answer[R]:
        """The same within the deadline that callers without one have."""

        async def bounded(request: R, caller: Caller, context: Context) -> Message:
            seconds = self._settings.deadline
            limit = asyncio.timeout(seconds)
            self._limits.add(limit)
            try:
                async with limit:
                    return await answer(request, caller, context)
            except TimeoutError:
                if self._closing:
                    raise Refused("unavailable", "the gateway is going down; ask again") from None
                raise Refused("deadline", f"no answer within {seconds:g} s") from None
            finally:
                self._limits.discard(limit)

        return bounded

    async def _submit(self, request: pb.SubmitRequest, caller: Caller, context: Context) -> pb.SubmitResponse:
        if (traces := self._core.bus.traces) is not None:
            given = dict(context.invocation_metadata() or ()).get(HEADER_TRACE, "")
            traces.received(given if isinstance(given, str) else "")
        read = partial(submission, request.response, caller, self._bounds)
        try:
            return message(pb.SubmitResponse, await self._leave(self._core.record(read)))
        except Refused as error:
            raise error.but(field=f"response.{error.field}") if error.field else error from None

    async def _submit_stream(
        self, requests: AsyncIterator[pb.SubmitStreamRequest | Refused], caller: Caller, write: Write
    ) -> None:
        stream = Stream(self._core, caller)
        most = self._settings.calls
        if len(self._streams) >= most:
            raise Refused("streams", f"{most} streams of responses are open already")
        self._streams.add(stream)
        try:
            await stream.run(requests, write)
        finally:
            self._streams.discard(stream)
            # What was sent in full is recorded and counted, whatever became of the caller.
            self._leave(stream.drain())

    async def _watch_scores(
        self, request: pb.WatchScoresRequest, caller: Caller
    ) -> AsyncGenerator[pb.WatchScoresResponse]:
        tenant = caller.tenant(request.tenant)
        after = request.after if request.HasField("after") else None
        if after is not None and after < 0:
            raise Refused("invalid", "is not the position of an outcome", field="after")
        if self._watching >= self._settings.watchers:
            raise Refused("watchers", f"{self._settings.watchers} others watch already")
        wanted = Filter(model=request.model, tenant=tenant, protocol=request.protocol)
        self._watching += 1
        try:
            async with contextlib.aclosing(self._core.live.watch(wanted, after)) as watched:
                async for several in watched:
                    for one in several:
                        yield _event(one)
        finally:
            self._watching -= 1
        raise Refused("unavailable", "the gateway is going down; watch again behind the last position")

    async def _get_response(
        self, request: pb.GetResponseRequest, caller: Caller, context: Context
    ) -> pb.GetResponseResponse:
        tenant = caller.tenant(request.tenant) or "default"
        found = await look_up(self._core.bus, tenant, request.id)
        if found is None:
            told = f"no response '{request.id[:256]}' of tenant '{tenant[:256]}' is recorded"
            raise Refused("not_found", told, field="id")
        said: ResponseRecorded = found["response"]
        before = said.earlier and pb.Earlier(text=said.earlier.text, images=_stored(said.earlier.images))
        return pb.GetResponseResponse(
            response=message(pb.Response, said, images=_stored(said.images), earlier=before),
            outcomes=[outcome(one) for one in found["outcomes"].values()],
            waiting=found["waiting"],
        )

    async def _get_report(
        self, request: pb.GetReportRequest, caller: Caller, context: Context
    ) -> pb.GetReportResponse:
        answer = pb.GetReportResponse()
        answer.report.update(msgspec.json.decode(ENCODER.encode(await self._core.report())))
        return answer

    def _leave(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Let work go on when the caller has gone: an event that was sent is finished and counted."""
        task = asyncio.ensure_future(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return asyncio.shield(task)


def _event(item: Shown | Missed | Heartbeat) -> pb.WatchScoresResponse:
    kind = pb.WatchScoresResponse
    match item:
        case Shown():
            return kind(scored=kind.Scored(position=item.sequence, outcome=outcome(item.event)))
        case Missed():
            return kind(missed=message(kind.Missed, item))
    return kind(heartbeat=message(kind.Heartbeat, item))


@contextlib.asynccontextmanager
async def ended(context: Context) -> AsyncIterator[None]:
    """End the call with a status for whatever goes wrong inside."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        await end(context, refusal_of(error))


OTLP: tuple[tuple[Any, Any], ...] = (
    (traces.DESCRIPTOR.services_by_name["TraceService"], traces.ExportTraceServiceRequest),
    (logs.DESCRIPTOR.services_by_name["LogsService"], logs.ExportLogsServiceRequest),
    (measured.DESCRIPTOR.services_by_name["MetricsService"], measured.ExportMetricsServiceRequest),
)
"""Its services and the message that the one call of each takes."""

BATCHES = 4
"""Requests under way at once: each may have `GatewaySettings.max_whole` bytes."""


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
        core = self._core
        self._server = server = grpc.aio.server(
            options=self._options(), maximum_concurrent_rpcs=settings.grpc.watchers + MAX_CALLS
        )
        door = Door(core, calls=settings.grpc.calls, limit=settings.intake.max_line, weigh=weigh_message)
        of_batches = Door(
            core,
            calls=BATCHES,
            limit=settings.max_whole,
            weigh=weigh,
            refused=partial(core.batch_refused, "otlp"),
        )
        services = {SERVICE: self._monitor.calls(door)}
        for service, form in OTLP:
            export = of_batches.one(SEND, form, lambda sent, caller, _: self._receiver.export(sent, caller))
            services[service.full_name] = {"Export": export}
        for name, calls in services.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, calls),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
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
        largest = max(self._settings.intake.max_line, self._settings.max_whole)
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", largest),
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


Handler: TypeAlias = Any
"""`grpc.RpcMethodHandler`, whose attributes its types do not know."""


class Door:
    """What comes before calls: who calls, whether they may, and of one message its bounds."""

    def __init__(
        self,
        core: GatewayCore,
        *,
        calls: int,
        limit: int,
        weigh: Callable[[bytes, Descriptor], int],
        refused: Callable[[Refused, Caller], Awaitable[None]] | None = None,
    ) -> None:
        """`calls` with a message of at most `limit` bytes are under way at once. `weigh` says how many bytes
        it will take of what is held, and raises `InputError` for one that holds too much. `refused` hears of
        messages that are not taken."""
        self._access = core.access
        self._timeout = core.settings.http.body_timeout
        self._held = core.held
        self._reading = core.threads
        self._limit = limit
        self._weigh = weigh
        self._refused = refused
        self._calls = asyncio.Semaphore(calls)

    def one(self, need: Need, form: type[R], answer: Answer[R]) -> Handler:
        """A call with one message and one answer."""

        async def call(requests: AsyncIterator[bytes], context: Context) -> Message:
            async with ended(context):
                caller = self._caller(context, need)
                async with self._calls:
                    with Share(self._held) as share:
                        asked = await self._message(requests, form, caller, share)
                        return await answer(asked, caller, context)
            raise AssertionError

        return grpc.stream_unary_rpc_method_handler(call, None, _written)

    def many(
        self, need: Need, form: type[R], answers: Callable[[R, Caller], AsyncGenerator[Message]]
    ) -> Handler:
        """A call with one message and any number of answers, which takes no place of others."""

        async def call(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Message]:
            async with ended(context):
                caller = self._caller(context, need)
                async with self._calls:
                    with Share(self._held) as share:
                        asked = await self._message(requests, form, caller, share)
                async with contextlib.aclosing(answers(asked, caller)) as told:
                    async for answer in told:
                        yield answer

        return grpc.stream_stream_rpc_method_handler(call, None, _written)

    def stream(
        self,
        need: Need,
        form: type[R],
        take: Callable[[AsyncIterator[R | Refused], Caller, Write], Awaitable[None]],
    ) -> Handler:
        """A call with any number of messages, each of which may be none, and of answers."""

        def read(data: bytes) -> R | Refused:
            try:
                self._size(data, form)
                return _decoded(data, form)
            except Refused as error:
                return error

        async def call(requests: AsyncIterator[R | Refused], context: Context) -> None:
            async with ended(context):
                await take(requests, self._caller(context, need), context.write)

        return grpc.stream_stream_rpc_method_handler(call, read, _written)

    def _caller(self, context: Context, need: Need) -> Caller:
        """Who calls. Raises `Refused` where nobody knows, or they may not."""
        caller = caller_of(self._access, context)
        caller.check(need)
        return caller

    async def _message(
        self, requests: AsyncIterator[bytes], form: type[R], caller: Caller, share: Share
    ) -> R:
        """The one message of a call, held as its share. Raises `Refused`, as is told."""
        try:
            async with asyncio.timeout(self._timeout):
                data = await anext(requests)
            if len(data) <= SMALL:
                share.hold(self._size(data, form))
                return _decoded(data, form)
            share.hold(len(data))
            share.hold(await self._reading.run(caller.sender, self._size, data, form))
            return await self._reading.run(caller.sender, _decoded, data, form)
        except (Refused, TransientError) as error:
            told = refused = refusal_of(error)
        except TimeoutError:
            message = f"the call's message was not there after {self._timeout:g} s"
            told = refused = Refused("slow", message)
        except StopAsyncIteration:
            # The library itself ends a call whose message is larger than any call takes, and says so.
            message = f"the call has no message, or one of more than {self._limit} bytes"
            told, refused = Refused("message_too_large", message), Refused("invalid", message)
        if self._refused is not None:
            await self._refused(told, caller)
        raise refused

    def _size(self, data: bytes, form: type[Message]) -> int:
        """How many bytes the message will take. Raises `Refused`."""
        if len(data) > self._limit:
            message = f"the message has {len(data)} bytes; at most {self._limit} are taken"
            raise Refused("message_too_large", message)
        descriptor: Any = form.DESCRIPTOR
        try:
            return self._weigh(data, descriptor)
        except TooLong as error:
            raise Refused("too_large", f"the message {error}") from error
        except InputError as error:
            raise Refused("invalid", UNDECODED) from error


UNDECODED = "is no message of this call: it does not decode"


def _decoded(data: bytes, form: type[R]) -> R:
    """Raises `Refused`."""
    try:
        return form.FromString(data)
    except DecodeError as error:
        raise Refused("invalid", UNDECODED) from error


def _written(answer: Message) -> bytes:
    return answer.SerializeToString()
