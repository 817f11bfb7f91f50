"""Who has seen which alarm: notes that are kept beside it, each added by compare-and-set."""

import time

import msgspec

from groundwatch.errors import UNDECODED, TransientError, UsageError
from groundwatch.events import AlarmRaised
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.topology import ALARMS_BUCKET

LONGEST = 2_000
"""Characters of a note."""

MOST = 50
"""Notes of one alarm."""

TRIES = 10


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """`by` is who is logged in; "" where no login is needed. `at` is in seconds since the epoch."""

    at: float
    by: str = ""
    note: str = ""


_DECODER = msgspec.json.Decoder(list[Acknowledgement])


class Acknowledgements:
    """Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, ALARMS_BUCKET)

    async def of(self, alarm: AlarmRaised) -> list[Acknowledgement]:
        """The oldest first."""
        found = await self._bucket.get(key_of(alarm))
        return _decoded(found.data) if found is not None else []

    async def by_key(self) -> dict[str, list[Acknowledgement]]:
        """Those of all alarms, by `key_of`."""
        return {one.key: _decoded(one.data) async for one in self._bucket.read(">")}

    async def add(self, alarm: AlarmRaised, by: str, note: str) -> None:
        """Raises `UsageError` for a note that is too long, or one too many."""
        if len(note) > LONGEST:
            raise UsageError(f"a note has at most {LONGEST:,} characters, and this one {len(note):,}")
        for _ in range(TRIES):
            found = await self._bucket.get(key_of(alarm))
            notes = _decoded(found.data) if found is not None else []
            if len(notes) >= MOST:
                raise UsageError(f"this alarm has {MOST} notes already")
            notes.append(Acknowledgement(at=time.time(), by=by, note=note))
            data = msgspec.json.encode(notes)
            if await self._bucket.put(key_of(alarm), data, found.revision if found is not None else 0):
                return
        raise TransientError("others write notes on this alarm at this moment")


def key_of(alarm: AlarmRaised) -> str:
    """What tells one alarm from all others, as a key."""
    return f"{alarm.key}.{alarm.protocol}.{alarm.raised_at * 1000:.0f}"


def _decoded(data: bytes) -> list[Acknowledgement]:
    try:
        return _DECODER.decode(data)
    except UNDECODED:
        return []
