"""What the archive holds in the end."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from groundwatch.archive.events import Events
from groundwatch.archive.outcomes import Archive
from groundwatch.runtime.delivery.streams import Position
from groundwatch.topology import OUTCOMES


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Of both tables: the keys in them, and how many rows have the place of another one."""

    keys: set[str]
    doubled: int


def rows_of(url: str) -> Rows:
    """Read both tables, whatever the streams hold beside."""
    keys: set[str] = set()
    doubled = 0
    for table, place in ((Events(url), ["stream", "created"]), (Archive(url), ["stream"])):
        rows = table.snapshot().dataset()
        if rows is None:
            continue
        read = rows.to_table(columns=["key", "sequence", *place]).to_pydict()
        keys.update(read.pop("key"))
        places = list(zip(*read.values(), strict=True))
        doubled += len(places) - len(set(places))
    return Rows(keys=keys, doubled=doubled)


def places_of(url: str, streams: Mapping[str, Position]) -> dict[str, int]:
    """Up to which sequence each stream is in every table that it belongs to."""
    events, outcomes = Events(url).snapshot(), Archive(url).snapshot()
    found = {stream: events.position(at.created, stream) for stream, at in streams.items()}
    found[OUTCOMES] = min(found[OUTCOMES], outcomes.position(streams[OUTCOMES].created))
    return found
