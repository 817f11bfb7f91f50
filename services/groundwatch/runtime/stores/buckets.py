"""A bucket of small documents that are replaced by compare-and-set, and leave nothing behind.

What the server drops for a newer value stays in its files until a block is compacted. So whoever writes a new
value overwrites the one before, and what is removed is overwritten in all its versions: an erasure finds
nothing of it.
"""

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import TypeVar

import msgspec
import nats.js.errors
from nats.js.kv import KeyValue

from groundwatch.errors import UNDECODED, Unavailable, words
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.direct import overwrite, sequences_on
from groundwatch.runtime.delivery.streams import FAULTS, position_of, read_stream
from groundwatch.runtime.telemetry.logs import logger

S = TypeVar("S", bound=msgspec.Struct)

V = TypeVar("V")

TRIES = 50


class Document(msgspec.Struct, frozen=True):
    """A value with the revision that a newer one must name."""

    key: str
    data: bytes
    revision: int


class Bucket:
    """A key-value bucket. Everything raises `Unavailable` when the server does not answer.

    With `nameless`, its values are about nobody: what is replaced is left to the server.
    """

    def __init__(self, bus: Bus, name: str, *, nameless: bool = False) -> None:
        self._bus = bus
        self._name = name
        self._nameless = nameless
        self._stream = f"KV_{name}"
        self._opened: KeyValue | None = None

    def _subject(self, key: str) -> str:
        return f"$KV.{self._name}.{key}"

    async def get(self, key: str) -> Document | None:
        with self._using():
            try:
                found = await self._bus.js.get_last_msg(self._stream, self._subject(key))
            except nats.js.errors.NotFoundError:
                return None
        return Document(key, found.data or b"", found.seq or 0)

    async def put(self, key: str, data: bytes, revision: int) -> int:
        """Write over this revision, 0 for a key that there is not; the new revision, 0 where there is another
        by now."""
        with self._using():
            bucket = await self._bucket()
            try:
                written = await bucket.update(key, data, revision)
            except nats.js.errors.KeyWrongLastSequenceError:
                return 0
        if revision and not self._nameless:
            # What stays of it for now goes with the key.
            with contextlib.suppress(*FAULTS):
                await overwrite(self._bus.js, self._stream, (revision,))
        return written

    async def read_as(self, key: str, form: type[S]) -> S | None:
        """The value as that; None where there is none, or one that cannot be read, which the log says."""
        found = await self.get(key)
        try:
            return msgspec.json.decode(found.data, type=form) if found is not None else None
        except UNDECODED as error:
            logger.warning("bucket.unreadable", bucket=self._name, key=key, error=str(error))
            return None

    async def change(self, key: str, read: Callable[[bytes | None], V], how: Callable[[V], V]) -> V:
        """Write what `how` makes of the value, which `read` makes of the bytes that are there: again, where
        another one has written meanwhile. Gives what is there now. Raises what they raise."""
        for _ in range(TRIES):
            found = await self.get(key)
            data, revision = (found.data, found.revision) if found is not None else (None, 0)
            before = read(data)
            after = how(before)
            if after == before or await self.put(key, ENCODER.encode(after), revision):
                return after
            await asyncio.sleep(random.uniform(0, 0.02))
        raise Unavailable(f"others change '{key}' in {self._name} at this moment: send it again")

    async def replace(self, key: str, data: bytes) -> bool:
        """Write over whatever is there now; False where another one has just done so."""
        found = await self.get(key)
        return bool(await self.put(key, data, found.revision if found is not None else 0))

    async def remove(self, keys: Iterable[str], mark: str = "") -> int:
        """Remove these keys with their bytes; how many versions that were. The key `mark` changes with it:
        who remembers what there was reads it anew."""
        removed = 0
        with self._using():
            for key in keys:
                sequences = await sequences_on(self._bus.js, self._stream, self._subject(key))
                removed += await overwrite(self._bus.js, self._stream, sequences)
            if removed and mark:
                await (await self._bucket()).put(mark, secrets.token_hex(8).encode())
        return removed

    async def read(self, pattern: str, after: int = 0) -> AsyncGenerator[Document]:
        """The documents of these keys, with wildcards, that were written after a revision, in that order;
        also values that were replaced and are not overwritten yet."""
        family = self._subject("")
        with self._using():
            reading = read_stream(
                self._bus.js, self._stream, subjects=(self._subject(pattern),), start_sequence=after + 1
            )
            async with contextlib.aclosing(reading):
                async for read in reading:
                    yield Document(read.subject.removeprefix(family), read.data, read.sequence)

    async def position(self) -> tuple[int, int]:
        """When the bucket was made (µs since the epoch), and the newest revision."""
        with self._using():
            at = await position_of(self._bus.js, self._stream)
        return at.created, at.last

    async def _bucket(self) -> KeyValue:
        if self._opened is None:
            self._opened = await self._bus.js.key_value(self._name)
        return self._opened

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        try:
            yield
        except nats.js.errors.NotFoundError as error:
            self._opened = None
            raise Unavailable(f"there is no bucket {self._name}: run groundwatch admin provision") from error
        except FAULTS as error:
            raise Unavailable(f"cannot use the bucket {self._name}: {words(error)}") from error
