"""The calls of the contract: thin translations between messages and what the core does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import msgspec

from groundwatch.errors import InputError, TransientError, UsageError
from groundwatch.gateway.auth.callers import Caller, NotAllowed
from groundwatch.gateway.auth.run_names import RunNames
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.grpc import convert
from groundwatch.gateway.grpc.convert import message
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceServicer
from groundwatch.gateway.grpc.replaying import ReplayCalls
from groundwatch.gateway.grpc.statuses import (
    Failure,
    exhausted,
    failure_of,
    invalid,
    not_allowed,
    unavailable,
)
from groundwatch.gateway.grpc.stream import Stream
from groundwatch.gateway.intake.results import Refused
from groundwatch.gateway.intake.waiting import ANSWER_SECONDS
from groundwatch.gateway.live.live import Filter, Heartbeat, Missed, Shown
from groundwatch.gateway.live.lookup import look_up
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import MAX_TOKEN, is_token

T = TypeVar("T")
R = TypeVar("R")

CLOSING_SECONDS = 2 * ANSWER_SECONDS
"""What calls still have when the gateway goes down: less than the drain."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def _answered(
    call: Callable[[Any, R, Context], Coroutine[Any, Any, T]],
) -> Callable[[Any, R, Context], Coroutine[Any, Any, T]]:
    """A call with one answer, within the deadline that callers without one have."""

    @wraps(call)
    async def bounded(self: Monitor, request: R, context: Context) -> T:
        return await self._answer(context, call(self, request, context))

    return bounded


class Monitor(MonitorServiceServicer):
    """Every call of `groundwatch.v1.MonitorService`."""

    def __init__(self, core: GatewayCore) -> None:
        self._core = core
        self._settings = core.settings.grpc
        self._bounds = core.bounds
        self._replays = ReplayCalls(core.replays)
        self._streams: set[Stream] = set()
        self._limits: set[asyncio.Timeout] = set()
        self._closing = False
        self._watching = 0
        self._comparing = 0
        self._behind: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Let streams of responses and replays that are followed come to their end."""
        self._replays.close()
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
        read = partial(convert.submission, request.response, self._caller(context), self._bounds)
        ended = await self._leave(self._core.record(read))
        if isinstance(ended, Refused):
            raise failure_of(ended, "response.")
        return message(pb.SubmitResponse, ended)

    async def SubmitStream(  # noqa: N802
        self, requests: AsyncIterator[pb.SubmitStreamRequest], context: Context
    ) -> None:
        async with self._ended(context):
            caller = self._caller(context)
            most = self._settings.calls
            if len(self._streams) >= most:
                raise exhausted("streams", f"{most} streams of responses are open already")
            stream = Stream(self._core, caller)
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
        async with self._ended(context):
            tenant = self._caller(context).tenant(request.tenant)
            after = request.after if request.HasField("after") else None
            if after is not None and after < 0:
                raise invalid("after", "is not the position of an outcome")
            if self._watching >= self._settings.watchers:
                raise exhausted("watchers", f"{self._settings.watchers} others watch already")
            wanted = Filter(model=request.model, tenant=tenant, protocol=request.protocol)
            self._watching += 1
            try:
                async with contextlib.aclosing(self._core.live.watch(wanted, after)) as watched:
                    async for several in watched:
                        for one in several:
                            yield _event(one)
            finally:
                self._watching -= 1
            raise unavailable("the gateway is going down; watch again behind the last position")

    @_answered
    async def GetResponse(  # noqa: N802
        self, request: pb.GetResponseRequest, context: Context
    ) -> pb.GetResponseResponse:
        tenant = self._caller(context).tenant(request.tenant) or "default"
        found = await look_up(self._core.bus, tenant, request.id)
        if found is None:
            raise Failure(
                grpc.StatusCode.NOT_FOUND,
                "not_found",
                f"no response '{request.id[:256]}' of tenant '{tenant[:256]}' is recorded",
                field="id",
            )
        return pb.GetResponseResponse(
            response=convert.response(found["response"]),
            outcomes=[convert.outcome(one) for one in found["outcomes"].values()],
            waiting=found["waiting"],
        )

    @_answered
    async def StartReplay(  # noqa: N802
        self, request: pb.StartReplayRequest, context: Context
    ) -> pb.StartReplayResponse:
        state = await self._replays.start(request, self._caller(context))
        return pb.StartReplayResponse(replay=message(pb.Replay, state))

    async def FollowReplay(  # noqa: N802
        self, request: pb.FollowReplayRequest, context: Context
    ) -> AsyncIterator[pb.FollowReplayResponse]:
        async with self._ended(context):
            async for state in self._replays.follow(request.run, self._caller(context)):
                yield pb.FollowReplayResponse(replay=message(pb.Replay, state))

    @_answered
    async def CancelReplay(  # noqa: N802
        self, request: pb.CancelReplayRequest, context: Context
    ) -> pb.CancelReplayResponse:
        state = await self._replays.cancel(request.run, self._caller(context))
        return pb.CancelReplayResponse(replay=message(pb.Replay, state))

    @_answered
    async def Compare(self, request: pb.CompareRequest, context: Context) -> pb.CompareResponse:  # noqa: N802
        caller = self._caller(context)
        names = RunNames(caller)
        tenant = caller.tenant(request.tenant)
        for field in ("first", "second"):
            if not is_token(getattr(request, field)):
                raise invalid(
                    field,
                    f"name a run: letters, digits, - and _, at most {MAX_TOKEN}; live traffic is 'live'",
                )
        most = self._settings.comparisons
        if self._comparing >= most:
            raise exhausted("comparisons", f"{most} comparisons are under way already")
        self._comparing += 1
        try:
            found = await compare(
                self._core.bus,
                names.full(request.first),
                names.full(request.second),
                model=request.model,
                tenant=tenant,
                protocol=request.protocol,
                listed=caller.only is None,
            )
        except UsageError as error:
            error.args = (names.given(str(error)),)
            raise
        finally:
            self._comparing -= 1
        found = msgspec.structs.replace(
            found,
            first=request.first,
            second=request.second,
            notes=tuple(map(names.given, found.notes)),
        )
        told = pb.CompareResponse()
        told.comparison.update(msgspec.to_builtins(found))
        return told

    def _caller(self, context: Context) -> Caller:
        """Raises `NotAllowed` for a call without a token that is known."""
        said = [str(value) for name, value in context.invocation_metadata() or () if name == "authorization"]
        caller = self._core.tokens.bearer(said[0] if said else None)
        return msgspec.structs.replace(caller, peer=context.peer() or "")

    def _leave(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Let work go on when the caller has gone: an event that was sent is finished and counted."""
        task = asyncio.ensure_future(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return asyncio.shield(task)

    async def _answer(self, context: Context, work: Coroutine[Any, Any, T]) -> T:
        """What a call with one answer says, or the status that it ends with."""
        async with self._ended(context):
            limit = asyncio.timeout(self._settings.deadline)
            self._limits.add(limit)
            try:
                async with limit:
                    return await work
            except TimeoutError:
                if self._closing:
                    raise unavailable("the gateway is going down; ask again") from None
                seconds = self._settings.deadline
                raise Failure(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    "deadline",
                    f"no answer within {seconds:g} s",
                    again=True,
                ) from None
            finally:
                self._limits.discard(limit)
        raise AssertionError

    @contextlib.asynccontextmanager
    async def _ended(self, context: Context) -> AsyncIterator[None]:
        """End the call with a status for whatever goes wrong inside."""
        try:
            with _translated():
                yield
        except Failure as failure:
            await _end(context, failure)


def _event(item: Shown | Missed | Heartbeat) -> pb.WatchScoresResponse:
    kind = pb.WatchScoresResponse
    match item:
        case Shown():
            return kind(scored=kind.Scored(position=item.sequence, outcome=convert.outcome(item.event)))
        case Missed():
            return kind(missed=message(kind.Missed, item))
    return kind(heartbeat=message(kind.Heartbeat, item))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (Failure, grpc.aio.AbortError, asyncio.CancelledError, GeneratorExit):
        raise
    except NotAllowed as error:
        raise not_allowed(error) from error
    except TransientError as error:
        raise unavailable(str(error)) from error
    except InputError as error:
        raise Failure(grpc.StatusCode.INVALID_ARGUMENT, "invalid", str(error)) from error
    except UsageError as error:
        raise Failure(grpc.StatusCode.FAILED_PRECONDITION, "refused", str(error)) from error
    except Exception as error:
        logger.error("grpc.bug", error=repr(error), exc_info=True)
        raise Failure(
            grpc.StatusCode.INTERNAL,
            "internal",
            f"an error of the gateway, in its log: {type(error).__name__}",
        ) from error


async def _end(context: Context, failure: Failure) -> NoReturn:
    await context.abort(failure.code, failure.message, failure.trailing)
    raise AssertionError
