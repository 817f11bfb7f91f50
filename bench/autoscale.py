"""Whether scaling each stage on its own backlog holds the delay, and what it costs against a fixed fleet.

Time is simulated, a second at a time; the backlog that the scaler sees is not: real messages stand in the
real streams of a real nats-server, and KEDA's lag is computed from its monitoring port. docs/autoscaling.md
tells the model, its limits and the parameters.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from autoscaling.line import Fault, Line, Stage, StageModel, finish, run_fixed, smallest_fleet
from autoscaling.mirror import Mirror, Monitor
from autoscaling.rules import Hpa, Keda, Policy, ScaledObject, lag_threshold
from autoscaling.traffic import HOUR, ROUND_THE_CLOCK, WORKING_DAY, Shape, arrivals, steps, through
from groundwatch.errors import UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings

MINUTE = 60
HALF = 0.5


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic and faults. `fleet_of` names the scenario whose traffic the fixed fleet is sized for."""

    name: str
    shape: Shape
    seconds: int
    faults: tuple[Fault, ...] = ()
    fleet_of: str = ""


def scenarios(hours: int) -> tuple[Scenario, ...]:
    """All of them; the days last `hours`."""
    slow = Fault(stage="verification", begin=60 * MINUTE, end=90 * MINUTE, slower=3)
    down = Fault(stage="verification", begin=60 * MINUTE, end=80 * MINUTE, down=True)
    burst = steps((0, 0.1), (60 * MINUTE, 2.0), (70 * MINUTE, 0.1))
    silence = steps((0, 0.1), (20 * MINUTE, 0.0), (60 * MINUTE, 0.1))
    day = hours * int(HOUR)
    return (
        Scenario(name="day", shape=through(WORKING_DAY), seconds=day),
        Scenario(name="day_round_the_clock", shape=through(ROUND_THE_CLOCK), seconds=day),
        Scenario(name="burst_20x", shape=burst, seconds=150 * MINUTE),
        Scenario(
            name="models_slow", shape=steps((0, HALF)), seconds=180 * MINUTE, faults=(slow,), fleet_of="day"
        ),
        Scenario(
            name="stage_down", shape=steps((0, HALF)), seconds=180 * MINUTE, faults=(down,), fleet_of="day"
        ),
        Scenario(name="silence", shape=silence, seconds=80 * MINUTE, fleet_of="day"),
    )


class Scaled:
    """A line whose stages are scaled by what the server's monitoring port says."""

    def __init__(
        self, line: Line, rules: Sequence[ScaledObject], monitor: Monitor, mirrors: Sequence[Mirror]
    ) -> None:
        self.line = line
        self.monitor = monitor
        self.mirrors = mirrors
        self._rules = rules
        self._hpas = [Hpa(one) for one in rules]
        self._kedas = [Keda(one, last_active=0) for one in rules]
        self._events_per_message = mirrors[0].scale

    async def look(self, second: int, recorded: int) -> None:
        """What KEDA and the HPA do at this second, if they do anything; `recorded` events came so far."""
        polling = [second % one.polling_interval == 0 for one in self._rules]
        syncing = [second % one.sync_period == 0 for one in self._rules]
        if not (any(polling) or any(syncing)):
            return
        left = recorded
        for stage, mirror in zip(self.line.stages, self.mirrors, strict=True):
            left -= stage.backlog
            await mirror.show(stage.backlog, stage.in_hand, left)
        lags = await self.monitor.settled(
            {
                one.model.name: self.mirrors[at].expected(one.backlog)
                for at, one in enumerate(self.line.stages)
            }
        )
        for at, stage in enumerate(self.line.stages):
            usage, replicas = lags[stage.model.name] * self._events_per_message, stage.replicas
            if polling[at]:
                replicas = self._kedas[at].poll(second, usage, replicas)
            if syncing[at]:
                replicas = self._hpas[at].sync(second, usage, replicas)
            stage.scale(second, replicas)


async def run_scaled(
    models: Sequence[StageModel],
    rules: Sequence[ScaledObject],
    counts: Sequence[int],
    faults: tuple[Fault, ...] = (),
    *,
    events_per_message: int,
) -> Scaled:
    """The line under the scaler's rules, with a nats-server of its own. Begins with the replicas it needs."""
    line = Line([Stage(model, ready=_needed(model, counts[:MINUTE])) for model in models], faults)
    with tempfile.TemporaryDirectory(prefix="groundwatch-autoscale-") as folder:
        server = NatsServer(Path(folder) / "nats", monitored=True)
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="autoscale")
        monitor = Monitor(server)
        try:
            await bus.connect()
            await provision(bus.js)
            mirrors = [Mirror(bus, model.name, events_per_message) for model in models]
            for mirror in mirrors:
                await mirror.start()
            scaled = Scaled(line, rules, monitor, mirrors)
            recorded = 0
            for second, count in enumerate(counts):
                await scaled.look(second, recorded)
                line.step(second, count)
                recorded += count
        finally:
            await monitor.close()
            await bus.close()
            await server.stop()
    finish(line, len(counts))
    return scaled


def _needed(model: StageModel, counts: Sequence[int]) -> int:
    return math.ceil(sum(counts) / max(len(counts), 1) / model.per_replica)


def _told(line: Line, target: float) -> dict[str, Any]:
    p99 = line.quantile(0.99)
    return {
        "p50_delay_s": line.quantile(0.5),
        "p99_delay_s": p99,
        "max_delay_s": line.quantile(1.0),
        "p99_within_target": p99 <= target,
        "backlog_max": line.largest,
        "replicas_max": line.most,
        "replicas_min": line.least,
        "replica_seconds": sum(stage.replica_seconds for stage in line.stages),
    }


async def measure(
    *,
    only: int = 0,
    hours: int = 24,
    peak: int = 40,
    target_s: int = 180,
    headroom_percent: int = 70,
    extraction_s: int = 4,
    verification_s: int = 8,
    scoring_s: int = 1,
    concurrency: int = 16,
    start_s: int = 30,
    polling_s: int = 30,
    cooldown_s: int = 300,
    stabilization_s: int = 300,
    down_percent: int = 100,
    down_period_s: int = 15,
    events_per_message: int = 10,
    seed: int = 1,
) -> dict[str, Any]:
    """Every scenario; at the top level the day curve. `only` N runs the first N scenarios.

    `peak` is in responses a second, `target_s` the delay from recording to outcome that 99 of 100 may take.
    """
    if min(hours, peak, target_s, headroom_percent, concurrency, events_per_message) < 1:
        raise UsageError("bench autoscale: parameters must be at least 1")
    models = (
        StageModel(
            name="extraction",
            service=extraction_s,
            concurrency=concurrency,
            start=start_s,
            target=target_s * 0.35,
        ),
        StageModel(
            name="verification",
            service=verification_s,
            concurrency=concurrency,
            start=start_s,
            target=target_s * 0.55,
        ),
        StageModel(name="scoring", service=scoring_s, concurrency=200, start=start_s, target=target_s * 0.1),
    )
    rules = [
        ScaledObject(
            lag_threshold=lag_threshold(
                target=model.target, per_replica=model.per_replica, headroom=headroom_percent / 100
            ),
            max_replicas=math.ceil(2.5 * peak / model.per_replica),
            polling_interval=polling_s,
            cooldown_period=cooldown_s,
            stabilization_down=stabilization_s,
            down=(Policy(period=down_period_s, percent=down_percent), Policy(period=60, pods=1)),
        )
        for model in models
    ]
    found: dict[str, Any] = {}
    fleets: dict[str, list[int]] = {}
    for scenario in scenarios(hours)[: only or None]:
        began = time.perf_counter()
        counts = arrivals(scenario.shape, peak=peak, seconds=scenario.seconds, seed=seed)
        fleet = fleets.get(scenario.fleet_of) or smallest_fleet(models, counts, target=target_s)
        fleets[scenario.name] = fleet
        fixed = run_fixed(models, fleet, counts, scenario.faults)
        scaled = await run_scaled(
            models, rules, counts, scenario.faults, events_per_message=events_per_message
        )
        told = _told(scaled.line, target_s)
        beside = _told(fixed, target_s)
        found[scenario.name] = {
            "events": sum(counts),
            "mean_of_peak": round(sum(counts) / len(counts) / max(1.0, _busiest(counts)), 3),
            **told,
            "replica_seconds_ratio": round(told["replica_seconds"] / beside["replica_seconds"], 3),
            "fixed": {"fleet": dict(zip((one.name for one in models), fleet, strict=True)), **beside},
            "server": {
                "messages": sum(mirror.messages for mirror in scaled.mirrors),
                "reads": scaled.monitor.reads,
                "reads_too_early": scaled.monitor.too_early,
            },
            "took_s": round(time.perf_counter() - began, 1),
        }
    day = found["day"]
    return {
        "target_s": target_s,
        "p99_delay_s": day["p99_delay_s"],
        "p99_within_target": day["p99_within_target"],
        "backlog_max": day["backlog_max"],
        "replica_seconds_ratio": day["replica_seconds_ratio"],
        "lag_thresholds": {one.name: rule.lag_threshold for one, rule in zip(models, rules, strict=True)},
        "events_per_message": events_per_message,
        "scenarios": found,
    }


def _busiest(counts: Sequence[int]) -> float:
    """Events a second in the busiest five minutes."""
    window = min(300, len(counts))
    running = best = sum(counts[:window])
    for at in range(window, len(counts)):
        running += counts[at] - counts[at - window]
        best = max(best, running)
    return best / window
