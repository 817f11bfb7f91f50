"""Commands about the traffic of a running system: submit, watch, report."""

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated

import typer

from groundwatch.cli.options import (
    ArchiveOnlyOption,
    ConfigOption,
    FolderOption,
    JsonOption,
    NatsOption,
    SinceOption,
    StreamOnlyOption,
    UntilOption,
    client_settings,
)
from groundwatch.cli.output import print_json, progress_bar, say, show_published
from groundwatch.cli.past import HistoryByOption, asks_history, show_history
from groundwatch.client.sending import Sender, Sent
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.events import LIVE
from groundwatch.protocols import registry
from groundwatch.reporting import PublishedComparison, Report, render
from groundwatch.reporting.alarms import Alarms, tell
from groundwatch.reporting.live import LiveView
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.system.connecting import NOTHING_FOUND, connected, find_running, prepare, run
from groundwatch.terminal import Console, Live

REFRESH = 4
SHOWN = 20
"""How many refused lines are named."""

RunningOption = Annotated[
    Path | None,
    typer.Option("--folder", help="The running `up` with its data in this folder.", show_default=False),
]


def submit(
    file: Annotated[
        Path, typer.Argument(help="Recorded responses (JSON lines), or answers in a published format.")
    ],
    to: Annotated[
        str,
        typer.Option("--to", help="Gateway; the running `groundwatch up` when absent.", show_default=False),
    ] = "",
    model: Annotated[str, typer.Option(help="Model name for files that do not name one.")] = "",
    tenant: Annotated[str, typer.Option(help="Tenant for lines that do not name one.")] = "",
    images: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder that lines may name images in, besides the file's own; repeatable.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    folder: RunningOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send recorded responses into a running system; exit status 1 when some were refused."""
    settings = prepare(config)
    if to and folder is not None:
        raise UsageError("--folder and --to do not go together: each says where the gateway is")
    if not to:
        if folder is not None:
            settings = settings.model_copy(update={"data_dir": str(folder)})
        found = find_running(settings)
        if found is None:
            where = f"no groundwatch runs with its data in {folder}" if folder is not None else NOTHING_FOUND
            raise UsageError(f"{where}: start one with groundwatch up, or say --to URL of a gateway")
        to = found.gateway

    async def work() -> Sent:
        with progress_bar(quiet=as_json) as progress:
            sender = Sender(
                to,
                file,
                model=model,
                tenant=tenant,
                images=images or (),
                max_image_bytes=settings.gateway.intake.max_image_bytes,
                published=registry.published_answers(file),
            )
            async with sender:
                task = progress.add_task("sending", total=sender.total)
                async for done in sender.send():
                    progress.update(task, completed=done)
                return sender.result

    sent = run(work())
    if as_json:
        print_json(sent)
    else:
        say(f"accepted {sent.accepted:,}, already there {sent.duplicates:,}, refused {sent.refused:,}")
        for problem in sent.errors[:SHOWN]:
            where = f"{file}:{problem.line}" + (f" (id {problem.id})" if problem.id else "")
            say(f"  {where}: {problem.field + ': ' if problem.field else ''}{problem.error}", err=True)
        if sent.refused > SHOWN:
            say(f"  … and {sent.refused - SHOWN:,} more", err=True)
    if sent.refused:
        raise CheckFailed(f"{sent.refused} responses were refused")


def watch(
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so many seconds.", show_default=False)
    ] = None,
    run_name: Annotated[str, typer.Option("--run", help="Which run to watch.")] = LIVE,
) -> None:
    """Live scores in the terminal, until Ctrl-C."""
    settings = client_settings(config, nats, folder)

    async def work() -> None:
        async with connected(settings, "watch") as bus:
            view = LiveView("groundwatch watch", settings.alarm.rule)
            console = Console()
            live = Live(view, console=console, refresh_per_second=REFRESH, transient=False)
            limit = asyncio.timeout(seconds)
            with live:
                try:
                    async with limit:
                        async for outcome in read_outcomes(bus, run_name, follow=True):
                            view.add(outcome)
                except TimeoutError:
                    # NATS has timeouts of its own, which are no reason to end quietly.
                    if not limit.expired():
                        raise
            if not console.is_terminal:
                console.print()

    with contextlib.suppress(KeyboardInterrupt):
        run(work())


def report(
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
    run_name: Annotated[str, typer.Option("--run", help="Which run to report.")] = LIVE,
    published: Annotated[
        str,
        typer.Option(
            metavar="PROTOCOL",
            help="Put the models into the tables that this protocol's paper published.",
            show_default=False,
        ),
    ] = "",
    by: HistoryByOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    archive_only: ArchiveOnlyOption = False,
    stream_only: StreamOnlyOption = False,
) -> None:
    """Results per model with confidence intervals, from the recorded outcomes.

    With a time, a source, or more than one tag to tell them apart by, the answer comes from the history.
    """
    beside = PublishedComparison(published) if published else None
    settings = client_settings(config, nats, folder)
    if since or until or archive_only or stream_only or asks_history(by):
        if published:
            raise UsageError("--published goes with no time, source or dimension")
        run(
            show_history(
                settings,
                by,
                since=since,
                until=until,
                archive_only=archive_only,
                stream_only=stream_only,
                of=run_name,
                as_json=as_json,
            )
        )
        return
    if published and by:
        raise UsageError("--published and --by do not go together")
    found = beside or Report(by=by)
    alarms = Alarms(settings.alarm.rule)

    async def work() -> None:
        async with connected(settings, "report") as bus:
            async for outcome in read_outcomes(bus, run_name, follow=False):
                found.add(outcome)
                alarms.add(outcome)

    run(work())
    if isinstance(found, PublishedComparison):
        show_published(found, as_json)
    elif as_json:
        print_json(found.to_dict() | {"alarms": alarms.rows()})
    else:
        console = Console()
        render(found, console)
        for raised in alarms.raised:
            console.print(f"⚠ {tell(raised)}", style="red")
