"""The line of stages in simulated seconds: first in, first out, a fixed time for each event, pods that start.

An event waits until a ready replica has a free place, takes the stage's service time, and goes on to the next
stage. Nothing is dropped and nothing is skipped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

Cohort = tuple[int, int]
"""Events that were recorded in the same second: (second, how many)."""


@dataclass(frozen=True, kw_only=True)
class StageModel:
    """One stage as measured. `service` whole seconds for an event, `concurrency` events at once in a replica.

    `start` is from creating a pod until it is ready, `target` the delay that it may add; seconds.
    """

    name: str
    service: int
    concurrency: int
    start: int
    target: float

    @property
    def per_replica(self) -> float:
        """Events a second that one replica does."""
        return self.concurrency / self.service


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to a stage between two seconds: `slower` times the service time, or `down`."""

    stage: str
    begin: int
    end: int
    slower: int = 1
    down: bool = False

    def holds(self, stage: str, second: int) -> bool:
        """Whether it is felt by this stage now."""
        return self.stage == stage and self.begin <= second < self.end


@dataclass
class Stage:
    """A stage at work: what waits, what is in hand, and its pods."""

    model: StageModel
    ready: int = 0
    starting: deque[int] = field(default_factory=deque)
    waiting: deque[Cohort] = field(default_factory=deque)
    queued: int = 0
    in_hand: int = 0
    replica_seconds: int = 0
    _finishing: dict[int, list[Cohort]] = field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """As the Deployment says: those that start are paid for too."""
        return self.ready + len(self.starting)

    @property
    def backlog(self) -> int:
        """Events that wait or are in hand."""
        return self.queued + self.in_hand

    def scale(self, second: int, replicas: int) -> None:
        """Create or remove pods; those that are not ready yet go first, as Kubernetes does it."""
        while self.replicas < replicas:
            self.starting.append(second + self.model.start)
        while self.replicas > replicas and self.starting:
            self.starting.pop()
        self.ready = min(self.ready, replicas)

    def step(self, second: int, came: Sequence[Cohort], fault: Fault | None) -> list[Cohort]:
        """One second; gives what was finished in it."""
        while self.starting and self.starting[0] <= second:
            self.starting.popleft()
            self.ready += 1
        # A replica that was told to stop finishes what it holds, and is paid for until then.
        draining = max(0, -(-self.in_hand // self.model.concurrency) - self.ready)
        self.replica_seconds += self.replicas + draining
        done = self._finishing.pop(second, [])
        self.in_hand -= sum(count for _, count in done)
        for cohort in came:
            self.waiting.append(cohort)
            self.queued += cohort[1]
        if fault is not None and fault.down:
            self._hand_back()
            return done
        free = self.ready * self.model.concurrency - self.in_hand
        if free > 0 and self.queued:
            taken = self._take(free)
            service = self.model.service * (fault.slower if fault else 1)
            self._finishing.setdefault(second + service, []).extend(taken)
        return done

    def _take(self, free: int) -> list[Cohort]:
        taken = []
        while free > 0 and self.waiting:
            recorded, count = self.waiting.popleft()
            if count > free:
                self.waiting.appendleft((recorded, count - free))
                count = free
            taken.append((recorded, count))
            free -= count
            self.queued -= count
            self.in_hand += count
        return taken

    def _hand_back(self) -> None:
        """What a dead pod held is delivered again."""
        held = sorted((cohort for each in self._finishing.values() for cohort in each), reverse=True)
        self.waiting.extendleft(held)
        self.queued += self.in_hand
        self.in_hand = 0
        self._finishing.clear()


@dataclass
class Line:
    """Stages one after another, and how long events took from being recorded to their outcome."""

    stages: list[Stage]
    faults: tuple[Fault, ...] = ()
    delays: Counter[int] = field(default_factory=Counter)
    largest: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)

    def step(self, second: int, count: int) -> None:
        """One second in which `count` responses are recorded."""
        moving: list[Cohort] = [(second, count)] if count else []
        for stage in self.stages:
            name = stage.model.name
            fault = next((one for one in self.faults if one.holds(name, second)), None)
            moving = stage.step(second, moving, fault)
            self.largest[name] = max(self.largest.get(name, 0), stage.backlog)
            self.most[name] = max(self.most.get(name, 0), stage.replicas)
            self.least[name] = min(self.least.get(name, stage.replicas), stage.replicas)
        for recorded, number in moving:
            self.delays[second - recorded] += number

    @property
    def backlog(self) -> int:
        """Events anywhere in the line."""
        return sum(stage.backlog for stage in self.stages)

    def quantile(self, share: float) -> float:
        """The delay, in seconds, that this share of finished events did not exceed."""
        left = share * self.delays.total()
        for delay in sorted(self.delays):
            left -= self.delays[delay]
            if left <= 0:
                return delay
        return float("inf")


def run_fixed(
    models: Sequence[StageModel], fleet: Sequence[int], counts: Sequence[int], faults: tuple[Fault, ...] = ()
) -> Line:
    """The line with replicas that never change and are ready from the first second."""
    line = Line([Stage(model, ready=number) for model, number in zip(models, fleet, strict=True)], faults)
    for second, count in enumerate(counts):
        line.step(second, count)
    finish(line, len(counts))
    return line


def finish(line: Line, second: int) -> None:
    """Let what is left in a fixed line come out, so that its delays count; unpaid."""
    paid = [stage.replica_seconds for stage in line.stages]
    patience = second + 86_400
    while line.backlog and second < patience:
        line.step(second, 0)
        second += 1
    for stage, seconds in zip(line.stages, paid, strict=True):
        stage.replica_seconds = seconds


def smallest_fleet(
    models: Sequence[StageModel], counts: Sequence[int], *, target: float, share: float = 0.99
) -> list[int]:
    """The fewest fixed replicas that keep `share` of the delays within `target`: the honest comparison.

    First each stage by itself with no delay before it, then the whole line mended upwards and downwards.
    """

    def holds(fleet: Sequence[int]) -> bool:
        return run_fixed(models, fleet, counts).quantile(share) <= target

    fleet = [_enough(model, max(counts)) for model in models]
    if not holds(fleet):
        raise ValueError(f"no fleet holds {target:g} s: the service times alone take longer")
    for at in sorted(range(len(models)), key=lambda at: -fleet[at]):
        low, high = 1, fleet[at]
        while low < high:
            middle = (low + high) // 2
            if holds([*fleet[:at], middle, *fleet[at + 1 :]]):
                high = middle
            else:
                low = middle + 1
        fleet[at] = high
    return fleet


def _enough(model: StageModel, per_second: int) -> int:
    """Replicas that never let anything wait."""
    return -(-per_second * model.service // model.concurrency) + 1


def slower(model: StageModel, times: int) -> StageModel:
    """The same stage with a longer service time."""
    return replace(model, service=model.service * times)
