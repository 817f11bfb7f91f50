"""The ledger: recorded = scored + unscored + declined + in flight, counted from the streams themselves.

Nothing here trusts a counter of a service. An audit reads what came since the last one, into a state that is
kept in the bucket `gw-ledger`: a line for each day, and what is in flight. It is exact while traffic flows:
see `counting.positions`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as Total

from groundwatch.errors import TransientError, UsageError, words
from groundwatch.events import LIVE
from groundwatch.ledger.counting import Counting, Ledger, oldest_time, positions, together
from groundwatch.ledger.reading import STREAM_OF, Reading, ages_of, dated, holes, last_sequences
from groundwatch.ledger.state import OUTCOME, RECORDED, ErasedPairs, State
from groundwatch.ledger.store import LedgerStore
from groundwatch.replay.pipeline import Choosing
from groundwatch.replay.planning import Stretch
from groundwatch.replay.runs import Counts, Run, Runs
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import Cold, History
from groundwatch.runtime.delivery.streams import Position, position_of
from groundwatch.runtime.services.tasks import PASSING, unless, until_set
from groundwatch.runtime.stores.audits import AuditSummary, write_summary
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import declare
from groundwatch.topology import HEADER_OUTCOME, HEADER_REASON, OUTCOMES, parse_subject, run_subjects
from groundwatch.topology.partitions import streams_of_kind

Pair = tuple[str, str]
"""Key of a response, and protocol."""


async def audit_run(history: History, run: Run) -> Ledger:
    """Count one replay by the state read before: each event it is about has an outcome in it, or is to come.

    What the replay says of itself is not believed: the source is read again, what the run is about is chosen
    anew, and each pair is looked for among the run's outcomes. Only which pages are done is taken from the
    run, and taken first: what a page had done by then has left its outcome where the later reading finds it.
    Raises `UsageError` when the server or the archive goes away.
    """
    # As many partitions as when it was begun, for its source; its outcomes are in those too.
    parts = run.parts or ((run.first, run.last),)
    alone = history.of_one_partition
    names = streams_of_kind(run.spec.stream, len(parts))
    cut = any(
        [await alone.first_sequence(name) > first for name, (first, _) in zip(names, parts, strict=True)]
    )
    try:
        waiting, responses = await _selected(history, run)
    except TransientError as error:
        raise UsageError(f"could not count: {error}; try again") from error
    recorded = len(waiting)
    counts = Counts()
    orphans = expired = 0
    async for message in history.read(
        OUTCOMES, subjects=(run_subjects("outcome", run.name),), headers_only=True
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        if waiting.pop((address.key, address.protocol), None) is None:
            # An outcome of what the source no longer holds, or of what this run is not about.
            if cut:
                expired += 1
            else:
                orphans += 1
            continue
        counts.note(message.headers.get(HEADER_OUTCOME, ""), message.headers.get(HEADER_REASON, ""))
    lost = sum(run.done(sequence) for sequence in waiting.values())
    to_come = len(waiting) - lost
    where = {"running": "replay", "paused": "replay (paused)"}.get(run.status, run.status)
    if run.status in ("cancelled", "deleting"):
        # Nobody is going to judge them: the run is about what it had come to.
        recorded, to_come = recorded - to_come, 0
    return Ledger(
        run=run.name,
        scored=counts.scored,
        unscored=counts.unscored,
        declined=counts.declined,
        reasons=dict(Counter(counts.reasons).most_common()),
        responses=responses,
        recorded=recorded,
        in_flight=to_come,
        lost=lost,
        orphans=orphans,
        expired=expired,
        in_flight_at={where: to_come} if to_come else {},
        balanced=recorded == counts.outcomes + to_come and orphans == 0,
    )


async def _selected(history: History, run: Run) -> tuple[dict[Pair, int], int]:
    """The pairs that the run is about, with their sequences in the source; and how many responses."""
    spec = run.spec
    choosing = Choosing(spec)
    waiting: dict[Pair, int] = {}
    keys: set[str] = set()
    async for message in (
        Stretch(run.first, run.last, run.parts)
        .of(history)
        .read(run.spec.stream, subjects=(spec.subjects,), start_sequence=run.first, last_sequence=run.last)
    ):
        for item in choosing.choose([message]).items:
            waiting[item.key, item.protocol] = message.sequence
            keys.add(item.key)
    return waiting, len(keys)


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
        return await audit_run(History(js, cold, range(partitions)), await (await Runs.open(js)).get(run))
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

    def __init__(self, history: History, state: State, store: LedgerStore | None, why: str) -> None:
        self.state = state
        self._history = history
        self._store = store
        self._begun_anew = why
        self._erased: dict[str, ErasedPairs] = {}

    @classmethod
    async def open(cls, js: JetStreamContext, partition: int = 0, cold: Cold | None = None) -> "Auditor":
        """Of one partition, with the state that was saved, or a new one. Raises `UsageError` when its streams
        do not exist."""
        history = History(js, cold, range(partition, partition + 1))
        try:
            store = await LedgerStore.open(js, partition)
            streams = {stream: await position_of(js, history.name(stream)) for stream in STREAM_OF.values()}
        except nats.js.errors.NotFoundError as error:
            raise UsageError(
                "nothing is provisioned on this server: run groundwatch admin provision first"
            ) from error
        state = await store.load()
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


Connect = Callable[[], AbstractAsyncContextManager[Bus]]
"""A connection for one audit."""

RETRY_SECONDS = 60.0
"""After an audit that could not be done, unless the next one is due earlier."""

SETTLE_SECONDS = 30.0

STATES = (
    "recorded",
    "scored",
    "unscored",
    "declined",
    "in_flight",
    "unsettled",
    "lost",
    "orphans",
    "expired",
)


class AuditMetrics:
    """What the last complete audit found, for Prometheus."""

    pairs: Gauge
    unaccounted: Gauge
    ended: Gauge
    period: Gauge
    seconds: Gauge
    completed: Total
    failed: Total
    sealed: Gauge

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        declare(self, "audit", self.registry)

    def show(self, ledger: Ledger, seconds: float) -> None:
        for state in STATES:
            self.pairs.labels(ledger.run, state).set(getattr(ledger, state))
        self.unaccounted.labels(ledger.run).set(ledger.unaccounted)
        self.seconds.labels(ledger.run).set(seconds)
        self.sealed.labels(ledger.run).set(ledger.sealed_days)
        self.ended.labels(ledger.run).set(time.time())
        self.completed.labels(ledger.run).inc()


async def audit_periodically(
    connect: Connect,
    run_name: str,
    metrics: AuditMetrics,
    every: float,
    stopped: asyncio.Event,
    report: Callable[[Ledger], None],
) -> None:
    """An audit each `every` seconds until `stopped`; one that cannot be done is logged and counted."""
    metrics.period.labels(run_name).set(every)
    # An auditor that never completes one must be overdue some time. Its first audit says since when.
    metrics.ended.labels(run_name).set(time.time())
    metrics.completed.labels(run_name)
    metrics.failed.labels(run_name)
    while not stopped.is_set():
        began = time.monotonic()
        pause = min(every, RETRY_SECONDS)
        if (ledger := await unless(stopped, audit_once(connect, run_name, metrics))) is not None:
            report(ledger)
            pause = every
        await until_set(stopped, max(0.0, pause - (time.monotonic() - began)))


async def audit_once(connect: Connect, run_name: str, metrics: AuditMetrics) -> Ledger | None:
    """The ledger, which `metrics` then show; None where it could not be counted."""
    began = time.monotonic()
    try:
        async with connect() as bus:
            ledger = await audit(
                bus.js,
                run_name,
                partitions=bus.partitions,
                settle=SETTLE_SECONDS,
                cold=bus.cold,
                on_begin=metrics.ended.labels(run_name).set,
            )
    except Exception as error:
        metrics.failed.labels(run_name).inc()
        bug = None if isinstance(error, PASSING) else error
        logger.error("audit.failed", run=run_name, error=words(error), exc_info=bug)
        return None
    metrics.show(ledger, time.monotonic() - began)
    return ledger
