"""`groundwatch replay`: what was recorded, judged again here or taken elsewhere."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from groundwatch.cli.messages import confirmed, place_of, print_json, program, say
from groundwatch.cli.options import OnSystem
from groundwatch.cli.output import figures, with_reasons
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.events import LIVE, REPLACEABLE
from groundwatch.models.repository import ServedModel
from groundwatch.replay import exports, running
from groundwatch.replay.files import Manifest
from groundwatch.replay.planning import Plan
from groundwatch.replay.runs import Changed, Run, Runs, changed
from groundwatch.replay.service import Board, seconds_left
from groundwatch.replay.spec import Spec, pace
from groundwatch.replay.worker import prefer_others
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_judge
from groundwatch.system.connecting import MODELS, data_dir, on_bus, with_archive
from groundwatch.system.up import named_models, serving
from groundwatch.terminal import Console, Table, TaskProgressColumn, progress
from groundwatch.times import read_moment, shown_moment
from groundwatch.topology import REPLAY

T = TypeVar("T")

COMPARED = 50_000
"""Outcomes up to which `replay show` compares a run with its source unasked."""

SHOWN_FAULTS = 3
"""Different faults of judges that it names; `replay faults` names all."""


def list_runs(settings: OnSystem, *, as_json: bool = False) -> None:
    """Every replay, the newest first."""

    async def work(bus: Bus) -> list[Run]:
        # Raises in one line where nothing is provisioned.
        await Runs.open(bus.js)
        return await Board(bus).look()

    found = on_bus(settings, work, "runs", REPLAY)
    now = time.time()
    if as_json:
        print_json({"runs": [facts(one, now) for one in found]})
        return
    if not found:
        Console().print("no replays yet: groundwatch replay start --help")
        return
    table = Table("run", "state", "done", "outcomes", "from", "of", "begun", "cost", box=None)
    for one in found:
        table.add_row(
            one.name,
            one.standing,
            f"{one.share:.0%}",
            f"{one.counts.outcomes:,}",
            one.spec.stage,
            one.spec.file or one.spec.source,
            shown_moment(one.created_at),
            f"${one.counts.usage.cost:,.2f}",
        )
    Console().print(table)


def show(settings: OnSystem, name: str, *, as_json: bool = False, compare: bool | None = None) -> None:
    """One replay: what it was asked to do, how far it is, what came of it."""

    async def work(bus: Bus) -> tuple[Run, Changed | None, dict[str, int]]:
        found = await (await Runs.open(bus.js)).get(name)
        faulty = any(found.counts.reasons.get(f"unscored: {reason}") for reason in REPLACEABLE)
        said = await running.faults(bus.history, name) if faulty else {}
        wanted = found.counts.outcomes <= COMPARED if compare is None else compare
        if not wanted or found.spec.file:
            return found, None, said
        return found, await changed(bus.history, found.spec.source, name), said

    found, compared, said = on_bus(settings, work, "runs", REPLAY)
    if as_json:
        print_json(facts(found, time.time()) | {"changed": compared, "faults": said, "spec": found.spec})
        return
    console = Console()
    show_run(found, console)
    if said:
        words = "; ".join(f"{number:,} × {fault}" for fault, number in list(said.items())[:SHOWN_FAULTS])
        console.print(f"unscored for faults of judges: {words}", soft_wrap=True)
        console.print(f"Judge these again with: groundwatch replay retry {name}")
    if compared is not None and (same := compared.same_judges):
        told = (
            f"{compared.changed:,} of {same:,} judgements by the same judges are not what they were in run "
        )
        console.print(f"{told}{found.spec.source} ({compared.changed / same:.2%})", soft_wrap=True)
    elif compared is not None:
        console.print(f"no judgement is by the same judges as in run {found.spec.source}", soft_wrap=True)


def pause(settings: OnSystem, name: str, *, folder: Path | None = None) -> None:
    """Stop it for now: what is in hand is finished, nothing more is begun."""
    _on_runs(settings, lambda runs: running.pause(runs, name))
    say(f"run {name} is paused; go on with: {program()} replay resume {name}{place_of(folder)}")


def cancel(settings: OnSystem, name: str) -> None:
    """End it where it is; its results so far stay."""
    _on_runs(settings, lambda runs: running.cancel(runs, name))
    Console().print(f"run {name} is cancelled; its results so far stay")


def delete(settings: OnSystem, name: str, *, yes: bool = False) -> None:
    """Remove it with all of its results."""
    found = _on_runs(settings, lambda runs: runs.get(name))
    if not yes and not confirmed(f"Delete run {name} with its {found.counts.outcomes:,} outcomes?"):
        raise typer.Abort
    archive = with_archive(settings).archive
    on_bus(settings, lambda bus: running.delete(bus, name, archive), "runs", REPLAY)
    Console().print(f"run {name} is deleted with all of its events")


def _on_runs(settings: Settings, work: Callable[[Runs], Coroutine[Any, Any, T]]) -> T:
    async def opened(bus: Bus) -> T:
        return await work(await Runs.open(bus.js))

    return on_bus(settings, opened, "runs", REPLAY)


def facts(one: Run, now: float) -> dict[str, Any]:
    """A run as `--json` tells it; times in seconds since the epoch."""
    return {
        "run": one.name,
        "status": one.status,
        "reason": one.reason,
        "source": one.spec.source,
        "from": one.spec.stage,
        "judge": one.spec.judge,
        "share": round(one.share, 4),
        "counts": msgspec.to_builtins(one.counts) | {"outcomes": one.counts.outcomes},
        "judges": one.judges,
        "workers": one.workers(now),
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "finished_at": one.finished_at,
        "work_seconds": round(one.worked, 1),
        "seconds_left": seconds_left(one),
    }


def show_run(one: Run, console: Console) -> None:
    table = figures(f"Replay {one.name}")
    origin = f"file {one.spec.file}" if one.spec.file else f"run {one.spec.source}"
    table.add_row(one.standing, f"from {one.spec.stage} on, of {origin}")
    left = seconds_left(one)
    time_left = f", {timedelta(seconds=round(left))} left" if left and one.status == "running" else ""
    table.add_row(f"{one.share:.1%}", f"of the source{time_left}")
    counts = one.counts
    table.add_row(f"{counts.events:,}", "events read")
    table.add_row(f"{counts.responses:,}", "responses selected")
    for kind, number in (
        ("scored", counts.scored),
        ("unscored", counts.unscored),
        ("declined", counts.declined),
    ):
        table.add_row(f"{number:,}", with_reasons(kind, counts.reasons))
    if counts.usage.calls:
        tokens = counts.usage.input_tokens + counts.usage.output_tokens
        cost = f"${counts.usage.cost:,.2f}"
        table.add_row(f"{counts.usage.calls:,}", f"calls to judges, {tokens:,} tokens, {cost}")
    if counts.usage.cached:
        table.add_row(f"{counts.usage.cached:,}", "calls that the cache made unnecessary")
    console.print(table)


def faults(settings: OnSystem, name: str, *, as_json: bool = False) -> None:
    """What the judges of a replay had faults with, and how often."""

    async def work(bus: Bus) -> dict[str, int]:
        await (await Runs.open(bus.js)).get(name)
        return await running.faults(bus.history, name)

    found = on_bus(settings, work, "runs", REPLAY)
    if as_json:
        print_json({"run": name, "faults": found})
        return
    console = Console(soft_wrap=True)
    for words, number in found.items():
        console.print(f"{number:>9,}  {words}")
    if found:
        console.print(f"Judge these again with: groundwatch replay retry {name}")
    else:
        console.print(f"run {name} has no outcome that is unscored because of a fault")


def retry(settings: OnSystem, name: str, *, models: str = "", as_json: bool = False) -> None:
    """Judge again just what is unscored because a judge had a fault. Exit status 1: some have one again."""
    served = named_models(models)

    async def work(bus: Bus) -> running.Retried:
        async with with_models(served, settings, quiet=as_json) as judging:
            return await running.retry(bus, judging, name, own=bool(served))

    done = on_bus(settings, work, REPLAY, REPLAY)
    if as_json:
        print_json(done)
    else:
        Console(soft_wrap=True).print(
            f"run {name}: of {done.found:,} outcomes with faults {done.scored:,} are scored now, "
            f"{done.unscored:,} unscored for another reason"
        )
    if done.faulty or done.gone:
        gone = f"; the events of {done.gone:,} are no longer kept" if done.gone else ""
        raise CheckFailed(
            f"{done.faulty:,} outcomes of run {name} have a fault again (replay faults {name}){gone}"
        )


def recorded(
    *,
    since: str = "",
    until: str = "",
    model: list[str] | None = None,
    tenant: list[str] | None = None,
    ids: str = "",
    sample: int = 0,
    seed: int = 0,
) -> Spec:
    """Which of the recorded events; the rest of the spec is still to be said."""
    now = time.time()
    return Spec(
        run="",
        since=read_moment(since, "--since", now) if since else 0.0,
        until=read_moment(until, "--until", now) if until else 0.0,
        models=tuple(model or ()),
        tenants=tuple(tenant or ()),
        ids=tuple(filter(None, (one.strip() for one in ids.split(",")))),
        sample=sample,
        seed=seed,
    )


Recorded = Annotated[Spec, recorded]


def start(
    settings: OnSystem,
    recorded: Recorded,
    *,
    run: str,
    protocol: list[str] | None = None,
    stage: str = "extraction",
    source: str = LIVE,
    judge: str = "",
    models: str = "",
    speed: str = "max",
    max_tokens: int = 0,
    max_cost: float = 0.0,
    keep: bool = False,
    dry: bool = False,
    allow_gap: bool = False,
    file: Path | None = None,
    folder: Path | None = None,
    as_json: bool = False,
) -> None:
    """Judge a stretch of what was recorded again, into a run of its own."""
    with_judge(settings, judge)
    served = named_models(models)
    if file is not None and (source != LIVE or dry):
        raise UsageError("--file brings its own events: leave --source and --dry-run away")
    spec = msgspec.structs.replace(
        recorded,
        run=run,
        source=run if file is not None else source,
        stage=stage,
        protocols=tuple(protocol or ()),
        speed=pace(speed),
        max_tokens=max_tokens,
        max_cost=max_cost,
        keep=keep,
        allow_gap=allow_gap,
        file=file.name if file is not None else "",
        judge=judge,
        own=f"--models {shlex.quote(models)}" if models else "",
    )
    spec.check()
    if dry:
        plan = on_bus(settings, lambda bus: running.dry_run(bus, spec), REPLAY, REPLAY)
        print_json(plan) if as_json else _show_plan(plan)
        return

    async def work(bus: Bus) -> Run:
        # Before models are loaded, which takes seconds. An import that broke off goes on by itself.
        there = await (await Runs.open(bus.js)).find(run)
        refused = there is not None and there.status != "importing"
        async with with_models({} if refused else served, settings, quiet=as_json) as judging:
            if file is not None:
                begun = await exports.begin_file(bus, judging, spec, file)
            else:
                begun = await running.begin(bus, judging, spec)
            with shown(begun, as_json) as show:
                return await running.work(bus, judging, begun, on_progress=show)

    told_end(on_bus(settings, work, REPLAY, REPLAY), as_json, folder)


def resume(
    settings: OnSystem,
    name: str,
    *,
    folder: Path | None = None,
    as_json: bool = False,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    models: str = "",
) -> None:
    """Go on with it, here; beside others who work at it, if there are any."""
    served = named_models(models)

    async def go_on(bus: Bus) -> Run:
        runs = await Runs.open(bus.js)
        found = await runs.get(name)
        if found.status == "importing":
            raise UsageError(
                f"run '{name}' was not imported to its end: repeat groundwatch replay start --run {name} "
                f"--file {found.spec.file}"
            )
        if not served:
            found.spec.check_judges()
        found = await running.resume(runs, name, max_tokens=max_tokens, max_cost=max_cost)
        async with with_models(served, settings, quiet=as_json) as judging:
            with shown(found, as_json) as show:
                return await running.work(bus, judging, found, on_progress=show)

    told_end(on_bus(settings, go_on, REPLAY, REPLAY), as_json, folder)


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


@contextlib.contextmanager
def shown(run: Run, quiet: bool) -> Iterator[Callable[[Run], None]]:
    """A bar on standard error with how far the run is and how long it still takes."""
    began: tuple[float, float] | None = None
    with progress(TaskProgressColumn(), "{task.fields[told]}", quiet=quiet) as bar:
        task = bar.add_task(f"replay {run.name}", total=1.0, told="")

        def show(run: Run) -> None:
            nonlocal began
            if run.counts.outcomes:
                # Not before: on a busy machine the judges would take minutes to load.
                prefer_others()
            now = time.monotonic()
            began = began or (now, run.share)
            passed, done = now - began[0], run.share - began[1]
            told = f"{run.counts.outcomes:,} outcomes"
            if done > 0 and passed > 1:
                told += f", {timedelta(seconds=round((1 - run.share) * passed / done))} left"
            if run.counts.usage.cost:
                told += f", ${run.counts.usage.cost:,.2f}"
            bar.update(task, completed=run.share, told=told)

        yield show


def told_end(run: Run, as_json: bool, folder: Path | None = None) -> None:
    """What became of the run, and what to type next."""
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
        by = f" {run.spec.own}" if run.spec.own else ""
        console.print(f"Go on with: {program()} replay resume {run.name}{by}{where}", soft_wrap=True)


def _show_plan(plan: Plan) -> None:
    table = figures(f"Replay {plan.run}, not begun")
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
        if plan.calls:
            table.add_row("", "at most: what the judgement cache knows is not asked again")
        table.add_row(f"{plan.input_tokens:,}", "tokens read")
        table.add_row(f"{plan.output_tokens:,}", "tokens written")
        table.add_row(f"${plan.cost:,.2f}", "cost")
        table.add_row(str(timedelta(seconds=round(plan.seconds or 0))), "time, at the pace of those outcomes")
    else:
        table.add_row("?", f"run {plan.source} has no judged outcome to measure cost and time on")
    Console().print(table)


def export(
    settings: OnSystem,
    recorded: Recorded,
    *,
    out: Path,
    stage: str = "extraction",
    source: str = LIVE,
    allow_gap: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Write recorded events with their images to a file; replay it with `groundwatch replay start --file`."""
    if out.exists() and not force:
        raise UsageError(f"{out} is there already: name another file, or write over it with --force")
    spec = msgspec.structs.replace(recorded, run="export", source=source, stage=stage, allow_gap=allow_gap)
    spec.check()

    async def work(bus: Bus) -> Manifest:
        with progress(TaskProgressColumn(), quiet=as_json) as bar:
            task = bar.add_task("export", total=1.0)

            def tell(share: float) -> None:
                bar.update(task, completed=share)

            return await exports.export(bus.history, spec, out, cold_images=bus.cold_images, on_progress=tell)

    manifest = on_bus(settings, work, "export")
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
