"""Calls that are logged in halves, kept in NATS and joined when all of them are there, whoever logged them.

Halves lie in a bucket before they are acknowledged, since those of a call may come to different gateways, in
any order, with a crash in between. Each is stored before anybody looks for the others, and joining them
twice adds nothing: both times the call has the same id. A half is the message
`$KV.gw-halves.<family>.<key>.<part>`. Its first line is a JSON object that names its tenant, so that an
erasure finds it; the rest is its body. Its header says of it what a gateway must know that only counts and
waits.

A half that was acknowledged ends in one of two ways: its call is recorded; or, where halves of it never came
or it cannot be recorded as it is, it is recorded as declined with the reason, so that the ledger has it.
"""

import asyncio
import json
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from itertools import chain, zip_longest
from typing import NamedTuple

import msgspec

from groundwatch.conversations.conversation import Conversation, Unreadable
from groundwatch.errors import UNDECODED, InputError, TransientError, words
from groundwatch.events import ResponseRecorded
from groundwatch.gateway.auth import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.intake.admission import HALVES
from groundwatch.gateway.intake.logged import Source
from groundwatch.gateway.refusals import RETRY_AFTER, Recorded, Refused, bounded
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.runtime.delivery.direct import overwrite
from groundwatch.runtime.delivery.streams import FAULTS, Read, last_message, read_stream
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import HALVES_BUCKET, HEADER_HALF

STREAM = f"KV_{HALVES_BUCKET}"
SUBJECTS = f"$KV.{HALVES_BUCKET}"

ENDED = "ended"
"""The part that stays of a call that was joined: a half that comes again is no half of another call."""

MOST_MARKS = 100_000
"""Calls that have ended and are remembered; each takes about 300 bytes."""

OVERHEAD = 2_048
"""Bytes that each half counts for besides its own: every gateway remembers it."""

REREAD_SECONDS = 30.0
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


class Call(msgspec.Struct):
    """The halves of one call that are there. Before `again` nobody need try once more to join them."""

    family: str
    key: str
    tenant: str
    parts: dict[str, Waiting] = {}
    tries: int = 0
    again: float = 0.0

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
            if anew or (known > state.messages and time.monotonic() - self._read_at > REREAD_SECONDS):
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


LOOK_SECONDS = 2.0
MOST_SECONDS = 5.0
"""After which what is due is counted anew: else who has thousands of calls would hold up all that come."""

AT_ONCE = 8
"""Calls that are joined at once: the halves of each are in memory."""

BEHIND = 4
"""Of these, by nobody who waits."""

READ_SECONDS = 20.0
TRIES = 3
"""So often a call is read that takes longer, then it is declined."""

AGAIN_SECONDS = 10.0
MOST_PARTS = 256

GRACE_SECONDS = 60.0
"""Halves that are missing when a gateway starts, or finds NATS again, have so long at the least: their
senders try again, each time later."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """How the calls of one source are joined.

    A call is joined `wait` seconds after the last of its halves when they are the `whole` of it, by the sides
    that they hold; else it ends `timeout` seconds after the first, or after `crowded` where its tenant holds
    much. `read` makes the call of the bodies of its halves, in a thread, whether they are all there or not.
    `record` records it. `rated`: a new call is refused when its tenant is beyond its rate, since who sends it
    sends it again. With `remembered` a repeat of a half is known for `timeout` after the call has ended.
    """

    source: Source
    whole: Callable[[frozenset[str]], bool]
    read: Callable[[Head, Mapping[str, bytes]], Conversation | Unreadable]
    record: Callable[[Conversation | Unreadable, Caller, str], Awaitable[Recorded | Refused]]
    wait: float
    timeout: float
    crowded: float
    rated: bool = False
    remembered: bool = False


def _read(family: Family, head: Head, bodies: Mapping[str, bytes]) -> Conversation | Unreadable:
    """The call, or that its halves cannot be read: no error of theirs passes, as one of NATS does."""
    try:
        return family.read(head, bodies)
    except Exception as error:
        logger.error("gateway.bug", call=head.id, error=repr(error), exc_info=True)
        return Unreadable("unreadable", f"its halves cannot be read ({words(error)})", head.id)


class Joiner(SupervisedTask):
    """Keeps halves and joins them, in the background also those that nobody came to join."""

    def __init__(self, core: GatewayCore) -> None:
        super().__init__("gateway-joining", self._watch)
        self._core = core
        self._halves = Halves(core.bus)
        self._families: dict[str, Family] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._since = 0.0

    def add(self, family: Family) -> Family:
        self._families[family.source] = family
        return family

    async def keep(self, family: Family, half: Half) -> Stored:
        """Store a half; `EXISTED` also where its call has ended already. Raises `Refused`."""
        head, source = half.head, family.source
        erasable = ResponseRecorded(id=head.id, tenant=head.tenant, model="", answer="")
        self._core.intake.check_erased(erasable)
        call = self._halves.calls.get((source, half.key))
        if (source, half.key) in self._halves.ended:
            self._core.logged.count(source, "duplicate")
            return Stored.EXISTED
        try:
            async with bounded():
                new = call is None or half.part not in call.parts
                if new:
                    await self._check_room(family, half, call)
                return await self._halves.put(source, half)
        except InputError as error:
            raise Refused("too_large", str(error), id=head.id) from error
        except (TransientError, *FAULTS) as error:
            raise Refused("unavailable", f"not kept: {error}", id=head.id) from error

    async def _check_room(self, family: Family, half: Half, call: Call | None) -> None:
        tenant, most, name = half.head.tenant, 2 * self._core.bounds.line, half.head.id
        if call is not None and (len(call.parts) >= MOST_PARTS or call.size + half.size > most):
            message = f"a call is logged in at most {MOST_PARTS} parts and {most} bytes"
            raise Refused("too_large", message, id=name)
        if not await self._halves.room(tenant, half.size):
            message = f"calls of tenant '{tenant}' that wait for their other halves fill what it may hold"
            raise Refused("rate_limited", f"{message}: send it again later", id=name, after=RETRY_AFTER)
        if call is None and family.rated:
            self._core.admission.admit(tenant, HALVES, id=name)

    def end(self, family: Family, key: str) -> None:
        """A call that needs no joining was recorded: what else is logged of it is a repeat."""
        self._halves.end(family.source, key)

    async def there(self, family: Family, key: str, part: str) -> bytes | None:
        """The body of a half that is stored."""
        read = await self._halves.get(family.source, key, part)
        return body_of(read) if read is not None else None

    async def join(self, family: Family, key: str, parts: Iterable[str]) -> Recorded | Refused | None:
        """Record the call of these halves and let go of them, unless it may be recorded later. None where one
        of them is not there, or where reading them takes too long and is tried again.

        Raises `TransientError` and what NATS raises.
        """
        async with self._turns:
            call = self._halves.calls.get((family.source, key)) or Call(family.source, key, "")
            reads: dict[str, Read] = {}
            for part in parts:
                read = await self._halves.get(family.source, key, part)
                if read is None:
                    self._halves.forget(call, part)
                    return None
                reads[part] = read
            if not reads:
                return None
            try:
                head = head_of(next(iter(reads.values())))
            except UNDECODED:
                head = Head(call.tenant or "default", key)
            ended = await self._record(family, call, head, reads)
            if ended is None or (isinstance(ended, Refused) and ended.passing):
                return ended
            if family.remembered:
                await self._halves.put(family.source, Half(key=key, part=ENDED, head=head))
            await self._halves.remove(call, reads, [read.sequence for read in reads.values()])
            return ended

    async def _record(
        self, family: Family, call: Call, head: Head, reads: Mapping[str, Read]
    ) -> Recorded | Refused | None:
        """Record the call that halves are of, as one that cannot be read where that is so; None where reading
        takes too long and is to be tried once more."""
        caller = Caller(only=head.tenant)
        bodies = {part: body_of(read) for part, read in reads.items()}
        try:
            async with asyncio.timeout(READ_SECONDS) as reading:
                logged = await asyncio.to_thread(_read, family, head, bodies)
                reading.reschedule(None)
                return await family.record(logged, caller, head.id)
        except Exception as error:
            if not reading.expired() and isinstance(error, (TransientError, *FAULTS)):
                raise
            why = f"it cannot be recorded ({words(error)})"
            if not reading.expired():
                # Else these would keep all others from being joined, for ever.
                logger.error("gateway.bug", key=call.key, error=repr(error), exc_info=True)
            else:
                call.tries += 1
                call.again = time.time() + call.tries * AGAIN_SECONDS
                logger.warning("gateway.joining", key=call.key, tenant=head.tenant, tries=call.tries)
                if call.tries < TRIES:
                    return None
                why = f"{TRIES} times its halves could not be read within {READ_SECONDS:g} s"
        return await family.record(Unreadable("unreadable", why, head.id), caller, head.id)

    async def _watch(self) -> None:
        self._since = time.time()
        pauses = [LOOK_SECONDS]
        for family in self._families.values():
            pauses += [family.wait / 4] if family.wait else [family.timeout / 4]
        while True:
            await asyncio.sleep(min(pauses))
            await self.look()

    async def look(self) -> None:
        """Join what is due. Raises what NATS raises."""
        await self._halves.refresh()
        due: dict[str, list[Call]] = {}
        now = time.time()
        for call in list(self._halves.calls.values()):
            family = self._families.get(call.family)
            if family is None or not call.parts:
                continue
            if (mark := self._halves.ended.get((call.family, call.key))) is not None:
                await self._tidy(call, mark.at)
            elif call.again <= now:
                if (at := self._due_at(family, call)) <= now:
                    due.setdefault(call.tenant, []).append(call)
                else:
                    call.again = min(at, now + AGAIN_SECONDS)
        for family in self._families.values():
            await self._halves.forget_ended(family.source, now - family.timeout)
        # A call of each tenant in turn.
        queue = deque(call for call in chain.from_iterable(zip_longest(*due.values())) if call is not None)
        held_up: set[str] = set()

        async def work() -> None:
            while queue and time.time() < now + MOST_SECONDS and not self._core.backlog.refusal():
                call = queue.popleft()
                if call.tenant not in held_up and not await self._attempt(call):
                    held_up.add(call.tenant)

        async with asyncio.TaskGroup() as group:
            for _ in range(BEHIND):
                group.create_task(work())

    def _due_at(self, family: Family, call: Call) -> float:
        if family.whole(call.holds):
            return call.last + family.wait
        timeout = family.crowded if self._halves.crowded(call.tenant) else family.timeout
        grace = min(family.timeout, GRACE_SECONDS)
        return max(call.first + timeout, call.last + family.wait, self._since + grace)

    async def _attempt(self, call: Call) -> bool:
        """Whether others of its tenant may be tried: it was not held up by what holds up them all."""
        try:
            self._core.admission.check(call.tenant)
            ended = await self.join(self._families[call.family], call.key, list(call.parts))
        except Refused:
            return False
        except (TransientError, *FAULTS) as error:
            call.again = time.time() + AGAIN_SECONDS
            logger.warning("gateway.joining", key=call.key, tenant=call.tenant, error=repr(error))
            return False
        except Exception as error:
            logger.error("gateway.bug", key=call.key, error=repr(error), exc_info=True)
            call.tries += 1
            call.again = time.time() + AGAIN_SECONDS * call.tries
            return True
        return not (isinstance(ended, Refused) and ended.passing)

    async def _tidy(self, call: Call, ended: float) -> None:
        """Remove what is there of a call that has ended."""
        for part, waiting in list(call.parts.items()):
            if not waiting.sequence:
                continue
            removed = await self._halves.remove(call, [part], [waiting.sequence])
            if removed and waiting.at > ended:
                self._core.logged.count(self._families[call.family].source, "duplicate")
