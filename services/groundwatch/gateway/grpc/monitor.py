"""The calls of the contract: thin translations between messages and what the core does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial, wraps
from typing import Any, TypeVar

import grpc
import msgspec

from groundwatch.gateway.access.roles import SEND, VIEW, Need
from groundwatch.gateway.callers import Caller, Filter
from groundwatch.gateway.core import GatewayCore, look_up
from groundwatch.gateway.grpc import messages
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceServicer
from groundwatch.gateway.grpc.messages import Context, end, message
from groundwatch.gateway.grpc.stream import Stream
from groundwatch.gateway.intake.results import ANSWER_SECONDS
from groundwatch.gateway.live.watchers import Heartbeat, Missed, Shown
from groundwatch.gateway.refusals import Refused, refusal_of
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.topology import HEADER_TRACE

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
        read = partial(messages.submission, request.response, self._caller(context), self._bounds)
        ended = await self._leave(self._core.record(read))
        if isinstance(ended, Refused):
            raise ended.but(field=f"response.{ended.field}") if ended.field else ended
        return message(pb.SubmitResponse, ended)

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
            outcomes=[messages.outcome(one) for one in found["outcomes"].values()],
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
        return messages.caller_of(self._core.access, context)

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
            return kind(scored=kind.Scored(position=item.sequence, outcome=messages.outcome(item.event)))
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
