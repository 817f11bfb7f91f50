"""The report over any stretch of the history, by anything an outcome says."""

import time
from typing import Annotated

import typer

from groundwatch.cli.output import print_json
from groundwatch.errors import UsageError
from groundwatch.reporting import Breakdown, render_breakdown
from groundwatch.reporting.breakdown import DIMENSIONS
from groundwatch.runtime.settings import Settings
from groundwatch.system.history import history
from groundwatch.terminal import Console
from groundwatch.times import read_moment

HistoryByOption = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="NAME,…",
        help=f"Tell apart by any of {', '.join(DIMENSIONS)}, or by a tag, such as strategy.",
        show_default=False,
    ),
]


def asks_history(by: str) -> bool:
    """Whether `--by` wants more than telling one tag apart, which the plain report does."""
    names = _names(by)
    return len(names) > 1 or any(name in DIMENSIONS for name in names)


async def show_history(
    settings: Settings,
    by: str,
    *,
    since: str,
    until: str,
    archive_only: bool,
    stream_only: bool,
    of: str,
    as_json: bool,
) -> None:
    """Print the breakdown of run `of`. Raises `UsageError` for options that cannot be."""
    if archive_only and stream_only:
        raise UsageError("--archive-only and --stream-only do not go together")
    begin, end = _moment(since, "--since"), _moment(until, "--until")
    if begin is not None and end is not None and end <= begin:
        raise UsageError(f"--until {until} is not after --since {since}")
    names = _names(by) or ["model"]
    async with history(
        settings,
        archive_only=archive_only,
        stream_only=stream_only,
        since=begin,
        until=end,
        run=of,
    ) as session:
        from groundwatch.archive.report import break_down

        found: Breakdown = break_down(session, names, since=begin, until=end, run=of)
    if as_json:
        print_json(found.to_dict() | {"since": begin, "until": end})
    else:
        render_breakdown(found, Console())


def _moment(text: str, option: str) -> float | None:
    return read_moment(text, option, time.time()) if text else None


def _names(by: str) -> list[str]:
    return list(dict.fromkeys(name for one in by.split(",") if (name := one.strip())))
