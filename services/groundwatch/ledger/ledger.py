"""The ledger: recorded = scored + unscored + declined + in flight, counted from the streams themselves.

Nothing here trusts a counter. A response without an outcome is *in flight* only if its event can be
pointed at: waiting for, or held by, the consumer of the stage it has reached. One that every stage has
acknowledged and that still has no outcome is *lost*, and the ledger does not balance.

Consumers only move forward and streams only grow, so the consumers' positions are read first: whatever a
stage had acknowledged by then left its result where the later reading finds it. That makes the audit
exact while traffic flows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import nats.js.errors

from groundwatch.errors import UNDECODED, UsageError
from groundwatch.events import LIVE, OutcomeKind, ResponseScored
from groundwatch.runtime.delivery.streams import last_message, read_stream
from groundwatch.runtime.stores.tombstones import Tombstone, tombstone_name, tombstones
from groundwatch.topology import (
    ASKED,
    CONSUMERS,
    DEAD,
    EXTRACTED,
    HEADER_ORIGIN,
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    JUDGED,
    OUTCOMES,
    RESPONSES,
    RETRY,
    is_token,
    outcome_subject,
    parse_subject,
    recorded_subject,
    run_subjects,
)

if TYPE_CHECKING:
    from nats.js import JetStreamContext

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
    erasures have removed with their outcomes.
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
    foreign: int
    dead_letters: int
    reasons: dict[str, int]
    in_flight_at: dict[str, int]
    balanced: bool
    questions: int = 0
    questions_lost: int = 0
    erased: int = 0
    unsettled: int = 0

    @property
    def unaccounted(self) -> int:
        """How many are known to be missing or too many."""
        counted = self.scored + self.unscored + self.declined + self.in_flight
        return max(self.lost, abs(self.recorded - counted)) + self.orphans + self.questions_lost

    @property
    def standing(self) -> str:
        """What the whole says, in a few words."""
        if self.balanced:
            return "balanced"
        if self.unaccounted:
            return f"NOT BALANCED, {self.unaccounted:,} unaccounted for"
        return f"not settled yet: {self.unsettled:,} at most of those in flight may be lost"


async def audit(js: JetStreamContext, run: str = LIVE, *, settle: float = 0.0) -> Ledger:
    """Count one run. Raises `UsageError` when the streams do not exist.

    What was recorded by now is counted again until nothing of it is unsettled, for `settle` seconds at most.
    """
    deadline = time.monotonic() + settle
    try:
        last_sequence = (await js.stream_info(RESPONSES)).state.last_seq
        while True:
            ledger = await _audit(js, run, last_sequence)
            if not ledger.unsettled or time.monotonic() >= deadline:
                return ledger
            await asyncio.sleep(SETTLE_PAUSE)
    except nats.js.errors.NotFoundError as error:
        raise UsageError(
            "nothing is provisioned on this server: run groundwatch admin provision first"
        ) from error


async def _audit(js: JetStreamContext, run: str, last_sequence: int) -> Ledger:
    positions = {spec.name: await _position(js, spec.stream, spec.name) for spec in CONSUMERS}
    oldest = await _oldest_time(js)
    gone = await _erased(js)
    waiting: dict[Pair, int] = {}
    keys: set[str] = set()
    foreign = 0
    async for message in read_stream(
        js,
        RESPONSES,
        subjects=(run_subjects("recorded", run),),
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

    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    unknown: list[tuple[Pair, float]] = []
    async for message in read_stream(
        js, OUTCOMES, subjects=(run_subjects("outcome", run),), headers_only=True
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        pair = (address.key, address.protocol)
        if waiting.pop(pair, None) is None:
            unknown.append((pair, message.time))
            continue
        kind = message.headers.get(HEADER_OUTCOME, "")
        kinds[kind] += 1
        if reason := message.headers.get(HEADER_REASON):
            reasons[f"{kind}: {reason}"] += 1

    reached = await _reached(js, run, waiting)
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
        found = await _last_headers(js, OUTCOMES, outcome_subject(run, pair[1], pair[0]))
        if found is not None:
            kinds[found.get(HEADER_OUTCOME, "")] += 1
            if reason := found.get(HEADER_REASON):
                reasons[f"{found.get(HEADER_OUTCOME, '')}: {reason}"] += 1
            return False
        if tombstone_name("response", pair[0]) in gone or not await _recorded_since(js, run, *pair):
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
        aged = oldest and (when < oldest or await _recorded_before(js, run, key, protocol, oldest))
        if aged or await _erasing(js, run, key, protocol, gone):
            expired += 1
        elif key in keys or not await _recorded_since(js, run, key, protocol):
            orphans += 1
    questions, questions_lost = await _questions(js, run, keys, positions["captioning"].floor, oldest)
    counted = sum(kinds[kind.value] for kind in OutcomeKind)
    complete = recorded == counted + in_flight.total() and orphans == questions_lost == 0
    return Ledger(
        run=run,
        responses=len(keys),
        recorded=recorded,
        scored=kinds[OutcomeKind.SCORED.value],
        unscored=kinds[OutcomeKind.UNSCORED.value],
        declined=kinds[OutcomeKind.DECLINED.value],
        in_flight=in_flight.total(),
        lost=lost,
        orphans=orphans,
        expired=expired,
        foreign=foreign,
        dead_letters=(await js.stream_info(DEAD)).state.messages,
        reasons=dict(reasons.most_common()),
        in_flight_at=dict(in_flight.most_common()),
        balanced=complete and not unsettled,
        questions=questions,
        questions_lost=questions_lost,
        unsettled=unsettled,
        erased=sum(stone.counts.get(RESPONSES, 0) for stone in gone.values()),
    )


class _Position(msgspec.Struct, frozen=True):
    """How far a consumer is: everything up to `floor` is acknowledged, nothing behind `delivered` was given
    out, and of those between them `pending` are held by somebody."""

    floor: int
    delivered: int
    pending: int

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
    return _Position(floor if pending else delivered, delivered, pending)


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


async def _reached(
    js: JetStreamContext, run: str, waiting: dict[Pair, int]
) -> dict[Pair, list[tuple[str, int]]]:
    """For each pair that waits, the later stages it was sent to, with the event's sequence there."""
    reached: dict[Pair, list[tuple[str, int]]] = {}
    if not waiting:
        return reached
    for stream, kind in ((EXTRACTED, "extracted"), (ASKED, "chain"), (JUDGED, "judged")):
        async for message in read_stream(js, stream, subjects=(run_subjects(kind, run),), headers_only=True):
            address = parse_subject(message.subject)
            if address is not None and (pair := (address.key, address.protocol)) in waiting:
                reached.setdefault(pair, []).append((address.stage, message.sequence))
    return reached


async def _questions(
    js: JetStreamContext, run: str, answered: set[str], position: int, oldest: float
) -> tuple[int, int]:
    """How many questions wait for an answer, and how many will never get one.

    What was asked before the oldest response still kept may have had an answer that is gone.
    """
    unanswered: dict[str, tuple[str, int]] = {}
    async for message in read_stream(js, ASKED, subjects=(run_subjects("asked", run),), headers_only=True):
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
        elif await _last_headers(js, RESPONSES, recorded_subject(run, key)) is None:
            lost += 1
    return waiting, lost


async def _recorded_since(js: JetStreamContext, run: str, key: str, protocol: str) -> bool:
    """Whether an outcome belongs to a response recorded after the reading began."""
    found = await _last_headers(js, RESPONSES, recorded_subject(run, key))
    return found is not None and protocol in found.get(HEADER_PROTOCOLS, "").split(",")


async def _recorded_before(js: JetStreamContext, run: str, key: str, protocol: str, oldest: float) -> bool:
    """Whether an outcome, judged late, is of a response older than the oldest still kept."""
    found = await last_message(js, OUTCOMES, outcome_subject(run, protocol, key))
    try:
        outcome = msgspec.json.decode(found.data if found is not None else b"", type=ResponseScored)
    except UNDECODED:
        return False
    return 0 < outcome.recorded_at <= oldest


async def _erased(js: JetStreamContext) -> dict[str, Tombstone]:
    """The tombstones by name; none on a server that was provisioned before there were any."""
    try:
        return {stone.name: stone async for stone in tombstones(js)}
    except nats.js.errors.NotFoundError:
        return {}


async def _erasing(
    js: JetStreamContext, run: str, key: str, protocol: str, gone: dict[str, Tombstone]
) -> bool:
    """Whether an outcome has no response since that was erased, or removed by its tenant's retention."""
    if not gone:
        return False
    if tombstone_name("response", key) in gone:
        return True
    found = await last_message(js, OUTCOMES, outcome_subject(run, protocol, key))
    if found is None:
        # Erased since it was read.
        return True
    try:
        outcome = msgspec.json.decode(found.data, type=ResponseScored)
    except UNDECODED:
        return False
    if tombstone_name("tenant", outcome.tenant) in gone:
        return True
    cut = gone.get(tombstone_name("retention", outcome.tenant))
    return cut is not None and 0 < outcome.recorded_at <= cut.at


async def _last_headers(js: JetStreamContext, stream: str, subject: str) -> dict[str, str] | None:
    found = await last_message(js, stream, subject)
    return found.headers if found is not None else None
