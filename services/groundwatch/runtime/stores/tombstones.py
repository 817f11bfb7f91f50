"""Tombstones: what was erased, by digests only, so that nothing of it is recorded again.

A producer that sends at least once may send again what has been erased since. Its gateway knows by the
tombstone, and refuses it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED
from groundwatch.events import ResponseRecorded
from groundwatch.keys import bare_key, digest
from groundwatch.runtime.delivery.streams import Read, follow_stream, read_stream
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import TOMBSTONES_BUCKET

Kind = Literal["response", "tenant", "image", "retention"]

STREAM = f"KV_{TOMBSTONES_BUCKET}"
SUBJECTS = f"$KV.{TOMBSTONES_BUCKET}.>"
_LIFTED = "KV-Operation"

START_SECONDS = 5.0
"""How long a gateway's start waits until all tombstones are read; then it refuses until they are."""

CURRENT_SECONDS = 15.0
"""Not asked successfully for so long, the server may have tombstones that are not known here."""

NOT_AGAIN = "is not taken again (groundwatch admin erase can lift that)"


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure, or a tenant's retention. `name` is a digest of what it is about, and all that stays.

    `at` is when it began, in seconds since the epoch; of a retention, before when all is gone. `by` is who
    asked for it. `counts` has what was removed by store; `settled` says that nothing was left, and nobody
    held any of it. `images` are SHA-256 digests of images that went along, `named` of those that its events
    named, until the erasure is over; `cache` the tokens under which the judgement cache would keep something
    of it.
    """

    kind: Kind
    name: str
    at: float
    by: str = ""
    counts: dict[str, int] = {}
    settled: bool = False
    images: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()


def tombstone_name(kind: Kind, *what: str) -> str:
    """32 hex digits over what is erased: a response's key, a tenant, an image's SHA-256.

    In whatever partition it was.
    """
    if kind == "response":
        what = tuple(map(bare_key, what))
    return digest("tombstone", kind, *what)[:32]


async def write(js: JetStreamContext, stone: Tombstone) -> None:
    bucket = await js.key_value(TOMBSTONES_BUCKET)
    await bucket.put(f"{stone.kind}.{stone.name}", msgspec.json.encode(stone))


async def find(js: JetStreamContext, kind: Kind, name: str) -> Tombstone | None:
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
    return await bucket.delete(f"{kind}.{name}")


async def tombstones(js: JetStreamContext) -> AsyncIterator[Tombstone]:
    """Every tombstone, the oldest first."""
    async for read in read_stream(js, STREAM, subjects=(SUBJECTS,)):
        if _LIFTED not in read.headers:
            yield msgspec.json.decode(read.data, type=Tombstone)


class Erased:
    """All tombstones in memory, followed as they come: asking costs no message.

    It guards data, so it fails closed: while `problem` says anything, nobody may record what might have
    been erased. An erasure is known here `CURRENT_SECONDS` after its tombstone, or there is a problem.
    """

    def __init__(
        self, js: JetStreamContext, *, on_image: Callable[[str], None] = lambda sha256: None
    ) -> None:
        self._js = js
        self._on_image = on_image
        self._names: set[str] = set()
        self._latest = 0.0
        self._confirmed = 0.0
        self._fault = ""
        self._tried = asyncio.Event()
        self._task = SupervisedTask("tombstones", self._follow)

    async def start(self) -> None:
        """Read what there is, then follow. Waits for it only while the server answers."""
        self._task.start()
        await until_set(self._tried, START_SECONDS)

    async def stop(self) -> None:
        await self._task.stop()

    @property
    def problem(self) -> str:
        """Why it is not known what was erased; empty while it is."""
        if self._confirmed and time.monotonic() - self._confirmed <= CURRENT_SECONDS:
            return ""
        why = self._task.problem or "the server has not answered yet"
        if self._fault:
            why = f"{self._fault} (groundwatch admin provision makes the bucket where there is none)"
        since = f" since {CURRENT_SECONDS:g} s or more" if self._confirmed else ""
        return f"tombstones are not known{since}: {why}"

    def since(self, moment: float) -> bool:
        """Whether a response or a tenant was erased after this moment, in seconds since the epoch, or nobody
        knows."""
        return bool(self.problem) or self._latest >= moment

    def why(self, response: ResponseRecorded) -> str:
        """Why a response must not be recorded; empty when nothing speaks against it."""
        if not self._names:
            return ""
        if tombstone_name("response", response.key) in self._names:
            return f"this response was erased, and {NOT_AGAIN}"
        if tombstone_name("tenant", response.tenant) in self._names:
            return f"tenant '{response.tenant}' was erased, and {NOT_AGAIN}"
        if self.any_image(response.every_image):
            return f"it names an image that was erased, and {NOT_AGAIN}"
        return ""

    @property
    def number(self) -> int:
        """How many erasures are known."""
        return len(self._names)

    def names_response(self, key: str, tenant: str) -> bool:
        """Whether this response, by its key, or all of its tenant was erased."""
        return bool(self._names) and (
            tombstone_name("response", key) in self._names or tombstone_name("tenant", tenant) in self._names
        )

    def any_image(self, digests: Iterable[object]) -> bool:
        return bool(self._names) and any(
            isinstance(one, str) and tombstone_name("image", one) in self._names for one in digests
        )

    async def _follow(self) -> None:
        while True:
            # What was known stays in force until all is read anew.
            names: set[str] = set()
            async for batch in follow_stream(self._js, STREAM, subjects=(SUBJECTS,), on_fault=self._on_fault):
                for read in batch.messages:
                    self._take(names, read)
                if batch.pending == 0:
                    self._names, self._confirmed = names, time.monotonic()
                    self._tried.set()
            logger.warning("tombstones.another_stream", meaning="the bucket was made anew; it is read again")

    def _take(self, names: set[str], read: Read) -> None:
        subject, data = read.subject, read.data
        name = subject.rpartition(".")[2]
        if not data:
            # What marks the removal of a key has no data.
            names.discard(name)
            return
        names.add(name)
        try:
            stone = msgspec.json.decode(data, type=Tombstone)
        except UNDECODED as error:
            logger.warning("tombstones.unreadable", subject=subject, error=str(error))
            return
        if stone.kind in ("response", "tenant"):
            # When it was written for the last time, which is when the erasure had come to its end.
            self._latest = max(self._latest, read.time)
        for sha256 in stone.images:
            self._on_image(sha256)

    def _on_fault(self, problem: str) -> None:
        if problem and not self._fault:
            logger.warning("tombstones.unknown", problem=problem)
        self._fault = problem
        if problem:
            self._tried.set()


def begun(kind: Kind, name: str, by: str) -> Tombstone:
    return Tombstone(kind=kind, name=name, at=time.time(), by=by)
