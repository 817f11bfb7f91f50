"""`groundwatch up`, `serve` and `demo`. In the demo two models answer, one turns bad half way, and it is said
which and when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec
import typer

from groundwatch.addresses import shown_address
from groundwatch.cli.ledger import show_ledger
from groundwatch.cli.messages import complain, place_of, print_json, program, say
from groundwatch.cli.options import Configured
from groundwatch.cli.output import loading_shown, table_of
from groundwatch.demo import live
from groundwatch.demo.findings import Findings, LiveFindings
from groundwatch.demo.live import play
from groundwatch.demo.shared import HERE, Kept, Screen, kept
from groundwatch.errors import CheckFailed, SettingsError, UsageError
from groundwatch.events import Decision
from groundwatch.models.repository import ServedModel
from groundwatch.reporting.alarms import tell as tell_alarm
from groundwatch.reporting.live import LiveView
from groundwatch.reporting.render import render
from groundwatch.runtime.local.triton_server import OnProgress
from groundwatch.runtime.services.run import until_told_to_stop
from groundwatch.runtime.services.tasks import first_of
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_endpoint
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import data_dir, prepare, run
from groundwatch.system.services import SERVED
from groundwatch.system.services import serve as run_service
from groundwatch.system.up import System, little_room, named_models, prepare_folder, whole_system
from groundwatch.terminal import Console, Live, Table, styled


def has_keys() -> bool:
    """Whether somebody sits before it: standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def wait_key() -> None:
    """Return when a key is pressed on standard input, which is a terminal; Ctrl-C is one like any other."""
    loop = asyncio.get_running_loop()
    pressed = asyncio.Event()
    descriptor = sys.stdin.fileno()
    with _each_key(descriptor):
        loop.add_reader(descriptor, pressed.set)
        try:
            await pressed.wait()
            os.read(descriptor, 1024)
        finally:
            loop.remove_reader(descriptor)


@contextlib.contextmanager
def _each_key(descriptor: int) -> Iterator[None]:
    """Keys are read one by one, without their echo, while the block runs."""
    import termios

    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def up(
    settings: Configured,
    *,
    port: int | None = None,
    folder: Path | None = None,
    models: str = "",
    judge: str = "",
    judge_model: str = "",
) -> None:
    """Run the whole system on this machine, NATS included, pages at a port; with --models also Triton."""
    if bool(judge) != bool(judge_model):
        missing = "--judge-model NAME" if judge else "--judge URL"
        raise UsageError(f"--judge and --judge-model go together: add {missing}")
    if judge:
        settings = with_endpoint(settings, judge, judge_model)
    if port is not None:
        settings = settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"port": port})})
    if folder is not None:
        settings = settings.model_copy(update={"data_dir": str(folder)})
    served = named_models(models)
    try:
        settings = prepare_folder(settings)
    except UsageError as error:
        raise UsageError(f"{error}: name another folder", "folder") from error
    run(_up(settings, served))


async def _up(settings: Settings, models: Mapping[str, ServedModel]) -> None:
    folder = data_dir(settings)
    if little := little_room(settings, folder):
        complain(little)
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.ExitStack() as starting:
            on_progress = None
            for name, model in models.items():
                if model.licence:
                    say(f"  {name:<14} {model.told}", err=True)
            if models:
                words = f"starting Triton with {', '.join(models)};"
                on_progress = starting.enter_context(loading_shown(Console(stderr=True), words))
            system = await stack.enter_async_context(whole_system(settings, folder, models, on_progress))
        nats = shown_address(system.nats_url)
        say(f"groundwatch is up: {system.gateway_url}   (NATS {nats}, data {folder})")
        say(f"  send answers   groundwatch submit FILE   or POST {system.gateway_url}/v1/responses")
        if system.triton is not None:
            say(
                f"  models         {', '.join(system.triton.models)} at {system.triton.url} (gRPC), "
                f"metrics {system.triton.metrics_url}"
            )
        judges = system.settings.verification.judges()
        say(f"  judges         {' · '.join(f'{name} {engine}' for name, engine in judges.items())}")
        say("  look           groundwatch watch · groundwatch report · groundwatch audit")
        say("  stop           Ctrl-C")
        try:
            await first_of(until_told_to_stop(), system.bus.until_lost())
        finally:
            say("draining…")


def serve(
    stage: Annotated[str, typer.Argument(help=f"One of {', '.join(SERVED)}.")],
    *,
    config: Path | None = None,
    nats: str = "",
    metrics_port: int | None = None,
    wait: float = 0.0,
) -> None:
    """Run one service: a container's entry point."""
    if stage not in SERVED:
        raise UsageError(f"no service '{stage}'; there are {', '.join(SERVED)}")
    settings = prepare(config, nats)
    if metrics_port is not None:
        settings = settings.model_copy(
            update={"telemetry": settings.telemetry.model_copy(update={"port": metrics_port})}
        )
    if not settings.nats.url:
        raise SettingsError("setting 'nats.url' is needed here: set it, GROUNDWATCH_NATS__URL, or --nats")
    run(run_service(stage, settings, wait))


RATE = 12.0


def demo(
    *,
    as_json: bool = False,
    recorded: bool = False,
    answers: int | None = None,
    rate: float | None = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help=f"Keep the streams here, in place of those of the demo before; {HERE} when absent."
        ),
    ] = None,
) -> None:
    """Run everything here, ask two vision-language models about images, and find the one that changes."""
    if rate is not None and not rate > 0:
        raise UsageError("--rate: must be above 0")
    if rate is not None and not recorded:
        raise UsageError("--rate is for --recorded: live models answer as fast as they can")
    if answers is not None and recorded:
        raise UsageError("--answers is not for --recorded, which plays all that it has")
    if answers is not None and answers < live.FEWEST:
        raise UsageError(f"--answers: must be at least {live.FEWEST}")
    logs.configure(level="error")
    models = {} if recorded else _models_needed()
    screen = Screen() if as_json else ConsoleScreen(Console())
    with kept(folder, lambda why: complain(f"{why}; --folder FOLDER keeps it")) as place:

        async def over(found: Findings, system: System) -> None:
            tell(found, place, as_json=as_json)
            if not as_json and has_keys():
                await _keep_up(system)

        if recorded:
            found = run(play(place.path, rate or RATE, screen, over))
        else:
            found = run(live.run_live(place.path, models, answers or live.ANSWERS, screen, over))
        place.tidy()
        if not found.ledger.balanced or found.ledger.in_flight:
            raise CheckFailed("the demo's ledger does not balance")


def _models_needed() -> dict[str, ServedModel]:
    try:
        return live.models_needed()
    except UsageError as error:
        raise UsageError(f"{error}; without any model: groundwatch demo --recorded") from error


async def _keep_up(system: System) -> None:
    """The pages, until a key is pressed."""
    console = Console(soft_wrap=True)
    console.print()
    console.print(styled(("Look at it", "bold"), f": {system.gateway_url}/   Press a key to end."))
    await first_of(wait_key(), system.bus.until_lost())


class ConsoleScreen(Screen):
    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, line: str) -> None:
        self._console.print(line)

    @contextlib.contextmanager
    def loading(self, words: str) -> Iterator[OnProgress | None]:
        with loading_shown(self._console, words) as on_progress:
            yield on_progress

    @contextlib.asynccontextmanager
    async def live(self, view: LiveView) -> AsyncIterator[None]:
        if self._console.is_terminal:
            with Live(view, console=self._console, refresh_per_second=4):
                yield
            return

        async def print_now_and_then() -> None:
            while True:
                await asyncio.sleep(10)
                self._console.print(view.line())

        printing = asyncio.create_task(print_now_and_then())
        try:
            yield
        finally:
            printing.cancel()
            self._console.print(view)


def tell(found: Findings, place: Kept, *, as_json: bool) -> None:
    again = _again(found, place)
    if as_json:
        print_json(found.to_dict() | {"next": again})
        return
    console = Console()
    console.print()
    render(found.watched.report, console)
    console.print()
    show_ledger(found.ledger, console)
    console.print()
    console.print(styled(("Prometheus metrics", "bold"), ", as GET /metrics of the gateway shows them:"))
    for line in found.metrics:
        console.print(f"  {line}", soft_wrap=True)
    console.print()
    if isinstance(found, LiveFindings):
        _tell_worst(found, console)
        _tell_denial(found, console)
        console.print(_beside_truth(found))
    for raised in found.alarms:
        console.print(f"⚠ {tell_alarm(raised)}", style="bold red")
    if isinstance(found, LiveFindings):
        if not found.alarms:
            console.print("No alarm was raised.")
        rollout = found.rollout
        console.print(
            f"What was done: from response {rollout.response} of {rollout.model} on, its version "
            f"{rollout.version} answered."
        )
    up = "up --models miniature" if isinstance(found, LiveFindings) else "up"
    _tell_next(found.seconds["total"], up, place, again)


def _tell_worst(findings: LiveFindings, console: Console) -> None:
    found = findings.worst()
    if not found:
        return
    told = ", by the judges' probability that the fact holds:"
    console.print(styled(("Furthest from the image", "bold"), told))
    for one in found:
        console.print(f"  {one.model} {one.version}  “{one.sentence}”")
        console.print(styled("     ", (f"✗ {one.fact}", "red"), f"  P = {one.probability:.3f}"))
        console.print(f"     the image shows {one.shown}", style="dim")


def _tell_denial(findings: LiveFindings, console: Console) -> None:
    found = findings.denial()
    if found is None:
        return
    console.print(styled(("An answer in Markdown that denies something", "bold"), f", {found.id}:"))
    for line in found.answer.splitlines():
        console.print(styled(f"  {line}"))
    for part in found.left_out:
        console.print(styled("     left out, ", (part, "dim")))
    mark, style = ("✓", "green") if found.decision is Decision.SUPPORTED else ("✗", "red")
    console.print(styled("     judged as a denial: ", (f"{mark} {found.fact}", style)))
    console.print(styled((f"     the image shows {found.shown}", "dim")))


def _beside_truth(findings: LiveFindings) -> Table:
    title = "Facts that are not in the image: as estimated, and as it is in this world"
    table = table_of(title, "model and version", "answers", "estimated, with 95 %", "true")
    for one in findings.compared():
        rate = one.estimated
        table.add_row(
            f"{one.model} {one.version}",
            str(one.responses),
            f"{rate.value:.1%} ({100 * rate.low:.1f}–{100 * rate.high:.1f})" if rate else "–",
            "–" if one.true is None else f"{one.true:.1%}",
        )
    return table


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """What to type when the demo is over: its answers judged again, and both judgements side by side.

    `judged` says in words how.
    """

    judged: str
    replay: str
    compare: str


def _again(found: Findings, place: Kept) -> Next | None:
    """The replay that is proposed; None where nothing stays that could be judged again.

    Would the model that turned bad have found itself out? Without any model there is no other judge, and this
    one is held to its word.
    """
    if not place.stays:
        return None
    run, judged, where = "again", "by the same judge, which must say the same", place_of(place.path)
    if isinstance(found, LiveFindings):
        rollout, true = found.rollout, found.true_rate()
        run = f"by-{rollout.model}"
        judged = f"by {rollout.model} {rollout.version} itself (lvlm_biased)"
        if true is not None:
            judged += f"; of all facts {true:.1%} are not in the image: does it find them?"
        place.judge.write_text(found.other_judge)
        where += f" --models {quote(str(place.judge))}"
    return Next(
        judged=judged,
        replay=f"{program()} replay start --run {run} --from verification{where}",
        compare=f"{program()} compare live {run}{place_of(place.path)}",
    )


def _tell_next(seconds: float, up: str, place: Kept, again: Next | None) -> None:
    """What to type next; `up` is the command that starts the same for good."""
    console = Console(soft_wrap=True)
    start = program()
    console.print(f"done in {seconds:.0f} s")
    console.print()
    console.print(styled(("Your own answers", "bold"), ": id, model, answer, and images or a reference"))
    console.print(f"  {start} {up}")
    console.print(f"  {start} submit answers.jsonl")
    console.print(f"  {start} watch        # or report, audit, admin dead list")
    if again is None:
        return
    console.print()
    console.print(styled(("The same answers again", "bold"), f", {again.judged}"))
    console.print(f"  {again.replay}")
    console.print(f"  {again.compare}")
    console.print(
        f"The streams stay until the next demo: {place.size / 1e6:.1f} MB; to be rid of them: "
        f"rm -r {quote(str(place.path))}",
        style="dim",
    )
