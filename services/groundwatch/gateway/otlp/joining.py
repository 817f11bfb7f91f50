"""Spans and the log records that hold their messages, kept until they can be joined."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from groundwatch.errors import InputError, TransientError
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.halves import HalvesBucket, head_and_body
from groundwatch.gateway.intake.results import bounded
from groundwatch.keys import digest
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, Read
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings.gateway import LoggedCallsSettings
from groundwatch.runtime.telemetry.logs import logger

SPAN = "span"
LOOK_SECONDS = 2.0


class Half(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A span without its messages, or a log record; `data` is as the protocol has it.

    `tenant` is that of the token that sent it, `scope` the name of the instrumentation.
    """

    tenant: str | None = None
    scope: str = ""
    is_span: bool = False
    data: bytes = b""


Join = Callable[[list[Half], Caller], Awaitable[bool]]
"""Records what halves of one call tell of; whether they are done with."""

_HEAD = msgspec.json.Decoder(Half)


class Joining(SupervisedTask):
    """Keeps halves, and joins those of a call when its span has waited long enough, or never came."""

    def __init__(self, bus: Bus, settings: LoggedCallsSettings, join: Join) -> None:
        super().__init__("gateway-otlp-joining", self._watch)
        self._bucket = HalvesBucket(bus, "otlp")
        self._settings = settings
        self._join = join

    async def keep(self, half: Half, trace_id: str, span_id: str) -> str:
        """Why it cannot be kept; empty when it is. Raises `TransientError` where that may change."""
        key = digest(half.tenant or "", trace_id, span_id)[:32]
        part = SPAN if half.is_span else digest(half.scope, half.data.hex())[:32]
        head = msgspec.json.encode(msgspec.structs.replace(half, data=b""))
        try:
            async with bounded():
                await self._bucket.put(key, part, head, half.data)
        except InputError as error:
            return str(error)
        return ""

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._settings.join_wait / 4))
            await self.look()

    async def look(self) -> None:
        """Join what is due. Raises what NATS raises."""
        now = time.time()
        for key, parts in (await self._bucket.waiting()).items():
            span = parts.get(SPAN)
            since = span.time if span else min(part.time for part in parts.values())
            wait = self._settings.join_wait if span else self._settings.join_timeout
            if since < now - wait:
                await self._end(key, parts)

    async def _end(self, key: str, parts: dict[str, Read]) -> None:
        """Record the call of these halves and let go of them, unless it is to be tried again."""
        reads = [await self._bucket.get(key, part) for part in parts]
        halves = [_half(read) for read in reads if read is not None]
        if not halves:
            return
        try:
            async with bounded():
                done = await self._join(halves, Caller(only=halves[0].tenant))
        except (TransientError, *FAULTS):
            raise
        except Exception as error:
            # Else these would keep all others from being joined, for ever.
            logger.error("gateway.bug", key=key, error=repr(error), exc_info=True)
            done = True
        if done:
            for part in parts.values():
                await self._bucket.remove(part.sequence)


def _half(read: Read) -> Half:
    head, data = head_and_body(read)
    return msgspec.structs.replace(_HEAD.decode(head), data=data)
