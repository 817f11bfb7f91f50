"""`groundwatch probe`: an LVLM asked a benchmark's suite, once or as a canary again and again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.cli.messages import print_json, print_json_line, say
from groundwatch.cli.options import serve_metrics
from groundwatch.cli.output import bars, render_numbers
from groundwatch.cli.score import AT_ONCE, AT_ONCE_IN_PRODUCTION, ROUND
from groundwatch.errors import UsageError
from groundwatch.events import Strategy
from groundwatch.protocols import registry
from groundwatch.reporting.render import render
from groundwatch.runtime.services.run import stopping
from groundwatch.runtime.settings import Settings
from groundwatch.system.connecting import run
from groundwatch.terminal import Console
from groundwatch.times import read_interval
from groundwatch_benchmarks.probing import suites
from groundwatch_benchmarks.probing.probe import Canary, Plan, Probed, RoundTold, probe, send
from groundwatch_benchmarks.probing.suites import Target


def run_probe(
    settings: Settings,
    suite: str,
    *,
    target: str,
    model: str,
    benchmark: Path | None,
    images: Path | None,
    strategy: Strategy,
    limit: int | None,
    seed: int,
    folder: Path | None,
    t: int | None,
    engine: str,
    judge: str,
    api_key_env: str,
    timeout: float,
    at_once: int | None,
    max_tokens: int,
    submit: str,
    every: str,
    rounds: int | None,
    fresh: bool,
    metrics_port: int | None,
    as_json: bool,
) -> None:
    """As `groundwatch probe` has them; `at_once` None stands for eight, or two with `every`."""
    if not every and (rounds is not None or fresh or metrics_port is not None):
        raise UsageError("--rounds, --fresh and --metrics-port go with --every")
    seconds = read_interval(every, "--every") if every else 0.0
    found, source = suite_of(suite, benchmark, images)
    chains = registry.method(suite).chain
    if t is not None and (chains is None or t > chains.max_length):
        why = "has no rounds" if chains is None else f"has at most {chains.max_length} rounds"
        raise UsageError(f"--t {t}: {suite} {why}")
    if submit and chains is not None:
        raise UsageError(
            f"--submit sends answers, and chains have none: record them with the protocol {suite}"
        )
    if strategy is not Strategy.DIRECT and chains is not None:
        raise UsageError("--strategy: a chain's descriptions are asked for directly")
    plan = Plan(
        target=Target(
            url=target,
            model=model,
            timeout=timeout,
            at_once=at_once or (AT_ONCE_IN_PRODUCTION if every else AT_ONCE),
            max_tokens=max_tokens,
            api_key_env=api_key_env,
        ),
        folder=folder or Path(default_folder("canary" if every else "probe", suite, model, strategy)),
        source=source,
        strategy=strategy,
        limit=limit or (ROUND if every else None),
        seed=seed,
        length=t,
        engine=engine,
        judge=judge,
    )
    if every:
        plan.target.check()
        canary = Canary(found, plan, settings, fresh=fresh, submit=submit)
        if metrics_port is not None:
            serve_metrics(metrics_port, canary.metrics.registry, settings)

        async def canary_until_stopped() -> None:
            async with stopping() as stopped:
                await canary.run(seconds, rounds, stopped, print_json_line if as_json else _say_round)

        run(canary_until_stopped())
        return

    async def work() -> tuple[Probed, dict[str, Any] | None]:
        with bars() as tell:
            probed = await probe(found, plan, settings, tell)
        if not submit:
            return probed, None
        return probed, await send(probed, submit)

    probed, sent = run(work())
    told = probed.to_dict()
    if sent is not None:
        told["submitted"] = sent
    print_json(told) if as_json else show(probed, told, Console())


def _say_round(told: RoundTold) -> None:
    score = "no score" if told.score is None else f"{told.score:.3f} ({told.low:.3f} to {told.high:.3f})"
    missing = ", ".join(f"{number} {reason}" for reason, number in told.unscored.items())
    line = (
        f"round {told.round}: {told.suite} of {told.model}: {score}, {told.scored} of {told.questions} scored"
    )
    say(line + (f"; unscored {missing}" if missing else ""))


def suite_of(name: str, benchmark: Path | None, images: Path | None) -> tuple[suites.Suite, str]:
    """The suite, and where it comes from. Raises `UsageError` for one that is not there."""
    if benchmark is None or str(benchmark) == suites.WORLD:
        if images is not None:
            raise UsageError("--images: the miniature world draws its own; name a folder with --benchmark")
        return suites.world(name), suites.WORLD
    return suites.benchmark(name, benchmark, images), str(benchmark.resolve())


def default_folder(kind: str, suite: str, model: str, strategy: Strategy) -> str:
    """Such as `probe-SUITE-MODEL`, with the strategy where it is not the usual one."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"
    tail = "" if strategy is Strategy.DIRECT else f"-{strategy.value}"
    return f"{kind}-{suite}-{plain}{tail}"


def show(probed: Probed, told: dict[str, Any], console: Console) -> None:
    """The figures with their intervals, then what every report has, then what is missing from both."""
    title = f"{probed.suite}: {probed.plan.target.model}, {told['questions']} questions"
    render_numbers(msgspec.to_builtins(probed.figures), console, title)
    if registry.method(probed.suite).chain is None:
        render(probed.report(), console)
    for what in ("unanswered", "unscored", "left_out", "submitted"):
        if told.get(what):
            parts = ", ".join(f"{number} {name!s}" for name, number in told[what].items())
            console.print(f"{what.replace('_', ' ')}: {parts}")
    if probed.asked:
        console.print(f"asked in words of your own: {', '.join(sorted(probed.asked))}")
    console.print(f"run kept in {probed.plan.folder}", style="dim")
