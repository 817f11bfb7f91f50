"""`groundwatch runs`: the replays there are, and what may be done with them."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.addresses import without_secrets
from groundwatch.cli.options import (
    ConfigOption,
    DataDirOption,
    JsonOption,
    ModelsOption,
    NatsOption,
    client_settings,
)
from groundwatch.cli.output import confirmed, place_of, print_json, program, say
from groundwatch.errors import UsageError
from groundwatch.replay.pairs import Changed, changed
from groundwatch.replay.retrying import faults
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.watching import seconds_left
from groundwatch.runtime.delivery.outcomes import REPLACEABLE
from groundwatch.runtime.settings import Settings, with_file
from groundwatch.system.connecting import connected, run
from groundwatch.system.models import named_models
from groundwatch.terminal import Console, Table
from groundwatch.times import shown_moment
from groundwatch.topology import REPLAY

COMPARED = 50_000
"""Outcomes up to which `runs show` compares a run with its source unasked."""

SHOWN_FAULTS = 3
"""Different faults of judges that it names; `runs faults` names all."""

WithOption = Annotated[
    Path | None,
    typer.Option("--with", help="Settings of the judges (TOML) over those in use.", show_default=False),
]
NameArgument = Annotated[str, typer.Argument(help="Name of the run.", show_default=False)]

runs = typer.Typer(help="Replays: list, show, pause, resume, cancel, delete.", no_args_is_help=True)


@runs.command("list")
def list_command(
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: DataDirOption = None,
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
        Console().print("no replays yet: groundwatch replay --help")
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


@runs.command("show")
def show_command(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: DataDirOption = None,
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
            said = await faults(bus.js, name) if faulty else {}
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
        console.print(f"Judge these again with: groundwatch runs retry {name}")
    if compared is not None:
        console.print(told_changed(compared, found.spec.source), soft_wrap=True)


@runs.command("pause")
def pause_command(
    name: NameArgument, config: ConfigOption = None, nats: NatsOption = "", folder: DataDirOption = None
) -> None:
    """Stop it for now: what is in hand is finished, nothing more is begun."""
    from groundwatch.replay.running import pause

    run(_changed(client_settings(config, nats, folder), pause, name))
    say(f"run {name} is paused; go on with: {program()} runs resume {name}{place_of(folder)}")


@runs.command("resume")
def resume_command(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: DataDirOption = None,
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
    from groundwatch.cli.replay import Shown, told_end, with_models
    from groundwatch.replay.running import resume, work

    settings = with_file(client_settings(config, nats, folder), with_settings)
    served = named_models(models)

    async def go_on() -> Run:
        async with connected(settings, REPLAY, user=REPLAY) as bus:
            found = await (await Runs.open(bus.js)).get(name)
            if found.status == "importing":
                raise UsageError(
                    f"run '{name}' was not imported to its end: repeat groundwatch replay --run {name} "
                    f"--file {found.spec.file}"
                )
            found = await resume(await Runs.open(bus.js), name, max_tokens=max_tokens, max_cost=max_cost)
            async with with_models(served, settings, quiet=as_json) as judging:
                if served:
                    found = asking(found, judging)
                with Shown(found, as_json) as show:
                    return await work(bus, settings, found, on_progress=show)

    told_end(run(go_on()), as_json, folder, models, with_settings)


def asking(one: Run, settings: Settings) -> Run:
    """The same run, which asks its models on the Triton of these settings."""
    judges = one.spec.settings
    served = {"url": settings.triton.url, "tls": settings.triton.tls, "tls_ca": settings.triton.tls_ca}
    triton = judges.get("triton", {}) | served
    return msgspec.structs.replace(
        one, spec=msgspec.structs.replace(one.spec, settings=judges | {"triton": triton})
    )


@runs.command("cancel")
def cancel_command(
    name: NameArgument, config: ConfigOption = None, nats: NatsOption = "", folder: DataDirOption = None
) -> None:
    """End it where it is; its results so far stay."""
    from groundwatch.replay.running import cancel

    run(_changed(client_settings(config, nats, folder), cancel, name))
    Console().print(f"run {name} is cancelled; its results so far stay")


@runs.command("delete")
def delete_command(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: DataDirOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove it with all of its results."""
    from groundwatch.replay.running import delete

    settings = client_settings(config, nats, folder)

    async def look() -> Run:
        async with connected(settings, "runs", user=REPLAY) as bus:
            return await (await Runs.open(bus.js)).get(name)

    async def work() -> None:
        async with connected(settings, "runs", user=REPLAY) as bus:
            await delete(bus, name)

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


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(runs, name="runs")
