"""The demo: two models answer, one of them turns bad half way, and groundwatch says which and when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
import typer
from rich.console import Console
from rich.live import Live

from groundwatch.cli.common import JsonOption, print_json, run
from groundwatch.cli.ledger import show_ledger
from groundwatch.cli.live import LiveView
from groundwatch.cli.system import System, whole_system
from groundwatch.cli.traffic import outcomes
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.events import LIVE
from groundwatch.reporting import Report, render
from groundwatch.reporting.report import ModelReport
from groundwatch.runtime import logs
from groundwatch.runtime.audit import Ledger, audit
from groundwatch.runtime.settings import GatewaySettings, Settings

SAMPLE = "answers.jsonl"
PATIENCE = 120.0
"""Seconds after the last answer until every outcome must be there."""

SHOWN_METRICS = ("groundwatch_responses_total", "groundwatch_outcomes_total", "groundwatch_score_count")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo found."""

    report: Report
    ledger: Ledger
    seconds: float
    metrics: list[str]


def demo(
    as_json: JsonOption = False,
    rate: Annotated[float, typer.Option(help="Answers sent a second.")] = 12.0,
    folder: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Keep the streams here, to look at them later.", show_default=False),
    ] = None,
) -> None:
    """Run everything here, stream recorded answers of two models, and find the one that changed."""
    if rate <= 0:
        raise UsageError("--rate: must be above 0")
    logs.configure(level="error")
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groundwatch-demo-")))
            kept = False
        else:
            kept = True
        shown = run(_demo(folder, rate, quiet=as_json))
    models = shown.report.models()
    told = shown.report.to_dict()
    if as_json:
        print_json({"audit": shown.ledger, "models": _by_model(models), "change": told["change"]})
    else:
        _tell(shown, told["change"], folder if kept else None)
    if not shown.ledger.balanced or shown.ledger.in_flight:
        raise CheckFailed("the demo's ledger does not balance")


async def _demo(folder: Path, rate: float, *, quiet: bool) -> Shown:
    console = Console(file=sys.stderr if quiet else sys.stdout)
    answers = [line for line in _sample().splitlines() if line]
    if not quiet:
        console.print("[bold]groundwatch demo[/]: starting NATS and all services on this machine…")
    settings = Settings(gateway=GatewaySettings(port=0))
    began = time.monotonic()
    async with whole_system(settings, folder) as system:
        if not quiet:
            console.print(f"sending {len(answers)} recorded answers of two models to {system.gateway_url}")
        view = LiveView("groundwatch demo")
        report = Report()
        async with _shown(view, console, quiet=quiet):
            sending = asyncio.create_task(_send(system.gateway_url, answers, rate))
            async with asyncio.timeout(len(answers) / rate + PATIENCE):
                async for outcome in outcomes(system.bus, LIVE, follow=True):
                    view.add(outcome)
                    report.add(outcome)
                    if view.seen == len(answers):
                        break
            await sending
        return Shown(
            report=report,
            ledger=await _settled(system),
            seconds=time.monotonic() - began,
            metrics=await _metrics(system.gateway_url),
        )


async def _send(gateway: str, answers: list[bytes], rate: float) -> None:
    """As an application would: one request for each answer, evenly paced."""
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        for number, answer in enumerate(answers):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            reply = await http.post(
                "/v1/responses", content=answer, headers={"content-type": "application/json"}
            )
            if reply.status_code not in (200, 202):
                raise UsageError(f"the gateway refused answer {number + 1} of the sample: {reply.text[:300]}")


async def _settled(system: System) -> Ledger:
    """The ledger, once nothing is in flight any more."""
    ledger = await audit(system.bus.js)
    for _ in range(50):
        if not ledger.in_flight:
            break
        await asyncio.sleep(0.1)
        ledger = await audit(system.bus.js)
    return ledger


async def _metrics(gateway: str) -> list[str]:
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        text = (await http.get("/metrics")).text
    return [line for line in text.splitlines() if line.startswith(SHOWN_METRICS)]


@contextlib.asynccontextmanager
async def _shown(view: LiveView, console: Console, *, quiet: bool) -> AsyncIterator[None]:
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


def _tell(shown: Shown, change: dict[str, Any] | None, folder: Path | None) -> None:
    console = Console()
    console.print()
    render(shown.report, console)
    console.print()
    show_ledger(shown.ledger, console)
    console.print()
    console.print("[bold]Prometheus metrics[/], as GET /metrics of the gateway shows them:")
    for line in shown.metrics:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    console.print()
    if change is not None:
        console.print(
            f"[bold red]▲ {change['model']} got worse from its response {change['response']} on[/]: "
            f"{change['before']:.1%} → {change['after']:.1%} of its facts are not in the image "
            f"(p = {change['p_value']:.3f})",
            highlight=False,
        )
    console.print(f"done in {shown.seconds:.0f} s. Your turn:")
    where = f" --data-dir {folder}" if folder else ""
    console.print(f"  groundwatch up{where}", highlight=False)
    console.print(
        "  groundwatch submit answers.jsonl      # id, model, answer, reference: see docs/ingestion.md"
    )
    console.print("  groundwatch watch · report · audit · dead list")


def _own_name() -> str:
    """How to call us again from here: by name where the name is on PATH, else as we were called."""
    return "groundwatch" if shutil.which("groundwatch") else os.path.relpath(sys.argv[0])


def _by_model(models: tuple[ModelReport, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for model in models:
        rate = model.hallucination_rate
        found[model.model] = {
            "rate": rate.value if rate else None,
            "interval": [rate.low, rate.high] if rate else None,
            "faithscore": msgspec.to_builtins(model.score),
            "responses": model.responses,
            "scored": model.scored,
            "unscored": model.unscored,
            "coverage": model.coverage,
            "answer_words": model.answer_words,
        }
    return found


def _sample() -> bytes:
    return resources.files("groundwatch.demo").joinpath(SAMPLE).read_bytes()


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("demo")(demo)
