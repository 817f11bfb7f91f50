"""The index of ids: which responses and questions were recorded, also when no stream holds them any more.

An entry has 16 bytes: 96 bits of `keys.response_key` and 32 of the digest of what the caller sent. Entries
of one stream and day make up parts; a part is an object in a bucket, and never changes: what takes its place
has another name. Its data are two columns of unsigned 64-bit numbers, the lowest byte first: the high 64 bits
of the keys, in order, and behind all of them the other 32 bits of each key with the digest.
"""

import base64
import binascii
import hashlib
import mmap
import secrets
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.runtime.delivery.streams import Mark, Position, has_gone_back, read_stream
from groundwatch.runtime.stores.images import PIECE_BYTES, object_digest, object_info
from groundwatch.topology import ASKED, HEADER_DIGEST, REPEATS_BUCKET, RESPONSES

STREAM = f"OBJ_{REPEATS_BUCKET}"

INDEXED = {RESPONSES: "recorded", ASKED: "asked"}
"""The streams whose ids are indexed, with the kind of event that has them."""

ENTRY_BYTES = 16

HOLD_SECONDS = 120.0
"""Nothing leaves a stream before its ids have been in the bucket for so long."""

CURRENT_SECONDS = 45.0
"""A gateway that has not looked for so long takes nothing. What it has looked up is sent within the rest of
the hold time, or not any more: no request takes so long."""

_HALF = 32
DIGEST_BITS = (1 << _HALF) - 1
_META = f"$O.{REPEATS_BUCKET}.M."


class PartName(msgspec.Struct, frozen=True, kw_only=True):
    """What a part's name says: `created` tells its stream from others of the name, and it has so many
    `entries` of what was recorded on `day` (UTC), up to the sequence `last`. `nuid` names its pieces, and
    says the first sequence and when the last message was stored."""

    stream: str
    created: int
    day: str
    last: int
    entries: int
    nuid: str

    @property
    def first(self) -> int:
        """No entry is of a message before this one."""
        return int(self.nuid.split("-")[0])

    @property
    def mark(self) -> Mark:
        """The last message of which it has an entry, or had."""
        return Mark(self.last, int(self.nuid.split("-")[1]) / 1e6)

    @property
    def text(self) -> str:
        return "/".join(map(str, msgspec.structs.astuple(self)))

    @property
    def meta_subject(self) -> str:
        """Where the object store keeps what it knows of the object."""
        return _META + base64.urlsafe_b64encode(self.text.encode()).decode()

    @property
    def pieces_subject(self) -> str:
        return f"$O.{REPEATS_BUCKET}.C.{self.nuid}"


def part_name(stream: str, created: int, day: str, first: int, last: Mark, data: bytes) -> PartName:
    """A name for a part with these data, that no part has had."""
    return PartName(
        stream=stream,
        created=created,
        day=day,
        last=last.sequence,
        entries=len(data) // ENTRY_BYTES,
        nuid=f"{first}-{round(last.time * 1e6)}-{secrets.token_hex(12)}",
    )


def _read_name(subject: str) -> PartName | None:
    """The part whose object this subject says something of; None for what is no part."""
    try:
        text = base64.urlsafe_b64decode(subject.removeprefix(_META)).decode()
        stream, created, day, last, entries, nuid = text.split("/")
        return PartName(
            stream=stream, created=int(created), day=day, last=int(last), entries=int(entries), nuid=nuid
        )
    except (ValueError, binascii.Error):
        return None


def entry_of(key: str, digest: str) -> tuple[int, int]:
    """What stands in the two columns; `digest` is that of what the caller sent, empty where none is known."""
    return int(key[:16], 16), int(key[16:24], 16) << _HALF | int(digest[:8] or "0", 16)


def packed(entries: Iterable[tuple[int, int]]) -> bytes:
    """The data of a part with these entries, which come in order; each once."""
    high, rest, before = array("Q"), array("Q"), (-1, -1)
    for entry in entries:
        if entry != before:
            high.append(entry[0])
            rest.append(entry[1])
            before = entry
    return high.tobytes() + rest.tobytes()


class Part:
    """The entries of one part, in memory or mapped into it."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        """Raises `ValueError` for data that are no part."""
        self.data = memoryview(data)
        self._length = len(self.data) // ENTRY_BYTES
        numbers = self.data.cast("Q")
        self._high, self._rest = numbers[: self._length], numbers[self._length :]
        if len(self._high) != len(self._rest):
            raise ValueError("a part of the index of ids is cut short")

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._high, self._rest, strict=True)

    def digests(self, high: int, rest: int) -> Sequence[int]:
        """The digests, 32 bits each, under the key of an entry; mostly none, which is to cost little."""
        place = bisect_left(self._high, high)
        if place == self._length or self._high[place] != high:
            return ()
        return [self._rest[place] & DIGEST_BITS for place in self._places(high, rest)]

    def without(self, entries: Iterable[tuple[int, int]]) -> bytes | None:
        """The data without the keys of these entries; None where it has none of them."""
        places = sorted({place for high, rest in entries for place in self._places(high, rest)})
        if not places:
            return None
        columns = []
        for column in (self._high, self._rest):
            starts, ends = [0, *(place + 1 for place in places)], [*places, self._length]
            columns += [bytes(column[start:end]) for start, end in zip(starts, ends, strict=True)]
        return b"".join(columns)

    def _places(self, high: int, rest: int) -> list[int]:
        found = []
        place = bisect_left(self._high, high)
        while place < self._length and self._high[place] == high:
            if self._rest[place] >> _HALF == rest >> _HALF:
                found.append(place)
            place += 1
        return found


class NoBucketError(TransientError):
    """There is no such bucket: nothing was ever indexed, or nobody has provisioned it."""


async def parts(js: JetStreamContext) -> list[PartName]:
    """The names of all parts. Raises `NoBucketError`, and what NATS raises."""
    return [name for name in map(_read_name, await _subjects(js, f"{_META}>")) if name is not None]


async def not_of(
    js: JetStreamContext, stream: str, at: Position, names: Iterable[PartName]
) -> list[PartName]:
    """Those of a stream's parts that name messages which it has not, or no longer: its server lost its latest
    ones, or came back with an older state."""
    found = []
    for name in sorted(names, key=lambda name: name.last, reverse=True):
        gone_back = await has_gone_back(js, stream, at, name.mark)
        if gone_back is False:
            break
        found += [name] if gone_back else []
    return found


async def _subjects(js: JetStreamContext, wanted: str) -> list[str]:
    try:
        info = await js.stream_info(STREAM, subjects_filter=wanted)
    except nats.js.errors.NotFoundError as error:
        raise NoBucketError(f"bucket {REPEATS_BUCKET} is missing: run groundwatch admin provision") from error
    return list(info.state.subjects or {})


async def orphans(js: JetStreamContext) -> set[str]:
    """Subjects of pieces that belong to no part: somebody writes one, or died while writing it."""
    pieces = set(await _subjects(js, f"$O.{REPEATS_BUCKET}.C.>"))
    return pieces - {name.pieces_subject for name in await parts(js)}


async def write(js: JetStreamContext, name: PartName, data: bytes) -> None:
    """Write a part: it is there with the last message. Raises what NATS raises."""
    for start in range(0, len(data), PIECE_BYTES):
        await js.publish(name.pieces_subject, data[start : start + PIECE_BYTES])
    info = object_info(REPEATS_BUCKET, name.text, name.nuid, data)
    await js.publish(name.meta_subject, info, headers={"Nats-Rollup": "sub"})


async def remove(js: JetStreamContext, name: PartName) -> None:
    """Remove a part; its pieces last, so that nobody finds it in pieces."""
    for subject in (name.meta_subject, name.pieces_subject):
        await js.purge_stream(STREAM, subject=subject)


async def load(js: JetStreamContext, name: PartName) -> Part:
    """A part, in a file that goes with it. Raises `LookupError` where it is gone by now, and what NATS and
    the disk raise."""
    try:
        said = await js.get_last_msg(STREAM, name.meta_subject)
    except nats.js.errors.NotFoundError as error:
        raise LookupError(name.text) from error
    try:
        info: Any = msgspec.json.decode(said.data or b"")
        size, digest = int(info["size"]), str(info["digest"])
    except (*UNDECODED, KeyError, TypeError, ValueError) as error:
        raise TransientError(f"{name.text} in {REPEATS_BUCKET} is no part of the index of ids") from error
    hashing, written = hashlib.sha256(), 0
    with tempfile.TemporaryFile() as file:
        if size:
            reading = read_stream(js, STREAM, subjects=(name.pieces_subject,))
            async with aclosing(reading):
                async for piece in reading:
                    hashing.update(piece.data)
                    written += file.write(piece.data)
        if object_digest(hashing.digest()) != digest or written != size:
            raise LookupError(name.text)
        file.flush()
        return Part(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


async def forget(js: JetStreamContext, keys: Iterable[str]) -> int:
    """Take these keys out of the index, for good; how many entries that were.

    Again and again until no part has one: others merge parts meanwhile.
    """
    entries, removed = [entry_of(key, "") for key in keys], 0
    clean: set[PartName] = set()
    while entries:
        try:
            names = [name for name in await parts(js) if name not in clean]
        except NoBucketError:
            return removed
        if not names:
            return removed
        for name in names:
            try:
                part = await load(js, name)
            except LookupError:
                continue
            if (rest := part.without(entries)) is None:
                clean.add(name)
            elif await replace(js, [name], rest):
                removed += len(part) - len(rest) // ENTRY_BYTES
    return removed


async def replace(js: JetStreamContext, names: list[PartName], data: bytes) -> bool:
    """Write one part in the place of these, of one day, unless one of them has gone meanwhile; tells whether
    it did."""
    last = max(names, key=lambda name: name.last)
    first = min(name.first for name in names)
    new = part_name(last.stream, last.created, last.day, first, last.mark, data)
    await write(js, new, data)
    if not set(names) <= set(await parts(js)):
        # Somebody took an id out of it, or has merged it.
        await remove(js, new)
        return False
    for name in names:
        await remove(js, name)
    return True


def digest_in(headers: Mapping[str, str]) -> str:
    """The digest of what was sent, as a message carries it; empty where that is none of ours."""
    found = headers.get(HEADER_DIGEST, "")
    return found if set(found[:8]) <= set("0123456789abcdef") else ""


def day_of(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()
