"""What a run left unscored because a judge had a fault, and judging just that again.

A replay writes no dead letters, which would bring its events to the live stages. The outcome that stands for
one says why, and is replaced by compare-and-set when the judge has recovered, as a live one is.
"""

import time
from collections import Counter

import msgspec

from groundwatch import topology
from groundwatch.errors import UsageError
from groundwatch.events import REPLACEABLE, ResponseScored, Usage
from groundwatch.keys import partition_of
from groundwatch.protocols.base import Stage
from groundwatch.replay.pipeline import Pair, Pipeline
from groundwatch.replay.results import AT_ONCE, look_up
from groundwatch.replay.runs import Run, Runs, judged_by
from groundwatch.replay.spec import Spec
from groundwatch.replay.writing import Choosing
from groundwatch.runtime.delivery.bus import Bus, Stored
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.outcomes import outgoing, replace_dead
from groundwatch.runtime.settings import Settings
from groundwatch.topology.partitions import subjects_in

LOOKED_AT = 1_000
"""Outcomes with faults whose words are read, at most."""

LONGEST = 200
"""Characters of a fault's words by which faults are told apart."""


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run's unscored outcomes: `scored` and `unscored` (for another reason) are new,
    `faulty` have a fault again, `gone` have no event in the source any more."""

    run: str
    found: int
    scored: int = 0
    unscored: int = 0
    faulty: int = 0
    gone: int = 0
    usage: Usage = Usage()


async def faults(history: History, run: str) -> dict[str, int]:
    """The words of a run's faults with their numbers, the most frequent first; of the first 1,000 at most."""
    found: Counter[str] = Counter()
    waiting = (await _faulty(history, run))[:LOOKED_AT]
    for start in range(0, len(waiting), AT_ONCE):
        part = waiting[start : start + AT_ONCE]
        subjects = (topology.subject_of("outcome", run, one.protocol, one.key) for one in part)
        for outcome in await look_up(history, subjects):
            if outcome is not None and outcome.reason in REPLACEABLE:
                found[(outcome.detail or outcome.reason)[:LONGEST]] += 1
    return dict(found.most_common())


async def retry(bus: Bus, settings: Settings, name: str) -> Retried:
    """Judge again what is unscored because of a fault, by the run's own judges.

    Raises `UsageError` when somebody works at the run, or the judges are others than those it was begun with.
    """
    runs = await Runs.open(bus.js)
    run = await runs.get(name)
    if run.status not in ("done", "paused", "cancelled") or run.workers(time.time()):
        raise UsageError(
            f"run '{name}' is {run.status}: what had faults is judged again when it is done, or after "
            f"groundwatch replay pause {name}"
        )
    waiting = await _faulty(bus.history, name)
    pipeline = Pipeline.of_run(run.spec, settings, bus)
    again = _Again(bus, run, pipeline)
    try:
        for start in range(0, len(waiting), AT_ONCE):
            await again.judge(waiting[start : start + AT_ONCE])
    finally:
        await pipeline.close()
        counted = await _counted(bus.history, name)
        await runs.change(name, lambda run: _recounted(run, counted, again.usage))
    became = {what: again.became[what] for what in ("scored", "unscored", "faulty", "gone")}
    return Retried(run=name, found=len(waiting), usage=again.usage, **became)


class _Again:
    def __init__(self, bus: Bus, run: Run, pipeline: Pipeline) -> None:
        self._bus = bus
        self._run = run
        self._pipeline = pipeline
        # Chosen they were already, by what the spec says of responses and samples.
        anything = Spec(run=run.name, source=run.spec.source, stage=run.spec.stage)
        self._choosing = Choosing(anything)
        self.became: Counter[str] = Counter()
        self.usage = Usage()

    async def judge(self, addresses: list[topology.Address]) -> None:
        """Judge these and put their outcomes in the place of the faults."""
        spec = self._run.spec
        recorded = spec.stage == Stage.EXTRACTION
        places = [one.key if recorded else f"{one.protocol}.{one.key}" for one in addresses]
        filters = [subjects_in([spec.subjects], partition_of(one.key))[0] for one in addresses]
        subjects = [one.replace(">", place) for one, place in zip(filters, places, strict=True)]
        messages = await self._bus.history.last_of_each(spec.stream, subjects)
        waiting: list[Pair] = []
        for address, message in zip(addresses, messages, strict=True):
            items = self._choosing.choose([message]).items if message is not None else []
            mine = [item for item in items if item.protocol == address.protocol and not item.broken]
            if not mine:
                self.became["faulty" if message is not None else "gone"] += 1
            waiting += mine
        stage = Stage(spec.stage)
        for name in {pair.protocol for pair in waiting}:
            judged_by(self._run, name, await self._pipeline.judges(name, stage))
        await self._pipeline.judge(stage, waiting)
        for pair in waiting:
            await self._put(pair.outcome)

    async def _put(self, outcome: ResponseScored) -> None:
        self.usage += outcome.usage
        if outcome.reason in REPLACEABLE:
            self.became["faulty"] += 1
        elif await replace_dead(self._bus, outgoing(outcome)) is Stored.NEW:
            self.became[outcome.outcome.value] += 1


async def _faulty(history: History, run: str) -> list[topology.Address]:
    """Where a run has an outcome that only stands for a fault."""
    found = []
    async for read in history.read(
        topology.OUTCOMES, subjects=(topology.run_subjects("outcome", run),), headers_only=True
    ):
        address = topology.parse_subject(read.subject)
        if address is not None and read.headers.get(topology.HEADER_REASON) in REPLACEABLE:
            found.append(address)
    return found


async def _counted(history: History, run: str) -> Counter[str]:
    """Outcomes by kind, and by kind and reason, as the stream has them: right after a crash too."""
    found: Counter[str] = Counter()
    async for read in history.read(
        topology.OUTCOMES, subjects=(topology.run_subjects("outcome", run),), headers_only=True
    ):
        kind, reason = read.headers.get(topology.HEADER_OUTCOME, ""), read.headers.get(topology.HEADER_REASON)
        found[kind] += 1
        if reason:
            found[f"{kind}: {reason}"] += 1
    return found


def _recounted(run: Run, counted: Counter[str], usage: Usage) -> Run:
    counts = msgspec.structs.replace(
        run.counts,
        scored=counted["scored"],
        unscored=counted["unscored"],
        declined=counted["declined"],
        reasons={name: number for name, number in counted.items() if ": " in name},
        usage=run.counts.usage + usage,
    )
    return msgspec.structs.replace(run, counts=counts)
