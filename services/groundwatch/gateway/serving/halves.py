"""Requests and responses that are logged apart, kept until both are there."""

import asyncio
import time

import msgspec

from groundwatch.conversations.conversation import Conversation
from groundwatch.conversations.openai import read_exchange
from groundwatch.errors import InputError, TransientError
from groundwatch.events import ResponseRecorded
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.halves import HalvesBucket, head_and_body
from groundwatch.gateway.intake.results import Recorded, Refused, bounded
from groundwatch.gateway.serving.events import OTHER, Half
from groundwatch.keys import response_key
from groundwatch.runtime.delivery.bus import Stored
from groundwatch.runtime.delivery.streams import FAULTS, Read
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger

LOOK_SECONDS = 15.0


class Kept(msgspec.Struct, frozen=True):
    """What stands before the body of a half: one line of JSON."""

    tenant: str
    id: str
    tags: dict[str, str] = {}


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Its other half has not come yet, or both are kept since they cannot be recorded now."""

    id: str
    status: str = "waiting"


Ended = Recorded | Waiting | Refused


class Halves(SupervisedTask):
    """Joins halves, in the background also those that nobody came to join; counts what never completes."""

    def __init__(self, core: GatewayCore) -> None:
        super().__init__("gateway-halves", self._watch)
        self._core = core
        self._bucket = HalvesBucket(core.bus, "kserve")
        self._wait = core.settings.cloud_events.wait
        self._incomplete = dict.fromkeys(OTHER, 0)
        core.telling.append(self._notes)

    async def take(self, half: Half, caller: Caller, tenant: str) -> Ended:
        """Keep a half, and record the call if the other one is there."""
        owner = caller.owner(tenant, half.id)
        if isinstance(owner, Refused):
            return self._refused(owner)
        owner = owner or "default"
        if gone := self._gone(owner, half.id):
            return self._refused(gone)
        key = response_key(owner, half.id)
        try:
            async with bounded():
                if refused := await self._put(key, half, owner):
                    return self._refused(refused)
                return await self._join(key, caller) or Waiting(id=half.id)
        except InputError as error:
            return self._refused(Refused(id=half.id, reason="too_large", message=str(error)))
        except (TransientError, *FAULTS) as error:
            return self._refused(Refused(id=half.id, reason="unavailable", message=f"not kept: {error}"))

    def _gone(self, tenant: str, name: str) -> Refused | None:
        if problem := self._core.erased.problem:
            return Refused(id=name, reason="unavailable", message=f"not kept: {problem}")
        response = ResponseRecorded(id=name, tenant=tenant, model="", answer="")
        if why := self._core.erased.why(response):
            return Refused(id=name, reason="erased", field="id", message=why)
        return None

    def _refused(self, refused: Refused) -> Refused:
        self._core.logged.count("kserve", "refused")
        return self._core.intake.refuse(refused)

    async def _put(self, key: str, half: Half, tenant: str) -> Refused | None:
        head = msgspec.json.encode(Kept(tenant, half.id, half.tags))
        if await self._bucket.put(key, half.side, head, half.body) is Stored.NEW:
            return None
        there = await self._bucket.get(key, half.side)
        if there is None or head_and_body(there)[1] == half.body:
            return None
        message = f"another {half.side} was logged under the id '{half.id}'"
        return Refused(id=half.id, reason="conflict", field="ce-id", message=message)

    async def _join(self, key: str, caller: Caller) -> Ended | None:
        """Record the call if both halves are there, and let go of them unless they are to be tried again."""
        request, response = await asyncio.gather(
            self._bucket.get(key, "request"), self._bucket.get(key, "response")
        )
        if request is None or response is None:
            return None
        head, asked = _parts(request)
        call = read_exchange(asked, _parts(response)[1], id=head.id)
        if isinstance(call, Conversation):
            call = msgspec.structs.replace(call, tags=head.tags | call.tags, library="kserve")
        mine = msgspec.structs.replace(caller, only=head.tenant)
        ended = await self._core.logged.record(call, mine, "kserve")
        if isinstance(ended, Refused) and ended.passing:
            # They are stored: whoever sent them need not do it again.
            return Waiting(id=head.id)
        for read in (request, response):
            await self._bucket.remove(read.sequence)
        if isinstance(ended, Refused):
            logger.warning("gateway.kserve", id=head.id, tenant=head.tenant, reason=ended.message)
        return ended

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._wait / 4))
            await self.look()

    async def look(self) -> None:
        """Join what is complete, and remove and count what has waited too long. Raises what NATS raises."""
        now = time.time()
        lost = 0
        for key, halves in (await self._bucket.waiting()).items():
            if len(halves) == len(OTHER):
                await self._join_left(key, halves)
                continue
            [(side, read)] = halves.items()
            if read.time < now - self._wait and await self._bucket.remove(read.sequence):
                self._incomplete[side] += 1
                self._core.logged.count("kserve", "incomplete")
                lost += 1
        if lost:
            logger.warning("gateway.halves", incomplete=lost, seconds=self._wait)

    async def _join_left(self, key: str, halves: dict[str, Read]) -> None:
        try:
            async with bounded():
                await self._join(key, Caller())
        except (TransientError, *FAULTS):
            raise
        except Exception as error:
            # Else these two would keep all others from being joined, for ever.
            logger.error("gateway.bug", key=key, error=repr(error), exc_info=True)
            self._core.logged.count("kserve", "unreadable")
            for read in halves.values():
                await self._bucket.remove(read.sequence)

    def _notes(self) -> list[str]:
        return [
            f"{count:,} {side}s that KServe logged had no {OTHER[side]} within {self._wait:g} s: its logger "
            "must have the mode 'all'; what was answered with an error has no response"
            for side, count in self._incomplete.items()
            if count
        ]


def _parts(read: Read) -> tuple[Kept, bytes]:
    head, body = head_and_body(read)
    return msgspec.json.decode(head, type=Kept), body
