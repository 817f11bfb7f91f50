"""Reading two runs from the streams to compare them: the command line and the gRPC server call `compare`.

The smaller run is held in memory, about 1 KB for a response, and the larger one goes by. Where the smaller
is a small part of the larger, its responses are looked up instead, so that a replay of a sample is compared
with months of live traffic in seconds.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import TypeVar

import msgspec

from groundwatch.errors import TransientError, UsageError, words
from groundwatch.events import LIVE, ResponseScored
from groundwatch.gateway.auth import Filter
from groundwatch.keys import digest
from groundwatch.reporting.compare.compare import (
    CHANGED,
    Alone,
    ChangedResponse,
    Comparison,
    OutcomeTable,
    RunOutcome,
    SaidOutcome,
    changed_claims,
    sections,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, Read, decoded
from groundwatch.topology import (
    OUTCOMES,
    RUNS_BUCKET,
    run_subjects,
    subject_of,
)

LIMIT = 200_000
"""Outcomes that are held of the smaller run; what has more is to be narrowed."""

LOOKED_UP = 20
"""A run this many times as large is not read: what is wanted of it is looked up."""

AT_ONCE = 50

T = TypeVar("T")

_SCORED = msgspec.json.Decoder(ResponseScored)
_SAID = msgspec.json.Decoder(SaidOutcome)


class _Wanted(Filter, frozen=True):
    @property
    def open(self) -> bool:
        """Whether the subject alone tells that an outcome is wanted."""
        return not (self.model or self.tenant)

    def subject(self, run: str) -> str:
        return run_subjects("outcome", run, *filter(None, [self.protocol]))

    def __str__(self) -> str:
        """What it asks for, in words for the end of a sentence."""
        parts = [f"{name} {value}" for name, value in msgspec.structs.asdict(self).items() if value]
        return f" of {' and '.join(parts)}" if parts else ""


class _Held(msgspec.Struct):
    """What was read of both runs. `pairs` by protocol; the first run's side stands first. `units` are by key
    what responses were drawn with: those about the same images resemble each other, so they are one draw."""

    sides: OutcomeTable
    units: dict[str, str]
    pairs: dict[str, list[tuple[RunOutcome, RunOutcome]]]
    alone: dict[str, Alone]
    unreadable: int


async def compare(
    bus: Bus,
    first: str,
    second: str,
    *,
    model: str = "",
    tenant: str = "",
    protocol: str = "",
    top: int = CHANGED,
    limit: int = LIMIT,
    listed: bool = True,
) -> Comparison:
    """The second run beside the first, `live` counting as a run; `top` most changed responses are named.

    Without `listed` no error names other runs.

    Raises `UsageError` when they are not comparable, saying why: the same run twice, a run without
    outcomes, no protocol or no response in common, or more than `limit` outcomes in both. Raises
    `MissingExtraError` without numpy, `TransientError` when the streams cannot be read.
    """
    wanted = _Wanted(model=model, tenant=tenant, protocol=protocol)
    if first == second:
        raise UsageError(f"run {first} beside itself tells nothing: name two different runs")
    held = await _read(bus, first, second, wanted, limit, listed=listed)
    # A caller who gives up waits too: the thread cannot be stopped, and the comparison is under way.
    work = asyncio.to_thread(sections, held.pairs, held.sides, units=held.units, top=top)
    computing = asyncio.ensure_future(work)
    try:
        found = await asyncio.shield(computing)
    finally:
        await asyncio.wait([computing])
    told = []
    for section in found:
        name, changed = section.protocol, section.most_changed
        claims = tuple([await _with_claims(bus, first, second, name, one) for one in changed])
        told.append(msgspec.structs.replace(section, most_changed=claims))
    notes = []
    if held.unreadable:
        notes.append(f"{held.unreadable:,} outcomes could not be read and are in no number.")
    for name, alone in sorted(held.alone.items()):
        if name not in held.pairs:
            where = first if alone.first else second
            notes.append(f"Protocol {name} is only in run {where}, and is not compared.")
    return Comparison(
        first=first,
        second=second,
        model=model,
        tenant=tenant,
        sections=tuple(told),
        alone=held.alone,
        notes=tuple(notes),
    )


async def _read(bus: Bus, first: str, second: str, wanted: _Wanted, limit: int, *, listed: bool) -> _Held:
    sizes: dict[str, int] = {}
    for run in (first, second):
        sizes[run] = (await bus.history.count(OUTCOMES, wanted.subject(run))).number
        if not sizes[run]:
            raise UsageError(await _unknown(bus, run, wanted, listed=listed))
    small, large = sorted(sizes, key=lambda run: (sizes[run], run == second))
    sides, unreadable = OutcomeTable(), 0
    kept: dict[str, RunOutcome] = {}
    units: dict[str, str] = {}
    async for read in _outcomes(bus, small, wanted):
        event = decoded(_SAID, read)
        if event is None:
            unreadable += 1
        elif wanted.matches(event):
            name = _name(read.subject)
            kept[name] = sides.of(event, _key(name))
            units |= _drawn_with(kept[name], event)
            if len(kept) > limit:
                raise UsageError(
                    f"both runs have more than {limit:,} outcomes{wanted}: compare a part of them, "
                    "of one model or protocol, or replay a sample",
                    "model",
                    "protocol",
                )
    if not kept:
        raise UsageError(f"run {small} has no outcome{wanted}")
    pairs: dict[str, list[tuple[RunOutcome, RunOutcome]]] = {}
    mine = Counter(side.protocol for side in kept.values())
    theirs: Counter[str] = Counter()
    looked_up = len(kept) * LOOKED_UP < sizes[large]
    subjects = [subject_of("outcome", large, *name.split(".")) for name in kept]
    reading = _last(bus, OUTCOMES, subjects) if looked_up else _outcomes(bus, large, wanted)
    async for read in reading:
        name = _name(read.subject)
        if name not in kept and wanted.open:
            theirs[name.partition(".")[0]] += 1
            continue
        event = decoded(_SAID, read)
        if event is None:
            unreadable += 1
            continue
        if not wanted.matches(event):
            continue
        theirs[event.protocol] += 1
        if (other := kept.get(name)) is not None:
            side = sides.of(event, _key(name))
            units |= _drawn_with(side, event)
            pairs.setdefault(event.protocol, []).append((other, side) if small == first else (side, other))
    about: set[str] = set()
    if looked_up and wanted.open:
        for one in {*mine, *theirs}:
            held = await bus.history.count(OUTCOMES, run_subjects("outcome", large, one))
            theirs[one] = held.number
            about |= set() if held.exact else {one}
    if not pairs:
        raise UsageError(_disjoint(small, large, mine, theirs, wanted, looked_up))
    alone = {}
    for one in sorted({*mine, *theirs}):
        common = len(pairs.get(one, ()))
        here = mine[one] - common
        there = None if looked_up and not wanted.open else max(0, theirs[one] - common)
        if there and one in about:
            there = int(float(f"{there:.1e}"))
        both = (here, there) if small == first else (there, here)
        alone[one] = Alone(first=both[0], second=both[1], estimated=large if one in about else "")
    return _Held(sides, units, pairs, alone, unreadable)


def _drawn_with(side: RunOutcome, event: SaidOutcome) -> dict[str, str]:
    """By its key, what the response was drawn with; an outcome of an earlier version does not say it."""
    return {side.key: f"images {digest(*event.images)}"} if event.images else {}


def _disjoint(
    small: str, large: str, mine: Collection[str], theirs: Collection[str], wanted: _Wanted, looked_up: bool
) -> str:
    if theirs and not set(mine) & set(theirs):
        return (
            f"runs {small} and {large} are not comparable: {small} is judged by {', '.join(sorted(mine))}, "
            f"{large} by {', '.join(sorted(theirs))}"
        )
    if not theirs and not looked_up:
        return f"run {large} has no outcome{wanted}"
    return (
        f"runs {small} and {large} are not comparable: no response{wanted} has an outcome by the same "
        "protocol in both"
    )


async def _unknown(bus: Bus, run: str, wanted: _Wanted, *, listed: bool) -> str:
    """What to tell of a run without outcomes; of others only where runs may be `listed`."""
    if run == LIVE:
        return f"run live has no outcome{wanted}: nothing was judged yet"
    names: list[str] = []
    with contextlib.suppress(*FAULTS):
        names = await (await bus.js.key_value(RUNS_BUCKET)).keys()
    if run in names:
        return f"run {run} has no outcome{wanted}: see groundwatch replay show {run}"
    if wanted.protocol and (await bus.history.count(OUTCOMES, run_subjects("outcome", run))).number:
        return f"run {run} has no outcome{wanted}"
    others = f"; there are: {', '.join([LIVE, *sorted(names)])}" if listed else ""
    return f"no run '{run}'{others}"


def _outcomes(bus: Bus, run: str, wanted: _Wanted) -> AsyncGenerator[Read]:
    return bus.history.read(OUTCOMES, subjects=(wanted.subject(run),))


async def _last(bus: Bus, stream: str, subjects: Sequence[str]) -> AsyncGenerator[Read]:
    for some in (subjects[start : start + AT_ONCE] for start in range(0, len(subjects), AT_ONCE)):
        try:
            found = await bus.history.last_of_each(stream, some)
        except FAULTS as error:
            raise TransientError(f"cannot read {stream}: {words(error)}") from error
        for read in filter(None, found):
            yield read


async def _with_claims(
    bus: Bus, first: str, second: str, protocol: str, changed: ChangedResponse
) -> ChangedResponse:
    """The same with the claims that changed, read again: texts are not held."""
    subjects = [subject_of("outcome", run, protocol, changed.key) for run in (first, second)]
    both = [decoded(_SCORED, read) async for read in _last(bus, OUTCOMES, subjects)]
    claims = changed_claims(both[0], both[1]) if len(both) == 2 and both[0] and both[1] else ()
    return msgspec.structs.replace(changed, claims=claims)


def _name(subject: str) -> str:
    return subject.split(".", 3)[3]


def _key(name: str) -> str:
    return name.rpartition(".")[2]
