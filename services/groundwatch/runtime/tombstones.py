"""Tombstones: what was erased, by digests only, so that nothing of it is recorded again.

A producer that sends at least once may send again what has been erased since. Its gateway knows by the
tombstone, and refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Literal

import msgspec
import nats.errors
import nats.js.errors

from groundwatch.errors import UNDECODED
from groundwatch.events import ResponseRecorded, digest
from groundwatch.runtime.logs import logger
from groundwatch.runtime.streams import Read, follow_stream, read_stream
from groundwatch.topology import TOMBSTONES_BUCKET

if TYPE_CHECKING:
    from nats.js import JetStreamContext

Kind = Literal["response", "tenant", "image", "retention"]

STREAM = f"KV_{TOMBSTONES_BUCKET}"
SUBJECTS = f"$KV.{TOMBSTONES_BUCKET}.>"
_LIFTED = "KV-Operation"


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure, or a tenant's retention. `name` is a digest of what it is about, and all that stays.

    `at` is when it began, in seconds since the epoch; of a retention, before when all is gone. `by` is who
    asked for it. `counts` has what was removed by store; `settled` says that nothing was left, and nobody
    held any of it. `images` are SHA-256 digests of images that went along, `cache` the tokens under which the
    judgement cache would keep something of it.
    """

    kind: Kind
    name: str
    at: float
    by: str = ""
    counts: dict[str, int] = {}
    settled: bool = False
    images: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()


def tombstone_name(kind: Kind, *what: str) -> str:
    """32 hex digits over what is erased: a response's key, a tenant, an image's SHA-256."""
    return digest("tombstone", kind, *what)[:32]


async def write(js: JetStreamContext, stone: Tombstone) -> None:
    """Write or replace a tombstone."""
    bucket = await js.key_value(TOMBSTONES_BUCKET)
    await bucket.put(f"{stone.kind}.{stone.name}", msgspec.json.encode(stone))


async def find(js: JetStreamContext, kind: Kind, name: str) -> Tombstone | None:
    """A tombstone, if there is one."""
    try:
        entry = await (await js.key_value(TOMBSTONES_BUCKET)).get(f"{kind}.{name}")
    except nats.js.errors.NotFoundError:
        return None
    return msgspec.json.decode(entry.value or b"", type=Tombstone)


async def lift(js: JetStreamContext, kind: Kind, name: str) -> bool:
    """Take a tombstone away, so that the same is recorded again; tells whether there was one."""
    bucket = await js.key_value(TOMBSTONES_BUCKET)
    try:
        await bucket.get(f"{kind}.{name}")
    except nats.js.errors.KeyNotFoundError:
        return False
    await bucket.delete(f"{kind}.{name}")
    return True


async def tombstones(js: JetStreamContext) -> AsyncIterator[Tombstone]:
    """Every tombstone, the oldest first."""
    async for read in read_stream(js, STREAM, subjects=(SUBJECTS,)):
        if _LIFTED not in read.headers:
            yield msgspec.json.decode(read.data, type=Tombstone)


async def names(js: JetStreamContext) -> frozenset[str]:
    """The names of all tombstones; none where nothing of the kind is provisioned."""
    try:
        return frozenset([stone.name async for stone in tombstones(js)])
    except nats.js.errors.NotFoundError:
        return frozenset()


class Erased:
    """All tombstones in memory, followed as they come: asking costs no message."""

    def __init__(
        self, js: JetStreamContext, *, on_image: Callable[[str], None] = lambda sha256: None
    ) -> None:
        self._js = js
        self._on_image = on_image
        self._names: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what there is, then follow. Without the bucket, nothing is known to be erased."""
        last = 0
        try:
            async for read in read_stream(self._js, STREAM, subjects=(SUBJECTS,)):
                self._take(read)
                last = read.sequence
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            logger.warning("tombstones.unknown", error=repr(error))
        self._task = asyncio.create_task(self._follow(last + 1))

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def why(self, response: ResponseRecorded) -> str:
        """Why a response must not be recorded; empty when nothing speaks against it."""
        if not self._names:
            return ""
        if tombstone_name("response", response.key) in self._names:
            return "this response was erased, and is not taken again (groundwatch erase --lift)"
        if tombstone_name("tenant", response.tenant) in self._names:
            return f"tenant '{response.tenant}' was erased, and is not taken again (groundwatch erase --lift)"
        if self.any_image(response.images):
            return "it names an image that was erased, and is not taken again (groundwatch erase --lift)"
        return ""

    def any_image(self, digests: Iterable[object]) -> bool:
        """Whether one of these images was erased."""
        return bool(self._names) and any(
            isinstance(one, str) and tombstone_name("image", one) in self._names for one in digests
        )

    async def _follow(self, start: int) -> None:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            async for read in follow_stream(self._js, STREAM, subjects=(SUBJECTS,), start_sequence=start):
                self._take(read)

    def _take(self, read: Read) -> None:
        name = read.subject.rpartition(".")[2]
        if _LIFTED in read.headers:
            self._names.discard(name)
            return
        self._names.add(name)
        try:
            stone = msgspec.json.decode(read.data, type=Tombstone)
        except UNDECODED as error:
            logger.warning("tombstones.unreadable", subject=read.subject, error=str(error))
            return
        for sha256 in stone.images:
            self._on_image(sha256)


def begun(kind: Kind, name: str, by: str) -> Tombstone:
    """A tombstone of an erasure that begins now."""
    return Tombstone(kind=kind, name=name, at=time.time(), by=by)
