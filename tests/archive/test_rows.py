"""A row of the archive has everything that its outcome has."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.archive.conftest import rows

from groundwatch.archive.outcomes import to_table
from groundwatch.events import (
    Box,
    Decision,
    Drawn,
    Judge,
    JudgedClaim,
    Label,
    LeftOut,
    LeftOutKind,
    OutcomeKind,
    ResponseScored,
    SubSentence,
    Usage,
)


def test_rows_are_the_outcomes():
    wanted = rows(0, 40)
    table = to_table(wanted, ("release", "version"))
    assert [event_of(row) for row in table.to_pylist()] == [row.event for row in wanted]
    assert table["version"].to_pylist() == [row.event.tags.get("version", "") for row in wanted]


def event_of(row: dict[str, Any]) -> ResponseScored:
    """The outcome as it was sent."""
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
        claims=tuple(
            JudgedClaim(
                text=claim["text"],
                category=claim["category"],
                unit=claim["unit"],
                decision=Decision(claim["verdict"]),
                probability=claim["probability"],
                evidence=claim["evidence"],
                parts=tuple(claim["parts"]),
                boxes=tuple(Box(**box) for box in claim["boxes"]),
                span=(claim["start"], claim["end"]) if claim["start"] is not None else None,
                hedged=claim["hedged"],
                place=claim["place"],
            )
            for claim in row["claims"]
        ),
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
        recorded_at=seconds(row["recorded_at"]),
        scored_at=seconds(row["scored_at"]),
        left_out=tuple(LeftOut(**(one | {"kind": LeftOutKind(one["kind"])})) for one in row["left_out"]),
    )


def seconds(when: datetime | None) -> float:
    return when.timestamp() if when is not None else 0.0
