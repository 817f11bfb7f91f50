"""The archive's table of outcomes: one row for each response and protocol, with its claims nested in it.

What a report needs of the claims stands beside them, as sums for each category, so that a report reads none.

The schema grows by rule: a new column goes to the end, and rows that were written before have null there; a
column never changes its type.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from groundwatch.archive.table import ArchiveTable, TableSpec
from groundwatch.errors import UNDECODED
from groundwatch.events import (
    Box,
    Decision,
    Drawn,
    Judge,
    JudgedClaim,
    LeftOut,
    OutcomeKind,
    ResponseScored,
    SubSentence,
    Usage,
    version_of,
)
from groundwatch.keys import partition_of
from groundwatch.reporting.sums import fingerprint
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import superseded_by
from groundwatch.runtime.delivery.streams import Position, Read, read_stream
from groundwatch.statistics.sampling import weight
from groundwatch.topology import OUTCOMES as OUTCOME_STREAM
from groundwatch.topology import parse_subject, run_subjects
from groundwatch.topology.partitions import partition_of_stream, subjects_in

OUTCOMES = "outcomes"
CLAIMS = "claims"

_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()
_TIME = pa.timestamp("us", "UTC")
_MAX_TIME = 253_402_300_799.0


def _records(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(list(fields.items())))


_BOXES = _records(image=_WHOLE, **dict.fromkeys(("x0", "y0", "x1", "y1", "score"), _REAL), label=_TEXT)
_CLAIMS = _records(
    unit=_WHOLE,
    category=_TEXT,
    verdict=_TEXT,
    probability=_REAL,
    text=_TEXT,
    evidence=_TEXT,
    parts=pa.list_(_TEXT),
    boxes=_BOXES,
    start=_WHOLE,
    end=_WHOLE,
    hedged=pa.bool_(),
    place=_TEXT,
)
_CATEGORIES = _records(category=_TEXT, supported=_WHOLE, refuted=_WHOLE, score=_REAL)
_LEFT_OUT = _records(start=_WHOLE, end=_WHOLE, kind=_TEXT, detail=_TEXT)
_JUDGES = _records(stage=_TEXT, engine=_TEXT, model=_TEXT, prompt=_TEXT, version=_TEXT, fingerprint=_TEXT)
_UNITS = _records(start=_WHOLE, end=_WHOLE, text=_TEXT, label=_TEXT, confidence=_REAL)

_SHARED: list[tuple[str, pa.DataType]] = [
    ("sequence", _WHOLE),
    ("stream", _WHOLE),
    ("day", pa.date32()),
    *((name, _TEXT) for name in ("run", "tenant", "model", "version", "protocol", "fingerprint")),
    *((name, _TEXT) for name in ("outcome", "response_id", "key")),
    ("recorded_at", _TIME),
    ("scored_at", _TIME),
    ("tags", pa.map_(_TEXT, _TEXT)),
]

_OWN: list[tuple[str, pa.DataType]] = [
    ("reason", _TEXT),
    ("detail", _TEXT),
    ("score", _REAL),
    *((name, _WHOLE) for name in ("eligible", "decided", "supported", "refuted", "answer_words")),
    *((name, _WHOLE) for name in ("calls", "input_tokens", "output_tokens")),
    ("cost", _REAL),
    ("values", pa.map_(_TEXT, _REAL)),
    ("categories", _CATEGORIES),
    ("judges", _JUDGES),
    ("units", _UNITS),
    *((name, _REAL) for name in ("weight", "drawn", "drawn_lowest")),
    ("stratum", _TEXT),
    ("budget", _TEXT),
    ("images", pa.list_(_TEXT)),
    ("left_out", _LEFT_OUT),
]

SCHEMA: pa.Schema = pa.schema([*_SHARED, *_OWN, (CLAIMS, _CLAIMS)])
"""Columns. `sequence` is the outcome's place in the stream that was created at `stream` (µs since the epoch);
`day` is that of recording, UTC; `key` is `keys.response_key`; `version` the model's, by the tags that
settings name; `fingerprint` names the set of judges; `weight` is how many responses an outcome stands for: it
was to be judged with the probability `drawn`."""

OUTCOMES_TABLE = TableSpec(name=OUTCOMES, schema=SCHEMA, partition=("day",), created="stream", batch=4_096)

SHARED = tuple(name for name, _ in _SHARED)
"""Columns that the table of claims has too."""

_CLAIM = list(_CLAIMS.value_type)
_AS_IN_CLAIM = ("unit", "category", "probability", "text", "evidence", "hedged", "place")
CLAIM_FIELDS = tuple(field.name for field in _CLAIM)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome with its place: `stream` and `sequence`, the subject's `key`, and `stored_at` in seconds.

    `supersedes` is the sequence of the outcome that it took the place of, 0 for none.
    """

    event: ResponseScored
    key: str
    stream: int
    sequence: int
    stored_at: float = 0.0
    supersedes: int = 0

    @property
    def created(self) -> int:
        return self.stream

    @property
    def run(self) -> str:
        return self.event.run

    @property
    def day(self) -> date:
        """The day of recording; of a response that does not say, the day the outcome was stored."""
        when = self.event.recorded_at or self.stored_at
        return datetime.fromtimestamp(when if 0 <= when <= _MAX_TIME else 0, UTC).date()


_AS_IN_EVENT = (
    *("run", "tenant", "model", "protocol", "reason", "detail"),
    *("score", "eligible", "decided", "answer_words"),
)


def to_table(rows: Sequence[Row], version_tags: Sequence[str]) -> pa.Table:
    """These outcomes, in their order.

    Raises `OverflowError`, `pa.ArrowException` or `UnicodeError` when a value has no place in its column.
    """
    events = [row.event for row in rows]
    sums = [_categories(event) for event in events]
    values: dict[str, Iterable[Any]] = {
        **{name: map(attrgetter(name), events) for name in _AS_IN_EVENT},
        **{name: map(attrgetter(f"usage.{name}"), events) for name in Usage.__struct_fields__},
        "sequence": (row.sequence for row in rows),
        "stream": (row.stream for row in rows),
        "day": (row.day for row in rows),
        "version": (version_of(event.tags, version_tags) for event in events),
        "fingerprint": (fingerprint(event.judges) for event in events),
        "outcome": (event.outcome.value for event in events),
        "response_id": (event.id for event in events),
        "key": (row.key for row in rows),
        "recorded_at": (_micros(event.recorded_at) for event in events),
        "scored_at": (_micros(event.scored_at) for event in events),
        "tags": (list(event.tags.items()) for event in events),
        "supported": (sum(one["supported"] for one in each) for each in sums),
        "refuted": (sum(one["refuted"] for one in each) for each in sums),
        "values": (list(event.values.items()) for event in events),
        "categories": sums,
        "judges": (
            [
                {"stage": stage, "fingerprint": judge.fingerprint, **msgspec.structs.asdict(judge)}
                for stage, judge in event.judges.items()
            ]
            for event in events
        ),
        "units": ([msgspec.to_builtins(unit) for unit in event.units] for event in events),
        "weight": (weight(event.drawn) for event in events),
        "drawn": (event.drawn.probability for event in events),
        "drawn_lowest": (event.drawn.lowest for event in events),
        "stratum": (event.drawn.stratum for event in events),
        "budget": (event.drawn.budget for event in events),
        "images": (event.images for event in events),
        "left_out": ([msgspec.to_builtins(one) for one in event.left_out] for event in events),
    }
    columns = [pa.array(list(values[field.name]), field.type) for field in SCHEMA if field.name != CLAIMS]
    return pa.Table.from_arrays([*columns, _claims(events)], schema=SCHEMA)


def event_of(row: Mapping[str, Any]) -> ResponseScored:
    """The outcome of a row, as plain values by column; a file of before there was a column lacks it."""
    row = {**dict.fromkeys(SCHEMA.names), **row}
    drawn = {"probability": "drawn", "lowest": "drawn_lowest", "stratum": "stratum", "budget": "budget"}
    return ResponseScored(
        **{name: row[name] for name in _AS_IN_EVENT},
        id=row["response_id"],
        outcome=OutcomeKind(row["outcome"]),
        values=dict(row["values"] or {}),
        judges={
            one["stage"]: Judge(**{name: one[name] for name in Judge.__struct_fields__})
            for one in row["judges"] or ()
        },
        units=tuple(msgspec.convert(row["units"] or (), tuple[SubSentence, ...])),
        claims=tuple(
            JudgedClaim(
                text=one["text"],
                category=one["category"],
                unit=one["unit"],
                decision=Decision(one["verdict"]),
                probability=one["probability"],
                evidence=one["evidence"],
                parts=tuple(one["parts"] or ()),
                boxes=tuple(Box(**box) for box in one["boxes"] or ()),
                span=(one["start"], one["end"]) if one["start"] is not None else None,
                hedged=one["hedged"],
                place=one["place"],
            )
            for one in row[CLAIMS] or ()
        ),
        usage=Usage(
            **{name: row[name] for name in ("calls", "input_tokens", "output_tokens", "cost")},
        ),
        drawn=Drawn(**{name: row[column] for name, column in drawn.items()}),
        tags=dict(row["tags"] or {}),
        images=tuple(row["images"] or ()),
        recorded_at=_seconds(row["recorded_at"]),
        scored_at=_seconds(row["scored_at"]),
        partition=partition_of(row["key"]),
        left_out=tuple(msgspec.convert(row["left_out"] or (), tuple[LeftOut, ...])),
    )


def nested(lengths: Iterable[int], claims: Sequence[pa.Array]) -> pa.Array:
    """The column of claims from one array for each of `CLAIM_FIELDS` and the number of claims by row."""
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(claims, fields=_CLAIM))


def _claims(events: Sequence[ResponseScored]) -> pa.Array:
    claims = list(chain.from_iterable(event.claims for event in events))
    lists: dict[str, list[Sequence[Any]]] = {
        "parts": [claim.parts for claim in claims],
        "boxes": [[msgspec.structs.asdict(box) for box in claim.boxes] for claim in claims],
    }
    values: dict[str, Iterable[Any]] = {
        **{name: map(attrgetter(name), claims) for name in _AS_IN_CLAIM},
        "verdict": (claim.decision.value for claim in claims),
        "start": (claim.span[0] if claim.span else None for claim in claims),
        "end": (claim.span[1] if claim.span else None for claim in claims),
    }
    columns = [
        _lists(lists[field.name], field.type)
        if field.name in lists
        else pa.array(values[field.name], field.type)
        for field in _CLAIM
    ]
    return nested((len(event.claims) for event in events), columns)


def _lists(several: Sequence[Sequence[Any]], form: pa.DataType) -> pa.Array:
    """A list column from its pieces: one Python list for each claim would cost more than all the rest."""
    offsets = pa.array([0, *accumulate(map(len, several))], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(chain.from_iterable(several), form.value_type))


def _categories(event: ResponseScored) -> list[dict[str, Any]]:
    """Decided claims by category, with the protocol's score of that category where it has one.

    As in the report, only a scored outcome counts.
    """
    if event.outcome is not OutcomeKind.SCORED:
        return []
    counts: Counter[tuple[str, Decision]] = Counter(
        (claim.category, claim.decision) for claim in event.claims
    )
    found = []
    for category in dict.fromkeys(claim.category for claim in event.claims):
        supported, refuted = counts[category, Decision.SUPPORTED], counts[category, Decision.REFUTED]
        if supported or refuted:
            score = event.values.get(f"{event.protocol}.{category}")
            found.append({"category": category, "supported": supported, "refuted": refuted, "score": score})
    return found


def _micros(seconds: float) -> int | None:
    return round(seconds * 1e6) if 0 < seconds <= _MAX_TIME else None


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0


_DECODER = msgspec.json.Decoder(ResponseScored)


def row_of(read: Read, stream: int) -> Row:
    """The outcome of a message, in the run and under the key that its subject says.

    Raises `errors.UNDECODED` for bytes that are none.
    """
    event = _DECODER.decode(read.data)
    address = parse_subject(read.subject)
    if address is not None and address.run != event.run:
        event = msgspec.structs.replace(event, run=address.run)
    return Row(
        event=event,
        key=address.key if address is not None else event.key,
        stream=stream,
        sequence=read.sequence,
        stored_at=read.time,
        supersedes=superseded_by(read.subject, read.headers),
    )


async def rows_after(
    bus: Bus,
    at: Position,
    position: int,
    *,
    stream: str = OUTCOME_STREAM,
    run: str = "",
    on_unreadable: Callable[[Read, Exception], None] = lambda read, error: None,
) -> AsyncIterator[Row]:
    """Outcomes of one stream behind `position`, up to what it holds at `at`; of one run where it is named."""
    if position >= at.last:
        return
    subjects = subjects_in([run_subjects("outcome", run or None)], partition_of_stream(stream))
    reading = read_stream(
        bus.js, stream, subjects=subjects, start_sequence=position + 1, last_sequence=at.last
    )
    async for read in reading:
        try:
            yield row_of(read, at.created)
        except UNDECODED as error:
            on_unreadable(read, error)


class Archive(ArchiveTable[Row]):
    """The outcomes of an archive, with their claims."""

    spec = OUTCOMES_TABLE

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        version_tags: Sequence[str] = ("version",),
        merge_files: int = 8,
        file_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        super().__init__(url, options, merge_files=merge_files, file_bytes=file_bytes)
        self._version_tags = version_tags

    def to_table(self, rows: Sequence[Row]) -> pa.Table:
        return to_table(rows, self._version_tags)

    def count(self, table: pa.Table) -> dict[str, int]:
        return {OUTCOMES: len(table), CLAIMS: pc.sum(pc.list_value_length(table[CLAIMS])).as_py() or 0}
