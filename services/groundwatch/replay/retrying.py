"""What a replay left unscored because a judge had a fault: which faults, and judging just these again.

A replay writes no dead letters, which would bring its events to the live stages. The outcome that stands for
one says why, and is replaced by compare-and-set when the judge has recovered, as a live one is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import nats.js.errors

from groundwatch.errors import UNDECODED, GroundwatchError, InputError, UsageError
from groundwatch.events import ResponseScored, Usage
from groundwatch.protocols.base import Stage
from groundwatch.replay.engines import Engines, protocol_of
from groundwatch.replay.judging import Made, scored
from groundwatch.replay.runs import Counts, Run, Runs
from groundwatch.replay.spec import Selection, Spec
from groundwatch.replay.writing import Choosing, Item
from groundwatch.runtime.delivery.bus import Stored
from groundwatch.runtime.delivery.outcomes import REPLACEABLE, outgoing, replace_dead
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.runtime.settings import with_run
from groundwatch.topology import (
    HEADER_OUTCOME,
    HEADER_REASON,
    OUTCOMES,
    Address,
    outcome_subject,
    parse_subject,
    recorded_subject,
    run_subjects,
)

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from groundwatch.runtime.delivery.bus import Bus
    from groundwatch.runtime.settings import Settings

AT_ONCE = 50
LOOKED_AT = 1_000
"""Outcomes with faults whose words are read, at most."""

LONGEST = 200
"""Characters of a fault's words by which faults are told apart."""

_OUTCOME = msgspec.json.Decoder(ResponseScored)


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


async def faults(js: JetStreamContext, run: str) -> dict[str, int]:
    """The words of a run's faults with their numbers, the most frequent first; of the first 1,000 at most."""
    found: Counter[str] = Counter()
    waiting = (await _faulty(js, run))[:LOOKED_AT]
    for start in range(0, len(waiting), AT_ONCE):
        subjects = [outcome_subject(run, one.protocol, one.key) for one in waiting[start : start + AT_ONCE]]
        for data in await asyncio.gather(*(_last(js, OUTCOMES, subject) for subject in subjects)):
            if data is None:
                continue
            try:
                outcome = _OUTCOME.decode(data.data)
            except UNDECODED:
                continue
            if outcome.reason in REPLACEABLE:
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
    waiting = await _faulty(bus.js, name)
    engines = Engines(with_run(settings, run.spec.settings), bus, start=Stage(run.spec.stage))
    again = _Again(bus, run, engines)
    try:
        for start in range(0, len(waiting), AT_ONCE):
            await again.judge(waiting[start : start + AT_ONCE])
    finally:
        await engines.close()
        counted = await _counted(bus.js, name)
        await runs.change(name, lambda run: _recounted(run, counted, again.usage))
    return Retried(
        run=name,
        found=len(waiting),
        scored=again.became["scored"],
        unscored=again.became["unscored"],
        faulty=again.became["faulty"],
        gone=again.became["gone"],
        usage=again.usage,
    )


class _Again:
    """One round of judging again, and what became of it."""

    def __init__(self, bus: Bus, run: Run, engines: Engines) -> None:
        self._bus = bus
        self._run = run
        self._engines = engines
        # Chosen they were already, by what the spec says of responses and samples.
        anything = Spec(run=run.name, source=run.spec.source, stage=run.spec.stage)
        self._choosing = Choosing(anything, Selection(anything))
        self.became: Counter[str] = Counter()
        self.usage = Usage()

    async def judge(self, addresses: list[Address]) -> None:
        """Judge these and put their outcomes in the place of the faults."""
        messages = await asyncio.gather(*(self._source(one) for one in addresses))
        groups: dict[str, list[Item]] = {}
        for address, message in zip(addresses, messages, strict=True):
            items = self._choosing.choose([message]).items if message is not None else []
            mine = [one for one in items if one.protocol == address.protocol and one.event is not None]
            if not mine:
                self.became["faulty" if message is not None else "gone"] += 1
            for one in mine:
                groups.setdefault(one.protocol, []).append(one)
        for protocol, group in groups.items():
            made = await self._made(protocol, group)
            if isinstance(made, GroundwatchError):
                self.became["faulty"] += len(group)
                continue
            for each in made:
                await self._put(each)

    async def _source(self, address: Address) -> Read | None:
        spec = self._run.spec
        subject = (
            recorded_subject(spec.source, address.key)
            if spec.stage == Stage.EXTRACTION
            else spec.subjects.replace(">", f"{address.protocol}.{address.key}")
        )
        return await _last(self._bus.js, self._run.stream, subject)

    async def _made(self, name: str, group: list[Item]) -> list[Made] | GroundwatchError:
        events: list[object] = [one.event for one in group]
        if self._run.spec.stage == Stage.SCORING:
            protocol = protocol_of(name)
            if isinstance(protocol, InputError):
                return protocol
            return [scored(event, protocol) for event in events]  # type: ignore[arg-type]
        judging = await self._engines.judging(name)
        if isinstance(judging, GroundwatchError):
            return judging
        for stage, judge in judging.fingerprints().items():
            begun = self._run.judges.get(f"{name}.{stage}", judge)
            if begun != judge:
                raise UsageError(
                    f"run '{self._run.name}' was begun with judge {begun} for {name}.{stage}, and here it is "
                    f"{judge}: one run is never of two; replay its responses into another"
                )
        return await self._engines.judge(name, events)  # type: ignore[arg-type]

    async def _put(self, made: Made) -> None:
        outcome = made.outcome
        self.usage += outcome.usage
        if outcome.reason in REPLACEABLE:
            self.became["faulty"] += 1
        elif await replace_dead(self._bus, outgoing(outcome)) is Stored.NEW:
            self.became[outcome.outcome.value] += 1


async def _faulty(js: JetStreamContext, run: str) -> list[Address]:
    """Where a run has an outcome that only stands for a fault."""
    found = []
    async for read in read_stream(js, OUTCOMES, subjects=(run_subjects("outcome", run),), headers_only=True):
        address = parse_subject(read.subject)
        if address is not None and read.headers.get(HEADER_REASON) in REPLACEABLE:
            found.append(address)
    return found


async def _counted(js: JetStreamContext, run: str) -> Counter[str]:
    """Outcomes by kind, and by kind and reason, as the stream has them: right after a crash too."""
    found: Counter[str] = Counter()
    async for read in read_stream(js, OUTCOMES, subjects=(run_subjects("outcome", run),), headers_only=True):
        kind, reason = read.headers.get(HEADER_OUTCOME, ""), read.headers.get(HEADER_REASON)
        found[kind] += 1
        if reason:
            found[f"{kind}: {reason}"] += 1
    return found


def _recounted(run: Run, counted: Counter[str], usage: Usage) -> Run:
    counts = Counts(
        events=run.counts.events,
        responses=run.counts.responses,
        scored=counted["scored"],
        unscored=counted["unscored"],
        declined=counted["declined"],
        repeated=run.counts.repeated,
        reasons={name: number for name, number in counted.items() if ": " in name},
        usage=run.counts.usage + usage,
    )
    return msgspec.structs.replace(run, counts=counts)


async def _last(js: JetStreamContext, stream: str, subject: str) -> Read | None:
    try:
        found = await js.get_last_msg(stream, subject)
    except nats.js.errors.NotFoundError:
        return None
    return Read(
        subject=subject,
        data=found.data or b"",
        headers=dict(found.headers or {}),
        sequence=found.seq or 0,
    )
