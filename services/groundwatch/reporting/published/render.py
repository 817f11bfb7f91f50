"""Published tables with the user's rows for people: inside 80 columns, the user's rows marked."""

from collections.abc import Sequence

from groundwatch.reporting.published.comparison import Cell, ComparedGroup, ComparedRow, ComparedTable
from groundwatch.terminal import Console, Table, Text, box, lines, styled

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
    grid = Table(
        title=f"{group.title}, {order}" if group.title else order[0].upper() + order[1:],
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    grid.add_column(" model", overflow="fold", max_width=WIDEST)
    for name in group.columns:
        grid.add_column(lines(*table.headings[name].split("\n")), justify="right", no_wrap=True)
    for row in group.rows:
        grid.add_row(
            _name(row, group),
            *(_shown(row.cells.get(name), table) for name in group.columns),
            style="" if row.published else "bold",
        )
    return grid


def _name(row: ComparedRow, group: ComparedGroup) -> Text:
    if row.published:
        return lines(f" {row.model}")
    same = [one for one in group.rows if not one.published and one.model == row.model]
    if len(same) == 1:
        return lines(f"{MARK}{row.model}")
    return lines(f"{MARK}{row.model}", f" {', '.join(row.judges.values())}")


def _shown(cell: Cell | None, table: ComparedTable) -> Text:
    if cell is None:
        return lines("–")
    value = f"{cell.value:.{table.decimals}f}"
    if cell.low is None or cell.high is None:
        return lines(value)
    ends = 1 if table.unit == "percent" else 2
    return lines(value, f"{cell.low:.{ends}f}–{cell.high:.{ends}f}", f"n={cell.n}")
