"""The calls of the contract: thin translations between messages and what the core does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import cache, partial, wraps
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import msgspec
from google.protobuf import duration_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from groundwatch.conversations.conversation import ImageUrl
from groundwatch.counting import FIELD_BYTES, TooLong, count_fields
from groundwatch.events import ResponseScored
from groundwatch.gateway.auth import SEND, VIEW, Access, Caller, Filter, Need, host_of
from groundwatch.gateway.core import GatewayCore, look_up
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceServicer
from groundwatch.gateway.intake import window
from groundwatch.gateway.intake.submissions import (
    DIGEST,
    Attachment,
    Submission,
    take_submission,
    wrong_image,
)
from groundwatch.gateway.live.live import Heartbeat, Missed, Shown
from groundwatch.gateway.refusals import ANSWER_SECONDS, Recorded, Refused, one_line, refusal_of
from groundwatch.records import Limits
from groundwatch.runtime.delivery.bus import ENCODER, Receipt
from groundwatch.topology import HEADER_TRACE

DOMAIN = "groundwatch"
DETAILS = "grpc-status-details-bin"

PASSING = frozenset(
    {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
)
"""With which the same call may succeed later."""

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
    if code in PASSING:
        delay = duration_pb2.Duration(seconds=refused.retry_after)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    for detail in details:
        status.details.add().Pack(detail)
    await context.abort(code, message, ((DETAILS, status.SerializeToString()),))
    raise AssertionError


def caller_of(access: Access, context: Context) -> Caller:
    """Who calls. Raises `Refused`."""
    said = dict(context.invocation_metadata() or ()).get("authorization")
    peer = context.peer() or ""
    caller = access.bearer(None if said is None else str(said), host_of(peer))
    return msgspec.structs.replace(caller, peer=peer)


M = TypeVar("M", bound=Message)


_RESPONSE: Any = pb.Response.DESCRIPTOR
MOST_FIELDS = 200_000
MOST_RESPONSES = 10_000


def weigh(data: bytes, form: Descriptor) -> int:
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
    return take_submission(values, sent.images, _image, bounds, caller)


def _image(image: pb.Image, index: int) -> Attachment:
    match image.WhichOneof("source"):
        case "data":
            return image.data
        case "sha256" if DIGEST.match(image.sha256):
            return image.sha256
        case "url":
            return ImageUrl(image.url)
        case "sha256":
            raise wrong_image(index, "not the SHA-256 of an image in lower-case hex; send the image as data")
    raise wrong_image(index, "has neither sha256 nor data nor url")


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
        if isinstance(ending, Receipt):
            ending = ending.future
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
R = TypeVar("R")

CLOSING_SECONDS = 2 * ANSWER_SECONDS
"""What calls still have when the gateway goes down: less than the drain."""


def _answered(
    call: Callable[[Any, R, Context], Coroutine[Any, Any, T]],
) -> Callable[[Any, R, Context], Coroutine[Any, Any, T]]:
    """A call with one answer, within the deadline that callers without one have."""

    @wraps(call)
    async def bounded(self: Monitor, request: R, context: Context) -> T:
        async with ended(context):
            seconds = self._settings.deadline
            limit = asyncio.timeout(seconds)
            self._limits.add(limit)
            try:
                async with limit:
                    return await call(self, request, context)
            except TimeoutError:
                if self._closing:
                    raise Refused("unavailable", "the gateway is going down; ask again") from None
                raise Refused("deadline", f"no answer within {seconds:g} s") from None
            finally:
                self._limits.discard(limit)
        raise AssertionError

    return bounded


NEEDS: dict[str, Need] = {
    "Submit": SEND,
    "SubmitStream": SEND,
    "WatchScores": VIEW,
    "GetResponse": VIEW,
    "GetReport": Need("viewer", "the report"),
}
"""By the name of the call."""


class Monitor(MonitorServiceServicer):
    def __init__(self, core: GatewayCore) -> None:
        self._core = core
        self._settings = core.settings.grpc
        self._bounds = core.bounds
        self._streams: set[Stream] = set()
        self._limits: set[asyncio.Timeout] = set()
        self._closing = False
        self._watching = 0
        self._behind: set[asyncio.Task[Any]] = set()

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

    @_answered
    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:  # noqa: N802
        if (traces := self._core.bus.traces) is not None:
            given = dict(context.invocation_metadata() or ()).get(HEADER_TRACE, "")
            traces.received(given if isinstance(given, str) else "")
        read = partial(submission, request.response, self._caller(context), self._bounds)
        try:
            return message(pb.SubmitResponse, await self._leave(self._core.record(read)))
        except Refused as error:
            raise error.but(field=f"response.{error.field}") if error.field else error from None

    async def SubmitStream(  # noqa: N802
        self, requests: AsyncIterator[pb.SubmitStreamRequest], context: Context
    ) -> None:
        async with ended(context):
            stream = Stream(self._core, self._caller(context))
            most = self._settings.calls
            if len(self._streams) >= most:
                raise Refused("streams", f"{most} streams of responses are open already")
            self._streams.add(stream)
            try:
                await stream.run(requests, context.write)
            finally:
                self._streams.discard(stream)
                # What was sent in full is recorded and counted, whatever became of the caller.
                self._leave(stream.drain())

    async def WatchScores(  # noqa: N802
        self, request: pb.WatchScoresRequest, context: Context
    ) -> AsyncIterator[pb.WatchScoresResponse]:
        async with ended(context):
            tenant = self._caller(context).tenant(request.tenant)
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

    @_answered
    async def GetResponse(  # noqa: N802
        self, request: pb.GetResponseRequest, context: Context
    ) -> pb.GetResponseResponse:
        tenant = self._caller(context).tenant(request.tenant) or "default"
        found = await look_up(self._core.bus, tenant, request.id)
        if found is None:
            told = f"no response '{request.id[:256]}' of tenant '{tenant[:256]}' is recorded"
            raise Refused("not_found", told, field="id")
        images = [pb.Image(sha256=image) for image in found["response"].images]
        return pb.GetResponseResponse(
            response=message(pb.Response, found["response"], images=images),
            outcomes=[outcome(one) for one in found["outcomes"].values()],
            waiting=found["waiting"],
        )

    @_answered
    async def GetReport(  # noqa: N802
        self, request: pb.GetReportRequest, context: Context
    ) -> pb.GetReportResponse:
        answer = pb.GetReportResponse()
        answer.report.update(msgspec.json.decode(ENCODER.encode(await self._core.report())))
        return answer

    def _caller(self, context: Context) -> Caller:
        return caller_of(self._core.access, context)

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
