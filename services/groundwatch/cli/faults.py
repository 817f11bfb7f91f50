"""`groundwatch runs retry` and `runs faults`: what a replay's judges had faults with."""

from __future__ import annotations

import typer

from groundwatch.cli.options import ConfigOption, DataDirOption, JsonOption, NatsOption, client_settings
from groundwatch.cli.output import print_json
from groundwatch.cli.runs import NameArgument, WithOption, runs
from groundwatch.errors import CheckFailed
from groundwatch.replay.retrying import Retried, faults, retry
from groundwatch.replay.runs import Runs
from groundwatch.runtime.settings import with_file
from groundwatch.system.connecting import connected, run
from groundwatch.terminal import Console
from groundwatch.topology import REPLAY


@runs.command("faults")
def faults_command(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """What the judges of a replay had faults with, and how often."""
    settings = client_settings(config, nats, folder)

    async def work() -> dict[str, int]:
        async with connected(settings, "runs", user=REPLAY) as bus:
            await (await Runs.open(bus.js)).get(name)
            return await faults(bus.js, name)

    found = run(work())
    if as_json:
        print_json({"run": name, "faults": found})
        return
    console = Console(soft_wrap=True)
    for words, number in found.items():
        console.print(f"{number:>9,}  {words}")
    if found:
        console.print(f"Judge these again with: groundwatch runs retry {name}")
    else:
        console.print(f"run {name} has no outcome that is unscored because of a fault")


@runs.command("retry")
def retry_command(
    name: NameArgument,
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: DataDirOption = None,
    with_settings: WithOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge again just what is unscored because a judge had a fault. Exit status 1: some have one again."""
    settings = with_file(client_settings(config, nats, folder), with_settings)

    async def work() -> Retried:
        async with connected(settings, REPLAY, user=REPLAY) as bus:
            return await retry(bus, settings, name)

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
            f"{done.faulty:,} outcomes of run {name} have a fault again (runs faults {name}){gone}"
        )


def register(app: typer.Typer) -> None:
    """These belong to `groundwatch runs`, which registers itself."""
