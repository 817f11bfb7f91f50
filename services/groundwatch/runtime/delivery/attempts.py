"""How often an event has really been tried: what failed, apart from what was only handed back.

NATS counts deliveries. Outages, drains and crashes raise that number too, so it says nothing about the event.
What a stage answered a delivery with is therefore kept in a bucket, for all replicas and over restarts. It is
read on redelivery only: nearly every event is delivered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import nats.js.errors

from groundwatch.errors import UNDECODED
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import ATTEMPTS_BUCKET

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

    from groundwatch.runtime.delivery.bus import Bus
    from groundwatch.runtime.delivery.work import Arrived

TIMEOUT = 2.0
"""Seconds that the bucket is waited for: an event is never held up for the sake of its count."""

Kind = Literal["faults", "bugs", "released"]


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event's deliveries. `released` were handed back for no fault of the event."""

    faults: int = 0
    bugs: int = 0
    released: int = 0

    @property
    def failed(self) -> int:
        """Those that count against it."""
        return self.faults + self.bugs

    def plus(self, kind: Kind) -> Attempts:
        return msgspec.structs.replace(self, **{kind: getattr(self, kind) + 1})

    def unanswered(self, delivered: int) -> int:
        """Deliveries before this one that nobody answered: whoever had them died, or lost the connection."""
        return max(0, delivered - 1 - self.failed - self.released)


class AttemptCounts:
    """The bucket, for one stage."""

    def __init__(self, bus: Bus, consumer: str) -> None:
        self._bus = bus
        self._consumer = consumer
        self._bucket: KeyValue | None = None
        self._decoder = msgspec.json.Decoder(Attempts)

    async def of(self, arrived: Arrived) -> Attempts:
        """What is known; nothing when the bucket does not say."""
        if arrived.delivered == 1:
            return Attempts()
        try:
            found = await (await self._store()).get(self._key(arrived))
            return self._decoder.decode(found.value or b"{}")
        except nats.js.errors.KeyNotFoundError:
            pass
        except (*FAULTS, *UNDECODED) as error:
            logger.warning("attempts.unread", consumer=self._consumer, error=repr(error))
        return Attempts()

    async def put(self, arrived: Arrived, attempts: Attempts) -> None:
        """Remember it. A count that cannot be kept is lost, and its delivery then looks unanswered."""
        try:
            await (await self._store()).put(self._key(arrived), msgspec.json.encode(attempts))
        except FAULTS as error:
            logger.warning("attempts.lost", consumer=self._consumer, error=repr(error))

    def _key(self, arrived: Arrived) -> str:
        # With the time: a stream that was made anew begins to count its messages anew.
        return f"{self._consumer}.{arrived.sequence}.{int(arrived.stored_at.timestamp() * 1e6)}"

    async def _store(self) -> KeyValue:
        if self._bucket is None:
            js = self._bus.client.jetstream(timeout=TIMEOUT)
            self._bucket = await js.key_value(ATTEMPTS_BUCKET)
        return self._bucket
