"""What a run left unscored because a judge had a fault, and judging just that again.

A replay writes no dead letters, which would bring its events to the live stages. The outcome that stands for
one says why, and is replaced by compare-and-set when the judge has recovered, as a live one is.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import msgspec

from groundwatch import topology
from groundwatch.errors import UsageError
from groundwatch.events import REPLACEABLE, Usage
from groundwatch.keys import partition_of
from groundwatch.protocols.base import Stage
from groundwatch.replay.pipeline import Pipeline
from groundwatch.replay.results import AT_ONCE, look_up
from groundwatch.replay.runs import Counts, Run, Runs, judged_by
from groundwatch.replay.spec import Spec
from groundwatch.replay.writing import Choosing, Item
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


async def retry(bus: Bus, settings: Settings, name: str, *, own: bool = False) -> Retried:
    """Judge again what is unscored because of a fault, by the run's judges; `own`: these settings have them.

    Raises `UsageError` when somebody works at the run, or the judges are others than those it was begun with.
    """
    runs = await Runs.open(bus.js)
    run = await runs.get(name)
    if run.status not in ("done", "paused", "cancelled") or run.workers(time.time()):
        raise UsageError(
            f"run '{name}' is {run.status}: what had faults is judged again when it is done, or after "
            f"groundwatch replay pause {name}"
        )
    if not own:
        run.spec.check_judges()
    waiting = await _faulty(bus.history, name)
    stage = Stage(run.spec.stage)
    pipeline = Pipeline.of_run(run.spec, settings, bus)
    became: Counter[str] = Counter()
    usage = Usage()
    try:
        for start in range(0, len(waiting), AT_ONCE):
            items = await _items(bus.history, run, waiting[start : start + AT_ONCE], became)
            for protocol in {item.protocol for item in items}:
                judged_by(run, protocol, await pipeline.judges(protocol, stage))
            await pipeline.judge(stage, items)
            for item in items:
                usage += item.outcome.usage
                if item.outcome.reason in REPLACEABLE:
                    became["faulty"] += 1
                elif await replace_dead(bus, outgoing(item.outcome)) is Stored.NEW:
                    became[item.outcome.outcome.value] += 1
    finally:
        await pipeline.close()
        # As the stream has them: right after a crash too.
        counts = Counts()
        async for _, headers in _outcomes(bus.history, name):
            counts.note(headers.get(topology.HEADER_OUTCOME, ""), headers.get(topology.HEADER_REASON, ""))
        await runs.change(name, lambda run: _recounted(run, counts, usage))
    what = {name: became[name] for name in ("scored", "unscored", "faulty", "gone")}
    return Retried(run=name, found=len(waiting), usage=usage, **what)


async def _items(
    history: History, run: Run, addresses: list[topology.Address], became: Counter[str]
) -> list[Item]:
    """What is to be judged again; what cannot be is counted."""
    recorded = run.spec.stage == Stage.EXTRACTION
    places = [one.key if recorded else f"{one.protocol}.{one.key}" for one in addresses]
    filters = [subjects_in([run.spec.subjects], partition_of(one.key))[0] for one in addresses]
    subjects = [one.replace(">", place) for one, place in zip(filters, places, strict=True)]
    # Chosen they were already, by what the spec says of responses and samples.
    choosing = Choosing(Spec(run=run.name, source=run.spec.source, stage=run.spec.stage))
    items = []
    for address, message in zip(
        addresses, await history.last_of_each(run.spec.stream, subjects), strict=True
    ):
        chosen = choosing.choose([message]).items if message is not None else []
        mine = [item for item in chosen if item.protocol == address.protocol and not item.broken]
        if not mine:
            became["faulty" if message is not None else "gone"] += 1
        items += mine
    return items


async def _faulty(history: History, run: str) -> list[topology.Address]:
    """Where a run has an outcome that only stands for a fault."""
    return [
        address
        async for address, headers in _outcomes(history, run)
        if headers.get(topology.HEADER_REASON) in REPLACEABLE
    ]


async def _outcomes(history: History, run: str) -> AsyncIterator[tuple[topology.Address, Mapping[str, str]]]:
    """The addresses and headers of a run's outcomes."""
    subjects = (topology.run_subjects("outcome", run),)
    async for read in history.read(topology.OUTCOMES, subjects=subjects, headers_only=True):
        if (address := topology.parse_subject(read.subject)) is not None:
            yield address, read.headers


def _recounted(run: Run, counts: Counts, usage: Usage) -> Run:
    rest = {what: getattr(run.counts, what) for what in ("events", "responses", "repeated")}
    counts = msgspec.structs.replace(counts, usage=run.counts.usage + usage, **rest)
    return msgspec.structs.replace(run, counts=counts)
