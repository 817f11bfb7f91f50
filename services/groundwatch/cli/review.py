"""Queues of answers that people review, and their opinions: `groundwatch review`."""

import getpass
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer

from groundwatch.cli.messages import confirmed, print_json, print_json_line, say
from groundwatch.cli.options import OnSystem
from groundwatch.cli.output import figures, table_of
from groundwatch.errors import InputError, UsageError, told_to_user
from groundwatch.events import Decision
from groundwatch.replay.files import replacing
from groundwatch.reviews.files import Format, lines_of, opinions_in
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Frames, QueueProgress, Queues, QueueSpec, Rule
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Stored
from groundwatch.system.connecting import on_bus
from groundwatch.terminal import Console
from groundwatch.times import read_moment, shown_moment


def create(
    settings: OnSystem,
    queue: str,
    *,
    protocol: str = "",
    rule: Annotated[
        str,
        typer.Option(
            metavar="|".join(get_args(Rule)),
            help="Which answers are likelier: none, those of which the judge is not sure, those on which "
            "judges disagree; or the answers of an alarm, or every one.",
        ),
    ] = "random",
    size: int = 0,
    share: float = 1.0,
    model: str = "",
    version: str = "",
    tenant: str = "",
    tag: str = "",
    category: str = "",
    verdict: str = "",
    since: str = "",
    until: str = "",
    alarm: str = "",
    reviewers: int = 1,
    assigned: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Draw answers for people to review, each with a known probability; where they review says `up`."""
    now = time.time()
    told = {
        "name": queue,
        "protocol": protocol,
        "rule": rule,
        "size": size,
        "share": share,
        "model": model,
        "version": version,
        "tenant": tenant,
        "tag": tag,
        "category": category,
        "verdict": Decision(verdict) if verdict in list(Decision) else verdict or None,
        "since": read_moment(since, "since", now) if since else 0.0,
        "until": read_moment(until, "until", now) if until else 0.0,
        "alarm": alarm,
        "reviewers": reviewers,
        "assigned": tuple(assigned or ()),
        "created_by": getpass.getuser(),
    }
    try:
        spec = msgspec.convert(told, QueueSpec)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from error
    made = on_bus(settings, lambda bus: Queues(bus).create(spec))
    if as_json:
        print_json(made)
        return
    say(f"queue {made.name} is made; its items are drawn within seconds, where the annotation service runs")


def list_queues(settings: OnSystem, *, as_json: bool = False) -> None:
    """Every queue with how far it is."""

    async def work(bus: Bus) -> list[tuple[QueueSpec, QueueProgress]]:
        queues = Queues(bus)
        return [(spec, await queues.progress(spec.name)) for spec in await queues.list()]

    found = on_bus(settings, work)
    if as_json:
        print_json({"queues": [{"queue": spec, "progress": progress} for spec, progress in found]})
        return
    table = table_of(
        "Queues", "queue", "protocol", "rule", "state", "items", "done", "held", "opinions", left=4
    )
    for spec, progress in found:
        numbers = (progress.items, progress.done, progress.held, progress.opinions)
        state = "closed" if spec.closed else "open"
        table.add_row(spec.name, spec.protocol, spec.rule, state, *(f"{number:,}" for number in numbers))
    Console().print(table)


def show(settings: OnSystem, queue: str, *, as_json: bool = False) -> None:
    """One queue: what it is drawn from, from how many, and who has done what."""

    async def work(bus: Bus) -> tuple[QueueSpec, QueueProgress, int]:
        queues = Queues(bus)
        frame, _ = await Frames(bus).load(queue)
        return await queues.find(queue), await queues.progress(queue), frame.size

    spec, progress, size = on_bus(settings, work)
    if as_json:
        print_json({"queue": spec, "progress": progress, "frame": size})
        return
    table = figures(f"Queue {spec.name}")
    for number, what in (
        (size, "answers that it is drawn from"),
        (progress.items, "items"),
        (progress.done, "done"),
        (progress.held, "held at this moment"),
        *((number, f"by {reviewer}") for reviewer, number in progress.reviewers.items()),
    ):
        table.add_row(f"{number:,}", what)
    console = Console()
    console.print(table)
    drawn = f"{spec.size:,} of what was recorded" if spec.size else f"a share of {spec.share:g} of what comes"
    console.print(f"{spec.protocol}, {spec.rule}: {drawn}, since {shown_moment(spec.since)}", soft_wrap=True)


def close(settings: OnSystem, queue: str) -> None:
    """Draw no more for it, and give nobody another item; what was said counts on."""
    on_bus(settings, lambda bus: Queues(bus).close(queue))
    say(f"queue {queue} is closed")


def delete(settings: OnSystem, queue: str, *, yes: bool = False) -> None:
    """Remove it with its items and drafts; opinions stay, and count in no corrected rate any more."""
    if not yes and not confirmed(f"Delete queue {queue} with its items?"):
        raise typer.Abort
    items = on_bus(settings, lambda bus: Queues(bus).delete(queue))
    say(f"queue {queue} is deleted with {items:,} items")


def export(
    settings: OnSystem,
    *,
    out: Path | None = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="|".join(get_args(Format)),
            help="Whole opinions, or lines that `validate verdicts`, `annotators` and `faithscore` read.",
        ),
    ] = "opinions",
    queue: str = "",
    protocol: str = "",
    tenant: str = "",
) -> None:
    """Opinions as JSON lines: of each reviewer about each answer the last one."""
    if form not in get_args(Format):
        raise UsageError(f"'{form}' is none of {', '.join(get_args(Format))}", "form")
    wanted = {"queue": queue, "protocol": protocol, "tenant": tenant}
    left_out: Counter[str] = Counter()

    async def work(bus: Bus) -> list[Any]:
        opinions = [
            one
            for one in await Opinions(bus).latest()
            if all(value in ("", getattr(one, name)) for name, value in wanted.items())
        ]
        lines = lines_of(bus, opinions, form, lambda why: left_out.update([why]))  # type: ignore[arg-type]
        return [line async for line in lines]

    lines = on_bus(settings, work)
    if left_out:
        reasons = ", ".join(f"{number:,} {why}" for why, number in sorted(left_out.items()))
        say(f"opinions that have no line: {reasons}", err=True)
    if out is None:
        for line in lines:
            print_json_line(line)
        return
    with told_to_user(f"{out}: cannot be written"), replacing(out) as file:
        for line in lines:
            file.write(ENCODER.encode(line) + b"\n")
    say(f"{len(lines):,} lines are in {out}")


def import_opinions(settings: OnSystem, file: Path, *, reviewer: str = "", as_json: bool = False) -> None:
    """Take in what people said elsewhere; nothing of a file unless every line can be."""
    with told_to_user(f"{file}: cannot be read"):
        content = file.read_bytes()

    async def work(bus: Bus) -> tuple[int, int]:
        opinions = Opinions(bus)
        try:
            given = await opinions_in(bus, content, reviewer or getpass.getuser())
        except InputError as error:
            raise UsageError(f"{file}: {error}") from error
        return len(given), sum([await opinions.give(one) is Stored.NEW for one in given])

    number, new = on_bus(settings, work)
    told = f"{number:,} opinions, {new:,} of them new"
    print_json({"opinions": number, "new": new}) if as_json else say(told)
