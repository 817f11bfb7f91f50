"""The ledger's lines proven again: everything that is kept is read from the beginning and counted anew, and
each day's counts and digests are compared with the line that was kept of it."""

import msgspec
from nats.js import JetStreamContext

from groundwatch.events import LIVE
from groundwatch.ledger.balance import Ledger
from groundwatch.ledger.counting import find_pair, oldest_time
from groundwatch.ledger.ledger import Auditor
from groundwatch.ledger.lines import Line, date_of, day_of
from groundwatch.ledger.reading import Reading, outcome_of
from groundwatch.ledger.state import OUTCOME, RECORDED, State
from groundwatch.ledger.streams import Streams
from groundwatch.runtime.stores.tombstones import tombstones
from groundwatch.topology import OUTCOMES, subject_of

COMPARED = ("recorded", "scored", "unscored", "declined")


class DayDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A day whose line says something else than what is kept of it."""

    day: str
    kept: dict[str, int]
    found: dict[str, int]

    def describe(self) -> str:
        changed = [name for name in COMPARED if self.kept[name] != self.found[name]]
        if not changed:
            return f"{self.day}: as many as in its line, but not the same"
        counts = (f"{name} {self.found[name]:,} instead of {self.kept[name]:,}" for name in changed)
        return f"{self.day}: {', '.join(counts)}"


class LedgerProof(msgspec.Struct, frozen=True, kw_only=True):
    """`proven` days are as their lines say, `differences` are not; of `removed` days retention has removed
    something, so that they cannot be compared."""

    ledger: Ledger
    proven: int
    removed: int
    differences: tuple[DayDifference, ...]


async def prove(js: JetStreamContext, *, settle: float = 0.0, kept_since: float = 0.0) -> LedgerProof:
    """Audit, then read everything again. What was recorded before `kept_since` (seconds since the epoch) may
    have been removed by settings. Raises what `audit` raises."""
    auditor = await Auditor.open(js)
    ledger = await auditor.settle(settle)
    await auditor.close()
    history, state = Streams(js), auditor.state
    last = dict.fromkeys(state.positions, 0) | {kind: state.position(kind) for kind in (RECORDED, OUTCOME)}
    again = State(since=await oldest_time(history))
    await Reading(history, again, last, erasures=auditor.erasures, checkpoint=_nothing).run()
    await _add_replaced(history, state, again)
    cuts = [kept_since, again.since]
    cuts += [stone.at async for stone in tombstones(js) if stone.kind == "retention"]
    until = day_of(max(cuts)) if max(cuts) else -1
    removed = proven = 0
    differences = []
    for day in sorted(state.lines.keys() | again.lines.keys()):
        kept, found = state.lines.get(day, Line()), again.lines.get(day, Line())
        if day <= until:
            removed += 1
        elif _content(kept) == _content(found):
            proven += 1
        else:
            differences.append(DayDifference(day=date_of(day), kept=_counts(kept), found=_counts(found)))
    return LedgerProof(ledger=ledger, proven=proven, removed=removed, differences=tuple(differences))


async def _add_replaced(history: Streams, state: State, again: State) -> None:
    """Give pairs whose outcome was replaced after the audit had read it the one that it had read."""
    for pair in again.waiting.keys() - state.waiting.keys():
        name = await find_pair(history, pair, again.waiting[pair].sequence)
        found = await history.last(OUTCOMES, subject_of("outcome", LIVE, *name)) if name is not None else None
        outcome = outcome_of(found) if found is not None else None
        if outcome is not None and outcome.replaced and outcome.sequence > state.position(OUTCOME):
            again.settle(pair, "unscored", outcome.replaced)


async def _nothing() -> None:
    """What is read only to be compared is not saved."""


def _counts(line: Line) -> dict[str, int]:
    return {name: getattr(line, name) for name in COMPARED}


def _content(line: Line) -> tuple[dict[str, int], bytes, bytes]:
    return _counts(line), line.recorded_digest, line.outcome_digest
