"""What commands print: lines, one line on what is wrong, questions, JSON, and how far they are."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer

from groundwatch.addresses import concealed
from groundwatch.errors import OpenedFolderError
from groundwatch.reporting import PublishedComparison, render_published
from groundwatch.runtime.local.triton_server import LoadProgress, OnProgress
from groundwatch.statistics.intervals import Interval
from groundwatch.system.folders import PROVISION
from groundwatch.terminal import (
    Console,
    MofNCompleteColumn,
    Progress,
    Table,
    TaskID,
    TimeRemainingColumn,
    box,
    escape_json,
    styled,
    visible,
)
from groundwatch.terminal import progress as bar


def say(line: str = "", *, err: bool = False) -> None:
    """One line; what a terminal would obey in it is written out."""
    typer.echo(visible(line), err=err)


def complain(message: str) -> None:
    """What is wrong, on one line of standard error, without the secrets of addresses in it."""
    say(f"groundwatch: {' '.join(concealed(message).split())}", err=True)


def confirmed(question: str) -> bool:
    """Whether the user says yes to it."""
    return typer.confirm(visible(question))


def print_json(value: Any) -> None:
    """One JSON object on standard output, over many lines."""
    say_json(msgspec.json.format(_encoded(value), indent=2))


def print_json_line(value: Any) -> None:
    """One JSON object on a line of standard output."""
    say_json(_encoded(value))


def say_json(encoded: bytes) -> None:
    """JSON as it is, with what a terminal would obey escaped."""
    sys.stdout.write(escape_json(encoded.decode()) + "\n")
    sys.stdout.flush()


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A name of a file that is not UTF-8: JSON can say its bytes only as lone surrogates.
        return json.dumps(msgspec.to_builtins(value)).encode()


def progress_bar(*, quiet: bool = False) -> Progress:
    """How many are done, on standard error."""
    return bar(MofNCompleteColumn(), TimeRemainingColumn(), quiet=quiet)


class Bars:
    """Progress on standard error: a bar for each thing that is done."""

    def __init__(self) -> None:
        self._progress = progress_bar()
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, what: str, done: int, total: int) -> None:
        """Show it."""
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done)


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


def show_published(found: PublishedComparison, as_json: bool) -> None:
    """The user's models in the published tables."""
    tables = found.tables()
    if as_json:
        print_json({"protocol": found.protocol, "tables": tables})
    else:
        render_published(tables, Console())


def render_numbers(result: Mapping[str, object], console: Console) -> None:
    """Names with their numbers; nested ones under the names above them."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column("name")
    table.add_column("value", justify="right")
    for name, value in _flat(result):
        table.add_row(name, _number(value))
    console.print(table)


_INTERVAL = frozenset(Interval.__struct_fields__)


def _number(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{value['value']:.4f} ({value['low']:.4f} to {value['high']:.4f}, n = {value['n']})"
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def _flat(result: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in result.items():
        if isinstance(value, Mapping) and value.keys() != _INTERVAL:
            yield from _flat(value, f"{above}{name}: ")
        else:
            yield f"{above}{name}", value


def program() -> str:
    """What starts this program in the user's shell and folder."""
    script = Path(sys.argv[0])
    if script.name != "groundwatch" or not script.is_file():
        return f"{_near(Path(sys.executable))} -m groundwatch"
    on_path = shutil.which("groundwatch")
    return "groundwatch" if on_path and Path(on_path).samefile(script) else _near(script)


def place_of(folder: Path | None) -> str:
    """The option that names the folder; nothing for none."""
    return f" --folder {shlex.quote(str(folder))}" if folder is not None else ""


def told_here(error: OpenedFolderError) -> str:
    """The message with what to type for the folder."""
    message, place = str(error), place_of(error.folder)
    if "groundwatch " not in message:
        return message
    if PROVISION in message:
        return message.replace(PROVISION, f"groundwatch up{place} brings the data up to date")
    return f"{message}; here with{place}"


def _near(path: Path) -> str:
    """The path as it is written from here; with a slash, so that no shell looks for it elsewhere."""
    path = path.absolute()
    if not path.is_relative_to(Path.cwd()):
        return shlex.quote(str(path))
    near = str(path.relative_to(Path.cwd()))
    return shlex.quote(near if os.sep in near else f".{os.sep}{near}")
