"""Bodies on their way in: how slow a sender may be, and how much all of them together may have us hold."""

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.errors import TransientError

STATUS = {"slow": 408, "unavailable": 503}
"""Of a request that was not read to its end, by the reason."""


class SlowSender(Exception):
    """A sender that does not bring what it has announced; the request ends with 408."""


class TooMuchHeld(TransientError):
    """What all requests together hold has come to its bound: this one is to come again."""


class ByteBudget:
    """Bytes of requests that are being received or worked at, bounded over all of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def room_for(self, size: int) -> None:
        """Raises `TooMuchHeld` when so much more would be too much."""
        if self.held + size > self._limit:
            raise TooMuchHeld(
                f"requests hold {self.held:,} bytes already, of at most {self._limit:,} together"
            )


class Share:
    """What one request holds of a budget."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def hold(self, size: int) -> None:
        """Hold `size` bytes from now on, and no longer what was held. Raises `TooMuchHeld`."""
        if size > self._held:
            self._budget.room_for(size - self._held)
        self._budget.held += size - self._held
        self._held = size

    def expect(self, size: int) -> None:
        """Raises `TooMuchHeld` when there would be no room for so many bytes now."""
        self._budget.room_for(size)


class Receiving:
    """Gives every request its share of the budget, and cuts those whose sender is too slow."""

    def __init__(self, app: ASGIApp, budget: ByteBudget, *, timeout: float, min_rate: int) -> None:
        """Over `timeout` seconds of waiting for a body, `min_rate` bytes a second must come."""
        self._app = app
        self._budget = budget
        self._timeout = timeout
        self._least = max(1.0, min_rate * timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        share = scope.setdefault("state", {})["share"] = Share(self._budget)
        clock = asyncio.get_running_loop().time
        more = True
        waited = 0.0
        got = 0

        async def timed() -> Message:
            nonlocal more, waited, got
            while more:
                began = clock()
                try:
                    async with asyncio.timeout(self._timeout - waited):
                        message = await receive()
                except TimeoutError:
                    self._judge(got)
                    waited, got = 0.0, 0
                    continue
                waited += clock() - began
                got += len(message.get("body", b""))
                more = bool(message.get("more_body", False))
                if waited >= self._timeout:
                    self._judge(got)
                    waited, got = 0.0, 0
                return message
            return await receive()

        try:
            await self._app(scope, timed, send)
        finally:
            share.hold(0)

    def _judge(self, got: int) -> None:
        if got < self._least:
            raise SlowSender(f"the body came too slowly: {got} bytes in {self._timeout:g} s")


def share_of(request: Request) -> Share:
    share: Share = request.state.share
    return share
