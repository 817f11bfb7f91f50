"""What is to be erased (a response, all of a tenant, or an image), and where its events lie: in every stream,
all runs, dead letters and alarms among them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from nats.js import JetStreamContext

from groundwatch import topology
from groundwatch.archive.cold import tables
from groundwatch.archive.images import ArchivedImages, archived_images
from groundwatch.archive.place import installed
from groundwatch.errors import UNDECODED, UsageError
from groundwatch.events import DEFAULT_TENANT, AlarmRaised, tenant_of
from groundwatch.keys import bare_key, in_partition, response_key
from groundwatch.ledger.store import ErasureEntries
from groundwatch.reviews.queues import REMOVED
from groundwatch.runtime.delivery.streams import Read, position_of, read_stream
from groundwatch.runtime.security.connecting import covers
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores.images import images_in
from groundwatch.runtime.stores.tombstones import Kind, tombstone_name
from groundwatch.topology import COPIED, OUTCOMES, QUEUES_BUCKET, RESPONSES
from groundwatch.topology.partitions import (
    consumers_of,
    kind_of,
    partition_of_stream,
    stream_in,
    streams_of_kind,
    subjects_in,
)

if TYPE_CHECKING:
    from groundwatch.archive.events import Events
    from groundwatch.archive.outcomes import Archive
    from groundwatch.archive.table import Erasure as Order

OF_A_KEY = {
    topology.RESPONSES: ("recorded.*.{}",),
    topology.ASKED: ("asked.*.*.{}", "chain.*.*.*.{}.*"),
    topology.EXTRACTED: ("extracted.*.*.*.{}",),
    topology.JUDGED: ("judged.*.*.*.{}",),
    topology.OUTCOMES: ("outcome.*.*.{}",),
    topology.OPINIONS: ("opinion.*.*.*.{}",),
    topology.SECOND: ("second.*.*.{}",),
}
"""Subjects of a response behind the prefix, by stream."""

NAMING_IMAGES = (
    *(OF_A_KEY.keys() - {topology.OUTCOMES, topology.OPINIONS, topology.SECOND}),
    topology.INTAKE,
    topology.DEAD,
    topology.RETRY,
)

HALVES = f"KV_{topology.HALVES_BUCKET}"

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


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
        return Subject(kind="response", response=response, tenant=tenant or DEFAULT_TENANT)
    if tenant:
        return Subject(kind="tenant", tenant=tenant)
    raise UsageError(
        "say what to erase: a response (with its tenant), a tenant, or an image",
        "response",
        "tenant",
        "image",
    )


def owner_key(read: Read) -> str:
    """The key of the response that a message is about, by its subject; of a dead letter, by its origin's.

    Of what was only published and never recorded, by what stands in it.
    """
    address = _address(read)
    if address is None or address.kind != "intake":
        return address.key if address is not None else ""
    try:
        found: Any = msgspec.json.decode(read.data)
    except UNDECODED:
        return ""
    name = found.get("id") if isinstance(found, dict) else None
    return response_key(address.tenant, name) if isinstance(name, str) and name else ""


def owner_tenant(read: Read) -> str | None:
    """The tenant that a message is of; None for one that names none."""
    address = _address(read)
    if address is not None and address.kind == "intake":
        return address.tenant
    return tenant_of(read.data)


def _address(read: Read) -> topology.Address | None:
    """What the subject says, of a dead letter that of its origin. Elsewhere headers are the senders'."""
    headers = {} if read.subject.startswith(f"{topology.PREFIX}.intake.") else read.headers
    return topology.parse_subject(headers.get(topology.HEADER_ORIGIN) or read.subject)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the subject. `key` is its response's; `read` is the whole message, where it is at hand."""

    stream: str
    sequence: int
    subject: str
    key: str
    data: bytes
    read: Read | None = None


def _streams(partitions: int) -> Iterator[tuple[str, str, int]]:
    """Streams that have events of responses: kind, name and partition."""
    for kind in (*OF_A_KEY, topology.INTAKE, topology.DEAD, topology.RETRY):
        for partition, stream in enumerate(streams_of_kind(kind, partitions)):
            yield kind, stream, partition


async def find(js: JetStreamContext, subject: Subject, partitions: int = 1) -> AsyncIterator[Found]:
    """Every message of a response or of a whole tenant, of all that there are. Raises what NATS raises."""
    keys = {subject.key} if subject.kind == "response" else set[str]()
    tenant = subject.tenant if subject.kind == "tenant" else None
    for kind, stream, partition in _streams(partitions):
        patterns = OF_A_KEY.get(kind, ()) if tenant is None else ()
        mine = in_partition(subject.key, partition)
        own = [f"{topology.prefix_of(partition)}.{one.format(mine)}" for one in patterns]
        if kind not in topology.ARCHIVED:
            # One stream has those of all partitions.
            keys_there = [in_partition(subject.key, one) for one in range(partitions)]
            own = [f"{topology.PREFIX}.{one.format(key)}" for one in patterns for key in keys_there]
        for subjects in own or channels_of(stream):
            async for read in read_stream(js, stream, subjects=(subjects,)):
                key = owner_key(read)
                if bare_key(key) in keys or (tenant is not None and owner_tenant(read) == tenant):
                    if kind in OF_A_KEY:
                        keys.add(bare_key(key))
                    yield _found(stream, read, key)
    async for read in _halves(js, subject):
        yield _found(HALVES, read, read.subject.split(".")[3])
    own = [in_partition(subject.key, one) for one in range(partitions)] if tenant is None else []
    async for read in queued(js, own, tenant):
        yield _found(QUEUES, read, key_in_queue(read))
    for subjects in channels_of(topology.ALARMS):
        async for read in read_stream(js, topology.ALARMS, subjects=(subjects,)):
            try:
                alarm = msgspec.json.decode(read.data, type=AlarmRaised)
            except UNDECODED:
                continue
            key = response_key(alarm.tenant, alarm.response_id)
            if key in keys or (tenant is not None and alarm.tenant == tenant):
                yield _found(topology.ALARMS, read, key)


async def _halves(js: JetStreamContext, subject: Subject) -> AsyncIterator[Read]:
    """What waits to be joined: of a tenant, or of a response where halves name it (those of OTLP do not)."""
    family = f"$KV.{topology.HALVES_BUCKET}"
    async for read in read_stream(js, HALVES, subjects=(f"{family}.>",)):
        if subject.kind == "response":
            if read.subject.split(".")[3] == subject.key:
                yield read
        # The first line says whose it is, the rest is as it was logged.
        elif tenant_of(read.data.partition(b"\n")[0]) == subject.tenant:
            yield read


async def still_named(
    js: JetStreamContext,
    images: Iterable[str],
    without: Container[tuple[str, int]],
    partitions: int = 1,
) -> set[str]:
    """Those of these images that an event names, `without` those of a stream and sequence."""
    wanted, named = set(images), set[str]()
    streams = [name for kind in NAMING_IMAGES for name in streams_of_kind(kind, partitions)]
    for stream in streams if wanted else ():
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
    for spec in (spec for stream in by_stream for spec in consumers_of(stream)):
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
    kind, partition = kind_of(stream), partition_of_stream(stream)
    families = [f"{one.address.partition('{')[0]}>" for one in topology.CHANNELS if one.stream == kind]
    return list(subjects_in(families, partition))


def _found(stream: str, read: Read, key: str) -> Found:
    return Found(
        stream=stream, sequence=read.sequence, subject=read.subject, key=key, data=read.data, read=read
    )


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """Where to erase. The streams have so many `partitions`."""

    archive: Archive | None = None
    events: Events | None = None
    images: ArchivedImages | None = None
    partitions: int = 1

    @classmethod
    def of(cls, settings: ArchiveSettings, *, partitions: int = 1) -> Stores:
        """With the archive of these settings, where they name one that can be opened here."""
        if (both := tables(settings) if installed() else None) is None:
            return cls(partitions=partitions)
        archive, events = both
        return cls(archive=archive, events=events, images=archived_images(settings), partitions=partitions)

    @property
    def tables(self) -> list[Archive | Events]:
        """Those of the archive."""
        return [table for table in (self.archive, self.events) if table is not None]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where something of the subject is: a `store`, and what of it."""

    store: str
    where: str


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What was read back, and what of the subject is still there. `unseen` are stores that could not be
    read, with the reason."""

    searched: tuple[str, ...]
    unseen: tuple[str, ...]
    found: tuple[Place, ...]

    @property
    def holds(self) -> bool:
        return not self.found


QUEUES = f"KV_{QUEUES_BUCKET}"
_FAMILY = f"$KV.{QUEUES_BUCKET}"


async def queued(js: JetStreamContext, keys: Sequence[str], tenant: str | None) -> AsyncIterator[Read]:
    """Items and drafts of responses by their keys, or all of a tenant, in all versions that there are."""
    if tenant is None:
        for key in keys:
            for pattern in (f"{_FAMILY}.item.*.{key}", f"{_FAMILY}.draft.*.{key}.*"):
                async for read in read_stream(js, QUEUES, subjects=(pattern,)):
                    yield read
        return
    theirs = set[str]()
    for kind in ("definition", "item"):
        async for read in read_stream(js, QUEUES, subjects=(f"{_FAMILY}.{kind}.>",)):
            if tenant_of(read.data) == tenant:
                theirs |= {key_in_queue(read)} - {""}
                yield read
    if theirs:
        async for read in read_stream(js, QUEUES, subjects=(f"{_FAMILY}.draft.>",)):
            if key_in_queue(read) in theirs:
                yield read


def key_in_queue(read: Read) -> str:
    """The response that an item or a draft is of."""
    parts = read.subject.split(".")
    return parts[4] if len(parts) > 4 else ""


async def queued_of(js: JetStreamContext, mine: Callable[[str, str | None], bool]) -> list[int]:
    """Items and drafts that are `mine`, by their response's key and tenant; a draft names no tenant."""
    found = []
    for kind in ("item", "draft"):
        async for read in read_stream(js, QUEUES, subjects=(f"{_FAMILY}.{kind}.>",)):
            if (key := key_in_queue(read)) and mine(key, tenant_of(read.data) if kind == "item" else None):
                found.append(read.sequence)
    return found


async def mark_removed(js: JetStreamContext) -> None:
    """Have gateways read anew which items there are."""
    bucket = await js.key_value(QUEUES_BUCKET)
    await bucket.put(REMOVED, secrets.token_hex(8).encode())


TOGETHER = 256
"""Events that are held in memory at once."""

PORTION = 100_000
"""Responses that are told to the ledger at once."""


async def archived_events(events: Events, keys: Sequence[str], tenant: str = "") -> AsyncIterator[Found]:
    """Every event in the archive of these responses, or of a tenant where one is named.

    A stream that was made anew counts from 1 again: sequences of the old one are among them. Raises what the
    store raises.
    """
    pieces = _pieces(events, keys, tenant)
    while several := await asyncio.to_thread(next, pieces, None):
        for one in several:
            yield one


async def rows_in_archive(stores: Stores, keys: Iterable[str], tenant: str) -> int:
    """How many rows the archive has of these responses, or of a tenant."""
    counts = [await asyncio.to_thread(table.count_concerned, _order(keys, tenant)) for table in stores.tables]
    return sum(counts)


async def drop_from_archive(
    js: JetStreamContext,
    stores: Stores,
    keys: Iterable[str],
    *,
    tenant: str = "",
    last: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Remove all rows of these responses, or of a tenant, and have the archive leave out what it has yet to
    write of them; how many rows that were. The ledger has been told before: see `say_archived`."""
    if not stores.tables:
        return 0
    until = {}
    for stream in [name for kind in COPIED for name in streams_of_kind(kind, stores.partitions)]:
        position = await position_of(js, stream)
        until[position.created] = max(last.get(stream, 0), position.last)
    # The tenant's name stays in no order: what is not archived yet is named by its keys.
    orders = [_order(keys, until=until), *([_order((), tenant)] if tenant else ())]
    removed = 0
    for table in stores.tables:
        for order in orders:
            removed += await asyncio.to_thread(table.erase, order)
    return removed


async def say_erased(
    js: JetStreamContext, stores: Stores, ledger: ErasureEntries, keys: Iterable[str], tenant: str = ""
) -> None:
    """Tell the ledger that all goes that it has noted, with what the archive has of these responses, or of a
    tenant."""
    if stores.events is not None:
        streams = [
            name for kind in (RESPONSES, OUTCOMES) for name in streams_of_kind(kind, stores.partitions)
        ]
        created = {stream: (await position_of(js, stream)).created for stream in streams}
        await say_archived(stores.events, ledger, _order(keys, tenant), created)
    await ledger.say()


async def say_archived(
    events: Events, ledger: ErasureEntries, order: Order, created: Mapping[str, int]
) -> None:
    """Tell the ledger what goes from the archive, each response together with its outcomes."""
    for stream in [name for name in created if kind_of(name) == RESPONSES]:
        beside = stream_in(OUTCOMES, partition_of_stream(stream))
        keys: list[str] = []
        async for read in _noted(events, ledger, order, stream, created):
            keys.append(owner_key(read))
            if len(keys) >= PORTION and beside in created:
                # A tenant has more than fits into memory.
                its = msgspec.structs.replace(order, keys=tuple(sorted(keys)), tenant="")
                async for _ in _noted(events, ledger, its, beside, created):
                    pass
                await ledger.say(keys)
                keys = []
    for stream in [name for name in created if kind_of(name) == OUTCOMES]:
        async for _ in _noted(events, ledger, order, stream, created):
            pass
    await ledger.say()


async def _noted(
    events: Events, ledger: ErasureEntries, order: Order, stream: str, created: Mapping[str, int]
) -> AsyncIterator[Read]:
    rows = events.concerned(order, stream, created[stream])
    while several := await asyncio.to_thread(next, rows, None):
        for read in several:
            ledger.note(stream, read)
            yield read


def _pieces(events: Events, keys: Sequence[str], tenant: str) -> Iterator[list[Found]]:
    from groundwatch.archive.table import concerned

    columns = ["stream", "sequence", "subject", "key", "data"]
    for batch in events.snapshot().scan(columns, concerned(_order(keys, tenant)), TOGETHER):
        if several := [Found(**row) for row in batch.to_pylist()]:
            yield several


def _order(keys: Iterable[str], tenant: str = "", until: dict[int, int] | None = None) -> Order:
    from groundwatch.archive.table import Erasure as Order

    return Order(keys=tuple(sorted(keys)), tenant=tenant, until=until or {})
