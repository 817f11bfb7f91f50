"""Judged here, with no system: `groundwatch score`, a file judged or, with recorded judgements, counted; and
`groundwatch probe`, an LVLM asked a benchmark's suite, once or as a canary again and again."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from groundwatch.cli.messages import print_json, say
from groundwatch.cli.options import (
    Configured,
)
from groundwatch.cli.output import bars, beside_published, render_numbers, show_published
from groundwatch.client.files import AnswerFile
from groundwatch.errors import UsageError
from groundwatch.events import Strategy
from groundwatch.judging.files import Responses, judge_file, read_responses, with_engines
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.method import TallyRequest
from groundwatch.reporting.render import render
from groundwatch.reporting.report import BASELINE, Report
from groundwatch.runtime.delivery.outcomes import limits
from groundwatch.system.connecting import prepare, run
from groundwatch.terminal import Console


def score(
    protocol: str,
    file: Path,
    *,
    recorded: bool = False,
    out: Path | None = None,
    engine: str = "",
    judge: str = "",
    images: Path | None = None,
    model: str = "",
    columns: list[str] | None = None,
    questions: Path | None = None,
    annotation: Path | None = None,
    published: bool = False,
    by: str = "",
    baseline: str = BASELINE,
    subset: str | None = None,
    t: int | None = None,
    labels: Path | None = None,
    share: float | None = None,
    tokens: str = "",
    config: Path | None = None,
    as_json: bool = False,
) -> None:
    """Judge a file with the engines of the running system, or count what was judged; needs no server."""
    judging: dict[str, object] = {
        "--out": out,
        "--engine": engine,
        "--judge": judge,
        "--images": images,
        "--model": model,
        "--column": columns,
        "--questions": questions,
        "--annotation": annotation,
        "--published": published,
    }
    arithmetic: dict[str, object] = {"--t": t, "--labels": labels, "--share": share, "--tokens": tokens}
    for option, given in (judging if recorded else arithmetic).items():
        if given not in (None, "", False, []):
            raise UsageError(f"{option} {'does not go with' if recorded else 'goes with'} --recorded")
    settings = prepare(config)
    if recorded:
        request = TallyRequest(
            file=file, subset=subset, t=t, labels=labels, share=share, tokens=_numbers(tokens)
        )
        _count(protocol, request, by, baseline, as_json)
        return
    engines = {"extraction": engine, "verification": judge, "matching": judge}
    settings = with_engines(settings, engines, protocol)
    if published and by:
        raise UsageError("--published and --by do not go together")
    beside = beside_published(protocol) if published else None
    method, benchmark = registry.methods().get(protocol), registry.benchmarks().get(protocol)
    if method is not None and benchmark is not None and benchmark.file_judge:
        if by or published:
            option, one = "--by" if by else "--published", method.protocols[0].name
            raise UsageError(f"{option} needs one of the protocols of {protocol}, such as {one}")
        for option, given in (("--model", model), ("--column", columns), ("--questions", questions)):
            if given:
                raise UsageError(f"{option}: {protocol} has a file format of its own, which names its models")
        judge_files = load(benchmark.file_judge)
        with bars() as tell:
            result = run(
                judge_files(
                    file, subset=subset, annotation=annotation, out=out, settings=settings, progress=tell
                )
            )
        print_json(result) if as_json else render_numbers(result, Console())
        return
    found = registry.get(protocol)
    bounds = limits(settings.gateway.intake)
    opened = partial(
        AnswerFile,
        model=model,
        columns=columns or (),
        questions=questions,
        published=registry.published_answers,
        without_image=settings.gateway.logged_calls.without_image,
        max_line=bounds.line,
    )
    responses = read_responses(found.name, file, annotation, bounds, opened)
    if isinstance(responses, Responses):
        for line in responses.told.lines():
            say(f"{file}: {line}", err=True)
    report = Report(by=by, baseline=baseline)
    with bars() as tell:
        progress = partial(tell, f"judging with {found.name}")
        run(judge_file(found, responses, settings, images, out, (beside or report).add, progress))
    if beside is not None:
        show_published(beside, as_json)
    else:
        _show(report, found.name, as_json)


def _count(protocol: str, request: TallyRequest, by: str, baseline: str, as_json: bool) -> None:
    tally = registry.benchmark(protocol, "tally", "recorded judgements of").tally
    assert tally is not None
    if not tally.outcomes and not request.given and find_spec(registry.BENCHMARKS):
        recorded = registry.of_benchmarks("json_files:recorded_outcomes", "--recorded")
        if outcomes := recorded(request.file, protocol):
            report = Report(by=by, baseline=baseline)
            for outcome in outcomes:
                report.add(outcome)
            _show(report, protocol, as_json)
            return
    if by:
        raise UsageError("--by needs outcomes, as --out writes them")
    result = tally.run(protocol, request)
    print_json(result) if as_json else render_numbers(msgspec.to_builtins(result), Console())


def _show(report: Report, protocol: str, as_json: bool) -> None:
    print_json({"protocol": protocol, **report.to_dict()}) if as_json else render(report, Console())


def _numbers(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    try:
        found = sorted({int(one) for one in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise UsageError(f"--tokens {text}: write numbers from 1 up with commas, such as 10,20,50")
    return tuple(found)


ROUND = 20
"""Questions of a round, about."""

AT_ONCE, AT_ONCE_IN_PRODUCTION = 8, 2


def probe(
    settings: Configured,
    suite: str,
    *,
    target: str,
    model: str,
    benchmark: Path | None = None,
    images: Path | None = None,
    strategy: Strategy = Strategy.DIRECT,
    limit: int | None = None,
    seed: int = 0,
    folder: Path | None = None,
    t: int | None = None,
    engine: str = "",
    judge: str = "",
    api_key_env: str = "OPENAI_API_KEY",
    timeout: float = 60.0,
    at_once: int | None = None,
    max_tokens: int = 1024,
    submit: str = "",
    every: str = "",
    rounds: int | None = None,
    fresh: bool = False,
    metrics_port: int | None = None,
    as_json: bool = False,
) -> None:
    """Ask an LVLM a benchmark's questions and score its answers; with --every a canary in production.

    Run again it goes on after a stop. With --every it asks a small sample on a schedule, until SIGTERM or
    Ctrl-C.
    """
    given = locals()
    registry.of_benchmarks("probing.command:run_probe", "groundwatch probe")(**given)
