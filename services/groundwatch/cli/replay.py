"""`groundwatch replay start` and `export`: what was recorded, judged again here or taken elsewhere."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from groundwatch.cli.options import (
    ConfigOption,
    FolderOption,
    JsonOption,
    ModelsOption,
    NatsOption,
    client_settings,
)
from groundwatch.cli.output import place_of, print_json, program, say
from groundwatch.cli.runs import NameArgument, WithOption, facts, show_run
from groundwatch.errors import UsageError
from groundwatch.events import LIVE
from groundwatch.models.repository import ServedModel
from groundwatch.replay.files import Manifest
from groundwatch.replay.planning import Plan
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.spec import Spec, pace
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings, recorded_sections, with_file
from groundwatch.system.connecting import connected, data_dir
from groundwatch.system.connecting import run as run_coroutine
from groundwatch.system.folders import MODELS
from groundwatch.system.models import named_models, serving
from groundwatch.terminal import Console, Table, TaskProgressColumn, progress
from groundwatch.times import read_moment, shown_moment
from groundwatch.topology import REPLAY


def start(
    run: Annotated[str, typer.Option(help="Name of the replay, carried by its results.", show_default=False)],
    since: Annotated[
        str, typer.Option(help="From when on: 2026-03-01, 2026-03-01T14:00:00Z, 24h, 7d.", show_default=False)
    ] = "",
    until: Annotated[str, typer.Option(help="Until when, exclusive.", show_default=False)] = "",
    model: Annotated[
        list[str] | None, typer.Option(help="Only answers of this model; repeatable.", show_default=False)
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Only of this tenant; repeatable.", show_default=False)
    ] = None,
    ids: Annotated[str, typer.Option(help="Only these responses: ids by commas.", show_default=False)] = "",
    protocol: Annotated[
        list[str] | None, typer.Option(help="Only for this protocol; repeatable.", show_default=False)
    ] = None,
    sample: Annotated[
        int, typer.Option(min=0, help="So many responses, chosen by hash.", show_default=False)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Another seed chooses another sample.")] = 0,
    stage: Annotated[
        str,
        typer.Option("--from", help="Begin at this stage: extraction, verification, matching or scoring."),
    ] = "extraction",
    source: Annotated[str, typer.Option(help="The run whose events are judged again.")] = LIVE,
    with_settings: WithOption = None,
    models: ModelsOption = "",
    speed: Annotated[str, typer.Option(help="1x is the recorded pace, 10x ten times that, or max.")] = "max",
    max_tokens: Annotated[int, typer.Option(min=0, help="Pause after so many tokens; 0: no bound.")] = 0,
    max_cost: Annotated[float, typer.Option(min=0, help="Pause after so many dollars; 0: no bound.")] = 0.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep claims and judgements too, to begin other replays from.")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do and cost.")] = False,
    allow_gap: Annotated[
        bool, typer.Option("--allow-gap", help="Replay what is left where retention has removed a part.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(help="Replay an exported file, not what this system recorded.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a stretch of what was recorded again, into a run of its own."""
    settings = client_settings(config, nats, folder)
    judged_by = with_file(settings, with_settings)
    served = named_models(models)
    now = time.time()
    if file is not None and (source != LIVE or dry):
        raise UsageError("--file brings its own events: leave --source and --dry-run away")
    spec = Spec(
        run=run,
        source=run if file is not None else source,
        stage=stage,
        since=read_moment(since, "--since", now) if since else 0.0,
        until=read_moment(until, "--until", now) if until else 0.0,
        models=tuple(model or ()),
        tenants=tuple(tenant or ()),
        ids=tuple(filter(None, (one.strip() for one in ids.split(",")))),
        protocols=tuple(protocol or ()),
        sample=sample,
        seed=seed,
        speed=pace(speed),
        max_tokens=max_tokens,
        max_cost=max_cost,
        keep=keep,
        file=file.name if file is not None else "",
        settings=recorded_sections(judged_by),
    )
    spec.check()
    if dry:
        _show_plan(run_coroutine(_dry_run(settings, spec, allow_gap)), as_json)
        return

    async def work() -> Run:
        async with connected(settings, REPLAY, user=REPLAY) as bus:
            # Before models are loaded, which takes seconds. An import that broke off goes on by itself.
            there = await (await Runs.open(bus.js)).find(run)
            refused = there is not None and there.status != "importing"
            async with with_models({} if refused else served, settings, quiet=as_json) as judging:
                judging = with_file(judging, with_settings)
                asked = msgspec.structs.replace(spec, settings=recorded_sections(judging))
                return await _replay(bus, judging, asked, file, allow_gap=allow_gap, quiet=as_json)

    told_end(run_coroutine(work()), as_json, folder, models, with_settings)


def resume(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, help="A new bound of tokens.", show_default=False)
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="A new bound of US dollars.", show_default=False)
    ] = None,
    models: ModelsOption = "",
    with_settings: WithOption = None,
) -> None:
    """Go on with it, here; beside others who work at it, if there are any."""
    from groundwatch.replay import running

    settings = with_file(client_settings(config, nats, folder), with_settings)
    served = named_models(models)

    async def go_on() -> Run:
        async with connected(settings, REPLAY, user=REPLAY) as bus:
            found = await (await Runs.open(bus.js)).get(name)
            if found.status == "importing":
                raise UsageError(
                    f"run '{name}' was not imported to its end: repeat groundwatch replay start --run {name} "
                    f"--file {found.spec.file}"
                )
            found = await running.resume(
                await Runs.open(bus.js), name, max_tokens=max_tokens, max_cost=max_cost
            )
            async with with_models(served, settings, quiet=as_json) as judging:
                if served:
                    found = asking(found, judging)
                with Shown(found, as_json) as show:
                    return await running.work(bus, settings, found, on_progress=show)

    told_end(run_coroutine(go_on()), as_json, folder, models, with_settings)


def asking(one: Run, settings: Settings) -> Run:
    """The same run, which asks its models on the Triton of these settings."""
    judges = one.spec.settings
    served = {"url": settings.triton.url, "tls": settings.triton.tls, "tls_ca": settings.triton.tls_ca}
    triton = judges.get("triton", {}) | served
    return msgspec.structs.replace(
        one, spec=msgspec.structs.replace(one.spec, settings=judges | {"triton": triton})
    )


async def _dry_run(settings: Settings, spec: Spec, allow_gap: bool) -> Plan:
    from groundwatch.replay.running import dry_run

    async with connected(settings, REPLAY, user=REPLAY) as bus:
        return await dry_run(bus, spec, allow_gap=allow_gap)


async def _replay(
    bus: Bus, settings: Settings, spec: Spec, file: Path | None, *, allow_gap: bool, quiet: bool
) -> Run:
    from groundwatch.replay.running import begin, work

    if file is not None:
        from groundwatch.replay.importing import begin_file

        begun = await begin_file(bus, settings, spec, file)
    else:
        begun = await begin(bus, settings, spec, allow_gap=allow_gap)
    with Shown(begun, quiet) as show:
        return await work(bus, settings, begun, on_progress=show)


@contextlib.asynccontextmanager
async def with_models(
    models: Mapping[str, ServedModel], settings: Settings, *, quiet: bool
) -> AsyncIterator[Settings]:
    """Settings that judge by these models, served by a Triton of our own while the block runs."""
    if not models:
        yield settings
        return
    if not quiet:
        say(f"starting Triton with {', '.join(models)}…", err=True)
    with contextlib.ExitStack() as stack:
        if settings.nats.url:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groundwatch-replay-")))
        else:
            # The folder is ours for now, and whoever opens it next finds what we left if we are killed.
            place = data_dir(settings)
            stack.callback(shutil.rmtree, place / MODELS, ignore_errors=True)
        async with serving(models, settings, place) as (judging, _):
            yield judging


class Shown:
    """A bar on standard error with how far the run is and how long it still takes."""

    def __init__(self, run: Run, quiet: bool) -> None:
        self._bar = progress(TaskProgressColumn(), "{task.fields[told]}", quiet=quiet)
        self._task = self._bar.add_task(f"replay {run.name}", total=1.0, told="")
        self._began: tuple[float, float] | None = None
        self._polite = False

    def __enter__(self) -> Shown:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, run: Run) -> None:
        """Show how far it is. With its first outcome the process begins to let others go first: until then
        it loads its judges, which on a busy machine would take minutes."""
        if not self._polite and run.counts.outcomes:
            from groundwatch.replay.throttle import prefer_others

            prefer_others()
            self._polite = True
        self._bar.update(self._task, completed=run.share, told=self._told(run))

    def _told(self, run: Run) -> str:
        now = time.monotonic()
        if self._began is None:
            self._began = (now, run.share)
        passed, done = now - self._began[0], run.share - self._began[1]
        text = f"{run.counts.outcomes:,} outcomes"
        if done > 0 and passed > 1:
            left = timedelta(seconds=round((1 - run.share) * passed / done))
            text += f", {left} left"
        if run.counts.usage.cost:
            text += f", ${run.counts.usage.cost:,.2f}"
        return text


def told_end(
    run: Run, as_json: bool, folder: Path | None = None, models: str = "", with_settings: Path | None = None
) -> None:
    """What became of the run, and what to type next; the rest as it was named before."""
    if as_json:
        print_json(facts(run, time.time()))
        return
    console = Console()
    show_run(run, console)
    where = place_of(folder)
    if run.status == "done":
        console.print(f"See it with: {program()} report --run {run.name}{where}", soft_wrap=True)
        if not run.spec.file:
            beside = f"{program()} compare {run.spec.source} {run.name}{where}"
            console.print(f"Beside the source: {beside}", soft_wrap=True)
    elif run.status in ("paused", "running"):
        by = f" --models {shlex.quote(models)}" if models else ""
        by += f" --with {shlex.quote(str(with_settings))}" if with_settings else ""
        console.print(f"Go on with: {program()} replay resume {run.name}{by}{where}", soft_wrap=True)


def _show_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    table = Table(title=f"Replay {plan.run}, not begun", title_justify="left", show_header=False, box=None)
    table.add_column(justify="right")
    table.add_column()
    table.add_row(f"{plan.read:,}", f"events of run {plan.source} are looked at")
    between = f", recorded {shown_moment(plan.first)} to {shown_moment(plan.last)}" if plan.pairs else ""
    table.add_row(f"{plan.responses:,}", f"responses are selected{between}")
    for name, number in plan.by_protocol.items():
        table.add_row(f"{number:,}", f"outcomes for {name}")
    if plan.declined:
        table.add_row(f"{plan.declined:,}", "of them are declined as before, and judged by nobody")
    if plan.chains:
        table.add_row(f"{plan.chains:,}", "chains are left out: --from scoring scores them again")
    if plan.measured_on:
        how = f"as measured on {plan.measured_on:,} outcomes of run {plan.source}; other judges differ"
        table.add_row(f"{plan.calls:,}", f"calls to judges, {how}")
        if plan.calls and plan.looked_up:
            table.add_row("", _of_cache(plan))
        table.add_row(f"{plan.input_tokens:,}", "tokens read")
        table.add_row(f"{plan.output_tokens:,}", "tokens written")
        table.add_row(f"${plan.cost:,.2f}", "cost")
        table.add_row(str(timedelta(seconds=round(plan.seconds or 0))), "time, at the pace of those outcomes")
    else:
        table.add_row("?", f"run {plan.source} has no judged outcome to measure cost and time on")
    Console().print(table)


def _of_cache(plan: Plan) -> str:
    if not plan.cached:
        return f"at most; the judgement cache holds nothing of {plan.looked_up:,} that were looked up"
    return (
        f"at most: the judgement cache holds something of {plan.cached:,} in {plan.looked_up:,} responses "
        "that were looked up, and the same judge is not asked again"
    )


def export(
    out: Annotated[Path, typer.Option(help="The file to write.", show_default=False)],
    since: Annotated[str, typer.Option(help="From when on: 2026-03-01, 24h, 7d.", show_default=False)] = "",
    until: Annotated[str, typer.Option(help="Until when, exclusive.", show_default=False)] = "",
    model: Annotated[
        list[str] | None, typer.Option(help="Only answers of this model; repeatable.", show_default=False)
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Only of this tenant; repeatable.", show_default=False)
    ] = None,
    ids: Annotated[str, typer.Option(help="Only these responses: ids by commas.", show_default=False)] = "",
    sample: Annotated[int, typer.Option(min=0, help="So many responses, by hash.", show_default=False)] = 0,
    seed: Annotated[int, typer.Option(help="Another seed chooses another sample.")] = 0,
    stage: Annotated[
        str,
        typer.Option(
            "--from", help="What goes into this stage: extraction (responses), verification, …, scoring."
        ),
    ] = "extraction",
    source: Annotated[str, typer.Option(help="The run whose events are exported.")] = LIVE,
    allow_gap: Annotated[
        bool, typer.Option("--allow-gap", help="Export what is left where retention has removed a part.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write recorded events with their images to a file; replay it with `groundwatch replay start --file`."""
    from groundwatch.replay.exporting import export as write

    settings = client_settings(config, nats, folder)
    now = time.time()
    if out.exists() and not force:
        raise UsageError(f"{out} is there already: name another file, or write over it with --force")
    spec = Spec(
        run="export",
        source=source,
        stage=stage,
        since=read_moment(since, "--since", now) if since else 0.0,
        until=read_moment(until, "--until", now) if until else 0.0,
        models=tuple(model or ()),
        tenants=tuple(tenant or ()),
        ids=tuple(filter(None, (one.strip() for one in ids.split(",")))),
        sample=sample,
        seed=seed,
    )
    spec.check()

    async def work() -> Manifest:
        bar = progress(TaskProgressColumn(), quiet=as_json)
        async with connected(settings, "export") as bus:
            with bar:
                task = bar.add_task("export", total=1.0)
                return await write(
                    bus.js,
                    spec,
                    out,
                    allow_gap=allow_gap,
                    on_progress=lambda share: bar.update(task, completed=share),
                )

    manifest = run_coroutine(work())
    size = out.stat().st_size
    if as_json:
        print_json(msgspec.to_builtins(manifest) | {"file": str(out), "bytes": size})
        return
    left = "".join(
        f", {number:,} {what}"
        for number, what in (
            (manifest.missing_images, "images were stored no more"),
            (manifest.unreadable, "events could not be read and were left out"),
        )
        if number
    )
    between = (
        f", recorded {shown_moment(manifest.first)} to {shown_moment(manifest.last)}"
        if manifest.events
        else ""
    )
    Console().print(
        f"{out}: {manifest.events:,} events and {manifest.images:,} images in {size:,} bytes{between}{left}",
        soft_wrap=True,
    )
