"""`groundwatch canary`: a small sample of a suite against a model in production, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from groundwatch.cli import probe as options
from groundwatch.cli.common import ConfigOption, JsonOption, prepare, run
from groundwatch.cli.output import print_json_line, say
from groundwatch.cli.probe import default_folder, suite_of
from groundwatch.cli.probing import Plan, Probed, probe
from groundwatch.cli.system import configure_protocols
from groundwatch.errors import UsageError
from groundwatch.events import OutcomeKind, Strategy
from groundwatch.probing.target import Target
from groundwatch.protocols import registry
from groundwatch.protocols.genception.chain import DEFAULT_LENGTH
from groundwatch.protocols.suite import Suite
from groundwatch.runtime.services.run import until_told_to_stop
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.intervals import Moments, mean_interval

_EVERY = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class CanaryMetrics:
    """What the last rounds found, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("suite", "model")
        self.score = Gauge(
            "groundwatch_canary_score", "Mean score of the last round", labels, registry=self.registry
        )
        self.at = Gauge(
            "groundwatch_canary_last_round_seconds",
            "When the last round ended, in seconds since the epoch",
            labels,
            registry=self.registry,
        )
        self.questions = Counter(
            "groundwatch_canary_questions",
            "Questions by what became of them",
            (*labels, "outcome"),
            registry=self.registry,
        )
        self.failed = Counter(
            "groundwatch_canary_failed_rounds",
            "Rounds that could not be done",
            labels,
            registry=self.registry,
        )


class RoundTold(msgspec.Struct, frozen=True, kw_only=True):
    """One round as it is told, to programs or people. `score` is the mean, from `low` to `high`."""

    round: int
    suite: str
    model: str
    questions: int
    scored: int
    unscored: dict[str, int]
    score: float | None
    low: float | None
    high: float | None
    submitted: int | None = None


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
    seconds = interval(every)
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
            await canary.sing(seconds, rounds, stopped, lambda told: _say(told, as_json))

    run(work())


class Canary:
    """Rounds of one suite against one model. A round that cannot be done is told and counted, not fatal."""

    def __init__(self, suite: Suite, plan: Plan, settings: Settings, *, fresh: bool, submit: str) -> None:
        self.metrics = CanaryMetrics()
        self._suite = suite
        self._plan = plan
        self._settings = settings
        self._fresh = fresh
        self._submit = submit
        self._number = len(list(plan.folder.glob("round-*")))

    async def sing(self, every: float, rounds: int | None, stopped: asyncio.Event, say: Any) -> None:
        """A round each `every` seconds from now, until `stopped` or for so many `rounds`."""
        done = 0
        while not stopped.is_set() and (rounds is None or done < rounds):
            began = time.monotonic()
            at_work = asyncio.create_task(self.round())
            told_to = asyncio.create_task(stopped.wait())
            await asyncio.wait((at_work, told_to), return_when=asyncio.FIRST_COMPLETED)
            told_to.cancel()
            if not at_work.done():
                # What was answered is kept in the round's folder; nobody waits for the rest.
                at_work.cancel()
                await asyncio.gather(at_work, return_exceptions=True)
                return
            if (told := at_work.result()) is not None:
                say(told)
            done += 1
            if rounds is None or done < rounds:
                with contextlib.suppress(TimeoutError):
                    left = max(0.0, every - (time.monotonic() - began))
                    await asyncio.wait_for(stopped.wait(), left)

    async def round(self) -> RoundTold | None:
        """One round; None when it could not be done, which the log and a metric tell."""
        self._number += 1
        plan = msgspec.structs.replace(
            self._plan,
            folder=self._plan.folder / f"round-{self._number:05}",
            seed=self._plan.seed + (self._number if self._fresh else 0),
        )
        labels = (self._suite.name, plan.target.model)
        try:
            probed = await probe(self._suite, plan, self._settings, lambda *_: None)
            submitted = await self._send(probed) if self._submit else None
        except UsageError as error:
            self.metrics.failed.labels(*labels).inc()
            logger.error("canary.round_failed", round=self._number, error=str(error))
            return None
        return self._told(probed, submitted, labels)

    async def _send(self, probed: Probed) -> int:
        from groundwatch.cli.probe_sending import send

        return (await send(probed, self._submit, label=f"canary-{self._number}")).accepted

    def _told(self, probed: Probed, submitted: int | None, labels: tuple[str, str]) -> RoundTold:
        moments = Moments()
        for outcome in probed.outcomes:
            self.metrics.questions.labels(*labels, outcome.outcome.value).inc()
            if outcome.outcome is OutcomeKind.SCORED and outcome.score is not None:
                moments.add(outcome.score)
        bottom = 0.0 if registry.method(self._suite.name).chain is None else -1.0
        mean = mean_interval(moments, bounds=(bottom, 1.0))
        if mean is not None:
            self.metrics.score.labels(*labels).set(mean.value)
        self.metrics.at.labels(*labels).set(time.time())
        return RoundTold(
            round=self._number,
            suite=labels[0],
            model=labels[1],
            questions=len(probed.questions),
            scored=moments.n,
            unscored=probed.unscored,
            score=mean.value if mean else None,
            low=mean.low if mean else None,
            high=mean.high if mean else None,
            submitted=submitted,
        )


def interval(text: str) -> float:
    """Seconds of "90s", "30m", "6h" or "1d". Raises `UsageError` for anything else."""
    found = _EVERY.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if seconds <= 0:
        raise UsageError(f"--every {text}: must be a time such as 90s, 30m, 6h or 1d")
    return seconds


@contextlib.asynccontextmanager
async def stopping() -> AsyncIterator[asyncio.Event]:
    """An event that is set on SIGTERM or Ctrl-C."""
    stopped = asyncio.Event()

    async def listen() -> None:
        await until_told_to_stop()
        stopped.set()

    listener = asyncio.create_task(listen())
    try:
        yield stopped
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)


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
