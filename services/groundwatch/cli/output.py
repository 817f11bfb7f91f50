"""Tables of commands, and how far they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from groundwatch.cli.messages import print_json
from groundwatch.events import ResponseScored
from groundwatch.protocols.registry import of_benchmarks
from groundwatch.runtime.local.triton_server import LoadProgress, OnProgress
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import (
    Console,
    MofNCompleteColumn,
    Progress,
    Table,
    TaskID,
    TimeRemainingColumn,
    box,
    styled,
)
from groundwatch.terminal import progress as bar


def progress_bar(*, quiet: bool = False) -> Progress:
    """How many are done, on standard error."""
    return bar(MofNCompleteColumn(), TimeRemainingColumn(), quiet=quiet)


@contextlib.contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """Progress on standard error: a bar for each thing of which is told how many of how many are done."""
    tasks: dict[str, TaskID] = {}
    with progress_bar() as shown:

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done)

        yield tell


@contextlib.contextmanager
def loading_shown(console: Console, words: str) -> Iterator[OnProgress]:
    """`words` while the block runs, and which models load: a line each, or one that changes at a terminal."""
    loading: set[str] = set()

    def tell(progress: LoadProgress) -> None:
        (loading.discard if progress.loaded else loading.add)(progress.model)
        count = f"{progress.done} of {progress.total} models loaded after {progress.seconds:.0f} s"
        if status is not None:
            status.update(styled(f"{words} {count}; loading {', '.join(sorted(loading)) or 'none'}"))
        elif progress.loaded:
            console.print(f"loaded {progress.model} ({count})", soft_wrap=True)
        else:
            console.print(f"loading {progress.model}…", soft_wrap=True)

    if console.is_terminal:
        with console.status(styled(words)) as status:
            yield tell
    else:
        status = None
        console.print(words, soft_wrap=True)
        yield tell


class Published(Protocol):
    """Takes in outcomes, and puts their models into the tables that the protocol's paper printed."""

    protocol: str

    def add(self, event: ResponseScored) -> None: ...
    def tables(self) -> Sequence[object]: ...


def beside_published(protocol: str) -> Published:
    """Raises `UsageError` for a protocol without printed tables."""
    compared: Published = of_benchmarks("published:PublishedComparison", "--published")(protocol)
    return compared


def show_published(found: Published, as_json: bool) -> None:
    tables = found.tables()
    if as_json:
        print_json({"protocol": found.protocol, "tables": tables})
    else:
        of_benchmarks("published:render_published", "--published")(tables, Console())


def render_numbers(result: Mapping[str, object], console: Console, title: str | None = None) -> None:
    """Names with their numbers; nested ones under the names above them. Below a title lists are left out."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column("name")
    table.add_column("value", justify="right")
    for name, value in _flat(result, lists=title is None):
        table.add_row(name, _number(value))
    console.print(table)


def table_of(title: str, *columns: str, left: int = 1) -> Table:
    """A table of numbers, and of what they are of in the `left` first columns."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for at, name in enumerate(columns):
        table.add_column(name, justify="left" if at < left else "right", no_wrap=at == 0)
    return table


def figures(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None)
    table.add_column(justify="right")
    table.add_column()
    return table


def with_reasons(kind: str, reasons: Mapping[str, int]) -> str:
    """A kind of outcome with those of the reasons that are its own, as `kind: reason`, and their numbers."""
    told = (
        f"{reason.removeprefix(f'{kind}: ')} {number:,}"
        for reason, number in reasons.items()
        if reason.startswith(f"{kind}: ")
    )
    return f"{kind}   {', '.join(told)}".rstrip()


_INTERVAL = frozenset(Interval.__struct_fields__)


def _number(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{value['value']:.4f} ({value['low']:.4f} to {value['high']:.4f}, n = {value['n']})"
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def _flat(result: Mapping[str, object], above: str = "", *, lists: bool) -> Iterator[tuple[str, object]]:
    for name, value in result.items():
        if isinstance(value, list):
            if lists:
                yield from _flat({f"{name} {at}": one for at, one in enumerate(value, 1)}, above, lists=lists)
        elif isinstance(value, Mapping) and value.keys() != _INTERVAL:
            yield from _flat(value, f"{above}{name}: ", lists=lists)
        else:
            yield f"{above}{name}", value
