"""The calls of the contract: thin translations between messages and what the core does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import msgspec

from groundwatch.errors import InputError, TransientError, UsageError
from groundwatch.events import ResponseScored
from groundwatch.gateway.auth.callers import Caller, NotAllowed, Tokens
from groundwatch.gateway.auth.run_names import RunNames
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.grpc import convert
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
from groundwatch.gateway.intake.intake import Intake
from groundwatch.gateway.intake.parsing import limits
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.gateway.intake.waiting import ANSWER_SECONDS
from groundwatch.gateway.live.backlog import Backlog
from groundwatch.gateway.live.live import Filter, Heartbeat, Live, Missed
from groundwatch.gateway.live.lookup import look_up
from groundwatch.gateway.replays import Replays
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import GatewaySettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import MAX_TOKEN, is_token

T = TypeVar("T")

CLOSING_SECONDS = 2 * ANSWER_SECONDS
"""What calls still have when the gateway goes down: less than the drain."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Monitor(MonitorServiceServicer):
    """Every call of `groundwatch.v1.MonitorService`."""

    def __init__(
        self,
        settings: GatewaySettings,
        bus: Bus,
        intake: Intake,
        backlog: Backlog,
        live: Live,
        replays: Replays | None,
        tokens: Tokens,
    ) -> None:
        self._settings = settings.grpc
        self._in_flight = settings.intake.in_flight
        self._bounds = limits(settings.intake)
        self._bus = bus
        self._intake = intake
        self._backlog = backlog
        self._live = live
        self._tokens = tokens
        self._replays = ReplayCalls(replays)
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

    async def settled(self) -> None:
        """Wait for what callers have left in the air."""
        if self._behind:
            await asyncio.wait(self._behind)

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:  # noqa: N802
        """Record one response."""
        return await self._answer(context, self._submit(request, context))

    async def SubmitStream(  # noqa: N802
        self, requests: AsyncIterator[pb.SubmitStreamRequest], context: Context
    ) -> None:
        """Record many, with an acknowledgement for each."""
        async with self._told(context):
            caller = self._caller(context)
            most = self._settings.calls
            if len(self._streams) >= most:
                raise exhausted("streams", f"{most} streams of responses are open already")
            stream = Stream(self._intake, self._backlog, self._bounds, caller, in_flight=self._in_flight)
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
        """Outcomes as they happen."""
        async with self._told(context):
            tenant = self._caller(context).tenant(request.tenant)
            after = request.after if request.HasField("after") else None
            if after is not None and after < 0:
                raise invalid("after", "is not the position of an outcome")
            if self._watching >= self._settings.watchers:
                raise exhausted("watchers", f"{self._settings.watchers} others watch already")
            wanted = Filter(model=request.model, tenant=tenant, protocol=request.protocol)
            self._watching += 1
            try:
                async with contextlib.aclosing(self._live.outcomes(wanted, after)) as outcomes:
                    async for one in outcomes:
                        yield self._event(one)
            finally:
                self._watching -= 1
            raise unavailable("the gateway is going down; watch again behind the last position")

    async def GetResponse(  # noqa: N802
        self, request: pb.GetResponseRequest, context: Context
    ) -> pb.GetResponseResponse:
        """One response with its outcomes."""
        return await self._answer(context, self._get(request, context))

    async def StartReplay(  # noqa: N802
        self, request: pb.StartReplayRequest, context: Context
    ) -> pb.StartReplayResponse:
        """Begin a replay."""

        async def start() -> pb.StartReplayResponse:
            state = await self._replays.start(request, self._caller(context))
            return pb.StartReplayResponse(replay=convert.replay(state))

        return await self._answer(context, start())

    async def FollowReplay(  # noqa: N802
        self, request: pb.FollowReplayRequest, context: Context
    ) -> AsyncIterator[pb.FollowReplayResponse]:
        """How far a replay is."""
        async with self._told(context):
            async for state in self._replays.follow(request.run, self._caller(context)):
                yield pb.FollowReplayResponse(replay=convert.replay(state))

    async def CancelReplay(  # noqa: N802
        self, request: pb.CancelReplayRequest, context: Context
    ) -> pb.CancelReplayResponse:
        """End a replay."""

        async def cancel() -> pb.CancelReplayResponse:
            state = await self._replays.cancel(request.run, self._caller(context))
            return pb.CancelReplayResponse(replay=convert.replay(state))

        return await self._answer(context, cancel())

    async def Compare(self, request: pb.CompareRequest, context: Context) -> pb.CompareResponse:  # noqa: N802
        """Two runs beside each other."""

        return await self._answer(context, self._compare(request, context))

    async def _submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:
        caller = self._caller(context)
        if self._backlog.closed:
            ended: Recorded | Refused = self._refused("unavailable", "the gateway is going down")
        elif self._backlog.full:
            ended = self._refused("backlog", self._backlog.refusal())
        else:
            read = convert.submission(request.response, caller, self._bounds)
            if isinstance(read, Refused):
                ended = self._intake.refuse(read)
            else:
                ended = await self._leave(self._intake.record(read.response, read.images, sender=read.sender))
        if isinstance(ended, Refused):
            raise failure_of(ended, "response.")
        if ended.status == "recorded":
            self._backlog.sent()
        return pb.SubmitResponse(id=ended.id, status=convert.RECORDED[ended.status])

    def _caller(self, context: Context) -> Caller:
        """Raises `NotAllowed` for a call without a token that is known."""
        said = [str(value) for name, value in context.invocation_metadata() or () if name == "authorization"]
        caller = self._tokens.bearer(said[0] if said else None)
        return msgspec.structs.replace(caller, peer=context.peer() or "")

    def _refused(self, reason: Any, message: str) -> Refused:
        return self._intake.refuse(Refused(reason=reason, message=message))

    async def _get(self, request: pb.GetResponseRequest, context: Context) -> pb.GetResponseResponse:
        tenant = self._caller(context).tenant(request.tenant) or "default"
        found = await look_up(self._bus, tenant, request.id)
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

    async def _compare(self, request: pb.CompareRequest, context: Context) -> pb.CompareResponse:
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
                self._bus,
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

    def _event(self, one: tuple[int, ResponseScored] | Missed | Heartbeat) -> pb.WatchScoresResponse:
        if isinstance(one, Heartbeat):
            heartbeat = pb.WatchScoresResponse.Heartbeat(position=one.position)
            return pb.WatchScoresResponse(heartbeat=heartbeat)
        if isinstance(one, Missed):
            missed = pb.WatchScoresResponse.Missed(count=one.count, after=one.after)
            return pb.WatchScoresResponse(missed=missed)
        position, event = one
        scored = pb.WatchScoresResponse.Scored(position=position, outcome=convert.outcome(event))
        return pb.WatchScoresResponse(scored=scored)

    def _leave(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Let work go on when the caller has gone: an event that was sent is settled and counted."""
        task = asyncio.ensure_future(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return asyncio.shield(task)

    async def _answer(self, context: Context, work: Coroutine[Any, Any, T]) -> T:
        """What a call with one answer says, within the deadline that callers without one have."""
        async with self._told(context):
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
    async def _told(self, context: Context) -> AsyncIterator[None]:
        """End the call with a status for whatever goes wrong inside."""
        try:
            with _translated():
                yield
        except Failure as failure:
            await _end(context, failure)


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
