"""Commands about the traffic of a running system: submit, watch, report over any stretch of the history,
compare."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.cli.messages import print_json, say
from groundwatch.cli.options import (
    Configured,
    OnSystem,
    WithHistory,
)
from groundwatch.cli.output import Published, beside_published, progress_bar, show_published
from groundwatch.client.files import AnswerFile
from groundwatch.client.files.submitting import Submission, ask_gateway
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.events import LIVE, version_of
from groundwatch.protocols import registry
from groundwatch.replay.files import replacing
from groundwatch.replay.runs import Runs
from groundwatch.reporting.alarms import Alarms, tell
from groundwatch.reporting.breakdown import DIMENSIONS, Breakdown, render_breakdown
from groundwatch.reporting.compare.compare import CHANGED, Comparison
from groundwatch.reporting.compare.render import (
    VersionComparison,
    html_report,
    render_comparison,
    render_versions,
)
from groundwatch.reporting.corrected import CorrectedRow, corrected_table, tell_corrected
from groundwatch.reporting.live import LiveView
from groundwatch.reporting.render import render
from groundwatch.reporting.report import BASELINE, Report
from groundwatch.reporting.trends import Versions
from groundwatch.reviews.corrected import (
    QueueSamples,
    compare_versions,
    correct_alarms,
    read_corrected,
    read_samples,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.settings import Settings
from groundwatch.system.connecting import NOTHING_FOUND, find_running, history, on_bus, run
from groundwatch.terminal import Console, Live, Table
from groundwatch.times import read_moment

REFRESH = 4
SHOWN = 20
"""How many reasons for refused lines are told."""


def _gateway(settings: Settings, to: str, folder: Path | None) -> str:
    """The address of the gateway that is meant. Raises `UsageError` where none runs here."""
    if to and folder is not None:
        raise UsageError("--folder and --to do not go together: each says where the gateway is")
    if to:
        return to
    if folder is not None:
        settings = settings.model_copy(update={"data_dir": str(folder)})
    found = find_running(settings)
    if found is None:
        where = f"no groundwatch runs with its data in {folder}" if folder is not None else NOTHING_FOUND
        raise UsageError(f"{where}: start one with groundwatch up, or say --to URL of a gateway")
    return found.gateway


def connect(settings: Configured, *, to: str = "", folder: Path | None = None, as_json: bool = False) -> None:
    """Who has sent to a gateway in the last minutes, and the setting that mends what was missing in it."""
    told = ask_gateway(_gateway(settings, to, folder), "/v1/connect")
    if as_json:
        print_json(told)
        return
    senders = told["senders"]
    if not senders:
        say("nobody has sent anything to this gateway of late: docs/connect.md says how")
        return
    table = Table("sender", "by", "library", "version", "dialect", "calls", "images", box=None)
    for number, one in enumerate(senders, 1):
        who = f"{number} {one['service'] or one['tenant']}"
        counts = (f"{one[name]:,}" for name in ("calls", "images"))
        table.add_row(who, *(one[name] for name in ("source", "library", "version", "dialect")), *counts)
    Console().print(table)
    for number, one in enumerate(senders, 1):
        for problem in one["problems"]:
            say(f"{number}: {problem['number']:,} × {problem['kind']}: {problem['what']}")
            if problem["setting"]:
                say(f"   what helps: {problem['setting']}")


def submit(
    settings: Configured,
    file: Path,
    *,
    to: str = "",
    model: str = "",
    tenant: str = "",
    columns: list[str] | None = None,
    questions: Path | None = None,
    images: list[Path] | None = None,
    folder: Path | None = None,
    as_json: bool = False,
) -> None:
    """Send recorded responses into a running system; exit status 1 when some were refused."""
    to = _gateway(settings, to, folder)
    with progress_bar(quiet=as_json) as progress:
        answers = AnswerFile(
            file,
            model=model,
            tenant=tenant,
            columns=columns or (),
            questions=questions,
            published=registry.published_answers,
            without_image=settings.gateway.logged_calls.without_image,
        )
        submission = Submission(
            to,
            answers,
            images=images or (),
            max_image_bytes=settings.gateway.intake.max_image_bytes,
            tell=lambda line: say(line, err=True),
        )
        with contextlib.closing(submission):
            task = progress.add_task("sending", total=submission.total)
            for done in submission.send():
                progress.update(task, completed=done)
    sent, told = submission.result, submission.told
    for line in told.lines():
        say(f"{file}: {line}", err=True)
    if as_json:
        print_json(sent)
    else:
        say(f"accepted {sent.accepted:,}, already there {sent.duplicates:,}, refused {sent.refused:,}")
        sentences = sent.told()
        for sentence in sentences[:SHOWN]:
            say(f"  {file}:{sentence}", err=True)
        if len(sentences) > SHOWN:
            say(f"  … and {len(sentences) - SHOWN:,} more", err=True)
    if sent.refused:
        raise CheckFailed(f"{sent.refused} responses were refused")


def watch(settings: OnSystem, *, seconds: float | None = None, run_name: str = LIVE) -> None:
    """Live scores in the terminal, until Ctrl-C."""

    async def work(bus: Bus) -> None:
        view = LiveView("groundwatch watch", settings.alarm.rule)
        console = Console()
        limit = asyncio.timeout(seconds)
        with Live(view, console=console, refresh_per_second=REFRESH, transient=False):
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
        on_bus(settings, work, "watch")


def _published(*, published: str = "") -> Published | None:
    return beside_published(published) if published else None


def report(
    beside: Annotated[Published | None, _published],
    settings: WithHistory,
    *,
    as_json: bool = False,
    run_name: str = LIVE,
    by: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            help=f"Tell apart by any of {', '.join(DIMENSIONS)}, or by a tag, such as strategy.",
        ),
    ] = "",
    baseline: str = BASELINE,
    since: str = "",
    until: str = "",
    archive_only: bool = False,
    stream_only: bool = False,
) -> None:
    """Results per model with confidence intervals, from the recorded outcomes.

    With a time, a source, or more than one tag to tell them apart by, the answer comes from the history.
    """
    names = list(dict.fromkeys(name for one in by.split(",") if (name := one.strip())))
    if since or until or archive_only or stream_only or len(names) > 1 or set(names).intersection(DIMENSIONS):
        if beside is not None or baseline != BASELINE:
            raise UsageError("--published and --baseline go with no time, source or dimension")
        if archive_only and stream_only:
            raise UsageError("--archive-only and --stream-only do not go together")
        now = time.time()
        begin, end = (
            read_moment(text, option, now) if text else None
            for text, option in ((since, "--since"), (until, "--until"))
        )
        if begin is not None and end is not None and end <= begin:
            raise UsageError(f"--until {until} is not after --since {since}")
        source = history(
            settings, archive_only=archive_only, stream_only=stream_only, since=begin, until=end, run=run_name
        )
        run(_show_history(source, names or ["model"], begin, end, run_name, as_json))
        return
    if beside is not None and by:
        raise UsageError("--published and --by do not go together")
    found = beside or Report(by=by, baseline=baseline)
    alarms = Alarms(settings.alarm.rule)
    corrected: list[CorrectedRow] = []
    queues: list[QueueSamples] = []

    async def work(bus: Bus) -> None:
        empty = True
        async for outcome in read_outcomes(bus, run_name, follow=False):
            found.add(outcome)
            alarms.add(outcome)
            empty = False
        if empty and run_name != LIVE:
            # A run that there is has its outcomes still to come.
            await (await Runs.open(bus.js)).get(run_name)
        if run_name == LIVE:
            corrected.extend((await read_corrected(bus)).rows)
            if alarms.raised:
                queues.extend(await read_samples(bus, _version_of(settings)))

    on_bus(settings, work, "report")
    if not isinstance(found, Report):
        show_published(found, as_json)
        return
    # Opinions are of live traffic.
    rose = correct_alarms(queues, alarms.raised, alarms.raised) if run_name == LIVE else ()
    if as_json:
        rows = msgspec.to_builtins(corrected)
        told = [row | {"corrected": one} for row, one in zip_longest(alarms.rows(), rose)]
        print_json(found.to_dict() | {"alarms": told, "corrected": rows})
    else:
        console = Console()
        render(found, console)
        if corrected:
            console.print(corrected_table(corrected))
        for raised, one in zip_longest(alarms.raised, rose):
            console.print(f"⚠ {tell(raised)}", style="red")
            if one is not None and any(one.opinions):
                console.print(f"  {tell_corrected(one)}")


async def _show_history(
    source: AbstractAsyncContextManager[Any],
    by: list[str],
    since: float | None,
    until: float | None,
    run: str,
    as_json: bool,
) -> None:
    async with source as session:
        from groundwatch.archive.query import break_down

        found: Breakdown = break_down(session, by, since=since, until=until, run=run)
    if as_json:
        print_json(found.to_dict() | {"since": since, "until": until})
    else:
        render_breakdown(found, Console())


def compare(
    settings: OnSystem,
    first: str,
    second: str,
    *,
    model: str = "",
    tenant: str = "",
    protocol: str = "",
    top: int = CHANGED,
    out: Path | None = None,
    by: str = "",
    as_json: bool = False,
) -> None:
    """Paired differences of two runs, or differences of two versions, with intervals."""
    if by not in ("", "version"):
        raise UsageError("what is compared are runs, or with --by version versions of a model")
    if by:
        if not model:
            raise UsageError("name the --model whose versions are compared")
        if tenant or top != CHANGED or out is not None:
            raise UsageError("--tenant, --top and --out do not go with --by version")
        _compare_versions(settings, first, second, model, protocol, as_json)
        return
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.absolute().parent}")
    # Imported only here: the gateway brings its web server along.
    from groundwatch.gateway.comparing import compare as read_and_compare

    async def work(bus: Bus) -> Comparison:
        return await read_and_compare(
            bus, first, second, model=model, tenant=tenant, protocol=protocol, top=top
        )

    found = on_bus(settings, work, "compare")
    if out is not None:
        with replacing(out) as file:
            file.write(html_report(found).encode())
    if as_json:
        print_json(found)
        return
    render_comparison(found, Console())
    if out is not None:
        say(f"report with plots: {out}")


def _compare_versions(
    settings: Settings, first: str, second: str, model: str, protocol: str, as_json: bool
) -> None:
    async def work(bus: Bus) -> tuple[VersionComparison, ...]:
        version = _version_of(settings)
        versions = Versions(version)
        async for outcome in read_outcomes(bus, LIVE, follow=False):
            if outcome.model == model and protocol in ("", outcome.protocol):
                versions.add(outcome)
        reports = versions.rows()
        known = {one.version for one in reports}
        if missing := [name for name in (first, second) if name not in known]:
            others = ", ".join(sorted(name for name in known if name)) or "none"
            raise UsageError(f"model {model} has no answer of version {missing[0]}; there are: {others}")
        queues = await read_samples(bus, version)
        return compare_versions(reports, queues, model, first, second)

    found = on_bus(settings, work, "compare")
    if not found:
        raise UsageError(f"no judges have judged both versions of {model}")
    if as_json:
        print_json({"versions": [one.to_dict() for one in found]})
        return
    render_versions(found, Console())


def _version_of(settings: Settings) -> Callable[[Mapping[str, str]], str]:
    return partial(version_of, names=settings.telemetry.version_tags)
