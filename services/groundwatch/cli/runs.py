"""`groundwatch replay list`, `show` and the others about the replays that there are."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.addresses import without_secrets
from groundwatch.cli.options import (
    ConfigOption,
    FolderOption,
    JsonOption,
    NatsOption,
    client_settings,
)
from groundwatch.cli.output import confirmed, place_of, print_json, program, say
from groundwatch.errors import CheckFailed
from groundwatch.replay import retrying
from groundwatch.replay.pairs import Changed, changed
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.watching import seconds_left
from groundwatch.runtime.delivery.outcomes import REPLACEABLE
from groundwatch.runtime.settings import with_file
from groundwatch.system.connecting import connected, run
from groundwatch.terminal import Console, Table
from groundwatch.times import shown_moment
from groundwatch.topology import REPLAY

COMPARED = 50_000
"""Outcomes up to which `replay show` compares a run with its source unasked."""

SHOWN_FAULTS = 3
"""Different faults of judges that it names; `replay faults` names all."""

WithOption = Annotated[
    Path | None,
    typer.Option("--with", help="Settings of the judges (TOML) over those in use.", show_default=False),
]
NameArgument = Annotated[str, typer.Argument(help="Name of the run.", show_default=False)]


def list_runs(
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every replay, the newest first."""
    settings = client_settings(config, nats, folder)

    async def work() -> list[Run]:
        async with connected(settings, "runs", user=REPLAY) as bus:
            return [one async for one in (await Runs.open(bus.js)).all()]

    found = sorted(run(work()), key=lambda one: -one.created_at)
    now = time.time()
    if as_json:
        print_json({"runs": [facts(one, now) for one in found]})
        return
    if not found:
        Console().print("no replays yet: groundwatch replay start --help")
        return
    table = Table("run", "state", "done", "outcomes", "from", "of", "begun", "cost", box=None)
    for one in found:
        state = f"{one.status} ({one.reason})" if one.reason else one.status
        table.add_row(
            one.name,
            state,
            f"{one.share:.0%}",
            f"{one.counts.outcomes:,}",
            one.spec.stage,
            one.spec.file or one.spec.source,
            shown_moment(one.created_at),
            f"${one.counts.usage.cost:,.2f}",
        )
    Console().print(table)


def show(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
    compare: Annotated[
        bool | None,
        typer.Option(
            "--changed/--no-changed",
            help="Whether to count how many judgements the same judges changed; small runs: yes.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """One replay: what it was asked to do, how far it is, what came of it."""
    settings = client_settings(config, nats, folder)

    async def work() -> tuple[Run, Changed | None, dict[str, int]]:
        async with connected(settings, "runs", user=REPLAY) as bus:
            found = await (await Runs.open(bus.js)).get(name)
            faulty = any(found.counts.reasons.get(f"unscored: {reason}") for reason in REPLACEABLE)
            said = await retrying.faults(bus.js, name) if faulty else {}
            wanted = found.counts.outcomes <= COMPARED if compare is None else compare
            if not wanted or found.spec.file:
                return found, None, said
            return found, await changed(bus.js, found.spec.source, name), said

    found, compared, said = run(work())
    if as_json:
        print_json(
            facts(found, time.time())
            | {"changed": compared, "faults": said, "spec": without_secrets(msgspec.to_builtins(found.spec))}
        )
        return
    console = Console()
    show_run(found, console)
    if said:
        words = "; ".join(f"{number:,} × {fault}" for fault, number in list(said.items())[:SHOWN_FAULTS])
        console.print(f"unscored for faults of judges: {words}", soft_wrap=True)
        console.print(f"Judge these again with: groundwatch replay retry {name}")
    if compared is not None:
        console.print(told_changed(compared, found.spec.source), soft_wrap=True)


def pause(
    name: NameArgument, config: ConfigOption = None, nats: NatsOption = "", folder: FolderOption = None
) -> None:
    """Stop it for now: what is in hand is finished, nothing more is begun."""
    from groundwatch.replay import running

    run(_changed(client_settings(config, nats, folder), running.pause, name))
    say(f"run {name} is paused; go on with: {program()} replay resume {name}{place_of(folder)}")


def cancel(
    name: NameArgument, config: ConfigOption = None, nats: NatsOption = "", folder: FolderOption = None
) -> None:
    """End it where it is; its results so far stay."""
    from groundwatch.replay import running

    run(_changed(client_settings(config, nats, folder), running.cancel, name))
    Console().print(f"run {name} is cancelled; its results so far stay")


def delete(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove it with all of its results."""
    from groundwatch.replay import running

    settings = client_settings(config, nats, folder)

    async def look() -> Run:
        async with connected(settings, "runs", user=REPLAY) as bus:
            return await (await Runs.open(bus.js)).get(name)

    async def work() -> None:
        async with connected(settings, "runs", user=REPLAY) as bus:
            await running.delete(bus, name)

    found = run(look())
    if not yes and not confirmed(f"Delete run {name} with its {found.counts.outcomes:,} outcomes?"):
        raise typer.Abort
    run(work())
    Console().print(f"run {name} is deleted with all of its events")


async def _changed(settings: Any, how: Any, name: str) -> Run:
    async with connected(settings, "runs", user=REPLAY) as bus:
        found: Run = await how(await Runs.open(bus.js), name)
        return found


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
    """A run as people read it."""
    table = Table(title=f"Replay {one.name}", title_justify="left", show_header=False, box=None)
    table.add_column(justify="right")
    table.add_column()
    state = f"{one.status} ({one.reason})" if one.reason else one.status
    origin = f"file {one.spec.file}" if one.spec.file else f"run {one.spec.source}"
    table.add_row(state, f"from {one.spec.stage} on, of {origin}")
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
        reasons = ", ".join(
            f"{reason.removeprefix(f'{kind}: ')} {count:,}"
            for reason, count in counts.reasons.items()
            if reason.startswith(f"{kind}: ")
        )
        table.add_row(f"{number:,}", f"{kind}   {reasons}".rstrip())
    if counts.usage.calls:
        tokens = counts.usage.input_tokens + counts.usage.output_tokens
        cost = f"${counts.usage.cost:,.2f}"
        table.add_row(f"{counts.usage.calls:,}", f"calls to judges, {tokens:,} tokens, {cost}")
    if counts.usage.cached:
        table.add_row(f"{counts.usage.cached:,}", "calls that the cache made unnecessary")
    console.print(table)


def told_changed(found: Changed, source: str) -> str:
    """How far the same judges said the same."""
    if not found.same_judges:
        return f"no judgement is by the same judges as in run {source}"
    return (
        f"{found.changed:,} of {found.same_judges:,} judgements by the same judges are not what they were in "
        f"run {source} ({found.changed / found.same_judges:.2%})"
    )


def faults(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """What the judges of a replay had faults with, and how often."""
    settings = client_settings(config, nats, folder)

    async def work() -> dict[str, int]:
        async with connected(settings, "runs", user=REPLAY) as bus:
            await (await Runs.open(bus.js)).get(name)
            return await retrying.faults(bus.js, name)

    found = run(work())
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
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    with_settings: WithOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge again just what is unscored because a judge had a fault. Exit status 1: some have one again."""
    settings = with_file(client_settings(config, nats, folder), with_settings)

    async def work() -> retrying.Retried:
        async with connected(settings, REPLAY, user=REPLAY) as bus:
            return await retrying.retry(bus, settings, name)

    done = run(work())
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
