"""What is to be erased (a response, all of a tenant, or an image), and where its events lie: in every stream,
in all runs, dead letters and alarms among them."""

import re
from collections.abc import AsyncIterator, Container, Iterable, Mapping
from typing import Any

import msgspec
from nats.js import JetStreamContext

from groundwatch import topology
from groundwatch.errors import UNDECODED, UsageError
from groundwatch.events import AlarmRaised, response_key
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.runtime.security.connecting import covers
from groundwatch.runtime.stores.tombstones import Kind, tombstone_name

OF_A_KEY = {
    topology.RESPONSES: (f"{topology.PREFIX}.recorded.*.{{}}",),
    topology.ASKED: (f"{topology.PREFIX}.asked.*.*.{{}}", f"{topology.PREFIX}.chain.*.*.*.{{}}.*"),
    topology.EXTRACTED: (f"{topology.PREFIX}.extracted.*.*.*.{{}}",),
    topology.JUDGED: (f"{topology.PREFIX}.judged.*.*.*.{{}}",),
    topology.OUTCOMES: (f"{topology.PREFIX}.outcome.*.*.{{}}",),
}
"""Subjects of a response, by stream."""

NAMING_IMAGES = (*(OF_A_KEY.keys() - {topology.OUTCOMES}), topology.DEAD, topology.RETRY)

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_NESTED = ("response", "extracted")
_DEFAULT_TENANT = "default"
_IMAGES = re.compile(rb'"images":\[((?:"[0-9a-f]{64}",?)+)\]|"image":"([0-9a-f]{64})"')


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whose data goes. `tenant` belongs to a response as well as to a whole tenant."""

    kind: Kind
    tenant: str = ""
    response: str = ""
    image: str = ""

    @property
    def key(self) -> str:
        """A response's name inside subjects."""
        return response_key(self.tenant, self.response)

    @property
    def name(self) -> str:
        what = {"response": self.key, "tenant": self.tenant, "image": self.image}[self.kind]
        return tombstone_name(self.kind, what)

    def describe(self) -> str:
        match self.kind:
            case "response":
                return f"response '{self.response}' of tenant '{self.tenant}'"
            case "tenant":
                return f"tenant '{self.tenant}'"
        return f"image {self.image}"


def subject(response: str | None, tenant: str | None, image: str | None) -> Subject:
    """What is to be erased. Raises `UsageError`."""
    if image is not None:
        if response is not None or tenant is not None:
            raise UsageError("an image is named alone: it belongs to no tenant", "image")
        if not _SHA256.match(image):
            raise UsageError("an image is named by its SHA-256: 64 hex digits in lower case", "image")
        return Subject(kind="image", image=image)
    if response is not None:
        if not response:
            raise UsageError("a response is named by its id, and this one is empty", "response")
        return Subject(kind="response", response=response, tenant=tenant or _DEFAULT_TENANT)
    if tenant:
        return Subject(kind="tenant", tenant=tenant)
    raise UsageError(
        "say what to erase: a response (with its tenant), a tenant, or an image",
        "response",
        "tenant",
        "image",
    )


def owner_key(subject: str, headers: Mapping[str, str]) -> str:
    """The key of the response that a message is about, by its subject; of a dead letter, by its origin's."""
    address = topology.parse_subject(headers.get(topology.HEADER_ORIGIN) or subject)
    return address.key if address is not None else ""


def tenant_of(data: bytes) -> str | None:
    """The tenant that an event of any kind names; None for bytes that are no event."""
    try:
        found: Any = msgspec.json.decode(data)
    except UNDECODED:
        return None
    while isinstance(found, dict):
        inner = next((found[name] for name in _NESTED if isinstance(found.get(name), dict)), None)
        if inner is None:
            tenant = found.get("tenant", _DEFAULT_TENANT)
            return tenant if isinstance(tenant, str) else None
        found = inner
    return None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the subject. `key` is its response's."""

    stream: str
    sequence: int
    subject: str
    key: str
    data: bytes


async def find(js: JetStreamContext, subject: Subject) -> AsyncIterator[Found]:
    """Every message of a response or of a whole tenant, of all that there are. Raises what NATS raises."""
    keys = {subject.key} if subject.kind == "response" else set[str]()
    tenant = subject.tenant if subject.kind == "tenant" else None
    for stream in (*OF_A_KEY, topology.DEAD, topology.RETRY):
        patterns = OF_A_KEY.get(stream, ()) if tenant is None else ()
        own = [one.format(subject.key) for one in patterns]
        for subjects in own or channels_of(stream):
            async for read in read_stream(js, stream, subjects=(subjects,)):
                key = subject.key if own else owner_key(read.subject, read.headers)
                if key in keys or (tenant is not None and tenant_of(read.data) == tenant):
                    if stream in OF_A_KEY:
                        keys.add(key)
                    yield _found(stream, read, key)
    for subjects in channels_of(topology.ALARMS):
        async for read in read_stream(js, topology.ALARMS, subjects=(subjects,)):
            try:
                alarm = msgspec.json.decode(read.data, type=AlarmRaised)
            except UNDECODED:
                continue
            key = response_key(alarm.tenant, alarm.response_id)
            if key in keys or (tenant is not None and alarm.tenant == tenant):
                yield _found(topology.ALARMS, read, key)


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
    for spec in topology.CONSUMERS:
        mine = [
            one
            for one in by_stream.get(spec.stream, ())
            if any(covers(pattern, one.subject) for pattern in spec.filters)
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


def channels_of(stream: str) -> list[str]:
    """One filter for each family of subjects: what the rights are made of."""
    return [f"{one.address.partition('{')[0]}>" for one in topology.CHANNELS if one.stream == stream]


def _found(stream: str, read: Read, key: str) -> Found:
    return Found(stream=stream, sequence=read.sequence, subject=read.subject, key=key, data=read.data)
