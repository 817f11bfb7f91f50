"""Calls about replays, in the bounds of who calls: a tenant sees and ends only replays of its own."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import msgspec

from groundwatch.errors import UsageError
from groundwatch.gateway.auth.callers import Caller
from groundwatch.gateway.auth.run_names import RunNames
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.statuses import Failure, invalid, unavailable
from groundwatch.gateway.replays import OVER, Replay, Replays, Wanted

LOOK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0


class ReplayCalls:
    """What the calls do. Raises `Failure`."""

    def __init__(self, replays: Replays | None) -> None:
        self._replays = replays
        self._closing = False

    def close(self) -> None:
        """Let those who follow come to their end."""
        self._closing = True

    async def start(self, request: pb.StartReplayRequest, caller: Caller) -> Replay:
        replays = self._there()
        for field in ("sample", "seed", "since", "until", "speed", "max_tokens", "max_cost"):
            value = getattr(request, field)
            if not 0 <= value < float("inf"):
                raise invalid(field, f"{value} is not a number of at least 0")
        names = RunNames(caller)
        if not request.run:
            raise invalid("run", "is missing: name the new run")
        if names.longest is not None and len(request.run) > names.longest:
            raise invalid("run", f"has {len(request.run)} characters; at most {names.longest} are taken")
        if await replays.find(names.full(request.run)) is not None:
            raise Failure(
                grpc.StatusCode.ALREADY_EXISTS,
                "run_exists",
                f"run '{request.run}' exists already",
                field="run",
            )
        given = [(name, getattr(request, name)) for name in Wanted.__struct_fields__]
        own = {
            "run": names.full(request.run),
            "source": names.full(request.source),
            "tenants": caller.tenants(request.tenants),
        }
        same = {name: one if isinstance(one, str | float | int) else tuple(one) for name, one in given}
        wanted = msgspec.convert(same | own, Wanted)
        if wanted.judge and caller.only is not None:
            raise Failure(
                grpc.StatusCode.PERMISSION_DENIED,
                "not_for_tenants",
                "a tenant's replay is judged by the judges in use: another needs a token for all tenants",
                field="judge",
            )
        try:
            return names.of(await replays.start(wanted))
        except UsageError as error:
            message = names.given(str(error))
            raise Failure(grpc.StatusCode.INVALID_ARGUMENT, "refused", message) from error

    async def follow(self, run: str, caller: Caller) -> AsyncIterator[Replay]:
        """Its state now and after each change, until it is over."""
        loop = asyncio.get_running_loop()
        told: Replay | None = None
        at = 0.0
        names = RunNames(caller)
        while True:
            state = names.of(await self._get(run, caller))
            if state != told or loop.time() - at > HEARTBEAT_SECONDS:
                yield state
                told, at = state, loop.time()
            if state.status in OVER:
                return
            if self._closing:
                raise unavailable("the gateway is going down; follow the replay again")
            await asyncio.sleep(LOOK_SECONDS)

    async def cancel(self, run: str, caller: Caller) -> Replay:
        state = await self._get(run, caller)
        if state.status in OVER:
            raise Failure(
                grpc.StatusCode.FAILED_PRECONDITION, "over", f"run '{run}' is {state.status}", field="run"
            )
        return RunNames(caller).of(await self._there().cancel(state.run))

    async def _get(self, run: str, caller: Caller) -> Replay:
        if not run:
            raise invalid("run", "is missing")
        state = await self._there().find(RunNames(caller).full(run))
        if state is None or (caller.only is not None and set(state.tenants) != {caller.only}):
            raise Failure(grpc.StatusCode.NOT_FOUND, "not_found", f"no run '{run[:64]}'", field="run")
        return state

    def _there(self) -> Replays:
        if self._replays is None:
            raise Failure(
                grpc.StatusCode.UNIMPLEMENTED, "unimplemented", "this gateway has nobody who keeps replays"
            )
        return self._replays
