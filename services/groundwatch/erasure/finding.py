"""Where a subject's events lie: in every stream, in all runs, dead letters and alarms among them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Container, Iterable
from typing import TYPE_CHECKING

import msgspec

from groundwatch.erasure.subject import Subject, owner_key, tenant_of
from groundwatch.errors import UNDECODED
from groundwatch.events import AlarmRaised, response_key
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.topology import (
    ALARMS,
    ASKED,
    CHANNELS,
    CONSUMERS,
    DEAD,
    EXTRACTED,
    JUDGED,
    OUTCOMES,
    PREFIX,
    RESPONSES,
    RETRY,
)

if TYPE_CHECKING:
    from nats.js import JetStreamContext

OF_A_KEY = {
    RESPONSES: (f"{PREFIX}.recorded.*.{{}}",),
    ASKED: (f"{PREFIX}.asked.*.*.{{}}", f"{PREFIX}.chain.*.*.*.{{}}.*"),
    EXTRACTED: (f"{PREFIX}.extracted.*.*.*.{{}}",),
    JUDGED: (f"{PREFIX}.judged.*.*.*.{{}}",),
    OUTCOMES: (f"{PREFIX}.outcome.*.*.{{}}",),
}
"""Subjects of a response, by stream."""

NAMING_IMAGES = (RESPONSES, ASKED, EXTRACTED, JUDGED, DEAD, RETRY)

_IMAGES = re.compile(rb'"images":\[((?:"[0-9a-f]{64}",?)+)\]|"image":"([0-9a-f]{64})"')


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the subject. `key` is its response's."""

    stream: str
    sequence: int
    subject: str
    key: str
    data: bytes


async def find(js: JetStreamContext, subject: Subject) -> list[Found]:
    """Every message of a response. Raises what NATS raises."""
    found = []
    for stream, patterns in OF_A_KEY.items():
        for pattern in patterns:
            async for read in read_stream(js, stream, subjects=(pattern.format(subject.key),)):
                found.append(_found(stream, read, subject.key))
    async for one in _letters_and_alarms(js, frozenset({subject.key})):
        found.append(one)
    return found


async def find_tenant(js: JetStreamContext, tenant: str) -> AsyncIterator[Found]:
    """Every message of a tenant, of all that there are. Raises what NATS raises."""
    keys: set[str] = set()
    for stream in OF_A_KEY:
        for subjects in channels_of(stream):
            async for read in read_stream(js, stream, subjects=(subjects,)):
                key = owner_key(read.subject, read.headers)
                if key in keys or tenant_of(read.data) == tenant:
                    keys.add(key)
                    yield _found(stream, read, key)
    async for one in _letters_and_alarms(js, keys, tenant):
        yield one


async def _letters_and_alarms(
    js: JetStreamContext, keys: Iterable[str], tenant: str | None = None
) -> AsyncIterator[Found]:
    for stream in (DEAD, RETRY):
        for subjects in channels_of(stream):
            async for read in read_stream(js, stream, subjects=(subjects,)):
                key = owner_key(read.subject, read.headers)
                if key in keys or (tenant is not None and tenant_of(read.data) == tenant):
                    yield _found(stream, read, key)
    for subjects in channels_of(ALARMS):
        async for read in read_stream(js, ALARMS, subjects=(subjects,)):
            try:
                alarm = msgspec.json.decode(read.data, type=AlarmRaised)
            except UNDECODED:
                continue
            key = response_key(alarm.tenant, alarm.response_id)
            if key in keys or (tenant is not None and alarm.tenant == tenant):
                yield _found(ALARMS, read, key)


def images_in(data: bytes) -> set[str]:
    """Every image that an event names."""
    found = set()
    for several, one in _IMAGES.findall(data):
        found |= {each.strip(b'"').decode() for each in several.split(b",") if each} | (
            {one.decode()} if one else set()
        )
    return found


async def still_named(
    js: JetStreamContext, images: Iterable[str], without: Container[tuple[str, int]]
) -> set[str]:
    """Those of these images that an event names, `without` those of a stream and sequence."""
    wanted, named = set(images), set[str]()
    for stream in NAMING_IMAGES if wanted else ():
        for subjects in channels_of(stream):
            async for read in read_stream(js, stream, subjects=(subjects,)):
                if (stream, read.sequence) not in without:
                    named |= wanted & images_in(read.data)
    return named


async def held(js: JetStreamContext, several: Iterable[Found]) -> list[Found]:
    """Those that a stage has been given and has not let go of: it may yet publish something of them."""
    by_stream: dict[str, list[Found]] = {}
    for one in several:
        by_stream.setdefault(one.stream, []).append(one)
    found: dict[tuple[str, int], Found] = {}
    for spec in CONSUMERS:
        mine = [
            one
            for one in by_stream.get(spec.stream, ())
            if any(selects(pattern, one.subject) for pattern in spec.filters)
        ]
        if not mine:
            continue
        info = await js.consumer_info(spec.stream, spec.name)
        if not info.num_ack_pending:
            continue
        floor = info.ack_floor.stream_seq if info.ack_floor else 0
        given = info.delivered.stream_seq if info.delivered else 0
        found |= {(one.stream, one.sequence): one for one in mine if floor < one.sequence <= given}
    return list(found.values())


def selects(pattern: str, subject: str) -> bool:
    """Whether a consumer's filter lets a subject through."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1] if len(tokens) >= len(wanted) else [""]
    return len(wanted) == len(tokens) and all(
        one in ("*", token) for one, token in zip(wanted, tokens, strict=True)
    )


def channels_of(stream: str) -> list[str]:
    """One filter for each family of subjects: what the rights are made of."""
    return [f"{one.address.partition('{')[0]}>" for one in CHANNELS if one.stream == stream]


def _found(stream: str, read: Read, key: str) -> Found:
    return Found(stream=stream, sequence=read.sequence, subject=read.subject, key=key, data=read.data)
