"""What replays tell Prometheus: by name for those that are not over, by number for all."""

import contextlib
from collections.abc import Collection

from prometheus_client import CollectorRegistry, Gauge

STATES = (
    "working",
    "unattended",
    "paused",
    "over_budget",
    "importing",
    "deleting",
    "done",
    "cancelled",
)
"""Of a run; `unattended` is running, and nobody works at it."""

MOST = 50
"""Runs that have series of their own at once: the newest."""


class ReplayMetrics:
    """Gauges of one process. A run that is told no more leaves all of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"groundwatch_replay_{name}", about, ("run", *labels), registry=registry)

        self.runs = Gauge("groundwatch_replay_runs", "Replays, by state", ("state",), registry=registry)
        self.state = gauge("state", "1 for the state that a replay is in", "state")
        self.progress = gauge("progress_ratio", "How much of its source a replay is through with, 0 to 1")
        self.events = gauge("events", "Events that a replay has read")
        self.expected = gauge(
            "events_expected", "Events that it will have read at its end, as far as is known"
        )
        self.outcomes = gauge("outcomes", "Outcomes that a replay has", "outcome")
        self.faults = gauge("faults", "Outcomes of a replay that are unscored because a judge had a fault")
        self.left = gauge("seconds_left", "Time that a replay still takes at the pace so far")
        self.cost = gauge("cost_dollars", "What a replay has spent, US dollars")
        self.calls = gauge("calls", "Calls to judges, made or answered by the cache", "by")
        self.workers = gauge("workers", "Processes that work at a replay")
        # Only the process that replays knows these.
        self.waited = gauge("waited_seconds", "How long this process gave way to live traffic")
        self.compared = gauge(
            "compared_judgements", "Judgements that this process put beside those of the same judges before"
        )
        self.changed = gauge("changed_judgements", "Those of them that are not what they were before")
        self._told: set[str] = set()
        self._mine: set[str] = set()

    def working(self, run: str, *, waited: float) -> None:
        """Show how long this process gave way to live traffic, seconds."""
        self._mine.add(run)
        self.waited.labels(run).set(waited)

    def put_beside(self, run: str, *, compared: int, changed: int) -> None:
        """Count judgements that were compared with those before, and those that are not the same."""
        self._mine.add(run)
        self.compared.labels(run).inc(compared)
        self.changed.labels(run).inc(changed)

    def keep(self, runs: Collection[str]) -> None:
        """Show these runs and no others."""
        for run in (self._told | self._mine) - set(runs):
            self._forget(run)
        self._mine &= set(runs)
        self._told = set(runs)

    def _forget(self, run: str) -> None:
        for one in vars(self).values():
            if not isinstance(one, Gauge) or one is self.runs:
                continue
            for labels in [sample.labels for family in one.collect() for sample in family.samples]:
                if labels["run"] == run:
                    with contextlib.suppress(KeyError):
                        one.remove(*labels.values())
