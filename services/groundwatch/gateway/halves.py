"""Halves of calls that are logged apart, kept in NATS until they can be joined.

They lie in a bucket before they are acknowledged, since the halves of a call may come to different gateways,
in any order, with a crash in between. Each is stored before anybody looks for the others, and joining them
twice adds nothing: both times the call has the same id.

A half is the message `$KV.gw-halves.<family>.<key>.<part>`. Its first line is a JSON object that names its
tenant, so that an erasure finds it; the rest is its body. Its header says of it what a gateway must know that
only counts and waits.
"""

import asyncio
import json
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from groundwatch.errors import UNDECODED
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.runtime.delivery.overwriting import overwrite
from groundwatch.runtime.delivery.streams import Read, last_message, read_stream
from groundwatch.topology import HALVES_BUCKET, HEADER_HALF

STREAM = f"KV_{HALVES_BUCKET}"
SUBJECTS = f"$KV.{HALVES_BUCKET}"

ENDED = "ended"
"""The part that stays of a call that was joined: a half that comes again is no half of another call."""

MOST_MARKS = 100_000
"""Calls that have ended and are remembered; each takes about 300 bytes."""

OVERHEAD = 2_048
"""Bytes that each half counts for besides its own: every gateway remembers it."""

AGAIN_SECONDS = 30.0
"""After which everything is read again where other gateways have removed halves."""

NEWS_SECONDS = 0.05
"""So old is at most what is known where a tenant comes near to what it may hold."""

ROOM_SECONDS, ROOM_SHARE = 1.0, 0.1
"""After which everything is read again before a half is refused, for no more than this share of the time."""


class Head(msgspec.Struct, frozen=True):
    """The first line of a half. `id` is what its call is called where it cannot be read."""

    tenant: str
    id: str
    tags: dict[str, str] = {}


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """The part `part` of the call `key`. `holds` are the sides of the call that are in it."""

    key: str
    part: str
    head: Head
    holds: tuple[str, ...] = ()
    body: bytes = b""

    @property
    def payload(self) -> bytes:
        return msgspec.json.encode(self.head) + b"\n" + self.body

    @property
    def size(self) -> int:
        return len(self.body) + OVERHEAD


class Label(msgspec.Struct, frozen=True, array_like=True):
    """What the header of a half says."""

    tenant: str = ""
    holds: tuple[str, ...] = ()
    size: int = 0


class Waiting(msgspec.Struct, frozen=True):
    """A half that is stored; `at` is when, in seconds since the epoch. `sequence` 0: not known yet."""

    label: Label
    at: float
    sequence: int = 0


class Mark(NamedTuple):
    """When a call ended, in seconds since the epoch; `sequence` 0: only this gateway knows."""

    at: float
    sequence: int


class Call:
    """The halves of one call that are there. Before `again` nobody need try once more to join them."""

    __slots__ = ("again", "family", "key", "parts", "tenant", "tries")

    def __init__(self, family: str, key: str, tenant: str) -> None:
        self.family = family
        self.key = key
        self.tenant = tenant
        self.parts: dict[str, Waiting] = {}
        self.tries = 0
        self.again = 0.0

    @property
    def holds(self) -> frozenset[str]:
        return frozenset(side for part in self.parts.values() for side in part.label.holds)

    @property
    def size(self) -> int:
        return sum(part.label.size for part in self.parts.values())

    @property
    def first(self) -> float:
        return min(part.at for part in self.parts.values())

    @property
    def last(self) -> float:
        return max(part.at for part in self.parts.values())


class Halves:
    """The bucket, and what this gateway knows of it. What is called raises what NATS raises."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.calls: dict[tuple[str, str], Call] = {}
        self.ended: OrderedDict[tuple[str, str], Mark] = OrderedDict()
        self._held: Counter[str] = Counter()
        self._capacity = 0
        self._position = -1
        self._created: datetime | None = None
        self._looked_at = self._read_at = self._rest_until = 0.0
        self._reading = asyncio.Lock()

    async def put(self, family: str, half: Half) -> Stored:
        """Raises `InputError` for what is too large, `TransientError` where it may be stored later."""
        label = Label(half.head.tenant, half.holds, half.size)
        # Only ASCII may stand in a header.
        header = json.dumps(msgspec.to_builtins(label))
        stored = await self._bus.create(
            Outgoing(
                subject=_subject(family, half.key, half.part),
                payload=half.payload,
                headers={HEADER_HALF: header},
            )
        )
        self._add(family, half.key, half.part, Waiting(label, time.time()))
        return stored

    def end(self, family: str, key: str) -> None:
        """A call has ended that was recorded as it came: what is logged of it besides is no half of one."""
        self.ended.setdefault((family, key), Mark(time.time(), 0))
        if len(self.ended) > MOST_MARKS:
            self.ended.popitem(last=False)

    async def get(self, family: str, key: str, part: str) -> Read | None:
        return await last_message(self._bus.js, STREAM, _subject(family, key, part))

    async def forget_ended(self, family: str, before: float) -> None:
        """Remove the marks of calls of this family that ended before that time."""
        old: dict[tuple[str, str], Mark] = {}
        for name, mark in self.ended.items():
            if mark.at >= before:
                break
            if name[0] == family:
                old[name] = mark
        await overwrite(self._bus.js, STREAM, [mark.sequence for mark in old.values() if mark.sequence])
        for name in old:
            self.ended.pop(name, None)

    async def remove(self, call: Call, parts: Iterable[str], sequences: Iterable[int]) -> int:
        """Remove parts of a call with their bytes; how many were there: of several gateways one removes
        it."""
        removed = await overwrite(self._bus.js, STREAM, sequences)
        for part in parts:
            self.forget(call, part)
        return removed

    def forget(self, call: Call, part: str) -> None:
        """A part is not there any more."""
        waiting = call.parts.pop(part, None)
        if waiting is not None:
            self._held[call.tenant] -= waiting.label.size
        if not call.parts and self.calls.get((call.family, call.key)) is call:
            del self.calls[call.family, call.key]

    def crowded(self, tenant: str, size: int = 0) -> bool:
        """Whether a tenant holds half of what it may, with so much more."""
        held = self._held[tenant] + size
        return 2 * held > self._most(tenant)

    def _most(self, tenant: str) -> float:
        """What a tenant may hold: never more than is free then, so that however many fill what they may, the
        next one finds room."""
        return (self._capacity - self._held.total() + self._held[tenant]) / 2 if self._capacity else math.inf

    async def room(self, tenant: str, size: int) -> bool:
        """Whether a tenant may keep so much more."""
        now = time.monotonic()
        if self._position < 0 or (self.crowded(tenant, size) and now - self._looked_at > NEWS_SECONDS):
            await self.refresh()
        if self._held[tenant] + size > self._most(tenant) and now > self._rest_until:
            await self.refresh(anew=True)
        return self._held[tenant] + size <= self._most(tenant)

    async def refresh(self, *, anew: bool = False) -> None:
        """Read what has come since; everything, where others have removed something or `anew`."""
        async with self._reading:
            info = await self._bus.js.stream_info(STREAM)
            state = info.state
            self._capacity = max(0, info.config.max_bytes or 0)
            if info.created != self._created or state.last_seq < self._position:
                anew = True
            elif state.last_seq > self._position:
                await self._read(self._position + 1, state.last_seq)
            marks = sum(mark.sequence > 0 for mark in self.ended.values())
            known = sum(len(call.parts) for call in self.calls.values()) + marks
            if anew or (known > state.messages and time.monotonic() - self._read_at > AGAIN_SECONDS):
                await self._read_all(state.last_seq)
            self._position, self._created = state.last_seq, info.created
            self._looked_at = time.monotonic()

    async def _read_all(self, last: int) -> None:
        before, self.calls, self._held = self.calls, {}, Counter()
        for name in [name for name, mark in self.ended.items() if mark.sequence]:
            del self.ended[name]
        self._read_at = time.monotonic()
        await self._read(1, last)
        now = time.monotonic()
        self._rest_until = now + max(ROOM_SECONDS, (now - self._read_at) / ROOM_SHARE)
        for name, call in self.calls.items():
            if name in before:
                call.tries, call.again = before[name].tries, before[name].again

    async def _read(self, first: int, last: int) -> None:
        reading = read_stream(
            self._bus.js,
            STREAM,
            subjects=(f"{SUBJECTS}.>",),
            headers_only=True,
            start_sequence=first,
            last_sequence=last,
        )
        async for read in reading:
            family, _, rest = read.subject.removeprefix(f"{SUBJECTS}.").partition(".")
            key, _, part = rest.partition(".")
            try:
                label = msgspec.json.decode(read.headers.get(HEADER_HALF, ""), type=Label)
            except UNDECODED:
                label = Label(size=OVERHEAD)
            self._add(family, key, part, Waiting(label, read.time, read.sequence))

    def _add(self, family: str, key: str, part: str, waiting: Waiting) -> None:
        if part == ENDED:
            self.ended[family, key] = Mark(waiting.at, waiting.sequence)
            return
        call = self.calls.get((family, key))
        if call is None:
            call = self.calls[family, key] = Call(family, key, waiting.label.tenant)
        if part not in call.parts:
            self._held[call.tenant] += waiting.label.size
            call.again = 0.0 if not call.tries else call.again
        if waiting.sequence or part not in call.parts:
            call.parts[part] = waiting


def head_of(read: Read) -> Head:
    return msgspec.json.decode(read.data.partition(b"\n")[0], type=Head)


def body_of(read: Read) -> bytes:
    return read.data.partition(b"\n")[2]


def _subject(family: str, key: str, part: str) -> str:
    return f"{SUBJECTS}.{family}.{key}.{part}"
