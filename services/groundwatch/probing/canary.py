"""A canary: a small sample of a suite against a model in production, again and again."""

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from groundwatch.errors import UsageError
from groundwatch.probing.probe import Plan, Probed, probe, send
from groundwatch.probing.suites import Suite
from groundwatch.protocols import registry
from groundwatch.protocols.method import mean_of
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger


class CanaryMetrics:
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

    async def run(
        self,
        every: float,
        rounds: int | None,
        stopped: asyncio.Event,
        report: Callable[[RoundTold], None],
    ) -> None:
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
                report(told)
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
            submitted = None
            if self._submit:
                submitted = (await send(probed, self._submit, label=f"canary-{self._number}"))["accepted"]
        except UsageError as error:
            self.metrics.failed.labels(*labels).inc()
            logger.error("canary.round_failed", round=self._number, error=str(error))
            return None
        return self._told(probed, submitted, labels)

    def _told(self, probed: Probed, submitted: int | None, labels: tuple[str, str]) -> RoundTold:
        for outcome in probed.outcomes:
            self.metrics.questions.labels(*labels, outcome.outcome.value).inc()
        bottom = 0.0 if registry.method(self._suite.name).chain is None else -1.0
        mean = mean_of((outcome.score for outcome in probed.outcomes), bounds=(bottom, 1.0))
        if mean is not None:
            self.metrics.score.labels(*labels).set(mean.value)
        self.metrics.at.labels(*labels).set(time.time())
        return RoundTold(
            round=self._number,
            suite=labels[0],
            model=labels[1],
            questions=len(probed.questions),
            scored=sum(outcome.score is not None for outcome in probed.outcomes),
            unscored=probed.unscored,
            score=mean.value if mean else None,
            low=mean.low if mean else None,
            high=mean.high if mean else None,
            submitted=submitted,
        )
