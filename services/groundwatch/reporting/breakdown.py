"""Rates by anything an outcome says, such as model and category, from outcomes or from sums of them.

Like the report it never pools different protocols, runs or sets of judges: these are in every row.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.reporting.render import grid, number, rate, share
from groundwatch.reporting.report import SCORE_BOUNDS
from groundwatch.reporting.tally import decisions, fingerprint
from groundwatch.statistics.intervals import Interval, RunningSums
from groundwatch.statistics.sampling import (
    WeightedMoments,
    WeightedSums,
    weight,
    weighted_mean_interval,
    weighted_rate,
)
from groundwatch.terminal import Console
from groundwatch.times import moment_of

CATEGORY = "category"
DIMENSIONS = ("model", CATEGORY, "tenant", "protocol", "run", "day")
"""What a breakdown can be by; any other name is that of a tag."""


class Sums(RunningSums):
    """What a row needs of its responses, whatever their number.

    By category a response counts where it has decided facts of that category, and `score` is the
    protocol's for it.
    """

    responses: int = 0
    scored: int = 0
    unscored: int = 0
    declined: int = 0
    eligible: int = 0
    decided: int = 0
    facts: WeightedSums = msgspec.field(default_factory=WeightedSums)
    score: WeightedMoments = msgspec.field(default_factory=WeightedMoments)


class Group(msgspec.Struct, frozen=True):
    """One row's name: the values of what it is by, then run, protocol and set of judges."""

    values: tuple[str, ...]
    run: str
    protocol: str
    fingerprint: str


class BreakdownRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row as told. Rates are refuted by decided facts; `coverage` is decided by eligible facts.

    Rates and scores are over all responses that the judged ones stand for: one that was judged with
    probability p weighs 1 / p. All counts are of what was judged.

    By category there is no coverage: only decided facts are counted by category.
    """

    by: dict[str, str]
    run: str
    protocol: str
    fingerprint: str
    responses: int
    scored: int
    unscored: int
    declined: int
    score: Interval | None
    hallucination_rate: Interval | None
    coverage: float | None


class Breakdown:
    """Takes in outcomes one by one, or sums of many; `rows` may be asked for at any time."""

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self._sums: dict[Group, Sums] = {}

    def add(self, event: ResponseScored) -> None:
        decided, refuted = decisions(event) if event.outcome is OutcomeKind.SCORED else ({}, {})
        each = weight(event.drawn)
        if CATEGORY not in self.by:
            sums = self._sums.setdefault(self._group(event, ""), Sums())
            sums.responses += 1
            setattr(sums, event.outcome.value, getattr(sums, event.outcome.value) + 1)
            if event.outcome is not OutcomeKind.DECLINED:
                sums.eligible += event.eligible
                sums.decided += event.decided
            if event.score is not None:
                sums.score.add(event.score, each)
            sums.facts.add(sum(refuted.values()), sum(decided.values()), each)
            return
        for category, facts in decided.items():
            sums = self._sums.setdefault(self._group(event, category), Sums())
            sums.responses += 1
            sums.scored += 1
            if (score := event.values.get(f"{event.protocol}.{category}")) is not None:
                sums.score.add(score, each)
            sums.facts.add(refuted[category], facts, each)

    def merge(self, group: Group, sums: Sums) -> None:
        self._sums.setdefault(group, Sums()).merge(sums)

    def rows(self) -> list[BreakdownRow]:
        return [
            BreakdownRow(
                **{name: getattr(group, name) for name in ("run", "protocol", "fingerprint")},
                **{name: getattr(sums, name) for name in ("responses", "scored", "unscored", "declined")},
                by=dict(zip(self.by, group.values, strict=True)),
                score=weighted_mean_interval(sums.score, bounds=SCORE_BOUNDS),
                hallucination_rate=weighted_rate(sums.facts),
                coverage=sums.decided / sums.eligible if sums.eligible else None,
            )
            for group, sums in sorted(
                self._sums.items(),
                key=lambda item: (item[0].run, item[0].protocol, item[0].values, item[0].fingerprint),
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        return {"by": list(self.by), "rows": msgspec.to_builtins(self.rows())}

    def _group(self, event: ResponseScored, category: str) -> Group:
        return Group(
            values=tuple(_value(event, name, category) for name in self.by),
            run=event.run,
            protocol=event.protocol,
            fingerprint=fingerprint(event.judges),
        )


def render_breakdown(breakdown: Breakdown, console: Console) -> None:
    """Print it as a table; without any outcome, one line that says so."""
    rows = breakdown.rows()
    if not rows:
        console.print("No outcomes.")
        return
    telling = dict(_telling(breakdown.by, rows))
    covered = CATEGORY not in breakdown.by
    headings = ["answers", "scored", "score", "facts not in\nthe image", *(["facts\ndecided"] * covered)]
    table = grid("With 95 % intervals", list(telling), *headings)
    for index, row in enumerate(rows):
        table.add_row(
            *(values[index] for values in telling.values()),
            f"{row.responses:,}",
            f"{row.scored:,}",
            number(row.score),
            rate(row.hallucination_rate),
            *([share(row.coverage)] * covered),
        )
    console.print(table)


def _telling(by: Sequence[str], rows: Sequence[BreakdownRow]) -> Iterator[tuple[str, list[str]]]:
    """The columns that name a row; what is the same in all rows only where it was asked for."""
    for name in by:
        yield name, [row.by[name] or "–" for row in rows]
    for name, field in (("run", "run"), ("protocol", "protocol"), ("judges", "fingerprint")):
        values = [getattr(row, field) or "none" for row in rows]
        if name not in by and len(set(values)) > 1:
            yield name, values


def _value(event: ResponseScored, name: str, category: str) -> str:
    match name:
        case "category":
            return category
        case "day":
            return moment_of(event.recorded_at).date().isoformat()
        case "model" | "tenant" | "protocol" | "run":
            return str(getattr(event, name))
    return event.tags.get(name, "")
