"""The ledger: recorded = scored + unscored + declined + in flight, counted from the streams themselves.

Nothing here trusts a counter of a service. An audit reads what came since the last one, into a state that is
kept in the bucket `gw-ledger`: a line for each day, and what is in flight. It is exact while traffic flows:
see `counting.positions`.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import UsageError
from groundwatch.events import LIVE
from groundwatch.ledger.balance import Ledger, together
from groundwatch.ledger.counting import Counting, oldest_time, positions
from groundwatch.ledger.reading import STREAM_OF, Reading, ages_of, dated, holes, last_sequences
from groundwatch.ledger.runs import audit_run
from groundwatch.ledger.state import OUTCOME, RECORDED, ErasedPairs, State
from groundwatch.ledger.store import LedgerStore
from groundwatch.replay.runs import Runs
from groundwatch.runtime.delivery.history import Cold
from groundwatch.runtime.delivery.partitioned import PartitionedHistory, history_of
from groundwatch.runtime.delivery.streams import Position, position_of
from groundwatch.runtime.stores.audits import AuditSummary, write_summary
from groundwatch.runtime.telemetry.logs import logger

__all__ = ["Ledger", "audit"]

SETTLE_PAUSE = 0.5
"""Seconds before what was not settled is counted again."""


async def audit(
    js: JetStreamContext,
    run: str = LIVE,
    *,
    partitions: int = 1,
    settle: float = 0.0,
    cold: Cold | None = None,
    on_begin: Callable[[float], None] = lambda last: None,
) -> Ledger:
    """Count live traffic or a replay, by its name.

    What was recorded of live traffic by now is counted again until nothing of it is unsettled, for `settle`
    seconds at most. `cold` has what has left the streams: an audit that goes on before that leaves them can
    do without. `on_begin` is told when the last audit was complete; before there was one, when the ledger was
    begun. Raises `UsageError` when the streams do not exist, or no such run;
    `TransientError` when NATS or the archive goes away.
    """
    if run != LIVE:
        return await audit_run(history_of(js, cold, partitions), await (await Runs.open(js)).get(run))
    deadline = time.monotonic() + settle
    # All first: what was recorded by now, in whatever partition, is what is counted.
    auditors = [await Auditor.open(js, partition, cold) for partition in range(partitions)]
    on_begin(min(one.state.ended or one.state.began for one in auditors))
    ledgers = []
    for auditor in auditors:
        ledgers.append(await auditor.settle(max(0.0, deadline - time.monotonic())))
        await auditor.close()
    ledger = together(ledgers)
    counted = {name: getattr(ledger, name) for name in AuditSummary.__struct_fields__ if name != "at"}
    await write_summary(js, AuditSummary(at=time.time(), **counted))
    return ledger


class Auditor:
    """An audit of live traffic of one partition, from the state that the last one left."""

    def __init__(
        self, history: PartitionedHistory, state: State, store: LedgerStore | None, why: str
    ) -> None:
        self.state = state
        self._history = history
        self._store = store
        self._begun_anew = why
        self._erased: dict[str, ErasedPairs] = {}

    @classmethod
    async def open(cls, js: JetStreamContext, partition: int = 0, cold: Cold | None = None) -> "Auditor":
        """Of one partition, with the state that was saved, or a new one. Raises `UsageError` when its streams
        do not exist."""
        history = PartitionedHistory(js, cold, range(partition, partition + 1))
        store = await LedgerStore.open(js, partition)
        state = await store.load() if store is not None else None
        try:
            streams = {stream: await position_of(js, history.name(stream)) for stream in STREAM_OF.values()}
        except nats.js.errors.NotFoundError as error:
            raise UsageError(
                "nothing is provisioned on this server: run groundwatch admin provision first"
            ) from error
        created = {stream: at.created for stream, at in streams.items()}
        made = {stream: at.made for stream, at in streams.items()}
        why = ""
        if isinstance(state, State):
            for kind, stream in STREAM_OF.items():
                if state.streams.get(stream) != created[stream]:
                    why = f"{stream} was made anew since the last audit"
                elif state.made.get(stream, made[stream]) != made[stream]:
                    why = f"{stream} was restored since the last audit"
                elif state.position(kind) > streams[stream].last:
                    why = f"{stream} does not go as far any more as the last audit had read"
        elif state is not None:
            why = state
        if why:
            logger.warning("audit.begun_anew", reason=why)
        if isinstance(state, State) and not why:
            return cls(history, state, store, why)
        responses = streams[STREAM_OF[RECORDED]]
        before = State()
        if isinstance(state, State) and _may_be_same(state, STREAM_OF[RECORDED], responses):
            # What was erased is missing still.
            before = state
        state = State(
            began=time.time(),
            ended=state.ended if isinstance(state, State) else 0.0,
            since=await oldest_time(history, await ages_of(history)),
            streams=created,
            made=made,
            looked=responses.created / 1e6,
            removed=before.removed_up_to(responses.last),
            erased_before=state.erased if isinstance(state, State) else 0,
        )
        auditor = cls(history, state, store, why)
        # So that an audit that is never complete, however often it begins, is known to be overdue.
        await auditor._checkpoint()
        return auditor

    async def settle(self, seconds: float) -> Ledger:
        """`count`, again and again until nothing that was recorded by now is unsettled, or time is up."""
        deadline = time.monotonic() + seconds
        ledger = await self.count()
        until = self.state.position(RECORDED)
        while ledger.unsettled and time.monotonic() < deadline:
            await asyncio.sleep(SETTLE_PAUSE)
            ledger = await self.count(until)
        return ledger

    async def count(self, until: int = 0) -> Ledger:
        """Read on to now; the balance, of which what was recorded up to sequence `until` (0: by now) may be
        unsettled."""
        where = await positions(self._history)
        looked = time.time()
        last = await last_sequences(self._history)
        ages = await ages_of(self._history)
        # A retention of tenants leaves holes of which nobody knows.
        missing = [] if ages.retention else await holes(self._history, self.state)
        reading = Reading(
            self._history, self.state, last, ages=ages, erasures=self.erasures, checkpoint=self._checkpoint
        )
        await reading.run()
        self.state.lose(missing)
        self.state.lost = [await dated(self._history, gap) for gap in self.state.lost]
        self.state.looked = looked
        counting = Counting(
            self._history, self.state, where, until or last[RECORDED], ages=ages, erasures=self.erasures
        )
        return msgspec.structs.replace(await counting.balance(), begun_anew=self._begun_anew)

    async def close(self) -> None:
        """Save what was read, and that this audit is complete."""
        self.state.ended = time.time()
        await self._checkpoint()

    async def erasures(self) -> dict[str, ErasedPairs]:
        """What erasures say and is not counted in every line yet."""
        self._erased = await self._store.erased() if self._store is not None else {}
        return self._erased

    async def _checkpoint(self) -> None:
        if self._store is None:
            return
        if not await self._store.save(self.state):
            logger.info("audit.not_saved", reason="another audit has saved its state meanwhile")
            self._store = None
            return
        counted = (name for name, entries in self._erased.items() if self._is_counted(name, entries))
        await self._store.forget(counted)

    def _is_counted(self, name: str, entries: ErasedPairs) -> bool:
        """Whether the erasure is over, its pairs are in no line, and no reading to come meets one of its
        messages."""
        recorded, outcome = self.state.position(RECORDED), self.state.position(OUTCOME)
        return (
            entries.done
            and name in self.state.applied
            and all(one.recorded <= recorded and one.outcome <= outcome for one in entries.pairs)
            and all(sequence <= recorded for sequence in entries.others)
        )


def _may_be_same(state: State, stream: str, at: Position) -> bool:
    """Whether this may be the stream that was read, restored since or not."""
    same_server = state.made.get(stream) == at.made
    return state.streams.get(stream) == at.created or same_server or not at.labelled
