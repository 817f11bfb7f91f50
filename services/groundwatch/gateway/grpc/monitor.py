"""The calls of the contract: thin translations between messages and what the core does.

Of replays, a tenant sees and ends only its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial, wraps
from typing import Any, TypeVar

import grpc
import msgspec

from groundwatch.errors import InputError, TransientError, UsageError
from groundwatch.events import LIVE
from groundwatch.gateway.callers import Caller, Filter, NotAllowed
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.core import GatewayCore, look_up
from groundwatch.gateway.grpc import messages
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceServicer
from groundwatch.gateway.grpc.messages import Context, Failure, failure_of, message
from groundwatch.gateway.grpc.stream import Stream
from groundwatch.gateway.intake.results import ANSWER_SECONDS, OverRate, Refused
from groundwatch.gateway.live.watchers import Heartbeat, Missed, Shown
from groundwatch.gateway.replays import OVER, Replay, Replays, Wanted
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import HEADER_TRACE, MAX_TOKEN, is_token

T = TypeVar("T")
R = TypeVar("R")

CLOSING_SECONDS = 2 * ANSWER_SECONDS
"""What calls still have when the gateway goes down: less than the drain."""

LOOK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0


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
                    raise Failure("unavailable", "the gateway is going down; ask again") from None
                raise Failure("deadline", f"no answer within {seconds:g} s") from None
            finally:
                self._limits.discard(limit)
        raise AssertionError

    return bounded


class Monitor(MonitorServiceServicer):
    def __init__(self, core: GatewayCore) -> None:
        self._core = core
        self._settings = core.settings.grpc
        self._bounds = core.bounds
        self._streams: set[Stream] = set()
        self._limits: set[asyncio.Timeout] = set()
        self._closing = False
        self._watching = 0
        self._comparing = 0
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
            raise failure_of(ended, "response.")
        return message(pb.SubmitResponse, ended)

    async def SubmitStream(  # noqa: N802
        self, requests: AsyncIterator[pb.SubmitStreamRequest], context: Context
    ) -> None:
        async with ended(context):
            stream = Stream(self._core, self._caller(context))
            most = self._settings.calls
            if len(self._streams) >= most:
                raise Failure("streams", f"{most} streams of responses are open already")
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
                raise Failure("invalid", "is not the position of an outcome", "after")
            if self._watching >= self._settings.watchers:
                raise Failure("watchers", f"{self._settings.watchers} others watch already")
            wanted = Filter(model=request.model, tenant=tenant, protocol=request.protocol)
            self._watching += 1
            try:
                async with contextlib.aclosing(self._core.live.watch(wanted, after)) as watched:
                    async for several in watched:
                        for one in several:
                            yield _event(one)
            finally:
                self._watching -= 1
            raise Failure("unavailable", "the gateway is going down; watch again behind the last position")

    @_answered
    async def GetResponse(  # noqa: N802
        self, request: pb.GetResponseRequest, context: Context
    ) -> pb.GetResponseResponse:
        tenant = self._caller(context).tenant(request.tenant) or "default"
        found = await look_up(self._core.bus, tenant, request.id)
        if found is None:
            told = f"no response '{request.id[:256]}' of tenant '{tenant[:256]}' is recorded"
            raise Failure("not_found", told, "id")
        images = [pb.Image(sha256=image) for image in found["response"].images]
        return pb.GetResponseResponse(
            response=message(pb.Response, found["response"], images=images),
            outcomes=[messages.outcome(one) for one in found["outcomes"].values()],
            waiting=found["waiting"],
        )

    @_answered
    async def StartReplay(  # noqa: N802
        self, request: pb.StartReplayRequest, context: Context
    ) -> pb.StartReplayResponse:
        replays, caller = self._replays, self._caller(context)
        for field in ("sample", "seed", "since", "until", "speed", "max_tokens", "max_cost"):
            value = getattr(request, field)
            if not 0 <= value < float("inf"):
                raise Failure("invalid", f"{value} is not a number of at least 0", field)
        if wrong := caller.check_run(request.run):
            raise Failure("invalid", wrong, "run")
        if await replays.find(caller.full_run(request.run)) is not None:
            raise Failure("run_exists", f"run '{request.run}' exists already", "run")
        if request.judge and caller.only is not None:
            raise Failure(
                "not_for_tenants",
                "a tenant's replay is judged by the judges in use: another needs a token for all tenants",
                "judge",
            )
        asked = {name: getattr(request, name) for name in Wanted.__struct_fields__}
        own = {
            "run": caller.full_run(request.run),
            "source": caller.full_run(request.source) or LIVE,
            "stage": request.stage or "extraction",
            "tenants": caller.tenants(request.tenants),
        }
        lists = {name: tuple(asked[name]) for name in ("models", "ids", "protocols")}
        try:
            state = await replays.start(msgspec.convert(asked | lists | own, Wanted))
        except UsageError as error:
            code = grpc.StatusCode.INVALID_ARGUMENT
            raise Failure("refused", caller.in_words(str(error)), code=code) from error
        return pb.StartReplayResponse(replay=message(pb.Replay, caller.shown(state)))

    async def FollowReplay(  # noqa: N802
        self, request: pb.FollowReplayRequest, context: Context
    ) -> AsyncIterator[pb.FollowReplayResponse]:
        clock = asyncio.get_running_loop().time
        told: Replay | None = None
        at = 0.0
        async with ended(context):
            caller = self._caller(context)
            while True:
                state = await self._replay(request.run, caller)
                if state != told or clock() - at > HEARTBEAT_SECONDS:
                    yield pb.FollowReplayResponse(replay=message(pb.Replay, caller.shown(state)))
                    told, at = state, clock()
                if state.status in OVER:
                    return
                if self._closing:
                    raise Failure("unavailable", "the gateway is going down; follow the replay again")
                await asyncio.sleep(LOOK_SECONDS)

    @_answered
    async def CancelReplay(  # noqa: N802
        self, request: pb.CancelReplayRequest, context: Context
    ) -> pb.CancelReplayResponse:
        caller = self._caller(context)
        state = await self._replay(request.run, caller)
        if state.status in OVER:
            raise Failure("over", f"run '{request.run}' is {state.status}", "run")
        state = await self._replays.cancel(state.run)
        return pb.CancelReplayResponse(replay=message(pb.Replay, caller.shown(state)))

    @_answered
    async def Compare(self, request: pb.CompareRequest, context: Context) -> pb.CompareResponse:  # noqa: N802
        caller = self._caller(context)
        tenant = caller.tenant(request.tenant)
        for field in ("first", "second"):
            if not is_token(getattr(request, field)):
                told = f"name a run: letters, digits, - and _, at most {MAX_TOKEN}; live traffic is 'live'"
                raise Failure("invalid", told, field)
        most = self._settings.comparisons
        if self._comparing >= most:
            raise Failure("comparisons", f"{most} comparisons are under way already")
        self._comparing += 1
        try:
            found = await compare(
                self._core.bus,
                caller.full_run(request.first),
                caller.full_run(request.second),
                model=request.model,
                tenant=tenant,
                protocol=request.protocol,
                listed=caller.only is None,
            )
        except UsageError as error:
            error.args = (caller.in_words(str(error)),)
            raise
        finally:
            self._comparing -= 1
        notes = tuple(map(caller.in_words, found.notes))
        found = msgspec.structs.replace(found, first=request.first, second=request.second, notes=notes)
        answer = pb.CompareResponse()
        answer.comparison.update(msgspec.to_builtins(found))
        return answer

    def _caller(self, context: Context) -> Caller:
        return messages.caller_of(self._core.access, context)

    @property
    def _replays(self) -> Replays:
        if self._core.replays is None:
            raise Failure("unimplemented", "this gateway has nobody who keeps replays")
        return self._core.replays

    async def _replay(self, run: str, caller: Caller) -> Replay:
        if not run:
            raise Failure("invalid", "is missing", "run")
        state = await self._replays.find(caller.full_run(run))
        if state is None or (caller.only is not None and set(state.tenants) != {caller.only}):
            raise Failure("not_found", f"no run '{run[:64]}'", "run")
        return state

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
        await _failure(error).end(context)


def _failure(error: Exception) -> Failure:
    match error:
        case Failure():
            return error
        case NotAllowed():
            return Failure(error.reason, error.message, error.field)
        case OverRate():
            return Failure("rate_limited", str(error), after=error.after)
        case TransientError():
            return Failure("unavailable", str(error))
        case InputError():
            return Failure("invalid", str(error))
        case UsageError():
            return Failure("refused", str(error))
    logger.error("grpc.bug", error=repr(error), exc_info=error)
    return Failure("internal", f"an error of the gateway, in its log: {type(error).__name__}")
