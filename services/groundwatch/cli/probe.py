"""`groundwatch probe`: ask an LVLM a benchmark's suite and score it, as a run that can be gone on with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.cli.options import ConfigOption, JsonOption
from groundwatch.cli.output import Bars, print_json
from groundwatch.errors import UsageError
from groundwatch.events import Strategy
from groundwatch.probing import benchmarks, world
from groundwatch.probing.probe import Plan, Probed, flat, probe
from groundwatch.probing.target import Target
from groundwatch.protocols import registry
from groundwatch.protocols.genception.chain import DEFAULT_LENGTH, MAX_LENGTH
from groundwatch.protocols.suite import Suite
from groundwatch.reporting import render
from groundwatch.statistics.intervals import Interval
from groundwatch.system.connecting import prepare, run
from groundwatch.system.services import configure_protocols
from groundwatch.terminal import (
    Console,
    Table,
    box,
)

SuiteName = Annotated[str, typer.Argument(help="The benchmark, such as pope.", show_default=False)]
TargetOption = Annotated[
    str,
    typer.Option(
        help="http(s)://… of an OpenAI-compatible server, with /v1, or triton://host:port.",
        show_default=False,
    ),
]
ModelOption = Annotated[str, typer.Option(help="The model's name there.", show_default=False)]
BenchmarkOption = Annotated[
    Path | None,
    typer.Option(
        help="The benchmark's folder, in its published layout. By default the miniature world.",
        show_default=False,
    ),
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(help="Where its images lie; by default its subfolder images.", show_default=False),
]
StrategyOption = Annotated[
    Strategy, typer.Option(help="triplets-first: Tri-HE's mitigation, notes first and then unseen.")
]
SeedOption = Annotated[int, typer.Option(help="Of the sample that --limit draws.")]
EngineOption = Annotated[str, typer.Option(help="Who finds claims. By default as in settings.")]
JudgeOption = Annotated[str, typer.Option(help="Who judges them. By default as in settings.")]
KeyOption = Annotated[str, typer.Option(help="The variable that holds the target's key.")]
TimeoutOption = Annotated[float, typer.Option(min=0.1, help="Seconds for one request.")]
AtOnceOption = Annotated[int, typer.Option("--at-once", min=1, help="Requests under way together.")]
LengthOption = Annotated[
    int, typer.Option("--t", min=1, max=MAX_LENGTH, help="genception: rounds of a chain.")
]


def probe_command(
    suite: SuiteName,
    target: TargetOption,
    model: ModelOption,
    benchmark: BenchmarkOption = None,
    images: ImagesOption = None,
    strategy: StrategyOption = Strategy.DIRECT,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask a sample of about so many questions.", show_default=False)
    ] = None,
    seed: SeedOption = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--run",
            help="Where the run is kept, and gone on with; by default probe-SUITE-MODEL here.",
            show_default=False,
        ),
    ] = None,
    t: LengthOption = DEFAULT_LENGTH,
    engine: EngineOption = "",
    judge: JudgeOption = "",
    api_key_env: KeyOption = "OPENAI_API_KEY",
    timeout: TimeoutOption = 60.0,
    at_once: AtOnceOption = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an answer.")] = 1024,
    submit: Annotated[
        str,
        typer.Option(help="Also send the answers into this gateway, http://host:port.", show_default=False),
    ] = "",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Ask an LVLM a benchmark's questions and score its answers; run again to go on after a stop."""
    settings = prepare(config)
    configure_protocols(settings)
    found, source = suite_of(suite, benchmark, images)
    chains = registry.method(suite).chain is not None
    if submit and chains:
        raise UsageError(
            f"--submit sends answers, and chains have none: record them with the protocol {suite}"
        )
    if strategy is not Strategy.DIRECT and chains:
        raise UsageError("--strategy: a chain's descriptions are asked for directly")
    plan = Plan(
        target=Target(
            url=target,
            model=model,
            timeout=timeout,
            at_once=at_once,
            max_tokens=max_tokens,
            api_key_env=api_key_env,
        ),
        folder=folder or Path(default_folder(suite, model, strategy)),
        source=source,
        strategy=strategy,
        limit=limit,
        seed=seed,
        length=t,
        engine=engine,
        judge=judge,
    )

    async def work() -> tuple[Probed, dict[str, Any] | None]:
        with Bars() as bars:
            probed = await probe(found, plan, settings, bars.tell)
        if not submit:
            return probed, None
        from groundwatch.probing.sending import send

        return probed, msgspec.to_builtins(await send(probed, submit))

    probed, sent = run(work())
    told = probed.to_dict()
    if sent is not None:
        told["submitted"] = sent
    if as_json:
        print_json(told)
    else:
        show(probed, told, Console())


def suite_of(name: str, benchmark: Path | None, images: Path | None) -> tuple[Suite, str]:
    """The suite, and where it comes from. Raises `UsageError` for one that is not there."""
    if benchmark is None or str(benchmark) == world.NAME:
        if images is not None:
            raise UsageError("--images: the miniature world draws its own; name a folder with --benchmark")
        return world.WorldSuite(name), world.NAME
    return benchmarks.suite(name, benchmark, images), str(benchmark.resolve())


def default_folder(suite: str, model: str, strategy: Strategy) -> str:
    """`probe-SUITE-MODEL`, with the strategy where it is not the usual one."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"
    tail = "" if strategy is Strategy.DIRECT else f"-{strategy.value}"
    return f"probe-{suite}-{plain}{tail}"


def show(probed: Probed, told: dict[str, Any], console: Console) -> None:
    """The figures with their intervals, then what every report has, then what is missing from both."""
    table = Table(
        title=f"{probed.suite}: {probed.plan.target.model}, {told['questions']} questions",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=False,
    )
    table.add_column("name")
    table.add_column("value", justify="right")
    for name, value in flat(probed.figures):
        if (shown := _shown(value)) is not None:
            table.add_row(name, shown)
    console.print(table)
    if registry.method(probed.suite).chain is None:
        render(probed.report(), console)
    for what in ("unanswered", "unscored", "left_out", "submitted"):
        if told.get(what):
            parts = ", ".join(f"{number} {name!s}" for name, number in told[what].items())
            console.print(f"{what.replace('_', ' ')}: {parts}")
    console.print(f"run kept in {probed.plan.folder}", style="dim")


def _shown(value: Any) -> str | None:
    """None for what a table has no room for."""
    if isinstance(value, Interval):
        return f"{value.value:.4f} ({value.low:.4f} to {value.high:.4f}, n = {value.n})"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, list | dict):
        return None
    return "–" if value is None else str(value)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("probe")(probe_command)
