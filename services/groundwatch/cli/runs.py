"""`groundwatch replay list`, `show` and the others about the replays that there are."""

import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from groundwatch.cli.messages import confirmed, place_of, print_json, program, say
from groundwatch.cli.options import FolderOption, JsonOption, OnSystem
from groundwatch.cli.output import figures, with_reasons
from groundwatch.errors import CheckFailed
from groundwatch.events import REPLACEABLE
from groundwatch.replay import retries, running
from groundwatch.replay.results import Changed, changed
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.service import Board, seconds_left
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_file
from groundwatch.system.connecting import on_bus, with_archive
from groundwatch.terminal import Console, Table
from groundwatch.times import shown_moment
from groundwatch.topology import REPLAY

T = TypeVar("T")

COMPARED = 50_000
"""Outcomes up to which `replay show` compares a run with its source unasked."""

SHOWN_FAULTS = 3
"""Different faults of judges that it names; `replay faults` names all."""

WithOption = Annotated[
    Path | None, typer.Option("--with", help="Settings of the judges (TOML) over those in use.")
]
NameArgument = Annotated[str, typer.Argument(help="Name of the run.")]


def list_runs(settings: OnSystem, as_json: JsonOption = False) -> None:
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


def show(
    settings: OnSystem,
    name: NameArgument,
    as_json: JsonOption = False,
    compare: Annotated[
        bool | None,
        typer.Option(
            "--changed/--no-changed",
            help="Whether to count how many judgements the same judges changed; small runs: yes.",
        ),
    ] = None,
) -> None:
    """One replay: what it was asked to do, how far it is, what came of it."""

    async def work(bus: Bus) -> tuple[Run, Changed | None, dict[str, int]]:
        found = await (await Runs.open(bus.js)).get(name)
        faulty = any(found.counts.reasons.get(f"unscored: {reason}") for reason in REPLACEABLE)
        said = await retries.faults(bus.history, name) if faulty else {}
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


def pause(settings: OnSystem, name: NameArgument, folder: FolderOption = None) -> None:
    """Stop it for now: what is in hand is finished, nothing more is begun."""
    _on_runs(settings, lambda runs: running.pause(runs, name))
    say(f"run {name} is paused; go on with: {program()} replay resume {name}{place_of(folder)}")


def cancel(settings: OnSystem, name: NameArgument) -> None:
    """End it where it is; its results so far stay."""
    _on_runs(settings, lambda runs: running.cancel(runs, name))
    Console().print(f"run {name} is cancelled; its results so far stay")


def delete(
    settings: OnSystem,
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
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


def faults(settings: OnSystem, name: NameArgument, as_json: JsonOption = False) -> None:
    """What the judges of a replay had faults with, and how often."""

    async def work(bus: Bus) -> dict[str, int]:
        await (await Runs.open(bus.js)).get(name)
        return await retries.faults(bus.history, name)

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


def retry(
    settings: OnSystem, name: NameArgument, with_settings: WithOption = None, as_json: JsonOption = False
) -> None:
    """Judge again just what is unscored because a judge had a fault. Exit status 1: some have one again."""
    settings = with_file(settings, with_settings)
    done = on_bus(
        settings,
        lambda bus: retries.retry(bus, settings, name, own=with_settings is not None),
        REPLAY,
        REPLAY,
    )
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
