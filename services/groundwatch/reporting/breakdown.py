"""Rates by anything an outcome says, such as model and category, from outcomes or from sums of them.

Like the report it never pools different protocols, runs or sets of judges: these are in every row.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from groundwatch.reporting.figures import FigureReport, Headline, now_of, protocol_of
from groundwatch.reporting.render import figure_tables, grid, number, rate, share
from groundwatch.reporting.sums import Sums
from groundwatch.statistics.intervals import Interval
from groundwatch.statistics.sampling import weighted_mean_interval, weighted_rate
from groundwatch.terminal import Console

CATEGORY = "category"
DIMENSIONS = ("model", CATEGORY, "tenant", "protocol", "run", "day")
"""What a breakdown can be by; any other name is that of a tag."""


class BreakdownKey(msgspec.Struct, frozen=True):
    """One row's name: the values of what it is by, then run, protocol and set of judges."""

    values: tuple[str, ...]
    run: str
    protocol: str
    fingerprint: str


class BreakdownRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row as told. Rates are refuted by decided facts; `coverage` is decided by eligible facts.

    Rates and scores are over all responses that the judged ones stand for: one that was judged with
    probability p weighs 1 / p. All counts are of what was judged.

    By category there is no coverage: only decided facts are counted by category; and there are no `figures`
    of the protocol's paper, nor `groups` of answers by reason.
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
    figures: tuple[FigureReport, ...] = ()
    groups: dict[str, int] = {}


class Breakdown:
    """Takes in sums of outcomes; `rows` may be asked for at any time."""

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self._sums: dict[BreakdownKey, Sums] = {}
        self._headlines: dict[BreakdownKey, Headline] = {}

    def merge(self, group: BreakdownKey, sums: Sums) -> None:
        self._sums.setdefault(group, Sums()).merge(sums)

    def headline(self, group: BreakdownKey) -> Headline:
        """The sums of the protocol's own figures."""
        if group not in self._headlines:
            self._headlines[group] = Headline(group.protocol)
        return self._headlines[group]

    @property
    def protocols(self) -> list[str]:
        return sorted({group.protocol for group in self._sums})

    def rows(self) -> list[BreakdownRow]:
        nothing = Headline("")
        return [
            BreakdownRow(
                **{name: getattr(group, name) for name in ("run", "protocol", "fingerprint")},
                **{name: getattr(sums, name) for name in ("responses", "scored", "unscored", "declined")},
                by=dict(zip(self.by, group.values, strict=True)),
                score=weighted_mean_interval(sums.score, bounds=protocol_of(group.protocol).bounds),
                hallucination_rate=weighted_rate(sums.facts),
                coverage=sums.coverage,
                figures=self._headlines.get(group, nothing).figures(now_of(group.run)),
                groups=self._headlines.get(group, nothing).groups(now_of(group.run)),
            )
            for group, sums in sorted(
                self._sums.items(),
                key=lambda item: (item[0].run, item[0].protocol, item[0].values, item[0].fingerprint),
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        return {"by": list(self.by), "rows": msgspec.to_builtins(self.rows())}


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
    labels = [" · ".join(values[index] for values in telling.values()) for index in range(len(rows))]
    for figures in figure_tables([(label, row.figures) for label, row in zip(labels, rows, strict=True)]):
        console.print(figures)


def _telling(by: Sequence[str], rows: Sequence[BreakdownRow]) -> Iterator[tuple[str, list[str]]]:
    """The columns that name a row; what is the same in all rows only where it was asked for."""
    for name in by:
        yield name, [row.by[name] or "–" for row in rows]
    for name, field in (("run", "run"), ("protocol", "protocol"), ("judges", "fingerprint")):
        values = [getattr(row, field) or "none" for row in rows]
        if name not in by and len(set(values)) > 1:
            yield name, values
