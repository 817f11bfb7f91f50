"""The ledger: recorded = scored + unscored + declined + in flight, counted from the streams themselves.

Nothing here trusts a counter. A response without an outcome is *in flight* only if its event can be
pointed at: waiting for, or held by, the consumer of the stage it has reached. One that every stage has
acknowledged and that still has no outcome is *lost*, and the ledger does not balance.

Consumers only move forward and streams only grow, so the consumers' positions are read first: whatever a
stage had acknowledged by then left its result where the later reading finds it. That makes the audit
exact while traffic flows.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED, TransientError, UsageError
from groundwatch.events import LIVE, OutcomeKind, ResponseScored
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.writing import Choosing
from groundwatch.runtime.delivery.streams import last_message, read_stream
from groundwatch.runtime.stores.losses import losses_by_sender
from groundwatch.runtime.stores.tombstones import Tombstone, tombstone_name, tombstones
from groundwatch.topology import (
    ASKED,
    CONSUMERS,
    DEAD,
    EXTRACTED,
    GATEWAY,
    HEADER_ORIGIN,
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    JUDGED,
    OUTCOMES,
    RESPONSES,
    RETRY,
    is_token,
    parse_subject,
    run_subjects,
    subject_of,
)

Pair = tuple[str, str]
"""Key of a response, and protocol."""

SETTLE_PAUSE = 0.5
"""Seconds before what was not settled is counted again."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of one run. All but `responses`, `dead_letters`, `foreign` and those of questions count
    pairs of a response and a protocol.

    `lost` have been acknowledged everywhere and have no outcome; `orphans` are outcomes of responses that
    were never recorded; `expired` are outcomes whose responses retention has removed; `foreign` are
    messages in the source stream that no gateway wrote. `questions` wait for their answer, with captioning
    or among the dead letters; `questions_lost` have been acknowledged and have neither answer nor letter.
    `unsettled` is of those in flight how many at most may be lost: they lie among others that are held, and
    it is known when those are done. A ledger with such is not `balanced`, and not out of balance either:
    `unaccounted` is what is known to be missing or too many. `erased` are responses, of all runs, that
    erasures have removed with their outcomes. `lost_before_intake` are responses that their senders dropped,
    as they say themselves, by sender and reason: no gateway has seen them, and they are in no balance.
    `waiting_at_intake` were published over NATS and wait for a gateway: they are in no balance either yet.
    """

    run: str
    responses: int
    recorded: int
    scored: int
    unscored: int
    declined: int
    in_flight: int
    lost: int
    orphans: int
    expired: int
    foreign: int = 0
    dead_letters: int = 0
    reasons: dict[str, int]
    in_flight_at: dict[str, int]
    balanced: bool
    questions: int = 0
    questions_lost: int = 0
    erased: int = 0
    unsettled: int = 0
    lost_before_intake: dict[str, dict[str, int]] = {}
    waiting_at_intake: int = 0

    @property
    def unaccounted(self) -> int:
        counted = self.scored + self.unscored + self.declined + self.in_flight
        return max(self.lost, abs(self.recorded - counted)) + self.orphans + self.questions_lost

    @property
    def standing(self) -> str:
        if self.balanced:
            return "balanced"
        if self.unaccounted:
            return f"NOT BALANCED, {self.unaccounted:,} unaccounted for"
        return f"not settled yet: {self.unsettled:,} at most of those in flight may be lost"


class _Outcomes:
    """Outcomes by kind, and those without a score by their reason as well."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def add(self, headers: Mapping[str, str]) -> None:
        kind = headers.get(HEADER_OUTCOME, "")
        self._kinds[kind] += 1
        if reason := headers.get(HEADER_REASON):
            self._reasons[f"{kind}: {reason}"] += 1

    @property
    def counted(self) -> int:
        return sum(self._kinds[kind.value] for kind in OutcomeKind)

    def ledger(self, **others: Any) -> Ledger:
        """With what else there is to say."""
        by_kind: dict[str, Any] = {kind.value: self._kinds[kind.value] for kind in OutcomeKind}
        return Ledger(reasons=dict(self._reasons.most_common()), **by_kind, **others)


async def audit(js: JetStreamContext, run: str = LIVE, *, settle: float = 0.0) -> Ledger:
    """Count live traffic or a replay, by its name.

    What was recorded of live traffic by now is counted again until nothing of it is unsettled, for `settle`
    seconds at most. Raises `UsageError` when the streams do not exist, or no such run.
    """
    if run != LIVE:
        return await _audit_run(js, await (await Runs.open(js)).get(run))
    deadline = time.monotonic() + settle
    try:
        last_sequence = (await js.stream_info(RESPONSES)).state.last_seq
        while True:
            ledger = await _audit(js, last_sequence)
            if not ledger.unsettled or time.monotonic() >= deadline:
                return ledger
            await asyncio.sleep(SETTLE_PAUSE)
    except nats.js.errors.NotFoundError as error:
        raise UsageError(
            "nothing is provisioned on this server: run groundwatch admin provision first"
        ) from error


async def _audit(js: JetStreamContext, last_sequence: int) -> Ledger:
    positions = {spec.name: await _position(js, spec.stream, spec.name) for spec in CONSUMERS}
    oldest = await _oldest_time(js)
    gone = await _erased(js)
    waiting: dict[Pair, int] = {}
    keys: set[str] = set()
    foreign = 0
    async for message in read_stream(
        js,
        RESPONSES,
        subjects=(run_subjects("recorded", LIVE),),
        headers_only=True,
        last_sequence=last_sequence,
    ):
        address = parse_subject(message.subject)
        protocols = message.headers.get(HEADER_PROTOCOLS)
        if address is None or not protocols or not all(map(is_token, protocols.split(","))):
            foreign += 1
            continue
        keys.add(address.key)
        for protocol in protocols.split(","):
            waiting[address.key, protocol] = message.sequence
    recorded = len(waiting)

    outcomes = _Outcomes()
    unknown: list[tuple[Pair, float]] = []
    async for message in read_stream(
        js, OUTCOMES, subjects=(run_subjects("outcome", LIVE),), headers_only=True
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        pair = (address.key, address.protocol)
        if waiting.pop(pair, None) is None:
            unknown.append((pair, message.time))
            continue
        outcomes.add(message.headers)

    reached = await _reached(js, waiting)
    in_flight: Counter[str] = Counter()
    held: dict[str, dict[int, list[Pair]]] = {}
    let_go: list[Pair] = []
    for pair, sequence in waiting.items():
        stage, at = reached[pair][-1] if reached.get(pair) else ("extraction", sequence)
        position = positions[stage]
        if at > position.delivered:
            in_flight[stage] += 1
        elif at > position.floor:
            held.setdefault(stage, {}).setdefault(at, []).append(pair)
        else:
            let_go.append(pair)
    lost = unsettled = 0

    async def missing(pair: Pair) -> bool:
        """Look again, at an outcome that has moved past our reading, or whether it was erased since.

        A retried dead letter's outcome takes the place of the old one, at the stream's end.
        """
        nonlocal recorded
        found = await _last_headers(js, OUTCOMES, subject_of("outcome", LIVE, pair[1], pair[0]))
        if found is not None:
            outcomes.add(found)
            return False
        if tombstone_name("response", pair[0]) in gone or not await _recorded_since(js, *pair):
            recorded -= 1
            return False
        return True

    for pair in let_go:
        lost += await missing(pair)
    for stage, events in held.items():
        position = positions[stage]
        if len(events) > position.pending:
            # The consumer holds fewer than these: some it has let go of, out of turn. Which, nobody can tell.
            looked_at = {at: [pair for pair in pairs if await missing(pair)] for at, pairs in events.items()}
            events = {at: pairs for at, pairs in looked_at.items() if pairs}
        let_go_at_least = max(0, len(events) - position.pending)
        lost += let_go_at_least
        in_flight[stage] += sum(map(len, events.values())) - let_go_at_least
        unsettled += position.unsettled(len(events))
    orphans = expired = 0
    for (key, protocol), when in unknown:
        if when < oldest or await _has_expired(js, key, protocol, oldest, gone):
            expired += 1
        elif key in keys or not await _recorded_since(js, key, protocol):
            orphans += 1
    questions, questions_lost = await _questions(js, keys, positions["captioning"].floor, oldest)
    complete = recorded == outcomes.counted + in_flight.total() and orphans == questions_lost == 0
    return outcomes.ledger(
        run=LIVE,
        responses=len(keys),
        recorded=recorded,
        in_flight=in_flight.total(),
        lost=lost,
        orphans=orphans,
        expired=expired,
        foreign=foreign,
        dead_letters=(await js.stream_info(DEAD)).state.messages,
        in_flight_at=dict(in_flight.most_common()),
        balanced=complete and not unsettled,
        questions=questions,
        questions_lost=questions_lost,
        unsettled=unsettled,
        erased=sum(stone.counts.get(RESPONSES, 0) for stone in gone.values()),
        lost_before_intake=await losses_by_sender(js),
        waiting_at_intake=sum(positions[spec.name].waiting for spec in CONSUMERS if spec.service == GATEWAY),
    )


class _Position(msgspec.Struct, frozen=True):
    """How far a consumer is: everything up to `floor` is acknowledged, nothing behind `delivered` was given
    out, and of those between them `pending` are held by somebody. `waiting` are these and what is behind."""

    floor: int
    delivered: int
    pending: int
    waiting: int

    def unsettled(self, missing: int) -> int:
        """How many at most of so many events without a result, between floor and delivered, were let go of.

        What is held may be any of the others there.
        """
        others = self.delivered - self.floor - missing
        return max(0, missing - max(0, self.pending - others) - max(0, missing - self.pending))


async def _position(js: JetStreamContext, stream: str, consumer: str) -> _Position:
    info = await js.consumer_info(stream, consumer)
    floor = int(info.ack_floor.stream_seq) if info.ack_floor else 0
    delivered = max(floor, int(info.delivered.stream_seq) if info.delivered else 0)
    pending = info.num_ack_pending or 0
    waiting = pending + (info.num_pending or 0)
    return _Position(floor if pending else delivered, delivered, pending, waiting)


async def _oldest_time(js: JetStreamContext) -> float:
    """When the oldest response still kept was stored; 0 while none has been removed."""
    state = (await js.stream_info(RESPONSES)).state
    if state.first_seq <= 1:
        return 0.0
    reading = read_stream(js, RESPONSES, headers_only=True, start_sequence=state.first_seq)
    async with contextlib.aclosing(reading) as messages:
        async for message in messages:
            return message.time
    # Retention has removed every response there ever was.
    return time.time()


async def _reached(js: JetStreamContext, waiting: dict[Pair, int]) -> dict[Pair, list[tuple[str, int]]]:
    """For each pair that waits, the later stages it was sent to, with the event's sequence there."""
    reached: dict[Pair, list[tuple[str, int]]] = {}
    if not waiting:
        return reached
    for stream, kind in ((EXTRACTED, "extracted"), (ASKED, "chain"), (JUDGED, "judged")):
        async for message in read_stream(js, stream, subjects=(run_subjects(kind, LIVE),), headers_only=True):
            address = parse_subject(message.subject)
            if address is not None and (pair := (address.key, address.protocol)) in waiting:
                reached.setdefault(pair, []).append((address.stage, message.sequence))
    return reached


async def _questions(
    js: JetStreamContext, answered: set[str], position: int, oldest: float
) -> tuple[int, int]:
    """How many questions wait for an answer, and how many will never get one.

    What was asked before the oldest response still kept may have had an answer that is gone.
    """
    unanswered: dict[str, tuple[str, int]] = {}
    async for message in read_stream(js, ASKED, subjects=(run_subjects("asked", LIVE),), headers_only=True):
        address = parse_subject(message.subject)
        if address is not None and address.key not in answered and message.time >= oldest:
            unanswered[address.key] = (message.subject, message.sequence)
    waiting = lost = 0
    buried: set[str] | None = None
    for key, (subject, sequence) in unanswered.items():
        if sequence > position:
            waiting += 1
            continue
        if buried is None:
            # A letter that is sent again is in the second stream before it leaves the first.
            buried = {
                message.headers.get(HEADER_ORIGIN, "")
                for stream in (DEAD, RETRY)
                async for message in read_stream(js, stream, headers_only=True)
            }
        if subject in buried:
            waiting += 1
        elif await _last_headers(js, RESPONSES, subject_of("recorded", LIVE, key)) is None:
            lost += 1
    return waiting, lost


async def _recorded_since(js: JetStreamContext, key: str, protocol: str) -> bool:
    """Whether an outcome belongs to a response recorded after the reading began."""
    found = await _last_headers(js, RESPONSES, subject_of("recorded", LIVE, key))
    return found is not None and protocol in found.get(HEADER_PROTOCOLS, "").split(",")


async def _erased(js: JetStreamContext) -> dict[str, Tombstone]:
    """The tombstones by name; none on a server that was provisioned before there were any."""
    try:
        return {stone.name: stone async for stone in tombstones(js)}
    except nats.js.errors.NotFoundError:
        return {}


async def _has_expired(
    js: JetStreamContext, key: str, protocol: str, oldest: float, gone: dict[str, Tombstone]
) -> bool:
    """Whether an outcome has no response since that was erased, or removed by its stream's or its tenant's
    retention; a late outcome may be of a response older than the oldest still kept.
    """
    if tombstone_name("response", key) in gone:
        return True
    if not oldest and not gone:
        return False
    found = await last_message(js, OUTCOMES, subject_of("outcome", LIVE, protocol, key))
    if found is None:
        # Erased since it was read.
        return bool(gone)
    try:
        outcome = msgspec.json.decode(found.data, type=ResponseScored)
    except UNDECODED:
        return False
    cut = gone.get(tombstone_name("retention", outcome.tenant))
    until = max(oldest, cut.at if cut is not None else 0.0)
    return tombstone_name("tenant", outcome.tenant) in gone or 0 < outcome.recorded_at <= until


async def _last_headers(js: JetStreamContext, stream: str, subject: str) -> dict[str, str] | None:
    found = await last_message(js, stream, subject)
    return found.headers if found is not None else None


async def _audit_run(js: JetStreamContext, run: Run) -> Ledger:
    """Count one replay by the state read before: each event it is about has an outcome in it, or is to come.

    What the replay says of itself is not believed: the source is read again, what the run is about is chosen
    anew, and each pair is looked for among the run's outcomes. Only which pages are done is taken from the
    run, and taken first: what a page had done by then has left its outcome where the later reading finds it.
    Raises `UsageError` when the server goes away.
    """
    cut = int((await js.stream_info(run.stream)).state.first_seq)
    try:
        waiting, responses = await _selected(js, run)
    except TransientError as error:
        raise UsageError(f"the server went away while counting ({error}): try again") from error
    recorded = len(waiting)
    outcomes = _Outcomes()
    orphans = expired = 0
    async for message in read_stream(
        js, OUTCOMES, subjects=(run_subjects("outcome", run.name),), headers_only=True
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        if waiting.pop((address.key, address.protocol), None) is None:
            # An outcome of what the source no longer holds, or of what this run is not about.
            if cut > run.first:
                expired += 1
            else:
                orphans += 1
            continue
        outcomes.add(message.headers)
    lost = sum(run.done(sequence) for sequence in waiting.values())
    to_come = len(waiting) - lost
    where = {"running": "replay", "paused": "replay (paused)"}.get(run.status, run.status)
    if run.status in ("cancelled", "deleting"):
        # Nobody is going to judge them: the run is about what it had come to.
        recorded, to_come = recorded - to_come, 0
    return outcomes.ledger(
        run=run.name,
        responses=responses,
        recorded=recorded,
        in_flight=to_come,
        lost=lost,
        orphans=orphans,
        expired=expired,
        in_flight_at={where: to_come} if to_come else {},
        balanced=recorded == outcomes.counted + to_come and orphans == 0,
    )


async def _selected(js: JetStreamContext, run: Run) -> tuple[dict[Pair, int], int]:
    """The pairs that the run is about, with their sequences in the source; and how many responses."""
    spec = run.spec
    choosing = Choosing(spec)
    waiting: dict[Pair, int] = {}
    keys: set[str] = set()
    async for message in read_stream(
        js, run.stream, subjects=(spec.subjects,), start_sequence=run.first, last_sequence=run.last
    ):
        for item in choosing.choose([message]).items:
            waiting[item.key, item.protocol] = message.sequence
            keys.add(item.key)
    return waiting, len(keys)
