"""The file that a stretch of the stream is exported to: events and images, and nothing else is needed.

    b"GWEXPORT\\x01"                                     what it is, and the format's version
    sections, each:
        tag       4 bytes    EVTS, IMGS or DONE
        stored    8 bytes    length of what follows, big-endian
        plain     8 bytes    its length when it is unpacked
        checksum  32 bytes   SHA-256 of the 20 bytes before and of what follows
        packed    `stored` bytes of a zlib stream

EVTS holds records (MessagePack), IMGS one image each behind the 32 bytes of its SHA-256, DONE the manifest
(JSON) and the end. A section is checked before it is unpacked, and unpacks to no more than it said.
"""

import hashlib
import secrets
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from groundwatch.errors import UNDECODED, UsageError, told_to_user

MAGIC = b"GWEXPORT\x01"
HEADER = struct.Struct(">4sQQ32s")
EVENTS, IMAGE, DONE = b"EVTS", b"IMGS", b"DONE"

SECTION = 1024 * 1024
"""About so many bytes of events are packed together."""

LARGEST = 72 * 1024 * 1024
"""No section is larger, packed or unpacked: the largest event that a server takes has 64 MiB."""

MOST_RECORDS = 65_536
"""No section of events has more: each takes some 100 bytes, and about so many bytes are packed together."""

LARGEST_HEADERS = 64 * 1024
"""Bytes of an event's headers."""

LARGEST_MANIFEST = 64 * 1024


class Record(msgspec.Struct, frozen=True, array_like=True):
    """An event as the stream held it: what of its subject stands behind the run, its headers, its bytes."""

    subject: str
    headers: dict[str, str]
    data: bytes


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """The same with headers that are looked at before they are unpacked: a byte of them takes up to 100."""

    subject: str
    headers: msgspec.Raw
    data: bytes


_RECORDS = msgspec.msgpack.Decoder(Annotated[list[_Packed], msgspec.Meta(max_length=MOST_RECORDS)])
_HEADERS = msgspec.msgpack.Decoder(dict[str, str])


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds. `stage` is where a replay of it begins; times are of recording, in seconds since
    the epoch; `missing_images` were named by events and stored no more; `unreadable` events were left out."""

    stage: str
    source: str
    events: int
    images: int
    missing_images: int = 0
    unreadable: int = 0
    first: float = 0.0
    last: float = 0.0
    created_at: float = 0.0
    version: str = ""


Part = list[Record] | tuple[str, bytes] | Manifest


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends. Where that fails, there is what was before.

    Raises `UsageError` when it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")
    try:
        with told_to_user(f"{path}: cannot be written"):
            with draft.open("wb") as file:
                yield file
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class ExportWriter:
    """Writes one file. Events first, then images, then the end."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._waiting: list[Record] = []
        self._size = 0
        self._encoder = msgspec.msgpack.Encoder()
        out.write(MAGIC)

    def event(self, record: Record) -> None:
        self._waiting.append(record)
        self._size += len(record.data)
        if self._size >= SECTION or len(self._waiting) >= MOST_RECORDS:
            self._flush()

    def image(self, sha256: str, data: bytes) -> None:
        self._flush()
        # Images are packed in their own ways: level 1 is for the few that are not.
        self._section(IMAGE, bytes.fromhex(sha256) + data, level=1)

    def end(self, manifest: Manifest) -> None:
        self._flush()
        self._section(DONE, msgspec.json.encode(manifest))

    def _flush(self) -> None:
        if self._waiting:
            self._section(EVENTS, self._encoder.encode(self._waiting))
            self._waiting, self._size = [], 0

    def _section(self, tag: bytes, plain: bytes, *, level: int = 6) -> None:
        packed = zlib.compress(plain, level)
        lengths = struct.pack(">4sQQ", tag, len(packed), len(plain))
        self._out.write(lengths + hashlib.sha256(lengths + packed).digest() + packed)


class ExportReader:
    """Reads one file from its beginning, as often as wanted. Raises `UsageError` saying what is wrong and at
    which byte."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def parts(self) -> Iterator[tuple[int, Part]]:
        """Each section with the byte at which it begins: records, an image with its SHA-256, the manifest."""
        with told_to_user(f"{self._path}: cannot be read"), self._path.open("rb") as file:
            yield from self._parts(file)

    def _parts(self, file: BinaryIO) -> Iterator[tuple[int, Part]]:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            at = next((at for at, byte in enumerate(magic) if byte != MAGIC[at]), len(magic))
            if magic[: len(MAGIC) - 1] == MAGIC[:-1]:
                raise self.wrong(at, f"is an export of version {magic[-1]}, and this groundwatch reads 1")
            raise self.wrong(at, "is no export of groundwatch")
        size = self._path.stat().st_size
        done = False
        while True:
            start = file.tell()
            header = file.read(HEADER.size)
            if not header:
                if not done:
                    raise self.wrong(start, "ends too early: the end of the export is missing")
                return
            if done:
                raise self.wrong(start, "goes on behind the end of the export")
            if len(header) < HEADER.size:
                raise self.wrong(start + len(header), "ends in the middle of a section's header")
            tag, stored, plain, checksum = HEADER.unpack(header)
            if tag not in (EVENTS, IMAGE, DONE):
                raise self.wrong(start, f"has a section of an unknown kind {tag!r}")
            if max(stored, plain) > (LARGEST_MANIFEST if tag == DONE else LARGEST):
                raise self.wrong(
                    start + 4, f"has a section of {max(stored, plain):,} bytes, more than any has"
                )
            if start + HEADER.size + stored > size:
                raise self.wrong(size, f"ends in the middle of the section that begins at byte {start}")
            packed = file.read(stored)
            if hashlib.sha256(header[:20] + packed).digest() != checksum:
                raise self.wrong(
                    start, f"is damaged: the {HEADER.size + stored} bytes from here on have another checksum"
                )
            yield start, self._part(tag, start, plain, packed)
            done = tag == DONE

    def _part(self, tag: bytes, start: int, size: int, packed: bytes) -> Part:
        try:
            unpacking = zlib.decompressobj()
            plain = unpacking.decompress(packed, size + 1)
            if len(plain) != size or not unpacking.eof:
                raise self.wrong(start, f"has a section that does not unpack to its {size} bytes")
            if tag == EVENTS:
                return _records(plain)
            if tag == DONE:
                return msgspec.json.decode(plain, type=Manifest)
        except (zlib.error, *UNDECODED) as error:
            raise self.wrong(start, f"has a section that cannot be read: {error}") from error
        digest, data = plain[:32].hex(), plain[32:]
        if hashlib.sha256(data).hexdigest() != digest:
            raise self.wrong(start, f"has an image that is not what its SHA-256 {digest} says")
        return digest, data

    def wrong(self, at: int, what: str) -> UsageError:
        return UsageError(f"{self._path}: byte {at}: {what}; nothing was imported")


def _records(plain: bytes) -> list[Record]:
    """Raises what msgspec raises for bytes that are no records, or more than a section has."""
    found = []
    for packed in _RECORDS.decode(plain):
        if len(memoryview(packed.headers)) > LARGEST_HEADERS:
            raise msgspec.ValidationError(f"headers of more than {LARGEST_HEADERS} bytes")
        found.append(Record(packed.subject, _HEADERS.decode(packed.headers), packed.data))
    return found
