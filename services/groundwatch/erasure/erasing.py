"""An erasure, from the first tombstone to the proof."""

import asyncio
import getpass
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.erasure import searching
from groundwatch.erasure.finding import Found, Subject, find, held, images_in, still_named
from groundwatch.erasure.removing import (
    CACHE_STREAM,
    cache_tokens,
    empty_cache,
    forget_judgements,
    image_bytes,
    overwrite,
    remove_image,
    rewrite_export,
)
from groundwatch.erasure.searching import Stores
from groundwatch.errors import UNDECODED, UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.runtime.stores import tombstones
from groundwatch.runtime.stores.exports import registered
from groundwatch.topology import OUTCOMES, RESPONSES

PAUSE = 0.2
SAMPLE = 500
"""Messages of a tenant that the texts of a proof are taken from."""

KEYS = 10_000
"""Keys of a tenant that a proof looks for."""

TOKENS = 1_000
"""Tokens of the cache that a tombstone remembers."""

INDEX_SECONDS = 180.0
"""A nats-server writes the index of a stream's subjects anew every 120 to 150 seconds (2.15.1, measured)."""


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
    proof: searching.Proof | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Eraser:
    """Erases one subject."""

    def __init__(
        self,
        js: JetStreamContext,
        subject: Subject,
        stores: Stores,
        *,
        wait: float,
        index_wait: float = INDEX_SECONDS,
        on_index: Callable[[], None] = lambda: None,
    ) -> None:
        """`wait` in seconds, for stages that hold something of the subject; `index_wait` in seconds, for a
        server to write its indexes anew, which `on_index` is told of once."""
        self._js = js
        self._subject = subject
        self._stores = stores
        self._wait = wait
        self._index_wait = index_wait
        self._on_index = on_index
        self._counts: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._images: set[str] = set()
        self._responses: dict[str, ResponseRecorded] = {}
        self._mine: set[tuple[str, int]] = set()
        self._sample: list[Found] = []
        self._pieces: set[bytes] = set()
        self._unreached: list[str] = []
        if subject.kind == "response":
            self._keys.add(subject.key)

    async def look(self) -> Erasure:
        """What would be erased; changes nothing."""
        for one in await self._find():
            self._counts[one.stream] += 1
        doomed = await self._doomed()
        self._counts["images"] = len(doomed)
        return Erasure(what=self._subject.describe(), dry_run=True, counts=_shown(self._counts))

    async def erase(self, *, verify: bool = False) -> Erasure:
        """Erase, and prove it where that is wanted. Safe to repeat after a crash at any moment."""
        stone = tombstones.begun(self._subject.kind, self._subject.name, _who())
        before = await tombstones.find(self._js, stone.kind, stone.name)
        known = before is not None
        last = (await self._js.stream_info(OUTCOMES)).state.last_seq
        first = await self._find()
        cached = self._cached() | set(before.cache if before is not None else ())
        # The tenant's own before those of its responses.
        own = cache_tokens((), self._tenant)
        stone = msgspec.structs.replace(stone, cache=(*own, *sorted(cached - own))[:TOKENS])
        if known or first or self._subject.kind == "image":
            await tombstones.write(self._js, stone)
        waiting = await self._sweep(first)
        images = await self._doomed()
        for sha256 in images:
            self._pieces |= searching.slices(await image_bytes(self._js, sha256))
            await remove_image(self._js, sha256)
        self._counts["images"] += len(images)
        if cached := cached | self._cached():
            self._counts["cache"] += await forget_judgements(self._js, cached)
        await self._archive(last)
        await self._exports()
        total = self._counts.total()
        named = {self._subject.image} if self._subject.kind == "image" else set[str]()
        if total or known:
            stone = msgspec.structs.replace(
                stone, counts=_shown(self._counts), settled=not waiting, images=tuple(sorted(images | named))
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

    async def prove(self) -> searching.Proof:
        """Search every store. Where the cache's files hold what it had dropped earlier, it is emptied; where
        nothing but an index of the server's names the subject, the server is given time to write it anew."""
        proof = await self._prove()
        if any(place.where.find(CACHE_STREAM) >= 0 for place in proof.found):
            await empty_cache(self._js)
            proof = await self._prove()
        if proof.found and all(searching.in_index(place) for place in proof.found):
            self._on_index()
            await self._wait_for_indexes([place.where for place in proof.found])
            proof = await self._prove()
        return proof

    async def _wait_for_indexes(self, files: list[str]) -> None:
        """Return when none of these files has a name of the subject any more, or time is up."""
        assert self._stores.folder is not None
        names = searching.names_of(self._subject)
        deadline = time.monotonic() + self._index_wait
        while files := [file for file in files if searching.holds(self._stores.folder / file, names)]:
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(PAUSE)

    async def _prove(self) -> searching.Proof:
        needles = searching.Needles(
            names=searching.names_of(self._subject),
            texts=searching.texts_of(self._subject, self._sample),
            pieces=sorted(self._pieces)[: searching.MOST],
            keys=[key.encode() for key in sorted(self._keys)[:KEYS]],
        )
        return await searching.prove(self._js, needles, self._stores, self._unreached)

    async def _find(self) -> list[Found]:
        found: list[Found] = []
        if self._subject.kind != "image":
            async for one in find(self._js, self._subject):
                self._note(one)
                # A tenant has more than fits into memory.
                found.append(msgspec.structs.replace(one, data=b""))
        return found

    def _note(self, one: Found) -> None:
        """Remember what the rest of the erasure, and its proof, must know."""
        if (one.stream, one.sequence) in self._mine:
            return
        self._mine.add((one.stream, one.sequence))
        if one.key:
            self._keys.add(one.key)
        self._images |= images_in(one.data)
        if one.data and len(self._sample) < SAMPLE:
            self._sample.append(one)
        if one.stream == RESPONSES and one.key not in self._responses and one.data:
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
            for stream, sequences in by_stream.items():
                self._counts[stream] += await overwrite(self._js, stream, sequences)
            if late and kept:
                return len(kept)
            if spared:
                await asyncio.sleep(PAUSE)
            found = await self._find()
        return 0

    async def _doomed(self) -> set[str]:
        """Images that go: the one that was named, or those that nobody else names."""
        if self._subject.kind == "image":
            stored = await image_bytes(self._js, self._subject.image)
            return {self._subject.image} if stored else set()
        if not self._images:
            return set()
        named = await still_named(self._js, self._images, self._mine)
        return {one for one in self._images - named if await image_bytes(self._js, one)}

    def _cached(self) -> set[str]:
        return cache_tokens(self._responses.values(), self._tenant)

    @property
    def _tenant(self) -> str:
        return self._subject.tenant if self._subject.kind == "tenant" else ""

    async def _archive(self, last: int) -> None:
        if self._subject.kind != "image":
            self._counts["archive rows"] += await drop_from_archive(
                self._js, self._stores, self._keys, tenant=self._tenant, last=last
            )

    async def _exports(self) -> None:
        try:
            files = [one async for one in registered(self._js)]
        except nats.js.errors.NotFoundError:
            return
        for file in files:
            if not file.here:
                self._unreached.append(f"export {file.path} on {file.host}: run the same command there")
                continue
            if not await asyncio.to_thread(Path(file.path).exists):
                self._unreached.append(f"export {file.path} is not there any more: moved, or deleted")
                continue
            try:
                events, images = await asyncio.to_thread(rewrite_export, Path(file.path), self._subject)
            except UsageError as error:
                self._unreached.append(f"export {file.path}: {error}")
                continue
            self._counts["export records"] += events + images


async def drop_from_archive(
    js: JetStreamContext, stores: Stores, keys: Iterable[str], *, tenant: str = "", last: int = 0
) -> int:
    """Remove all rows of these responses, or of a tenant, and have the archive leave out what it has yet to
    write of them; how many rows that were."""
    if stores.archive is None:
        return 0
    from groundwatch.archive.archive import Erasure as Order

    archive = stores.archive
    info = await js.stream_info(OUTCOMES)
    stream = round(info.created.timestamp() * 1e6) if info.created is not None else 0
    until = max(last, info.state.last_seq)
    orders = [Order(keys=tuple(sorted(keys)), stream=stream, until=until)]
    if tenant:
        # The tenant's name stays in no order: what is not archived yet is named by its keys.
        orders.append(Order(tenant=tenant))
    return sum([await asyncio.to_thread(archive.erase, order) for order in orders])


def _shown(counts: Counter[str]) -> dict[str, int]:
    return {name: number for name, number in sorted(counts.items()) if number}


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return socket.gethostname()
