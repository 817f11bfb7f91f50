"""The ledger's lines proven again: everything that is kept is read from the beginning and counted anew, and
each day's counts and digests are compared with the line that was kept of it."""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence

import msgspec
from nats.js import JetStreamContext

from groundwatch.events import LIVE
from groundwatch.ledger.counting import Ledger, oldest_time, together, with_losses
from groundwatch.ledger.ledger import Auditor
from groundwatch.ledger.reading import Reading, ages_of, dated, outcome_of
from groundwatch.ledger.state import (
    OUTCOME,
    RECORDED,
    Gap,
    Line,
    State,
    date_of,
    day_of,
    number_of,
    pair_hash,
)
from groundwatch.runtime.delivery.history import Cold, History, LostFile
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.topology import OUTCOMES, RESPONSES, run_subjects
from groundwatch.topology.partitions import kind_of

COMPARED = ("responses", "recorded", "scored", "unscored", "declined")


class DayDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A day whose line says something else than what is kept of it."""

    day: str
    kept: dict[str, int]
    found: dict[str, int]

    def describe(self) -> str:
        kept, found = Counter(self.kept), Counter(self.found)
        changed = [name for name in self.kept | self.found if kept[name] != found[name]]
        if not changed:
            return f"{self.day}: as many as in its line, but not the same"
        counts = (f"{name} {found[name]:,} instead of {kept[name]:,}" for name in changed)
        return f"{self.day}: {', '.join(counts)}"


class LedgerProof(msgspec.Struct, frozen=True, kw_only=True):
    """`proven` days are as their lines say, `differences` are not; of `removed` days retention has removed
    something, so that they cannot be compared. Of `unproven` days something may have been in `lost_files`."""

    ledger: Ledger
    proven: int
    removed: int
    differences: tuple[DayDifference, ...]
    unproven: tuple[str, ...] = ()
    lost_files: tuple[LostFile, ...] = ()


async def prove(
    js: JetStreamContext,
    *,
    partitions: int = 1,
    settle: float = 0.0,
    cold: Cold | None = None,
) -> LedgerProof:
    """Audit, then read everything again. Raises what `audit` raises; what lay in files that the archive has
    lost is passed over."""
    proofs = [await _prove(js, partition, settle=settle, cold=cold) for partition in range(partitions)]
    lost = [file for one in proofs for file in one.lost_files]
    # Those too of which the ledger reads nothing.
    lost += await cold.lost_files() if cold is not None else []
    return LedgerProof(
        ledger=together([one.ledger for one in proofs]),
        proven=sum(one.proven for one in proofs),
        removed=sum(one.removed for one in proofs),
        differences=tuple(difference for one in proofs for difference in one.differences),
        unproven=tuple(day for one in proofs for day in one.unproven),
        lost_files=tuple({file.path: file for file in lost}.values()),
    )


async def _prove(js: JetStreamContext, partition: int, *, settle: float, cold: Cold | None) -> LedgerProof:
    """The same of one partition, each of which has a line for each day."""
    auditor = await Auditor.open(js, partition, cold)
    ledger = await auditor.settle(settle)
    lost: list[LostFile] = []
    past = cold.without_lost(lost.append) if cold is not None else None
    history, state = History(js, past, range(partition, partition + 1)), auditor.state
    last = dict.fromkeys(state.positions, 0) | {kind: state.position(kind) for kind in (RECORDED, OUTCOME)}
    created = (await position_of(js, history.name(RESPONSES))).created
    ages = await ages_of(history)
    again = State(
        since=await oldest_time(history, ages),
        looked=created / 1e6,
        removed=dict(state.removed),
    )
    await Reading(history, again, last, ages=ages, erasures=auditor.erasures, checkpoint=_nothing).run()
    # What was erased while this was read is in neither.
    erased = await auditor.erasures()
    for one in (state, again):
        one.count((), {}, erased, day_of(time.time()))
    await _add_replaced(history, state, again)
    # All of it was read: what is there again is no longer lost.
    state.lost = [await dated(history, gap) for gap in again.lost if not _is_in(gap, lost)]
    ledger = with_losses(ledger, history, state)
    await auditor.close()
    removed_until = _day(max(ages.retention, ages.stream))
    # What an archive that came late has not kept.
    oldest = _day(again.since) if again.since <= ages.before else -1
    responses = {number_of(file.day) for file in lost if kind_of(file.stream) == RESPONSES}
    # An outcome was stored on the day of its recording or later.
    outcomes = max((number_of(file.day) for file in lost if kind_of(file.stream) == OUTCOMES), default=-1)
    removed = proven = 0
    differences, unproven = [], []
    for day in sorted(state.lines.keys() | again.lines.keys()):
        kept, found = state.lines.get(day, Line()), again.lines.get(day, Line())
        same = _content(kept) == _content(found)
        if day <= removed_until:
            removed += 1
        elif same:
            proven += 1
        elif day in responses or day <= outcomes:
            unproven.append(_name(day, partition))
        elif day <= oldest:
            removed += 1
        else:
            name = _name(day, partition)
            differences.append(DayDifference(day=name, kept=_counts(kept), found=_counts(found)))
    # They are of no day. What retention has removed of them is not there to be counted again.
    if again.foreign > state.foreign or (again.foreign < state.foreign and not removed):
        name = f"all days, partition {partition}" if partition else "all days"
        kept_of, found_of = ({"foreign messages": one.foreign} for one in (state, again))
        differences.append(DayDifference(day=name, kept=kept_of, found=found_of))
    return LedgerProof(
        ledger=ledger,
        proven=proven,
        removed=removed,
        differences=tuple(differences),
        unproven=tuple(unproven),
        lost_files=tuple(lost),
    )


def _name(day: int, partition: int) -> str:
    return f"{date_of(day)}, partition {partition}" if partition else date_of(day)


def _day(time: float) -> int:
    """The day of a time, -1 for none."""
    return day_of(time) if time else -1


async def _add_replaced(history: History, state: State, again: State) -> None:
    """Give pairs whose outcome was replaced after the audit had read it the one that it had read."""
    reading = history.read(
        OUTCOMES,
        subjects=(run_subjects("outcome", LIVE),),
        headers_only=True,
        start_sequence=state.position(OUTCOME) + 1,
    )
    async with contextlib.aclosing(reading) as newer:
        async for message in newer:
            outcome = outcome_of(message)
            if outcome is not None and outcome.replaced:
                pair = pair_hash(outcome.protocol, outcome.key)
                if pair not in state.waiting:
                    again.settle(pair, "unscored", outcome.replaced)


async def _nothing() -> None:
    """What is read only to be compared is not saved."""


def _is_in(gap: Gap, files: Sequence[LostFile]) -> bool:
    """Whether what is missing was in files of the archive that are lost."""
    return any(
        kind_of(file.stream) == RESPONSES and file.first <= gap.last and gap.first <= file.last
        for file in files
    )


def _counts(line: Line) -> dict[str, int]:
    return {name: getattr(line, name) for name in COMPARED} | line.reasons


def _content(line: Line) -> tuple[dict[str, int], bytes, bytes]:
    return _counts(line), line.recorded_digest, line.outcome_digest
