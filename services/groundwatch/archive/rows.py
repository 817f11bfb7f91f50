"""Outcomes as rows: two Arrow tables, and the way back from rows to events.

`outcomes` has one row for each response and protocol, `claims` one for each of its claims. What a report
needs of the claims stands in the outcome's row, as sums for each category, so that a report reads no claim.

The schema grows by rule: a new column goes to the end, into `ADDED` with the default that rows written
before it have, and `SCHEMA` counts up; a column never changes its type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import accumulate, chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from groundwatch.events import (
    Decision,
    Drawn,
    Judge,
    JudgedClaim,
    Label,
    OutcomeKind,
    ResponseScored,
    SubSentence,
    Usage,
)
from groundwatch.reporting.tally import fingerprint
from groundwatch.statistics.sampling import weight

OUTCOMES = "outcomes"
CLAIMS = "claims"
TABLES = (OUTCOMES, CLAIMS)

SCHEMA = 2
"""The version of both schemas; a part remembers the one that it was written with."""

_TIME = pa.timestamp("us")
"""Times are UTC, and say so nowhere: a zone in the type makes every client ask for its own."""

_MAX_TIME = 253_402_300_799.0

_SHARED: list[tuple[str, pa.DataType]] = [
    ("sequence", pa.int64()),
    ("stream", pa.int64()),
    ("day", pa.date32()),
    ("run", pa.string()),
    ("tenant", pa.string()),
    ("model", pa.string()),
    ("version", pa.string()),
    ("protocol", pa.string()),
    ("fingerprint", pa.string()),
    ("outcome", pa.string()),
    ("response_id", pa.string()),
    ("key", pa.string()),
    ("recorded_at", _TIME),
    ("scored_at", _TIME),
    ("tags", pa.map_(pa.string(), pa.string())),
]

_OWN: dict[str, list[tuple[str, pa.DataType]]] = {
    OUTCOMES: [
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("score", pa.float64()),
        ("eligible", pa.int64()),
        ("decided", pa.int64()),
        ("supported", pa.int64()),
        ("refuted", pa.int64()),
        ("answer_words", pa.int64()),
        ("calls", pa.int64()),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cost", pa.float64()),
        ("values", pa.map_(pa.string(), pa.float64())),
        (
            "categories",
            pa.list_(
                pa.struct(
                    [
                        ("category", pa.string()),
                        ("supported", pa.int64()),
                        ("refuted", pa.int64()),
                        ("score", pa.float64()),
                    ]
                )
            ),
        ),
        (
            "judges",
            pa.list_(
                pa.struct(
                    [
                        (name, pa.string())
                        for name in ("stage", "engine", "model", "prompt", "version", "fingerprint")
                    ]
                )
            ),
        ),
        (
            "units",
            pa.list_(
                pa.struct(
                    [
                        ("start", pa.int64()),
                        ("end", pa.int64()),
                        ("text", pa.string()),
                        ("label", pa.string()),
                        ("confidence", pa.float64()),
                    ]
                )
            ),
        ),
        ("weight", pa.float64()),
        ("drawn", pa.float64()),
        ("drawn_lowest", pa.float64()),
        ("stratum", pa.string()),
        ("budget", pa.string()),
    ],
    CLAIMS: [
        ("claim", pa.int64()),
        ("unit", pa.int64()),
        ("category", pa.string()),
        ("verdict", pa.string()),
        ("probability", pa.float64()),
        ("text", pa.string()),
        ("evidence", pa.string()),
        ("parts", pa.list_(pa.string())),
    ],
}

SCHEMAS: dict[str, pa.Schema] = {table: pa.schema([*_SHARED, *_OWN[table]]) for table in TABLES}
"""Columns by table. `sequence` is the outcome's place in the stream that was created at `stream` (µs since
the epoch); `day` is that of recording, UTC; `key` is `events.response_key`; `version` the model's, by the
tags that settings name; `fingerprint` names the set of judges; `claim` counts a response's claims from 0;
`weight` is how many responses an outcome stands for: it was to be judged with the probability `drawn`."""

ADDED: dict[str, dict[str, tuple[int, Any]]] = {
    OUTCOMES: {
        "weight": (2, 1.0),
        "drawn": (2, 1.0),
        "drawn_lowest": (2, 1.0),
        "stratum": (2, ""),
        "budget": (2, ""),
    },
    CLAIMS: {},
}
"""By table and column, since which `SCHEMA` it is there and what rows written before it have."""


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
    def day(self) -> date:
        """The day of recording; of a response that does not say, the day the outcome was stored."""
        when = self.event.recorded_at or self.stored_at
        return datetime.fromtimestamp(when if 0 <= when <= _MAX_TIME else 0, UTC).date()


def to_tables(rows: Sequence[Row], version_tags: Sequence[str]) -> dict[str, pa.Table]:
    """Both tables of these outcomes, in their order.

    Raises `OverflowError`, `pa.ArrowException` or `UnicodeError` when a value has no place in its column.
    """
    events = [row.event for row in rows]
    shared: dict[str, pa.Array] = {
        "sequence": pa.array([row.sequence for row in rows], pa.int64()),
        "stream": pa.array([row.stream for row in rows], pa.int64()),
        "day": pa.array([row.day for row in rows], pa.date32()),
        "run": pa.array([event.run for event in events], pa.string()),
        "tenant": pa.array([event.tenant for event in events], pa.string()),
        "model": pa.array([event.model for event in events], pa.string()),
        "version": pa.array([_version(event, version_tags) for event in events], pa.string()),
        "protocol": pa.array([event.protocol for event in events], pa.string()),
        "fingerprint": pa.array([fingerprint(event.judges) for event in events], pa.string()),
        "outcome": pa.array([event.outcome.value for event in events], pa.string()),
        "response_id": pa.array([event.id for event in events], pa.string()),
        "key": pa.array([row.key for row in rows], pa.string()),
        "recorded_at": pa.array([_micros(event.recorded_at) for event in events], _TIME),
        "scored_at": pa.array([_micros(event.scored_at) for event in events], _TIME),
        "tags": pa.array([list(event.tags.items()) for event in events], _type(OUTCOMES, "tags")),
    }
    outcomes = pa.Table.from_arrays([*shared.values(), *_outcome_columns(events)], schema=SCHEMAS[OUTCOMES])
    claims = list(chain.from_iterable(event.claims for event in events))
    owner = pa.array(
        chain.from_iterable([at] * len(event.claims) for at, event in enumerate(events)), pa.int64()
    )
    columns = [pc.take(column, owner) for column in shared.values()]
    return {
        OUTCOMES: outcomes,
        CLAIMS: pa.Table.from_arrays([*columns, *_claim_columns(events, claims)], schema=SCHEMAS[CLAIMS]),
    }


def to_events(outcomes: pa.Table, claims: pa.Table) -> Iterator[tuple[Row, ResponseScored]]:
    """The outcomes of `outcomes` as they were sent, with their claims from `claims`; times to the µs."""
    found: dict[tuple[int, int], list[tuple[int, JudgedClaim]]] = {}
    for row in claims.to_pylist():
        claim = JudgedClaim(
            text=row["text"],
            category=row["category"],
            unit=row["unit"],
            decision=Decision(row["verdict"]),
            probability=row["probability"],
            evidence=row["evidence"],
            parts=tuple(row["parts"]),
        )
        found.setdefault((row["stream"], row["sequence"]), []).append((row["claim"], claim))
    for row in outcomes.to_pylist():
        numbered = sorted(found.get((row["stream"], row["sequence"]), ()), key=lambda one: one[0])
        event = _event(row, tuple(claim for _, claim in numbered))
        yield Row(event=event, key=row["key"], stream=row["stream"], sequence=row["sequence"]), event


def conform(table: pa.Table, name: str) -> pa.Table:
    """Rows of an older schema in the present one: what they lack has its default."""
    schema = SCHEMAS[name]
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table.column(field.name).cast(field.type))
        else:
            _, default = ADDED[name].get(field.name, (0, None))
            columns.append(pa.repeat(pa.scalar(default, field.type), len(table)))
    return pa.Table.from_arrays(columns, schema=schema)


def _outcome_columns(events: Sequence[ResponseScored]) -> Iterator[pa.Array]:
    sums = [_categories(event) for event in events]
    values: dict[str, Iterable[Any]] = {
        "reason": (event.reason for event in events),
        "detail": (event.detail for event in events),
        "score": (event.score for event in events),
        "eligible": (event.eligible for event in events),
        "decided": (event.decided for event in events),
        "supported": (sum(one["supported"] for one in each) for each in sums),
        "refuted": (sum(one["refuted"] for one in each) for each in sums),
        "answer_words": (event.answer_words for event in events),
        "calls": (event.usage.calls for event in events),
        "input_tokens": (event.usage.input_tokens for event in events),
        "output_tokens": (event.usage.output_tokens for event in events),
        "cost": (event.usage.cost for event in events),
        "values": (list(event.values.items()) for event in events),
        "categories": sums,
        "judges": ([_judge(stage, judge) for stage, judge in event.judges.items()] for event in events),
        "units": ([msgspec.to_builtins(unit) for unit in event.units] for event in events),
        "weight": (weight(event.drawn) for event in events),
        "drawn": (event.drawn.probability for event in events),
        "drawn_lowest": (event.drawn.lowest for event in events),
        "stratum": (event.drawn.stratum for event in events),
        "budget": (event.drawn.budget for event in events),
    }
    for name, kind in _OWN[OUTCOMES]:
        yield pa.array(list(values[name]), kind)


def _claim_columns(events: Sequence[ResponseScored], claims: Sequence[JudgedClaim]) -> Iterator[pa.Array]:
    values: dict[str, Iterable[Any]] = {
        "claim": chain.from_iterable(range(len(event.claims)) for event in events),
        "unit": (claim.unit for claim in claims),
        "category": (claim.category for claim in claims),
        "verdict": (claim.decision.value for claim in claims),
        "probability": (claim.probability for claim in claims),
        "text": (claim.text for claim in claims),
        "evidence": (claim.evidence for claim in claims),
    }
    for name, kind in _OWN[CLAIMS]:
        if name != "parts":
            yield pa.array(values[name], kind)
            continue
        # A list column from its pieces: one Python list for each claim would cost more than all the rest.
        offsets = pa.array([0, *accumulate(len(claim.parts) for claim in claims)], pa.int32())
        flat = pa.array(chain.from_iterable(claim.parts for claim in claims), pa.string())
        yield pa.ListArray.from_arrays(offsets, flat)


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


def _judge(stage: str, judge: Judge) -> dict[str, str]:
    return {
        "stage": stage,
        "engine": judge.engine,
        "model": judge.model,
        "prompt": judge.prompt,
        "version": judge.version,
        "fingerprint": judge.fingerprint,
    }


def _event(row: dict[str, Any], claims: tuple[JudgedClaim, ...]) -> ResponseScored:
    return ResponseScored(
        id=row["response_id"],
        model=row["model"],
        protocol=row["protocol"],
        outcome=OutcomeKind(row["outcome"]),
        tenant=row["tenant"],
        run=row["run"],
        score=row["score"],
        values=dict(row["values"]),
        reason=row["reason"],
        detail=row["detail"],
        judges={
            one["stage"]: Judge(
                engine=one["engine"], model=one["model"], prompt=one["prompt"], version=one["version"]
            )
            for one in row["judges"]
        },
        units=tuple(SubSentence(**(unit | {"label": Label(unit["label"])})) for unit in row["units"]),
        claims=claims,
        eligible=row["eligible"],
        decided=row["decided"],
        answer_words=row["answer_words"],
        usage=Usage(
            calls=row["calls"],
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            cost=row["cost"],
        ),
        drawn=Drawn(
            probability=row["drawn"],
            lowest=row["drawn_lowest"],
            stratum=row["stratum"],
            budget=row["budget"],
        ),
        tags=dict(row["tags"]),
        recorded_at=_seconds(row["recorded_at"]),
        scored_at=_seconds(row["scored_at"]),
    )


def _version(event: ResponseScored, names: Sequence[str]) -> str:
    return next((event.tags[name] for name in names if name in event.tags), "")


def _micros(seconds: float) -> int | None:
    return round(seconds * 1e6) if 0 < seconds <= _MAX_TIME else None


def _seconds(when: datetime | None) -> float:
    return when.replace(tzinfo=UTC).timestamp() if when is not None else 0.0


def _type(table: str, column: str) -> pa.DataType:
    return SCHEMAS[table].field(column).type
