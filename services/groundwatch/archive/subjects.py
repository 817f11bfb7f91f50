"""Filters of subjects, as a stream takes them, as filters of the columns that the table of events has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from groundwatch.topology import CHANNELS, parse_subject

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("run", "protocol", "key")
"""Parts of subjects that have columns, beside the kind."""

PARTS = {
    channel.address.split(".")[1]: [part.strip("{}") for part in channel.address.split(".")[2:]]
    for channel in CHANNELS
}
"""The parts of each kind of subject, behind the kind."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """One filter, and what columns say of all that it covers; `whole` where that says all of it."""

    subject: str
    columns: dict[str, str]
    whole: bool

    def covers(self, parts: Sequence[str]) -> bool:
        wanted = self.subject.split(".")
        for at, part in enumerate(wanted):
            if part == ">":
                return len(parts) > at
            if at >= len(parts) or part not in ("*", parts[at]):
                return False
        return len(parts) == len(wanted)


class Subjects:
    """What any of several filters covers; everything, where there is none."""

    def __init__(self, subjects: Iterable[str]) -> None:
        wanted = list(subjects)
        self._everything = not wanted or ">" in wanted
        self._plain = frozenset(one for one in wanted if not _is_wild(one))
        self._filters = [_filter(one) for one in wanted if _is_wild(one)]
        self._keys = sorted({address.key for one in self._plain if (address := parse_subject(one))})
        named = {name for one in self._filters for name in one.columns} | ({"key"} if self._plain else set())
        self.columns = [] if self._everything else sorted({"kind", *named})
        """What `may_have` must see of the rows."""
        self._whole = not self._plain and all(one.whole for one in self._filters)

    def covering(self, subject: str) -> list[str]:
        """Those of the filters that cover this subject."""
        parts = subject.split(".")
        found = [one.subject for one in self._filters if one.covers(parts)]
        return [subject, *found] if subject in self._plain else found

    def may_have(self, rows: pa.Table) -> pa.Array | None:
        """Which of these rows may be wanted, None for all of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._everything:
            return None
        # A subject that is none of ours has no kind, and nothing but itself to go by.
        conditions = [pc.equal(rows["kind"], "")]
        if self._keys:
            conditions.append(pc.is_in(rows["key"], pa.array(self._keys, pa.string())))
        for one in self._filters:
            if not one.columns:
                return None
            equal = [pc.equal(rows[name], value) for name, value in one.columns.items()]
            conditions.append(reduce(pc.and_, equal))
        return reduce(pc.or_, conditions)

    def told(self, rows: pa.Table) -> bool:
        """Whether all of these rows, which may be wanted, are wanted for sure."""
        import pyarrow.compute as pc

        return self._everything or (self._whole and not pc.any(pc.equal(rows["kind"], "")).as_py())


def _is_wild(subject: str) -> bool:
    return "*" in subject or ">" in subject


def _filter(subject: str) -> Filter:
    kind, *parts = subject.split(".")[1:] or [""]
    if (names := PARTS.get(kind)) is None:
        # Of no kind, or of several: every row has to be looked at.
        return Filter(subject=subject, columns={}, whole=False)
    columns, whole = {"kind": kind}, parts[-1:] == [">"] or len(parts) == len(names)
    for name, part in zip(names, parts, strict=False):
        if part not in ("*", ">"):
            if name in COLUMNS:
                columns[name] = part
            else:
                whole = False
    return Filter(subject=subject, columns=columns, whole=whole)
