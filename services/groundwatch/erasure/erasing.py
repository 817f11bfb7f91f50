"""An erasure, from the first tombstone to the proof."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.archive.images import named_in
from groundwatch.erasure.finding import (
    QUEUES,
    Found,
    Place,
    Proof,
    Stores,
    Subject,
    archived_events,
    drop_from_archive,
    find,
    held,
    mark_removed,
    rows_in_archive,
    say_erased,
    still_named,
)
from groundwatch.errors import UNDECODED, InputError, UsageError
from groundwatch.events import ResponseRecorded, tenant_of
from groundwatch.image_files import from_base64
from groundwatch.keys import in_partition
from groundwatch.ledger.store import ErasureEntries
from groundwatch.replay.files import ExportReader, ExportWriter, Manifest, Record, replacing
from groundwatch.runtime.delivery.direct import overwrite, sequences_on
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.stores import tombstones
from groundwatch.runtime.stores.cache import keys_of, scope_of
from groundwatch.runtime.stores.exports import registered
from groundwatch.runtime.stores.images import IMAGES_STREAM, ImageStore, image_subject, images_in, pieces_of
from groundwatch.topology import (
    CACHE_BUCKET,
    DEAD,
    INTAKE,
    OUTCOMES,
    RESPONSES,
    RETRY,
)
from groundwatch.topology.partitions import kind_of, streams_of_kind

PAUSE = 0.2
TOKENS = 1_000
"""Tokens of the cache, and images that events named, that a tombstone remembers."""

SENT = (INTAKE, DEAD, RETRY)
"""Streams of which a message may be a response as it was sent."""


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure did. `counts` are messages, rows, images and records by store; `waiting` are messages
    that a stage holds still; `unreached` are stores that must be seen to by hand."""

    what: str
    dry_run: bool
    counts: dict[str, int]
    waiting: int = 0
    unreached: tuple[str, ...] = ()
    tombstone: str = ""
    known: bool = False
    proof: Proof | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Eraser:
    """Erases one subject."""

    def __init__(self, js: JetStreamContext, subject: Subject, stores: Stores, *, wait: float) -> None:
        """`wait` in seconds, for stages that hold something of the subject."""
        self._js = js
        self._subject = subject
        self._stores = stores
        self._wait = wait
        self._counts: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._images: set[str] = set()
        self._responses: dict[str, ResponseRecorded] = {}
        self._mine: set[tuple[str, int]] = set()
        self._tokens: set[str] = set()
        self._removed: set[str] = set()
        self._unreached: list[str] = []
        self._partitions = stores.partitions
        self._ledger = ErasureEntries(js, subject.name, stores.partitions)
        if subject.kind == "response":
            self._keys |= {in_partition(subject.key, one) for one in range(stores.partitions)}

    async def look(self) -> Erasure:
        """What would be erased; changes nothing."""
        for one in await self._find():
            self._counts[kind_of(one.stream)] += 1
        await self._find_archived()
        doomed = await self._doomed()
        if self._subject.kind != "image":
            self._counts["archive rows"] = await rows_in_archive(self._stores, self._keys, self._tenant)
        self._counts["images"] = len(doomed)
        return Erasure(what=self._subject.describe(), dry_run=True, counts=_shown(self._counts))

    async def erase(self, *, verify: bool = False) -> Erasure:
        """Erase, and prove it where that is wanted. Safe to repeat after a crash at any moment."""
        stone = tombstones.begun(self._subject.kind, self._subject.name, _who())
        before = await tombstones.find(self._js, stone.kind, stone.name)
        known = before is not None
        await self._ledger.start()
        outcomes = streams_of_kind(OUTCOMES, self._partitions)
        last = {stream: (await self._js.stream_info(stream)).state.last_seq for stream in outcomes}
        first = await self._find()
        cold = await self._find_archived()
        cached = self._cached() | set(before.cache if before is not None else ())
        if before is not None and self._subject.kind != "image":
            # One that died may have removed the events that named them, and not them.
            self._images |= {*before.images, *before.named}
        # The tenant's own before those of its responses.
        own = cache_tokens((), self._tenant)
        stone = msgspec.structs.replace(
            stone,
            cache=(*own, *sorted(cached - own))[:TOKENS],
            named=tuple(sorted(self._images))[:TOKENS],
        )
        if known or first or cold or self._subject.kind == "image":
            await tombstones.write(self._js, stone)
        if self._subject.kind != "image":
            # All of it before any of it goes, wherever it lies.
            await say_erased(self._js, self._stores, self._ledger, self._keys, self._tenant)
        waiting = await self._sweep(first)
        images = await self._doomed()
        if images:
            # Before they go: who copies one to the archive at this moment knows by it why it is gone.
            earlier = before.images if before is not None else ()
            stone = msgspec.structs.replace(stone, images=tuple(sorted({*images, *earlier})))
            await tombstones.write(self._js, stone)
        for sha256 in images:
            await remove_image(self._js, sha256)
            if self._stores.images is not None:
                await asyncio.to_thread(self._stores.images.remove, sha256)
        self._removed |= images
        self._counts["images"] += len(images)
        self._tokens = cached | self._cached()
        self._counts["cache"] += await forget_judgements(self._js, self._tokens)
        await self._archive(last)
        await self._ledger.finish()
        self._counts["export records"] += sum((await self._exports(rewrite_export)).values())
        total = self._counts.total()
        named = {self._subject.image} if self._subject.kind == "image" else set[str]()
        if total or known:
            stone = msgspec.structs.replace(
                stone,
                counts=_shown(self._counts),
                settled=not waiting,
                images=tuple(sorted({*stone.images, *named})),
                named=(),
            )
            await tombstones.write(self._js, stone)
        return Erasure(
            what=self._subject.describe(),
            dry_run=False,
            counts=_shown(self._counts),
            waiting=waiting,
            unreached=tuple(self._unreached),
            tombstone=stone.name if total or known else "",
            known=known,
            proof=await self.prove() if verify else None,
        )

    async def prove(self) -> Proof:
        """Look again wherever it was found, and in every export, as a reader of each store does."""
        places: list[Place] = []
        searched = ["images"]
        if self._subject.kind != "image":
            searched += ["streams", CACHE_STREAM]
            async for one in find(self._js, self._subject, self._partitions):
                places.append(Place(store=one.stream, where=f"sequence {one.sequence}"))
            if self._stores.archive is not None:
                searched.append(f"archive {self._stores.archive.url}")
            if rows := await rows_in_archive(self._stores, self._keys, self._tenant):
                places.append(Place(store="archive", where=f"{rows:,} rows"))
        for sequence in await judgements(self._js, self._tokens):
            places.append(Place(store=CACHE_STREAM, where=f"sequence {sequence}"))
        for sha256 in sorted(self._removed):
            if await self._is_stored(sha256):
                places.append(Place(store="images", where=sha256))
        for file, records in (await self._exports(in_export)).items():
            searched.append(file)
            if records:
                places.append(Place(store="export", where=f"{file}: {records:,} records"))
        return Proof(searched=tuple(searched), unseen=tuple(self._unreached), found=tuple(places))

    async def _find(self) -> list[Found]:
        found: list[Found] = []
        if self._subject.kind != "image":
            async for one in find(self._js, self._subject, self._partitions):
                self._note(one)
                # A tenant has more than fits into memory.
                found.append(msgspec.structs.replace(one, data=b"", read=None))
        return found

    async def _find_archived(self) -> bool:
        """Note what the archive has; whether that is anything."""
        found = False
        if self._stores.events is not None and self._subject.kind != "image":
            async for one in archived_events(self._stores.events, sorted(self._keys), self._tenant):
                found = True
                self._learn(one)
        return found

    def _note(self, one: Found) -> None:
        """Remember what the rest of the erasure, and its proof, must know."""
        if (one.stream, one.sequence) in self._mine:
            return
        self._mine.add((one.stream, one.sequence))
        if one.read is not None:
            self._ledger.note(one.stream, one.read)
        self._learn(one)

    def _learn(self, one: Found) -> None:
        """Whose it is, which images it names, what it says."""
        if one.key:
            self._keys.add(one.key)
        self._images |= images_in(one.data)
        if kind_of(one.stream) in SENT:
            self._images |= images_sent(one.data)
        if kind_of(one.stream) == RESPONSES and one.key not in self._responses and one.data:
            try:
                self._responses[one.key] = msgspec.json.decode(one.data, type=ResponseRecorded)
            except UNDECODED:
                return

    async def _sweep(self, found: list[Found]) -> int:
        """Remove all messages, again and again until none comes; how many a stage would not let go of.

        A stage publishes its result before it acknowledges: while it holds a message of ours, another may
        come. So what is held stays until it is acknowledged, for as long as we wait.
        """
        deadline = time.monotonic() + self._wait
        while found:
            kept = await held(self._js, found)
            late = time.monotonic() >= deadline
            spared = set() if late else {(one.stream, one.sequence) for one in kept}
            by_stream: dict[str, list[int]] = {}
            for one in found:
                if (one.stream, one.sequence) not in spared:
                    by_stream.setdefault(one.stream, []).append(one.sequence)
            await self._ledger.say()
            for stream, sequences in by_stream.items():
                self._counts[kind_of(stream)] += await overwrite(self._js, stream, sequences)
                if stream == QUEUES:
                    await mark_removed(self._js)
            if late and kept:
                return len(kept)
            if spared:
                await asyncio.sleep(PAUSE)
            found = await self._find()
        return 0

    async def _doomed(self) -> set[str]:
        """Images that go: the one that was named, or those that nobody else names."""
        if self._subject.kind == "image":
            return {self._subject.image} if await self._is_stored(self._subject.image) else set()
        cold = self._stores.events
        if not self._images:
            return set()
        named = await still_named(self._js, self._images, self._mine, self._partitions)
        if cold is not None:
            left = self._images - named
            named |= await asyncio.to_thread(named_in, cold, left, self._keys, self._tenant)
        return {one for one in self._images - named if await self._is_stored(one)}

    async def _is_stored(self, sha256: str) -> bool:
        """Whether an image is in the object store or the archive."""
        if await ImageStore(self._js).stored(sha256) is not None:
            return True
        archived = self._stores.images
        return archived is not None and await asyncio.to_thread(archived.has, sha256)

    def _cached(self) -> set[str]:
        return cache_tokens(self._responses.values(), self._tenant)

    @property
    def _tenant(self) -> str:
        return self._subject.tenant if self._subject.kind == "tenant" else ""

    async def _archive(self, last: Mapping[str, int]) -> None:
        if self._subject.kind != "image":
            self._counts["archive rows"] += await drop_from_archive(
                self._js, self._stores, self._keys, tenant=self._tenant, last=last
            )

    async def _exports(self, work: Callable[[Path, Subject], int]) -> dict[str, int]:
        """What `work` says of each export file here; notes those that it does not reach."""
        records: dict[str, int] = {}
        self._unreached = []
        with contextlib.suppress(nats.js.errors.NotFoundError):
            async for file in registered(self._js):
                path = Path(file.path)
                if not file.here:
                    self._unreached.append(f"export {file.path} on {file.host}: run the same command there")
                elif not await asyncio.to_thread(path.exists):
                    self._unreached.append(f"export {file.path} is not there any more: moved, or deleted")
                else:
                    try:
                        records[file.path] = await asyncio.to_thread(work, path, self._subject)
                    except UsageError as error:
                        self._unreached.append(f"export {file.path}: {error}")
        return records


def _shown(counts: Counter[str]) -> dict[str, int]:
    return {name: number for name, number in sorted(counts.items()) if number}


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return socket.gethostname()


def images_sent(data: bytes) -> set[str]:
    """The digests of images that a response brought which was sent and perhaps not recorded."""
    try:
        sent = msgspec.json.decode(data)
    except UNDECODED:
        return set()
    given = sent.get("images") if isinstance(sent, dict) else None
    found = set()
    for image in given if isinstance(given, list) else ():
        text = image.get("base64") if isinstance(image, dict) else image
        if isinstance(text, str):
            with contextlib.suppress(InputError):
                found.add(hashlib.sha256(from_base64(text)).hexdigest())
    return found


CACHE_STREAM = f"KV_{CACHE_BUCKET}"


async def remove_image(js: JetStreamContext, sha256: str) -> int:
    """Remove an image with all its pieces; how many messages that were, 0 where it is not stored."""
    removed = 0
    # Whoever uses the image at this moment may have written anew what says where the pieces are.
    while sequences := await _of_image(js, sha256):
        # That goes last: a crash in between is mended by another erasure.
        now = await overwrite(js, IMAGES_STREAM, sorted(sequences, reverse=True))
        removed += now
        if not now:
            break
    return removed


async def _of_image(js: JetStreamContext, sha256: str) -> list[int]:
    sequences = await sequences_on(js, IMAGES_STREAM, image_subject(sha256))
    for sequence in list(sequences):
        said = (await js.get_msg(IMAGES_STREAM, sequence)).data or b"{}"
        info: dict[str, Any] = msgspec.json.decode(said)
        if nuid := info.get("nuid"):
            sequences += await pieces_of(js, nuid)
    return sequences


def cache_tokens(responses: Iterable[ResponseRecorded], tenant: str = "") -> set[str]:
    """The tokens in keys of what the cache keeps of these responses, or of a whole tenant."""
    return {keys_of(one).split(".")[1] for one in responses} | ({scope_of(tenant)} if tenant else set())


async def judgements(js: JetStreamContext, wanted: Set[str]) -> list[int]:
    """The sequences of what the cache keeps under these tokens."""
    found: list[int] = []
    if not wanted:
        return found
    with contextlib.suppress(nats.js.errors.NotFoundError):
        async for read in read_stream(
            js, CACHE_STREAM, subjects=(f"$KV.{CACHE_BUCKET}.>",), headers_only=True
        ):
            tokens = read.subject.split(".")[2:]
            if len(tokens) > 1 and (tokens[0] in wanted or tokens[1] in wanted):
                found.append(read.sequence)
    return found


async def forget_judgements(js: JetStreamContext, wanted: Set[str]) -> int:
    """Remove what the cache keeps under these tokens."""
    return await overwrite(js, CACHE_STREAM, await judgements(js, wanted))


def in_export(path: Path, subject: Subject) -> int:
    """How many events and images of the subject an export file has. Raises `UsageError` for a file that is
    none of ours."""
    events, images = _of_subject(path, subject)
    return events + len(images)


def rewrite_export(path: Path, subject: Subject) -> int:
    """Write an export file anew without the subject's events and images; how many were in it.

    Raises `UsageError` for a file that is none of ours or cannot be written; it is then as it was.
    """
    gone, without = _of_subject(path, subject)
    if not gone and not without:
        return 0
    with replacing(path) as out:
        writer = ExportWriter(out)
        for _, part in ExportReader(path).parts():
            match part:
                case list():
                    for record in part:
                        if not _is_of(record, subject):
                            writer.event(record)
                case Manifest(events=events, images=images):
                    left = {"events": events - gone, "images": images - len(without)}
                    writer.end(msgspec.structs.replace(part, **left))
                case sha256, data:
                    if sha256 not in without:
                        writer.image(sha256, data)
    return gone + len(without)


def _of_subject(path: Path, subject: Subject) -> tuple[int, set[str]]:
    """How many events are the subject's, and the images that nothing else names."""
    gone, kept, mine, present = 0, set[str](), set[str](), set[str]()
    for _, part in ExportReader(path).parts():
        for record in part if isinstance(part, list) else ():
            if _is_of(record, subject):
                gone += 1
                mine |= images_in(record.data)
            else:
                kept |= images_in(record.data)
        if isinstance(part, tuple):
            present.add(part[0])
    return gone, ({subject.image} if subject.kind == "image" else mine - kept) & present


def _is_of(record: Record, subject: Subject) -> bool:
    if subject.kind == "response":
        return subject.key in record.subject.split(".")
    return subject.kind == "tenant" and tenant_of(record.data) == subject.tenant
