"""The papers' tables of results, and a user's models put into them by the same arithmetic.

The tables are data, numbers only; the words are ours. Each file `table-*.json` in a benchmark's package is a
`PublishedTable`.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.protocols.base import Figure
from groundwatch.protocols.registry import benchmarks
from groundwatch.reporting.figures import FigureSums, protocol_of
from groundwatch.reporting.render import grid
from groundwatch.reporting.sums import fingerprint, rivals
from groundwatch.statistics.intervals import Interval, mean_ranks
from groundwatch.statistics.sampling import weight
from groundwatch.terminal import Console, Table, Text, lines, styled

Who = tuple[str, str]


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paper: str
    table: str


class Column(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column, and how the same number is made from recorded outcomes.

    That is as a protocol's own figures are, or with `average` the mean of these columns. With `ranks` it is
    the rank among the models that the same judges judged: by the columns of each group, averaged over them
    and over the groups by their weights. With none of these nobody but the paper has the number.

    `where` maps tags to the values that count here, "" standing for an absent tag. `judge` is the engine
    that judged, where the table has columns of several: outcomes of another are in no column. `derived`
    numbers are computed from the table's other columns.
    """

    protocol: str = ""
    average: tuple[str, ...] = ()
    ranks: tuple[tuple[float, tuple[str, ...]], ...] = ()
    where: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    judge: str = ""
    unit: str = ""
    derived: bool = False


class ColumnGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Columns that stand side by side on a screen, sorted by `headline`."""

    title: str
    headline: str
    columns: tuple[str, ...]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model's numbers in the order of the columns; None where the paper prints none."""

    model: str
    values: tuple[float | None, ...]


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A printed table. Our numbers times `scale` are in its `unit`, printed with `decimals`; `bounds` are
    those of our numbers.

    `judge` and `data` say what the paper measured with and on, `notes` what else keeps its numbers and
    ours apart. `unscored` has the values by which the authors' code counts what is without a score here, by
    its reason.
    """

    protocol: str
    source: Source
    title: str
    unit: str
    scale: float
    decimals: int
    higher_is_better: bool
    judge: str
    data: str
    notes: tuple[str, ...]
    groups: tuple[ColumnGroup, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bounds: tuple[float, float] = (0.0, 1.0)
    unscored: dict[str, dict[str, float]] = {}

    @property
    def protocols(self) -> frozenset[str]:
        return frozenset(column.protocol for column in self.columns if column.protocol)


@cache
def tables() -> tuple[PublishedTable, ...]:
    decoder = msgspec.json.Decoder(PublishedTable)
    found = [
        decoder.decode(file.read_bytes())
        for benchmark in benchmarks().values()
        for file in (files(benchmark.package).iterdir() if benchmark.package else ())
        if file.name.startswith("table-") and file.name.endswith(".json")
    ]
    return tuple(sorted(found, key=lambda table: (table.protocol, int(table.source.table))))


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A number in the table's unit; one of the user's has its 95 % interval and how many answers (or
    images, where images are averaged) it rests on."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


class ComparedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model's numbers by column; a published one is of the paper, the others are the user's."""

    model: str
    published: bool
    cells: dict[str, Cell]
    judges: dict[str, str] = {}


class ComparedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What stands side by side: the rows in order of the column `sorted_by`, the best first."""

    title: str
    sorted_by: str
    columns: tuple[str, ...]
    rows: tuple[ComparedRow, ...]


class ComparedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A published table with the user's rows in it; `differs` says why they are not the same measurement."""

    paper: str
    table: str
    title: str
    unit: str
    decimals: int
    higher_is_better: bool
    columns: dict[str, str]
    headings: dict[str, str]
    groups: tuple[ComparedGroup, ...]
    differs: tuple[str, ...]


class PublishedComparison:
    """Takes in outcomes one by one; `tables` puts the models into every published table of the protocol.

    `protocol` is one that a paper has a table of, or a part of it, such as `valor-object-existence` of
    `valor`. Raises `UsageError` for any other.
    """

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self._published = [table for table in tables() if protocol in {table.protocol, *table.protocols}]
        if not self._published:
            known = ", ".join(sorted({table.protocol for table in tables()}))
            raise UsageError(f"no published table of '{protocol}'; there are tables of {known}")
        whole = protocol == self._published[0].protocol
        self._protocols = self._published[0].protocols if whole else frozenset({protocol})
        self._entries: dict[Who, _Entry] = {}
        self._as_published: dict[Who, _Entry] = {}
        self._others: Counter[OutcomeKind] = Counter()
        self._tags = _known_tags(self._published)
        self._unknown: Counter[tuple[str, str]] = Counter()

    def add(self, event: ResponseScored) -> None:
        """Count one outcome; those of other protocols are in no number, nor are those without values, but as
        the authors' code counts them."""
        if event.protocol not in self._protocols:
            return
        sides = [self._entries, self._as_published]
        if event.outcome is not OutcomeKind.SCORED and not event.values:
            self._others[event.outcome] += 1
            counted = (table.unscored.get(event.reason, {}) for table in self._published)
            event = msgspec.structs.replace(event, values=dict(ChainMap(*counted)))
            sides = [self._as_published] if event.values else []
        who = (event.model, fingerprint(event.judges))
        for tag, known in self._tags.items():
            value = event.tags.get(tag, "").strip()
            if value and value.casefold() not in known:
                self._unknown[tag, value] += 1
        for entries in sides:
            if who not in entries:
                entries[who] = _Entry(event, self._published)
            entries[who].add(event)

    def tables(self) -> tuple[ComparedTable, ...]:
        if not self._entries:
            others = f" ({', '.join(self._told_others())})" if self._others else ""
            raise UsageError(
                f"no scored outcome of protocol '{self.protocol}' to put beside the published ones{others}"
            )
        rows = [("", parts) for parts in _joined(list(self._entries.values()))]
        scored = Counter({who: entry.outcomes for who, entry in self._entries.items()})
        also = [one for who, one in self._as_published.items() if one.outcomes > scored[who]]
        rows += [(", as published", parts) for parts in _joined(also)]
        return tuple(self._table(index, table, rows) for index, table in enumerate(self._published))

    def _table(
        self, index: int, table: PublishedTable, entries: Sequence[tuple[str, Sequence[_Entry]]]
    ) -> ComparedTable:
        mine = [
            ComparedRow(
                model=parts[0].model + note,
                published=False,
                cells=_cells(table, [part.sums[index] for part in parts]),
                judges=_judges(parts),
            )
            for note, parts in entries
        ]
        _rank(table, [(rivals(parts[0].judges), row) for (_, parts), row in zip(entries, mine, strict=True)])
        names = [column.name for column in table.columns]
        printed = [
            ComparedRow(
                model=row.model,
                published=True,
                cells={
                    name: Cell(value=value)
                    for name, value in zip(names, row.values, strict=True)
                    if value is not None
                },
            )
            for row in table.rows
        ]
        return ComparedTable(
            paper=table.source.paper,
            table=table.source.table,
            **{name: getattr(table, name) for name in ("title", "unit", "decimals", "higher_is_better")},
            columns={
                column.name: column.meaning + (f" ({column.unit})" if column.unit else "")
                for column in table.columns
            },
            headings={column.name: column.heading for column in table.columns},
            groups=tuple(
                _sorted(group, mine, printed, table.higher_is_better) for group in _shown(table.groups, mine)
            ),
            differs=self._differs(table, mine),
        )

    def _differs(self, table: PublishedTable, mine: Iterable[ComparedRow]) -> tuple[str, ...]:
        judges = {
            ", ".join(f"{stage} {judge}" for stage, judge in row.judges.items()) or "none named"
            for row in mine
        }
        told = [
            f"Not the same measurement. Judges: yours {'; '.join(sorted(judges))}. "
            f"The paper's: {table.judge}.",
            f"Data: yours are the answers you recorded. The paper's: {table.data}.",
            *table.notes,
        ]
        if self._others:
            told.append(f"In no number: {' and '.join(self._told_others())}.")
        for (tag, value), number in self._unknown.most_common(UNKNOWN):
            names = ", ".join(dict.fromkeys(self._tags[tag].values()))
            told.append(
                f"{number} with the tag {tag} '{value[:64]}' are in no column by {tag}: name it {names}."
            )
        return tuple(told)

    def _told_others(self) -> list[str]:
        return [f"{number} {kind.value}" for kind, number in sorted(self._others.items())]


UNKNOWN = 5
"""How many different values of a tag that no column has are told."""


def _known_tags(published: Sequence[PublishedTable]) -> dict[str, dict[str, str]]:
    """By tag the values by which columns pick their outcomes, each with its shortest name."""
    found: dict[str, dict[str, str]] = {}
    columns = [column for table in published for column in table.columns if column.of]
    for column in sorted(columns, key=lambda column: sum(map(len, column.where.values()))):
        for tag, values in column.where.items():
            for value in values:
                found.setdefault(tag, {}).setdefault(value, min(values, key=len))
    return found


class _Entry:
    """One model as one set of judges saw it: for each table the sums of each column."""

    def __init__(self, first: ResponseScored, published: Sequence[PublishedTable]) -> None:
        self.model = first.model
        self.judges = first.judges
        self.protocol = first.protocol
        self.outcomes = 0
        self.sums: list[dict[str, FigureSums]] = [{} for _ in published]
        self._published = published

    def add(self, event: ResponseScored) -> None:
        self.outcomes += 1
        for table, sums in zip(self._published, self.sums, strict=True):
            for column in table.columns:
                if column.of and _counts(column, event):
                    unit = protocol_of(event.protocol).unit(event.tags, event.images)
                    sums.setdefault(column.name, FigureSums(column)).add(
                        event.values, unit, weight(event.drawn)
                    )


def _counts(column: Column, event: ResponseScored) -> bool:
    if column.protocol != event.protocol:
        return False
    engines = {judge.engine for stage, judge in event.judges.items() if stage != "extraction"}
    if column.judge and column.judge not in engines:
        return False
    return all(event.tags.get(tag, "").strip().casefold() in values for tag, values in column.where.items())


def _joined(entries: list[_Entry]) -> list[list[_Entry]]:
    """A model's entries of several protocols as one row, if the same engines judged them.

    Prompts differ between protocols, and so do fingerprints. Within one protocol different fingerprints
    are different judges: their scores are not pooled, and each has a row.
    """
    rows: dict[tuple[str, str, int], list[_Entry]] = {}
    seen: Counter[tuple[str, str, str]] = Counter()
    for entry in sorted(entries, key=lambda entry: -entry.outcomes):
        engines = str(_judges([entry]))
        turn = seen[entry.model, engines, entry.protocol]
        seen[entry.model, engines, entry.protocol] += 1
        rows.setdefault((entry.model, engines, turn), []).append(entry)
    return [rows[key] for key in sorted(rows)]


def _judges(parts: Sequence[_Entry]) -> dict[str, str]:
    return {
        stage: "/".join(filter(None, (judge.engine, judge.model)))
        for part in parts
        for stage, judge in sorted(part.judges.items())
    }


def _cells(table: PublishedTable, parts: Sequence[Mapping[str, FigureSums]]) -> dict[str, Cell]:
    found: dict[str, Interval] = {}
    for column in table.columns:
        for part in parts:
            if column.name in part and (one := part[column.name].interval(table.bounds)):
                found[column.name] = one
    for column in table.columns:
        if column.average and all(name in found for name in column.average):
            found[column.name] = _average([found[name] for name in column.average])
    scale = table.scale
    return {
        name: Cell(value=scale * one.value, low=scale * one.low, high=scale * one.high, n=one.n)
        for name, one in found.items()
    }


def _rank(table: PublishedTable, rows: Sequence[tuple[str, ComparedRow]]) -> None:
    """Put ranks among those of the same judges into the rows that have every column that they are made of.

    Numbers are rounded as they are printed: what is equal there has the same rank.
    """
    for column in table.columns:
        needed = {name for _, names in column.ranks for name in names}
        ranked: dict[str, list[ComparedRow]] = {}
        for judges, row in rows:
            if needed and needed <= row.cells.keys():
                ranked.setdefault(judges, []).append(row)
        for several in ranked.values():
            scorings = [
                (
                    weight / len(names),
                    {at: round(row.cells[name].value, table.decimals) for at, row in enumerate(several)},
                )
                for weight, names in column.ranks
                for name in names
            ]
            for at, rank in mean_ranks(scorings).items():
                several[at].cells[column.name] = Cell(value=rank)


def _average(intervals: Sequence[Interval]) -> Interval:
    """The mean of independent estimates; the distances to their limits add as squares (Zou and Donner
    2008)."""
    k = len(intervals)
    value = math.fsum(one.value for one in intervals) / k
    below = math.hypot(*(one.value - one.low for one in intervals)) / k
    above = math.hypot(*(one.high - one.value for one in intervals)) / k
    return Interval(value, value - below, value + above, sum(one.n for one in intervals))


def _shown(groups: Sequence[ColumnGroup], mine: Sequence[ComparedRow]) -> Sequence[ColumnGroup]:
    """Those in which the user has a number; the first where there is none."""
    found = [group for group in groups if any(row.cells.keys() & set(group.columns) for row in mine)]
    return found or groups[:1]


def _sorted(
    group: ColumnGroup, mine: Sequence[ComparedRow], printed: Sequence[ComparedRow], higher_is_better: bool
) -> ComparedGroup:
    """By the headline, or where none of the user's models has it by the first column that one has."""
    choices = (group.headline, *group.columns)
    by = next((name for name in choices if any(name in row.cells for row in mine)), group.headline)
    sign = -1 if higher_is_better else 1

    def place(row: ComparedRow) -> tuple[bool, float]:
        cell = row.cells.get(by)
        return cell is None, 0.0 if cell is None else sign * cell.value

    return ComparedGroup(
        title=group.title,
        sorted_by=by,
        columns=group.columns,
        rows=tuple(sorted([*mine, *printed], key=place)),
    )


MARK = "▶"
"""Stands before the user's models, so that they are seen without colours too."""

WIDEST = 24
"""Columns of a model's name before it is folded; fewer where many numbers stand beside it."""


def render_published(tables: Sequence[ComparedTable], console: Console) -> None:
    """Print each table with what differs; what differs in the same way is told once."""
    told: set[str] = set()
    for table in tables:
        console.print(styled((table.paper, "bold"), f", table {table.table}"))
        better = "higher" if table.higher_is_better else "lower"
        console.print(f"{table.title} ({table.unit}; {better} is better)")
        for group in table.groups:
            console.print()
            console.print(_grid(table, group))
        console.print()
        for line in table.differs:
            if line not in told:
                console.print(styled(("· ", "dim"), line))
                told.add(line)
        console.print()
    console.print(f"{MARK} your models, each number with its 95 % interval and n.")


def _grid(table: ComparedTable, group: ComparedGroup) -> Table:
    order = f"sorted by: {table.columns[group.sorted_by]}"
    title = f"{group.title}, {order}" if group.title else order[0].upper() + order[1:]
    headings = [table.headings[name] for name in group.columns]
    made = grid(title, [" model"], *headings, padding=0, show_edge=False)
    made.columns[0].max_width = WIDEST
    for row in group.rows:
        cells = (_told(row.cells.get(name), table) for name in group.columns)
        made.add_row(_name(row, group), *cells, style="" if row.published else "bold")
    return made


def _name(row: ComparedRow, group: ComparedGroup) -> Text:
    if row.published:
        return lines(f" {row.model}")
    same = [one for one in group.rows if not one.published and one.model == row.model]
    if len(same) == 1:
        return lines(f"{MARK}{row.model}")
    return lines(f"{MARK}{row.model}", f" {', '.join(row.judges.values())}")


def _told(cell: Cell | None, table: ComparedTable) -> Text:
    if cell is None:
        return lines("–")
    value = f"{cell.value:.{table.decimals}f}"
    if cell.low is None or cell.high is None:
        return lines(value)
    ends = 1 if table.unit == "percent" else 2
    return lines(value, f"{cell.low:.{ends}f}–{cell.high:.{ends}f}", f"n={cell.n}")
