"""From the ledger's state to its balance: what waits is looked for where it must be, and what is missing
there, in the streams.

A pair without an outcome is *in flight* only if its event can be pointed at: waiting for, or held by, the
consumer of the stage that it has reached. One that every stage has acknowledged and that still has no outcome
is *lost*.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED
from groundwatch.events import LIVE, OutcomeKind, ResponseScored
from groundwatch.ledger.reading import AWAY, Ages, Erasures, outcome_of, recorded_of, stones
from groundwatch.ledger.state import (
    OUTCOME,
    RECORDED,
    Early,
    Gap,
    State,
    Waiting,
    date_of,
    day_of,
    key_hash,
    pair_hash,
)
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.streams import SKIPPED, Read, position_of, read_stream
from groundwatch.runtime.delivery.unanswered import done_up_to
from groundwatch.runtime.stores.losses import losses_by_sender
from groundwatch.runtime.stores.tombstones import Tombstone, tombstone_name
from groundwatch.topology import (
    ASKED,
    CONSUMERS,
    DAY,
    DEAD,
    GATEWAY,
    HEADER_ORIGIN,
    OUTCOMES,
    RESPONSES,
    RETRY,
    parse_subject,
    subject_of,
)
from groundwatch.topology.partitions import consumers_in


class LostResponses(msgspec.Struct, frozen=True, kw_only=True):
    """Responses that were recorded and that their stream has no more, though no erasure removed them and they
    are neither cold nor old enough for retention: their sequences, and the UTC day of what was stored before
    them."""

    stream: str
    first: int
    last: int
    day: str

    @property
    def number(self) -> int:
        return self.last - self.first + 1

    def describe(self) -> str:
        return (
            f"{self.number:,} responses are gone from {self.stream}: sequences {self.first:,} to "
            f"{self.last:,}, stored on {self.day} or later; no erasure and no retention removed them: "
            "restore the stream from its backup (docs/disaster.md)"
        )


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of one run. All but `responses`, `dead_letters`, `foreign`, `lost_responses` and those of
    questions count pairs of a response and a protocol.

    `lost` have been acknowledged everywhere and have no outcome; `orphans` are outcomes of responses that
    were never recorded; `expired` are outcomes whose responses retention has removed; `foreign` are
    messages in the source stream that no gateway wrote. `questions` wait for their answer, with captioning
    or among the dead letters; `questions_lost` have been acknowledged and have neither answer nor letter.
    `unsettled` is of those in flight how many at most may be lost: they lie among others that are held, and
    it is known when those are done. A ledger with such is not `balanced`, and not out of balance either:
    `unaccounted` is what is known to be missing or too many. `erased` are responses that erasures have
    removed with their outcomes; `lost_responses` have been recorded and are gone. `lost_before_intake` are
    responses that their senders dropped, as they say themselves, by sender and reason: no gateway has seen
    them, and they are in no balance.
    `waiting_at_intake` were published over NATS and wait for a gateway: they are in no balance either yet.
    `sealed_days` are balanced and over: their lines stay, and nothing of them is read again. `begun_anew`
    says why everything was read from the beginning, where there was a state to go on from. `archive_unread`
    says why what has left the streams could not be looked at: what is lost or an orphan by then stays one.
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
    sealed_days: int = 0
    begun_anew: str = ""
    archive_unread: str = ""
    lost_responses: tuple[LostResponses, ...] = ()

    @property
    def unaccounted(self) -> int:
        counted = self.scored + self.unscored + self.declined + self.in_flight
        gone = sum(one.number for one in self.lost_responses)
        return max(self.lost, abs(self.recorded - counted)) + self.orphans + self.questions_lost + gone

    @property
    def standing(self) -> str:
        if self.balanced:
            return "balanced"
        if self.unaccounted:
            return f"NOT BALANCED, {self.unaccounted:,} unaccounted for"
        return f"not settled yet: {self.unsettled:,} at most of those in flight may be lost"


_SHARED = ("dead_letters", "waiting_at_intake")
OF_PARTITION = [
    one.name for one in msgspec.structs.fields(Ledger) if one.type is int and one.name not in _SHARED
]
"""Counts of which each partition has its own. The others are of streams and buckets that all share."""


def together(ledgers: Sequence[Ledger]) -> Ledger:
    """The balance of all partitions. A day counts as sealed once for each of them."""
    if len(ledgers) == 1:
        return ledgers[0]
    sums = {name: sum(getattr(one, name) for one in ledgers) for name in OF_PARTITION}
    anew = [f"partition {number}: {one.begun_anew}" for number, one in enumerate(ledgers) if one.begun_anew]
    return msgspec.structs.replace(
        ledgers[-1],
        **sums,
        reasons=_added(one.reasons for one in ledgers),
        in_flight_at=_added(one.in_flight_at for one in ledgers),
        balanced=all(one.balanced for one in ledgers),
        lost_responses=tuple(lost for one in ledgers for lost in one.lost_responses),
        begun_anew="; ".join(anew),
    )


def _added(several: Iterable[dict[str, int]]) -> dict[str, int]:
    return dict(sum(map(Counter, several), Counter[str]()).most_common())


TOGETHER = 500
"""Subjects that are looked for at once."""


class Position(msgspec.Struct, frozen=True):
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


async def positions(history: History) -> dict[str, Position]:
    """How far every consumer of a partition is. Consumers only move forward and streams only grow, so what a
    stage had acknowledged by now left its result where a later reading finds it."""
    found = {}
    for spec in CONSUMERS:
        own = list(consumers_in(spec, history.partition + 1))[-1]
        found[spec.name] = await _position(history.js, own.stream, own.name)
    return found


async def _position(js: JetStreamContext, stream: str, consumer: str) -> Position:
    info = await js.consumer_info(stream, consumer)
    done = done_up_to(info)
    delivered = max(done, info.delivered.stream_seq if info.delivered else 0)
    pending = info.num_ack_pending or 0
    return Position(done, delivered, pending, pending + (info.num_pending or 0))


async def oldest_time(history: History, ages: Ages) -> float:
    """When the oldest response still kept was stored; 0 while none has been removed."""
    message = await history.next(RESPONSES, ">", 1)
    at = await position_of(history.js, history.name(RESPONSES))
    first = message.sequence if message is not None else at.last + 1
    before = Gap(1, first - 1, at.created / 1e6)
    if before.last < SKIPPED or (before.last == SKIPPED and not ages.explain(before)):
        return 0.0
    # Without one, retention has removed every response there ever was.
    return message.time if message is not None else time.time()


class Counting:
    """The balance of a state that was read on to the streams' ends, after `positions` were taken.

    What of the responses up to sequence `until` cannot be told apart yet is unsettled. What is found out for
    good on the way goes into the state.
    """

    def __init__(
        self,
        history: History,
        state: State,
        positions: dict[str, Position],
        until: int,
        *,
        ages: Ages,
        erasures: Erasures,
    ) -> None:
        self._history = history
        self._js = history.js
        self._state = state
        self._positions = positions
        self._until = until
        self._ages = ages
        self._erasures = erasures
        self._erased: set[bytes] | None = None
        self._today = day_of(time.time())
        self._gone: dict[str, Tombstone] = {}
        self._found: Counter[tuple[str, str]] = Counter()
        self._unrecorded = 0
        self._oldest: float | None = None
        self._unread = ""

    async def balance(self) -> Ledger:
        state = self._state
        self._gone = await stones(self._js)
        in_flight, lost, unsettled = await self._waiting()
        orphans = await self._early()
        questions, questions_lost = await self._questions()
        lines = state.lines.values()
        kinds = {kind.value: sum(getattr(line, kind.value) for line in lines) for kind in OutcomeKind}
        reasons: Counter[str] = Counter()
        for line in lines:
            reasons.update(line.reasons)
        for (kind, reason), number in self._found.items():
            kinds[kind] = kinds.get(kind, 0) + number
            if reason:
                reasons[f"{kind}: {reason}"] += number
        counted = sum(kinds[kind.value] for kind in OutcomeKind)
        recorded = sum(line.recorded for line in lines) - self._unrecorded
        complete = recorded == counted + in_flight.total() and orphans == questions_lost == 0
        ledger = Ledger(
            run=LIVE,
            responses=sum(line.responses for line in lines),
            recorded=recorded,
            **{kind.value: kinds[kind.value] for kind in OutcomeKind},
            reasons=dict(reasons.most_common()),
            in_flight=in_flight.total(),
            lost=lost,
            orphans=orphans,
            expired=state.expired,
            foreign=state.foreign,
            dead_letters=(await self._js.stream_info(DEAD)).state.messages,
            in_flight_at=dict(in_flight.most_common()),
            balanced=complete and not unsettled,
            questions=questions,
            questions_lost=questions_lost,
            unsettled=unsettled,
            erased=state.erased,
            lost_before_intake=await losses_by_sender(self._js),
            waiting_at_intake=sum(
                self._positions[spec.name].waiting for spec in CONSUMERS if spec.service == GATEWAY
            ),
            sealed_days=state.sealed,
            archive_unread=self._unread,
        )
        return with_losses(ledger, self._history, state)

    async def _waiting(self) -> tuple[Counter[str], int, int]:
        """What waits by stage, how many are lost, and how many are unsettled."""
        in_flight: Counter[str] = Counter()
        held: dict[str, dict[int, list[bytes]]] = {}
        let_go: list[bytes] = []
        for pair, waiting in self._state.waiting.items():
            position = self._positions[waiting.stage]
            if waiting.at > position.delivered or (
                waiting.at > position.floor and waiting.sequence > self._until
            ):
                in_flight[waiting.stage] += 1
            elif waiting.at > position.floor:
                held.setdefault(waiting.stage, {}).setdefault(waiting.at, []).append(pair)
            else:
                let_go.append(pair)
        lost, unsettled = len(await self._missing(let_go)), 0
        for stage, events in held.items():
            position = self._positions[stage]
            if len(events) > position.pending:
                # The consumer holds fewer than these: some it has let go of, out of turn. Which, nobody can
                # tell.
                missing = await self._missing([pair for pairs in events.values() for pair in pairs])
                looked_at = {at: [pair for pair in pairs if pair in missing] for at, pairs in events.items()}
                events = {at: pairs for at, pairs in looked_at.items() if pairs}
            let_go_at_least = max(0, len(events) - position.pending)
            lost += let_go_at_least
            in_flight[stage] += sum(map(len, events.values())) - let_go_at_least
            unsettled += position.unsettled(len(events))
        return in_flight, lost, unsettled

    async def _missing(self, pairs: Sequence[bytes]) -> set[bytes]:
        """Look again, for outcomes that have moved past our reading, or whether they were erased since; those
        that are missing still.

        A retried dead letter's outcome takes the place of the old one, at the stream's end.
        """
        missing: set[bytes] = set()
        names: dict[bytes, tuple[str, str]] = {}
        for pair in pairs:
            try:
                name = await find_pair(self._history, pair, self._state.waiting[pair].sequence)
            except AWAY as error:
                self._unread = str(error)
                missing.add(pair)
                continue
            if name is None and await self._is_lost(pair, self._state.waiting[pair]):
                missing.add(pair)
            elif name is None:
                self._state.drop(pair, self._today)
            else:
                names[pair] = name
        subjects = {pair: subject_of("outcome", LIVE, *name) for pair, name in names.items()}
        newest = await self._last_of_each(OUTCOMES, list(subjects.values()))
        for pair, (_, key) in names.items():
            found = newest[subjects[pair]]
            outcome = outcome_of(found) if found is not None else None
            if outcome is None:
                if pair in await self._named() or tombstone_name("response", key) in self._gone:
                    # It is being erased: this response goes next.
                    self._unrecorded += 1
                else:
                    missing.add(pair)
            elif outcome.sequence > self._state.position(OUTCOME):
                # The next reading counts it.
                self._found[outcome.kind, outcome.reason] += 1
            else:
                # That of a response of the same id, which had left before this one was recorded.
                self._state.settle(pair, outcome.kind, outcome.reason)
        return missing

    async def _named(self) -> set[bytes]:
        """Pairs that erasures have named, also those that were named after our reading."""
        if self._erased is None:
            several = (await self._erasures()).values()
            self._erased = {one.pair for entries in several for one in entries.pairs}
        return self._erased

    async def _is_lost(self, pair: bytes, waiting: Waiting) -> bool:
        """Whether a response that is gone left without an erasure, and too young to have left for its age."""
        if self._state.is_lost(waiting.sequence):
            return True
        if pair in await self._named():
            return False
        gap = Gap(waiting.sequence, waiting.sequence, waiting.day * DAY)
        if self._ages.explain(gap):
            return False
        before = len(self._state.lost)
        self._state.lose([gap])
        return len(self._state.lost) > before

    async def _last_of_each(self, stream: str, subjects: Sequence[str]) -> dict[str, Read | None]:
        """The last event on each of these subjects; of the streams alone where the archive is away."""
        found: dict[str, Read | None] = {}
        for start in range(0, len(subjects), TOGETHER):
            several = subjects[start : start + TOGETHER]
            try:
                newest = await self._history.last_of_each(stream, several)
            except AWAY as error:
                self._unread = str(error)
                newest = await self._history.hot.last_of_each(stream, several)
            found |= zip(several, newest, strict=True)
        return found

    async def _early(self) -> int:
        """How many outcomes have no response; those whose response was removed are counted as expired."""
        state = self._state
        orphans = 0
        for pair, early in list(state.early.items()):
            try:
                message = await message_at(self._history, OUTCOMES, early.sequence)
                if message is None:
                    # It was erased, or replaced by one that the next reading finds.
                    del state.early[pair]
                elif await self._recorded_since(message):
                    continue
                elif await self._has_expired(message, early):
                    del state.early[pair]
                    state.dropped[pair] = (self._today, 0)
                    state.expired += 1
                else:
                    orphans += 1
            except AWAY as error:
                self._unread = str(error)
                orphans += 1
        return orphans

    async def _has_expired(self, message: Read, early: Early) -> bool:
        """Whether an outcome has no response since that was erased, or removed by its stream's or its
        tenant's retention; a late outcome may be of a response older than the oldest still kept."""
        address = parse_subject(message.subject)
        if address is not None and tombstone_name("response", address.key) in self._gone:
            return True
        if self._oldest is None:
            self._oldest = await oldest_time(self._history, self._ages)
        oldest = self._oldest
        if early.time < oldest:
            return True
        if not oldest and not self._gone:
            return False
        try:
            outcome = msgspec.json.decode(message.data, type=ResponseScored)
        except UNDECODED:
            return False
        cut = self._gone.get(tombstone_name("retention", outcome.tenant))
        until = max(oldest, cut.at if cut is not None else 0.0)
        return tombstone_name("tenant", outcome.tenant) in self._gone or 0 < outcome.recorded_at <= until

    async def _recorded_since(self, message: Read) -> bool:
        """Whether an outcome belongs to a response that was recorded after the reading began: a stream has
        that still."""
        address = parse_subject(message.subject)
        assert address is not None
        found = await self._history.hot.last(RESPONSES, subject_of("recorded", LIVE, address.key))
        if found is None or found.sequence <= self._state.position(RECORDED):
            return False
        return address.protocol in recorded_of(found).protocols

    async def _questions(self) -> tuple[int, int]:
        """How many questions wait for an answer, and how many will never get one."""
        floor = self._positions["captioning"].floor
        let_go = {question: at for question, at in self._state.questions.items() if at <= floor}
        waiting, lost = len(self._state.questions) - len(let_go), 0
        if not let_go:
            return waiting, lost
        # A letter that is sent again is in the second stream before it leaves the first.
        origins = [
            parse_subject(letter.headers.get(HEADER_ORIGIN, ""))
            for stream in (DEAD, RETRY)
            async for letter in read_stream(self._js, stream, headers_only=True)
        ]
        buried = {
            key_hash(origin.key)
            for origin in origins
            if origin is not None and (origin.kind, origin.run) == ("asked", LIVE)
        }
        recorded: dict[bytes, str] = {}
        for question, sequence in let_go.items():
            if question in buried:
                waiting += 1
                continue
            try:
                message = await message_at(self._history, ASKED, sequence)
            except AWAY as error:
                self._unread = str(error)
                lost += 1
                continue
            address = parse_subject(message.subject) if message is not None else None
            if address is None:
                # It was erased, or has left the stream by its age.
                del self._state.questions[question]
            else:
                recorded[question] = subject_of("recorded", LIVE, address.key)
        answers = await self._last_of_each(RESPONSES, list(recorded.values()))
        for question, subject in recorded.items():
            if answers[subject] is None:
                lost += 1
            else:
                del self._state.questions[question]
        return waiting, lost


def with_losses(ledger: Ledger, history: History, state: State) -> Ledger:
    """With the responses that are lost by now."""
    stream = history.name(RESPONSES)
    lost = tuple(
        LostResponses(stream=stream, first=gap.first, last=gap.last, day=date_of(day_of(gap.since)))
        for gap in state.lost
    )
    return msgspec.structs.replace(ledger, lost_responses=lost, balanced=ledger.balanced and not lost)


async def message_at(history: History, stream: str, sequence: int) -> Read | None:
    """The message with this sequence; None where it is gone."""
    found = await history.next(stream, ">", sequence)
    return found if found is not None and found.sequence == sequence else None


async def find_pair(history: History, pair: bytes, sequence: int) -> tuple[str, str] | None:
    """Protocol and key of a pair whose response has this sequence; None where that is gone."""
    message = await message_at(history, RESPONSES, sequence)
    if message is None:
        return None
    recorded = recorded_of(message)
    names = ((protocol, recorded.key) for protocol in recorded.protocols)
    return next((name for name in names if pair_hash(*name) == pair), None)
