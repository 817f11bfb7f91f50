"""How the commands without a server show numbers and how far they are, and write lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError
from groundwatch.terminal import Console, Table, box


def render_numbers(result: Mapping[str, object], console: Console) -> None:
    """Names with their numbers; nested ones under the names above them."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column("name")
    table.add_column("value", justify="right")
    for name, value in _flat(result):
        shown = "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
        table.add_row(name, shown)
    console.print(table)


def write_lines(path: Path, lines: Iterable[object]) -> None:
    """Write JSON lines; raises `UsageError` where that is not possible."""
    try:
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from error


def _flat(result: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}: ")
        else:
            yield f"{above}{name}", value
