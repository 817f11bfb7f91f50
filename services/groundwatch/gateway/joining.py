"""Calls that are logged in halves, joined when all of them are there, whoever logged them.

A half that was acknowledged ends in one of two ways: its call is recorded; or, where halves of it never came
or it cannot be recorded as it is, it is recorded as declined with the reason, so that the ledger has it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import chain, zip_longest

import msgspec

from groundwatch.conversations.conversation import Conversation, Unreadable
from groundwatch.errors import UNDECODED, InputError, TransientError
from groundwatch.events import ResponseRecorded
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.halves import ENDED, Call, Half, Halves, Head, body_of, head_of
from groundwatch.gateway.intake.admission import HALVES
from groundwatch.gateway.intake.logged import Source
from groundwatch.gateway.intake.results import Recorded, bounded
from groundwatch.gateway.refusals import RETRY_AFTER, Refused
from groundwatch.runtime.delivery.bus import Stored
from groundwatch.runtime.delivery.streams import FAULTS, Read
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger

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

    async def keep(self, family: Family, half: Half) -> Stored | Refused:
        """Store a half; `EXISTED` also where its call has ended already."""
        head, source = half.head, family.source
        erasable = ResponseRecorded(id=head.id, tenant=head.tenant, model="", answer="")
        if gone := self._core.intake.gone(erasable):
            return gone
        call = self._halves.calls.get((source, half.key))
        if (source, half.key) in self._halves.ended:
            self._core.logged.count(source, "duplicate")
            return Stored.EXISTED
        try:
            async with bounded():
                new = call is None or half.part not in call.parts
                if new and (refused := await self._no_room(family, half, call)):
                    return refused.but(id=head.id)
                return await self._halves.put(source, half)
        except InputError as error:
            return Refused(id=head.id, reason="too_large", message=str(error))
        except (TransientError, *FAULTS) as error:
            return Refused(id=head.id, reason="unavailable", message=f"not kept: {error}")

    async def _no_room(self, family: Family, half: Half, call: Call | None) -> Refused | None:
        tenant, most = half.head.tenant, 2 * self._core.bounds.line
        if call is not None and (len(call.parts) >= MOST_PARTS or call.size + half.size > most):
            message = f"a call is logged in at most {MOST_PARTS} parts and {most} bytes"
            return Refused(reason="too_large", message=message)
        if not await self._halves.room(tenant, half.size):
            message = f"calls of tenant '{tenant}' that wait for their other halves fill what it may hold"
            return Refused(
                reason="rate_limited", message=f"{message}: send it again later", after=RETRY_AFTER
            )
        if call is None and family.rated:
            return self._core.admission.admit(tenant, HALVES)
        return None

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
            return await self._join(family, key, parts)

    async def _join(self, family: Family, key: str, parts: Iterable[str]) -> Recorded | Refused | None:
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
        logged = await self._read(family, call, head, {part: body_of(read) for part, read in reads.items()})
        if logged is None:
            return None
        caller = Caller(only=head.tenant)
        try:
            ended = await family.record(logged, caller, head.id)
        except (TransientError, *FAULTS):
            raise
        except Exception as error:
            logger.error("gateway.bug", key=key, error=repr(error), exc_info=True)
            broken = Unreadable("unreadable", f"it cannot be recorded ({error!r})", head.id)
            ended = await family.record(broken, caller, head.id)
        if isinstance(ended, Refused) and ended.passing:
            return ended
        if family.remembered:
            await self._halves.put(family.source, Half(key=key, part=ENDED, head=head))
        await self._halves.remove(call, reads, [read.sequence for read in reads.values()])
        return ended

    async def _read(
        self, family: Family, call: Call, head: Head, bodies: Mapping[str, bytes]
    ) -> Conversation | Unreadable | None:
        """The call that halves are of; None where that takes too long and is to be tried once more."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await asyncio.to_thread(family.read, head, bodies)
        except TimeoutError:
            call.tries += 1
            call.again = time.time() + call.tries * AGAIN_SECONDS
            logger.warning("gateway.joining", key=call.key, tenant=head.tenant, tries=call.tries)
            if call.tries < TRIES:
                return None
            message = f"{TRIES} times its halves could not be read within {READ_SECONDS:g} s"
            return Unreadable("unreadable", message, head.id)
        except Exception as error:
            # Else these would keep all others from being joined, for ever.
            logger.error("gateway.bug", key=call.key, error=repr(error), exc_info=True)
            return Unreadable("unreadable", f"its halves cannot be read ({error!r})", head.id)

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
            if self._core.admission.refusal(call.tenant):
                return False
            ended = await self.join(self._families[call.family], call.key, list(call.parts))
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
