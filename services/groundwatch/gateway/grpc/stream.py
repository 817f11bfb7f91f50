"""Many responses over one stream: acknowledged in order, as soon as the stream of events has them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.messages import result, submission
from groundwatch.gateway.intake import window
from groundwatch.gateway.intake.results import Recorded
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.delivery.bus import Receipt

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
            raise self._ended_by

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
