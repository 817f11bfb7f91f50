"""`groundwatch canary`: a small sample of a suite against a model in production, again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import start_http_server

from groundwatch.cli import probe as options
from groundwatch.cli.options import ConfigOption, JsonOption
from groundwatch.cli.output import print_json_line, say
from groundwatch.cli.probe import default_folder, suite_of
from groundwatch.errors import UsageError
from groundwatch.events import Strategy
from groundwatch.probing.canary import Canary, RoundTold
from groundwatch.probing.probe import Plan
from groundwatch.probing.target import Target
from groundwatch.protocols import registry
from groundwatch.protocols.genception.chain import DEFAULT_LENGTH
from groundwatch.runtime.services.run import stopping
from groundwatch.system.connecting import prepare, run
from groundwatch.system.services import configure_protocols
from groundwatch.times import read_interval


def canary_command(
    suite: options.SuiteName,
    target: options.TargetOption,
    model: options.ModelOption,
    every: Annotated[
        str, typer.Option(help="Time between the starts of two rounds: 90s, 30m, 6h, 1d.")
    ] = "1h",
    questions: Annotated[int, typer.Option(min=1, help="Questions of a round, about.")] = 20,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many rounds.", show_default=False)
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw another sample each round, not the same one.")
    ] = False,
    benchmark: options.BenchmarkOption = None,
    images: options.ImagesOption = None,
    strategy: options.StrategyOption = Strategy.DIRECT,
    seed: options.SeedOption = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--run", help="Where rounds are kept; by default canary-SUITE-MODEL here.", show_default=False
        ),
    ] = None,
    engine: options.EngineOption = "",
    judge: options.JudgeOption = "",
    api_key_env: options.KeyOption = "OPENAI_API_KEY",
    timeout: options.TimeoutOption = 60.0,
    at_once: options.AtOnceOption = 2,
    metrics_port: Annotated[
        int | None, typer.Option(help="Answer /metrics on this port.", show_default=False)
    ] = None,
    submit: Annotated[
        str, typer.Option(help="Also send the answers into this gateway.", show_default=False)
    ] = "",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Probe a model in production on a schedule, with a small sample; SIGTERM or Ctrl-C ends it."""
    seconds = read_interval(every, "--every")
    settings = prepare(config)
    configure_protocols(settings)
    if submit and registry.method(suite).chain is not None:
        raise UsageError("--submit sends answers, and chains have none")
    found, source = suite_of(suite, benchmark, images)
    base = folder or Path(default_folder(suite, model, strategy).replace("probe-", "canary-", 1))
    plan = Plan(
        target=Target(url=target, model=model, timeout=timeout, at_once=at_once, api_key_env=api_key_env),
        folder=base,
        source=source,
        strategy=strategy,
        limit=questions,
        seed=seed,
        length=DEFAULT_LENGTH,
        engine=engine,
        judge=judge,
    )
    plan.target.check()
    canary = Canary(found, plan, settings, fresh=fresh, submit=submit)
    if metrics_port is not None:
        try:
            start_http_server(metrics_port, addr=settings.telemetry.host, registry=canary.metrics.registry)
        except OSError as error:
            raise UsageError(f"--metrics-port {metrics_port}: {error.strerror or error}") from error

    async def work() -> None:
        async with stopping() as stopped:
            await canary.run(seconds, rounds, stopped, lambda told: _say(told, as_json))

    run(work())


def _say(told: RoundTold, as_json: bool) -> None:
    if as_json:
        print_json_line(told)
        return
    score = "no score" if told.score is None else f"{told.score:.3f} ({told.low:.3f} to {told.high:.3f})"
    missing = ", ".join(f"{number} {reason}" for reason, number in told.unscored.items())
    line = (
        f"round {told.round}: {told.suite} of {told.model}: {score}, {told.scored} of {told.questions} scored"
    )
    say(line + (f"; unscored {missing}" if missing else ""))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("canary")(canary_command)
