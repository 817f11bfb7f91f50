"""Spans and the log records that hold their messages, kept until they can be joined.

They lie in a bucket before they are acknowledged, since they may come to different gateways, in any order,
with a crash in between. Every gateway joins what is due; doing it twice adds nothing, as both have the
same id.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
import nats.js.errors

from groundwatch.errors import InputError, TransientError
from groundwatch.events import digest
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.intake.results import bounded
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.streams import FAULTS, Read, last_message, read_stream
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings.gateway import LoggedCallsSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import HALVES_BUCKET

STREAM = f"KV_{HALVES_BUCKET}"
SUBJECTS = f"$KV.{HALVES_BUCKET}.otlp"
SPAN = "span"
LOOK_SECONDS = 2.0
GONE = (10037, 10043, 10057)
"""JetStream's error codes for a message that is not there."""


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """A span without its messages, or a log record; `data` is as the protocol has it.

    `only` is the tenant whose token sent it, `scope` the name of the instrumentation.
    """

    only: str | None
    scope: str
    is_span: bool
    data: bytes


Join = Callable[[list[Half], Caller], Awaitable[bool]]
"""Records what halves of one call tell of; whether they are done with."""

_HALF = msgspec.msgpack.Decoder(Half)
_ENCODER = msgspec.msgpack.Encoder()


class Joining(SupervisedTask):
    """Keeps halves, and joins those of a call when its span has waited long enough, or never came."""

    def __init__(self, bus: Bus, settings: LoggedCallsSettings, join: Join) -> None:
        super().__init__("gateway-otlp-joining", self._watch)
        self._bus = bus
        self._settings = settings
        self._join = join

    async def keep(self, half: Half, trace_id: str, span_id: str) -> str:
        """Why it cannot be kept; empty when it is. Raises `TransientError` where that may change."""
        key = digest(half.only or "", trace_id, span_id)[:32]
        part = SPAN if half.is_span else digest(half.scope, half.data.hex())[:32]
        try:
            async with bounded():
                await self._bus.create(
                    Outgoing(subject=f"{SUBJECTS}.{key}.{part}", payload=_ENCODER.encode(half))
                )
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
        found: dict[str, dict[str, Read]] = {}
        halves = read_stream(self._bus.js, STREAM, subjects=(f"{SUBJECTS}.>",), headers_only=True)
        async for read in halves:
            key, _, part = read.subject.removeprefix(f"{SUBJECTS}.").partition(".")
            found.setdefault(key, {})[part] = read
        for key, parts in found.items():
            span = parts.get(SPAN)
            since = span.time if span else min(part.time for part in parts.values())
            wait = self._settings.join_wait if span else self._settings.join_timeout
            if since < now - wait:
                await self._end(key, parts)

    async def _end(self, key: str, parts: dict[str, Read]) -> None:
        """Record the call of these halves and let go of them, unless it is to be tried again."""
        reads = [await last_message(self._bus.js, STREAM, part.subject) for part in parts.values()]
        halves = [_HALF.decode(read.data) for read in reads if read is not None]
        if not halves:
            return
        try:
            async with bounded():
                done = await self._join(halves, Caller(only=halves[0].only))
        except (TransientError, *FAULTS):
            raise
        except Exception as error:
            # Else these would keep all others from being joined, for ever.
            logger.error("gateway.bug", key=key, error=repr(error), exc_info=True)
            done = True
        if done:
            for part in parts.values():
                await self._remove(part.sequence)

    async def _remove(self, sequence: int) -> None:
        try:
            await self._bus.js.delete_msg(STREAM, sequence)
        except nats.js.errors.APIError as error:
            # Another gateway was first.
            if error.err_code not in GONE:
                raise
