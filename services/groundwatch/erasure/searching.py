"""The proof: a search for the subject's bytes in every store.

Searched are the block files of the NATS server where they can be read, every message of every stream and
bucket through its API, the archive's files and export files, decoded. What other subjects say too ("Describe
the image.") proves nothing, so it is left out, and told.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.archive.place import SWITCHED_OFF, installed
from groundwatch.erasure.finding import Found, Subject, channels_of
from groundwatch.errors import UNDECODED
from groundwatch.replay.files import ExportReader, Manifest
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores.exports import registered
from groundwatch.topology import BUCKETS, STREAMS

if TYPE_CHECKING:
    from groundwatch.archive.archive import Archive

MOST = 64
"""Texts that are searched for, the longest first, beside what names the subject."""

SHORTEST = 24
"""Bytes of a text that says something."""

SLICE = 64
"""Bytes of an image that are searched for, at several places of it."""

SLICES = 8

SERVER_FILES = "NATS files"


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """Where to erase beside the streams. `folder` has the NATS server's files, where they can be read."""

    archive: Archive | None = None
    folder: Path | None = None

    @classmethod
    def of(cls, settings: ArchiveSettings, folder: Path | None = None) -> Stores:
        """With the archive of these settings, where they name one that can be opened here."""
        if settings.url in ("", SWITCHED_OFF) or not installed():
            return cls(folder=folder)
        from groundwatch.archive.archive import Archive

        return cls(archive=Archive(settings.url, settings.options), folder=folder)


class Needles(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched for: what names the subject, texts of its events, pieces of its images, and the `keys`
    of its responses: every row of the archive, and every record of an export, has its own."""

    names: list[bytes]
    texts: list[bytes]
    pieces: list[bytes]
    keys: list[bytes]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where bytes of the subject were found: a `store`, and a file or subject in it."""

    store: str
    where: str


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What a search looked for and where. `unseen` are stores that could not be searched, with the reason;
    `shared` counts texts that were left out since others say them too."""

    needles: int
    shared: int
    searched: tuple[str, ...]
    unseen: tuple[str, ...]
    found: tuple[Place, ...]

    @property
    def holds(self) -> bool:
        return not self.found


def names_of(subject: Subject) -> list[bytes]:
    """What names the subject in every event: must be nowhere, whoever else says it."""
    match subject.kind:
        case "response":
            return [subject.key.encode()]
        case "tenant":
            return [b'"tenant":' + msgspec.json.encode(subject.tenant)]
    return []


def texts_of(subject: Subject, several: Iterable[Found]) -> list[bytes]:
    """What the subject's own messages say: the longest texts of its events."""
    texts: set[bytes] = set()
    if subject.kind == "response":
        texts.add(b'"id":' + msgspec.json.encode(subject.response))
    for one in several:
        try:
            event = msgspec.json.decode(one.data)
        except UNDECODED:
            continue
        texts |= {text for text in _strings(event) if len(text) >= SHORTEST}
        if len(texts) > 20 * MOST:
            break
    return sorted(texts, key=len, reverse=True)[:MOST]


def slices(image: bytes) -> set[bytes]:
    """Pieces from all over an image: formats begin alike."""
    step = max(SLICE, len(image) // (SLICES + 1))
    return {image[at : at + SLICE] for at in range(step // 2, len(image) - SLICE + 1, step)} or {image}


def _strings(value: Any) -> Iterator[bytes]:
    match value:
        case str():
            yield msgspec.json.encode(value)[1:-1]
        case dict():
            for one in value.values():
                yield from _strings(one)
        case list():
            for one in value:
                yield from _strings(one)


async def prove(js: JetStreamContext, needles: Needles, stores: Stores, unreached: Iterable[str]) -> Proof:
    """Search every store. Raises what the stores raise."""
    names, pieces, keys = needles.names, needles.pieces, needles.keys
    found: list[Place] = []
    shared: set[bytes] = set()
    searched: dict[str, None] = {}
    unseen = list(unreached)
    messages = [(spec.name, subjects) for spec in STREAMS for subjects in channels_of(spec.name)]
    for bucket in BUCKETS:
        messages.append((bucket.stream, f"${'KV' if bucket.kind == 'key_value' else 'O'}.{bucket.name}.>"))
    for stream, subjects in messages:
        try:
            async for read in read_stream(js, stream, subjects=(subjects,)):
                whole = b"\0".join((read.subject.encode(), str(read.headers).encode(), read.data))
                if any(name in whole for name in (*names, *pieces)):
                    found.append(Place(store=stream, where=f"sequence {read.sequence}"))
                shared |= {text for text in needles.texts if text not in shared and text in whole}
        except nats.js.errors.NotFoundError:
            continue
        searched[stream] = None
    wanted = [*names, *pieces, *(text for text in needles.texts if text not in shared)]
    if stores.folder is None:
        unseen.append(
            "files of the NATS server: searched were its messages, through its API; its store "
            "directory is not known here"
        )
    else:
        searched[f"files below {stores.folder}"] = None
        files = await asyncio.to_thread(_holding, stores.folder, wanted)
        found += [Place(store=SERVER_FILES, where=str(file.relative_to(stores.folder))) for file in files]
    if stores.archive is not None and keys:
        searched[f"archive {stores.archive.url}"] = None
        found += [Place(store="archive", where=name) for name in stores.archive.store.search(keys)]
    async for export in registered(js):
        path = Path(export.path)
        if export.here and await asyncio.to_thread(path.exists):
            searched[str(path)] = None
            if _in_export(path, [*names, *keys, *pieces]):
                found.append(Place(store="export", where=str(path)))
    return Proof(
        needles=len(wanted),
        shared=len(shared),
        searched=tuple(searched),
        unseen=tuple(unseen),
        found=tuple(found),
    )


def _holding(folder: Path, needles: Sequence[bytes]) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and holds(file, needles)]


def _in_export(path: Path, needles: Sequence[bytes]) -> bool:
    for _, part in ExportReader(path).parts():
        match part:
            case list():
                texts = [text for one in part for text in (one.subject.encode(), one.data)]
            case Manifest():
                texts = [msgspec.json.encode(part)]
            case _:
                texts = [part[1]]
        if any(needle in text for text in texts for needle in needles):
            return True
    return False


def in_index(place: Place) -> bool:
    """Whether this is the file in which a server keeps the subjects of a stream, to start faster.

    It is a copy of what the server has in memory, so a subject that was removed leaves it by itself.
    """
    return place.store == SERVER_FILES and place.where.endswith("/msgs/index.db")


def holds(file: Path, needles: Sequence[bytes]) -> bool:
    """Whether any of these byte strings is in the file."""
    try:
        with file.open("rb") as opened:
            if not file.stat().st_size:
                return False
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return any(data.find(needle) >= 0 for needle in needles)
    except FileNotFoundError:
        # The server has removed the block meanwhile.
        return False
