"""`groundwatch demo`: two models answer, one turns bad half way, and groundwatch says which and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.cli.ledger import show_ledger
from groundwatch.cli.options import JsonOption
from groundwatch.cli.output import complain, loading_shown, place_of, print_json, program
from groundwatch.demo import live
from groundwatch.demo.findings import Findings
from groundwatch.demo.folder import HERE, Kept, kept
from groundwatch.demo.recorded import Played, play
from groundwatch.demo.shared import Screen, by_model
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.ledger.ledger import Ledger
from groundwatch.models.repository import ServedModel
from groundwatch.reporting import render
from groundwatch.reporting.alarms import tell as tell_alarm
from groundwatch.reporting.live import LiveView
from groundwatch.runtime.local.triton_server import OnProgress
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import run
from groundwatch.terminal import Console, Live, Table, box, styled

RATE = 12.0


def demo(
    as_json: JsonOption = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Play answers written beforehand: no model is needed.")
    ] = False,
    answers: Annotated[
        int | None,
        typer.Option(help=f"Answers to ask for; {live.ANSWERS} when absent.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help=f"Recorded answers sent a second; {RATE:g} when absent.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            help=f"Keep the streams here, in place of those of the demo before; {HERE} when absent.",
            show_default=False,
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
        if recorded:
            played = run(play(place.path, rate or RATE, screen))
            tell_recorded(played, place, as_json=as_json)
            _check(played.ledger)
        else:
            findings = run(live.run_live(place.path, models, answers or live.ANSWERS, screen))
            place.tidy()
            tell_live(findings, place, as_json=as_json)
            _check(findings.ledger)


def _check(ledger: Ledger) -> None:
    if not ledger.balanced or ledger.in_flight:
        raise CheckFailed("the demo's ledger does not balance")


def _models_needed() -> dict[str, ServedModel]:
    try:
        return live.models_needed()
    except UsageError as error:
        raise UsageError(f"{error}; without any model: groundwatch demo --recorded") from error


class ConsoleScreen(Screen):
    """The demo on a terminal, or in a log."""

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
        """The live table on a terminal; elsewhere a line now and then, so that a log shows life."""
        if self._console.is_terminal:
            with Live(view, console=self._console, refresh_per_second=4):
                yield
            return
        printing = asyncio.create_task(_print_now_and_then(view, self._console))
        try:
            yield
        finally:
            printing.cancel()
            self._console.print(view)


async def _print_now_and_then(view: LiveView, console: Console) -> None:
    while True:
        await asyncio.sleep(10)
        console.print(view.line())


def again_live(findings: Findings, place: Kept) -> Next | None:
    """The replay that is proposed: would the model that turned bad have found itself out?"""
    rollout = findings.rollout
    true = findings.true_rate()
    judged = f"by {rollout.model} {rollout.version} itself (lvlm_biased)" + (
        f"; of all facts {true:.1%} are not in the image: does it find them?" if true is not None else ""
    )
    return judged_again(place, f"by-{rollout.model}", judged, findings.other_judge)


def tell_live(findings: Findings, place: Kept, *, as_json: bool) -> None:
    """What was found, for people or as JSON, and what to type next."""
    if as_json:
        print_json(findings.to_dict() | {"next": again_live(findings, place)})
        return
    console = Console()
    console.print()
    render(findings.watched.report, console)
    console.print()
    show_ledger(findings.ledger, console)
    console.print()
    tell_metrics(findings.metrics, console)
    console.print()
    _tell_worst(findings, console)
    console.print(_beside_truth(findings))
    change = findings.watched.report.to_dict()["change"]
    if change is not None:
        tell_change(change, console)
    for raised in findings.alarms:
        console.print(f"⚠ {tell_alarm(raised)}", style="bold red")
    if not findings.alarms:
        console.print("No alarm was raised.")
    rollout = findings.rollout
    console.print(
        f"What was done: from response {rollout.response} of {rollout.model} on, its version "
        f"{rollout.version} answered.",
    )
    tell_next(findings.seconds["total"], "up --models miniature", place, again_live(findings, place), console)


def _tell_worst(findings: Findings, console: Console) -> None:
    found = findings.worst()
    if not found:
        return
    told = ", by the verifier's probability that the fact holds:"
    console.print(styled(("Furthest from the image", "bold"), told))
    for one in found:
        console.print(f"  {one.model} {one.version}  “{one.sentence}”")
        console.print(styled("     ", (f"✗ {one.fact}", "red"), f"  P = {one.probability:.3f}"))
        console.print(f"     the image shows {one.shown}", style="dim")


def _beside_truth(findings: Findings) -> Table:
    table = Table(
        title="Facts that are not in the image: as estimated, and as it is in this world",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("model and version")
    for heading in ("answers", "estimated, with 95 %", "true"):
        table.add_column(heading, justify="right")
    for one in findings.compared():
        rate = one.estimated
        table.add_row(
            f"{one.model} {one.version}",
            str(one.responses),
            f"{rate.value:.1%} ({100 * rate.low:.1f}–{100 * rate.high:.1f})" if rate else "–",
            "–" if one.true is None else f"{one.true:.1%}",
        )
    return table


def again_recorded(place: Kept) -> Next | None:
    """The replay that is proposed: without any model there is no other judge, and this one is held to its
    word."""
    return judged_again(place, "again", "by the same judge, which must say the same")


def tell_recorded(played: Played, place: Kept, *, as_json: bool) -> None:
    """What was found, for people or as JSON, and what to type next."""
    change = played.report.to_dict()["change"]
    if as_json:
        found: dict[str, Any] = {
            "mode": "recorded",
            "audit": played.ledger,
            "models": by_model(played.report.models()),
            "change": change,
            "alarms": [msgspec.to_builtins(one) for one in played.alarms],
            "next": again_recorded(place),
        }
        print_json(found)
        return
    console = Console()
    console.print()
    render(played.report, console)
    console.print()
    show_ledger(played.ledger, console)
    console.print()
    tell_metrics(played.metrics, console)
    console.print()
    if change is not None:
        tell_change(change, console)
    for raised in played.alarms:
        console.print(f"⚠ {tell_alarm(raised)}", style="bold red")
    tell_next(played.seconds, "up", place, again_recorded(place), console)


def tell_metrics(lines: Sequence[str], console: Console) -> None:
    """The metrics as Prometheus reads them."""
    console.print(styled(("Prometheus metrics", "bold"), ", as GET /metrics of the gateway shows them:"))
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)


def tell_change(change: dict[str, Any], console: Console) -> None:
    """Where in its answers a model changed, looking back at all of them."""
    worse = change["after"] > change["before"]
    style, mark, word = ("bold red", "▲", "worse") if worse else ("bold green", "▼", "better")
    console.print(
        styled(
            (f"{mark} {change['model']} got {word} from its response {change['response']} on", style),
            ": "
            f"{change['before']:.1%} → {change['after']:.1%} of its facts are not in the image "
            f"(p = {change['p_value']:.3f})",
        )
    )


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """What to type when the demo is over: its answers judged again, and both judgements side by side.

    `judged` says in words how.
    """

    judged: str
    replay: str
    compare: str


def judged_again(place: Kept, run: str, judged: str, models: str = "") -> Next | None:
    """The commands for a run of this name, judged by the models of a manifest, or by the same judges.

    None where nothing stays that could be judged again.
    """
    if not place.stays:
        return None
    where = place_of(place.path)
    if models:
        place.judge.write_text(models)
        where += f" --models {quote(str(place.judge))}"
    return Next(
        judged=judged,
        replay=f"{program()} replay start --run {run} --from verification{where}",
        compare=f"{program()} compare live {run}{place_of(place.path)}",
    )


def tell_next(seconds: float, up: str, place: Kept, again: Next | None, console: Console) -> None:
    """What to type next; `up` is the command that starts the same for good."""
    typed: dict[str, Any] = {"soft_wrap": True}
    start = program()
    console.print(f"done in {seconds:.0f} s")
    console.print()
    console.print(
        styled(("Your own answers", "bold"), ": id, model, answer, and images or a reference"), **typed
    )
    console.print(f"  {start} {up}", **typed)
    console.print(f"  {start} submit answers.jsonl", **typed)
    console.print(f"  {start} watch        # or report, audit, admin dead list", **typed)
    if again is None:
        return
    console.print()
    console.print(styled(("The same answers again", "bold"), f", {again.judged}"), **typed)
    console.print(f"  {again.replay}", **typed)
    console.print(f"  {again.compare}", **typed)
    console.print(
        f"The streams stay until the next demo: {place.size / 1e6:.1f} MB; to be rid of them: "
        f"rm -r {quote(str(place.path))}",
        style="dim",
        **typed,
    )
