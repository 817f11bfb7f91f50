"""What the live and the recorded demo share: the live table, the books at the end, and what to do next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from shlex import quote
from typing import Any

import httpx
import msgspec

from groundwatch.cli.demo_folder import Kept
from groundwatch.cli.folders import place_of, program
from groundwatch.cli.live import LiveView
from groundwatch.cli.system import System
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.reporting.report import ModelReport
from groundwatch.runtime.settings import AlarmSettings
from groundwatch.terminal import Console, Live, styled

SHOWN_METRICS = ("groundwatch_responses_total", "groundwatch_score_count", "groundwatch_alarm_raised")
"""Each fits a line of a terminal; of the alarms those that are raised."""

ALARM = AlarmSettings(objective=0.06)
"""What still counts as good is said, not learnt: a demo has no day to spare for learning."""


async def settled(system: System) -> Ledger:
    """The ledger, once nothing is in flight any more."""
    ledger = await audit(system.bus.js)
    for _ in range(50):
        if not ledger.in_flight:
            break
        await asyncio.sleep(0.1)
        ledger = await audit(system.bus.js)
    return ledger


async def metrics_of(gateway: str, shown: Sequence[str] = SHOWN_METRICS) -> list[str]:
    """Lines of the gateway's /metrics that begin with one of `shown`."""
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        text = (await http.get("/metrics")).text
    found = [line for line in text.splitlines() if line.startswith(tuple(shown))]
    return [
        line for line in found if not (line.startswith("groundwatch_alarm_raised") and line.endswith(" 0.0"))
    ]


@contextlib.asynccontextmanager
async def on_screen(view: LiveView, console: Console, *, quiet: bool) -> AsyncIterator[None]:
    """The live table on a terminal; elsewhere a line now and then, so that a log shows life."""
    if quiet:
        yield
    elif console.is_terminal:
        with Live(view, console=console, refresh_per_second=4):
            yield
    else:
        printing = asyncio.create_task(_print_now_and_then(view, console))
        try:
            yield
        finally:
            printing.cancel()
            console.print(view)


async def _print_now_and_then(view: LiveView, console: Console) -> None:
    while True:
        await asyncio.sleep(10)
        console.print(view.line())


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
        replay=f"{program()} replay --run {run} --from verification{where}",
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
    console.print(f"  {start} watch        # or report, audit, dead list", **typed)
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


def by_model(models: Sequence[ModelReport]) -> dict[str, dict[str, Any]]:
    """Each model's numbers under its name, for JSON."""
    found: dict[str, dict[str, Any]] = {}
    for model in models:
        rate = model.hallucination_rate
        told = {
            "rate": rate.value if rate else None,
            "interval": [rate.low, rate.high] if rate else None,
            "faithscore": msgspec.to_builtins(model.score),
            "responses": model.responses,
            "scored": model.scored,
            "unscored": model.unscored,
            "coverage": model.coverage,
            "answer_words": model.answer_words,
        }
        # Rows of other judges have fewer answers and come later.
        found.setdefault(model.model, told)
    return found
