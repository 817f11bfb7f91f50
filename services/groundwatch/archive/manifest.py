"""What an archive consists of: one manifest names all its files and how far it has come.

Manifests are numbered. The next one is made only if there is none of its number, and that one moment adds
rows, removes rows and moves the position in the stream: a crash before it has changed nothing, a crash after
it has lost nothing. A data file carries the number of the manifest that it was written for, and only that one
may name it: a file of a number that has come and gone without it is nobody's, and may be deleted.
"""

from __future__ import annotations

from datetime import date
from urllib.parse import quote

import msgspec

from groundwatch.archive.store import Store
from groundwatch.errors import UNDECODED, UsageError

FOLDER = "manifests"
KEPT = 5
"""Manifests that stay behind the latest, for people who look at what went on."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A data file. `first` and `last` are sequences in the stream created at `stream`; sizes in bytes."""

    name: str
    table: str
    day: date
    run: str
    stream: int
    first: int
    last: int
    rows: int
    bytes: int
    schema: int
    created: float = 0.0

    @property
    def number(self) -> int:
        """The manifest that it was written for."""
        return number_of(self.name)


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """A data file that others have replaced, and since when: queries that began before may still read it."""

    name: str
    since: float


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What must go: responses by `events.response_key`, or all of a tenant.

    `stream` and `until` say up to which sequence of which stream: what is recorded later is another matter.
    """

    keys: tuple[str, ...] = ()
    tenant: str = ""
    stream: int = 0
    until: int = 0

    def concerns(self, key: str, tenant: str) -> bool:
        """Whether an outcome must go."""
        return key in self.keys or (bool(self.tenant) and tenant == self.tenant)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the archive. `positions` holds, by stream, the last sequence that is in `parts`.

    `erasures` are those that the writer has not come past yet: it may hold their outcomes in memory.
    """

    number: int = 0
    parts: tuple[Part, ...] = ()
    positions: dict[str, int] = {}
    retired: tuple[Retired, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    format: int = 1

    def position(self, stream: int) -> int:
        """The last sequence of this stream that the archive has, 0 for none."""
        return self.positions.get(str(stream), 0)

    def of(self, table: str) -> tuple[Part, ...]:
        """The files of one table."""
        return tuple(part for part in self.parts if part.table == table)


def latest(store: Store) -> Manifest:
    """The present state; an empty archive where there is none yet. Raises `UsageError` for a foreign one."""
    while True:
        names = _names(store)
        if not names:
            return Manifest()
        try:
            data = store.read(names[-1])
        except FileNotFoundError:
            # Tidied away since the listing: there are newer ones.
            continue
        try:
            found = msgspec.json.decode(data, type=Manifest)
        except UNDECODED as error:
            raise UsageError(f"{store.url}: {names[-1]} is not an archive's manifest: {error}") from error
        if found.format != 1:
            raise UsageError(f"{store.url}: written by a newer groundwatch (format {found.format}): upgrade")
        return found


def commit(store: Store, manifest: Manifest) -> None:
    """Make this the present state. Raises `FileExistsError` when another one of its number came first."""
    name, data = _name(manifest.number), msgspec.json.encode(manifest)
    try:
        store.create(name, data)
    except FileExistsError:
        # A client that repeats a request whose answer was lost meets its own file.
        if store.read(name) != data:
            raise


def tidy(store: Store, number: int) -> None:
    """Delete manifests that lie far behind this number."""
    for name in _names(store):
        if number_of(name) < number - KEPT:
            store.delete(name)


def part_name(table: str, day: date, run: str, number: int, distinct: str) -> str:
    """A new data file's name; days and runs can be read off it."""
    return f"{table}/day={day.isoformat()}/run={quote(run, safe='')}/{number:012d}-{distinct}.parquet"


def number_of(name: str) -> int:
    """The number that a file's name carries; -1 for one that is not ours."""
    head = name.rpartition("/")[2].partition("-")[0].partition(".")[0]
    return int(head) if head.isascii() and head.isdigit() else -1


def _name(number: int) -> str:
    return f"{FOLDER}/{number:012d}.json"


def _names(store: Store) -> list[str]:
    """Drafts of manifests begin with a dot."""
    return [name for name in store.names(FOLDER) if number_of(name) > 0 and name.endswith(".json")]
