"""Requests and responses that KServe logs apart, joined as soon as both are there."""

import re
from collections.abc import Mapping

import msgspec

from groundwatch.conversations.conversation import Conversation, Unreadable
from groundwatch.conversations.openai import read_exchange
from groundwatch.conversations.values import json_of, text_of
from groundwatch.errors import TransientError
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.halves import Half, Head
from groundwatch.gateway.intake.logged import INCOMPLETE
from groundwatch.gateway.intake.results import Recorded, bounded
from groundwatch.gateway.joining import Family, Joiner
from groundwatch.gateway.refusals import Refused
from groundwatch.gateway.serving.events import OTHER, Event
from groundwatch.keys import response_key
from groundwatch.runtime.delivery.bus import Stored
from groundwatch.runtime.delivery.streams import FAULTS

_IMAGE = re.compile(rb'"data:[^"\\]{4096,}+"')
_PLACEHOLDER = b'"groundwatch:image_too_large"'


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Its other half has not come yet, or both are kept since they cannot be recorded now."""

    id: str
    status: str = "waiting"


Ended = Recorded | Waiting | Refused


class Exchanges:
    """Takes requests and responses; says which of them never had the other."""

    def __init__(self, core: GatewayCore, joiner: Joiner) -> None:
        self._core = core
        self._joiner = joiner
        self._wait = core.settings.cloud_events.wait
        self._incomplete = dict.fromkeys(OTHER, 0)
        self._family = joiner.add(
            Family(
                source="kserve",
                whole=_is_whole,
                read=_read,
                record=self._record,
                wait=0.0,
                timeout=self._wait,
                crowded=self._wait,
            )
        )
        core.telling.append(self._notes)

    async def take(self, event: Event, caller: Caller, tenant: str) -> Ended:
        """Keep a half, and record the call if the other one is there."""
        owner = caller.owner(tenant, event.id)
        if isinstance(owner, Refused):
            return self._refused(owner)
        owner = owner or "default"
        half = Half(
            key=response_key(owner, event.id),
            part=event.side,
            head=Head(owner, event.id, event.tags),
            holds=(event.side,),
            body=event.body,
        )
        if len(half.body) > self._core.bounds.line:
            half = _without_images(half)
        stored = await self._joiner.keep(self._family, half)
        if isinstance(stored, Refused) and stored.reason == "too_large":
            # More than a message of NATS holds: the rest is recorded, and says what it lacks.
            half = _without_images(half)
            stored = await self._joiner.keep(self._family, half)
        if isinstance(stored, Refused):
            return self._refused(stored)
        try:
            async with bounded():
                if stored is Stored.EXISTED and await self._is_another(half):
                    message = f"another {event.side} was logged under the id '{event.id}'"
                    return self._refused(
                        Refused(id=event.id, reason="conflict", field="ce-id", message=message)
                    )
                ended = await self._joiner.join(self._family, half.key, OTHER)
        except (TransientError, *FAULTS):
            ended = None
        # They are stored: whoever sent them need not do it again.
        if ended is None or (isinstance(ended, Refused) and ended.passing):
            return Waiting(id=event.id)
        return ended

    async def _is_another(self, half: Half) -> bool:
        there = await self._joiner.there(self._family, half.key, half.part)
        return there is not None and there != half.body

    def _refused(self, refused: Refused) -> Refused:
        self._core.logged.count("kserve", "refused")
        return self._core.intake.refuse(refused)

    async def _record(self, call: Conversation | Unreadable, caller: Caller, name: str) -> Recorded | Refused:
        ended = await self._core.logged.record_acknowledged(call, caller, "kserve", name=name)
        lost = isinstance(ended, Refused) and not ended.passing
        if lost and isinstance(call, Unreadable) and call.reason in INCOMPLETE:
            self._incomplete[OTHER[call.reason.removeprefix("no_")]] += 1
        return ended

    def _notes(self) -> list[str]:
        return [
            f"{count:,} {side}s that KServe logged had no {OTHER[side]} within {self._wait:g} s: its logger "
            "must have the mode 'all'; what was answered with an error has no response"
            for side, count in self._incomplete.items()
            if count
        ]


def _without_images(half: Half) -> Half:
    """With a placeholder for each image that stands in it."""
    return msgspec.structs.replace(half, body=_IMAGE.sub(_PLACEHOLDER, half.body))


def _is_whole(sides: frozenset[str]) -> bool:
    return len(sides) == len(OTHER)


def _read(head: Head, bodies: Mapping[str, bytes]) -> Conversation | Unreadable:
    if len(bodies) < len(OTHER):
        [(side, body)] = bodies.items()
        held = json_of(body)
        model = text_of(held.get("model")) if isinstance(held, dict) else ""
        missing = OTHER[side]
        return Unreadable(f"no_{missing}", f"the {missing} to this {side} was not logged", head.id, model)
    call = read_exchange(bodies["request"], bodies["response"], id=head.id)
    if isinstance(call, Unreadable):
        return call
    return msgspec.structs.replace(call, tags=head.tags | call.tags, library="kserve")
