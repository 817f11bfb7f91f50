"""Every run as it is now, for those who look again and again: what waits, and what Prometheus is told."""

import asyncio
import contextlib
import time

import nats.errors
import nats.js.errors

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.replay.runs import DECODER, Run
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import DEAD_LETTER
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import ReplayMetrics
from groundwatch.topology import RUNS_BUCKET

STREAM = f"KV_{RUNS_BUCKET}"
LOOK_SECONDS = 5.0

ENDED_SECONDS = 120.0
"""How long a run that is over still has series of its own, so that its last numbers are scraped."""

FAULTS = (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError, TransientError)

STATES = ("working", "unattended", "paused", "over_budget", "importing", "deleting", "done", "cancelled")
"""Of a run; `unattended` is running, and nobody works at it."""

MOST = 50
"""Runs that have series of their own at once: the newest."""


def state_of(run: Run, now: float) -> str:
    """What a run does, or why it does not: one of `STATES`."""
    match run.status:
        case "running":
            return "working" if run.workers(now) else "unattended"
        case "paused" if run.reason.startswith("its budget"):
            return "over_budget"
    return run.status


def seconds_left(run: Run) -> float | None:
    """At the pace so far; None before there is one."""
    if run.status == "done":
        return 0.0
    if run.share <= 0 or run.worked <= 0:
        return None
    return round(run.worked / run.share * (1 - run.share), 1)


class Board:
    """All runs. Each look reads what has changed since the one before, and nothing else."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._stream: object = None
        self._last = 0
        self._runs: dict[str, Run] = {}

    async def look(self) -> list[Run]:
        """Every run, the newest first. Raises what NATS raises."""
        info = await self._bus.js.stream_info(STREAM)
        if self._stream != info.created:
            self._stream, self._last, self._runs = info.created, 0, {}
        if info.state.last_seq > self._last:
            filters = (f"$KV.{RUNS_BUCKET}.>",)
            reading = read_stream(self._bus.js, STREAM, subjects=filters, start_sequence=self._last + 1)
            async for read in reading:
                self._note(read.subject.rpartition(".")[2], read.headers, read.data)
                self._last = read.sequence
        return sorted(self._runs.values(), key=lambda run: -run.created_at)

    def _note(self, name: str, headers: dict[str, str], data: bytes) -> None:
        if headers.get("KV-Operation"):
            self._runs.pop(name, None)
            return
        try:
            self._runs[name] = DECODER.decode(data)
        except UNDECODED as error:
            logger.warning("replay.unreadable", run=name, error=str(error))
            self._runs.pop(name, None)


def show(runs: list[Run], metrics: ReplayMetrics, now: float) -> None:
    """Tell Prometheus of these runs: of those that are not over, or have just ended, by name."""
    states = {run.name: state_of(run, now) for run in runs}
    for state in STATES:
        metrics.runs.labels(state).set(sum(found == state for found in states.values()))
    told = [
        run
        for run in runs
        if states[run.name] not in ("done", "cancelled") or now - run.finished_at < ENDED_SECONDS
    ][:MOST]
    metrics.keep([run.name for run in told])
    for run in told:
        _show(run, states[run.name], metrics, now)


def _show(run: Run, now_in: str, metrics: ReplayMetrics, now: float) -> None:
    for state in STATES:
        metrics.state.labels(run.name, state).set(state == now_in)
    counts, share = run.counts, run.share
    metrics.progress.labels(run.name).set(share)
    metrics.events.labels(run.name).set(counts.events)
    metrics.expected.labels(run.name).set(counts.events / share if share > 0 else run.last - run.first + 1)
    for outcome in ("scored", "unscored", "declined"):
        metrics.outcomes.labels(run.name, outcome).set(getattr(counts, outcome))
    metrics.faults.labels(run.name).set(counts.reasons.get(f"unscored: {DEAD_LETTER}", 0))
    metrics.cost.labels(run.name).set(counts.usage.cost)
    metrics.calls.labels(run.name, "judge").set(counts.usage.calls)
    metrics.calls.labels(run.name, "cache").set(counts.usage.cached)
    metrics.workers.labels(run.name).set(run.workers(now))
    left = seconds_left(run)
    if left is not None:
        metrics.left.labels(run.name).set(left)


class RunGauges:
    """Tells Prometheus of all runs, from a process that is there when nobody replays."""

    def __init__(self, bus: Bus, metrics: ReplayMetrics) -> None:
        self._board = Board(bus)
        self._metrics = metrics
        self._stopped = asyncio.Event()
        self._task = SupervisedTask("replay-gauges", self._watch)

    def start(self) -> None:
        self._task.start()

    async def stop(self) -> None:
        # Told and not cancelled: a cancellation can be lost in nats-py while it waits for an answer.
        self._stopped.set()
        await self._task.finish()

    @property
    def problem(self) -> str:
        """Why nobody looks; empty while somebody does."""
        return self._task.problem

    async def look(self) -> None:
        """Once. Raises what NATS raises."""
        show(await self._board.look(), self._metrics, time.time())

    async def _watch(self) -> None:
        blind = False
        while not self._stopped.is_set():
            try:
                await self.look()
                blind = False
            except FAULTS as error:
                if not blind:
                    logger.warning("replay.gauges", error=repr(error))
                blind = True
                # Numbers that nobody has seen for a while are worse than none.
                self._metrics.keep(())
                self._metrics.runs.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), LOOK_SECONDS)
