"""The demo: two models answer, one of them turns bad half way, and groundwatch says which and when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groundwatch.cli import demo_findings, demo_live, demo_recorded
from groundwatch.cli.common import JsonOption, run
from groundwatch.cli.demo_folder import HERE, kept
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.ledger.ledger import Ledger
from groundwatch.runtime.telemetry import logs

RATE = 12.0


def demo(
    as_json: JsonOption = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Play answers written beforehand: no model is needed.")
    ] = False,
    answers: Annotated[
        int | None,
        typer.Option(help=f"Answers to ask for; {demo_live.ANSWERS} when absent.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help=f"Recorded answers sent a second; {RATE:g} when absent.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
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
    if answers is not None and answers < demo_live.FEWEST:
        raise UsageError(f"--answers: must be at least {demo_live.FEWEST}")
    logs.configure(level="error")
    models = {} if recorded else demo_live.models_needed()
    with kept(folder) as place:
        if recorded:
            played = run(demo_recorded.play(place.path, rate or RATE, quiet=as_json))
            demo_recorded.tell(played, place, as_json=as_json)
            _check(played.ledger)
        else:
            shown = run(demo_live.show(place.path, models, answers or demo_live.ANSWERS, quiet=as_json))
            place.tidy()
            demo_findings.tell(shown, place, as_json=as_json)
            _check(shown.ledger)


def _check(ledger: Ledger) -> None:
    if not ledger.balanced or ledger.in_flight:
        raise CheckFailed("the demo's ledger does not balance")


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("demo")(demo)
