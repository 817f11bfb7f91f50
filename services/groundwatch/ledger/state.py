"""What the audit remembers between two readings: days, positions, and what is in flight.

Nothing here reads or writes: each event that a reading meets is one call, in the order of the streams. What
has its outcome leaves nothing behind but its day's counts and digests, so the size follows what is in flight.
Pairs and questions are kept by their hashes: no key of a response is in here.

A day's digest is the sum, modulo 2^128, of a hash of each pair. It does not depend on the order, a pair can
be taken out again, and a lost, doubled or changed pair changes it. The pairs of a day all have their outcome
exactly when its two digests are equal.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from hashlib import blake2b

import msgspec

from groundwatch.events import OutcomeKind
from groundwatch.runtime.delivery.streams import SKIPPED
from groundwatch.topology import DAY

SIZE = 16
_MODULUS = 1 << (8 * SIZE)
_NONE = bytes(SIZE)

KINDS = frozenset(kind.value for kind in OutcomeKind)


def pair_hash(protocol: str, key: str) -> bytes:
    """What stands for a pair of a response and a protocol: 16 bytes, from which its key is not read back."""
    return blake2b(f"{protocol}.{key}".encode(), digest_size=SIZE, person=b"gw-ledger").digest()


def key_hash(key: str) -> bytes:
    """What stands for a question, by the key that its answer has too."""
    return pair_hash("", key)


def day_of(time: float) -> int:
    """The UTC day of a time, in days since the epoch."""
    return int(time // DAY)


def number_of(day: date) -> int:
    """A UTC day in days since the epoch."""
    return day.toordinal() - date(1970, 1, 1).toordinal()


def date_of(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()


class Line(msgspec.Struct, kw_only=True):
    """A day's counts. `erased` are responses; all others but `responses` count pairs."""

    responses: int = 0
    recorded: int = 0
    scored: int = 0
    unscored: int = 0
    declined: int = 0
    erased: int = 0
    reasons: dict[str, int] = {}
    recorded_digest: bytes = _NONE
    outcome_digest: bytes = _NONE

    @property
    def outcomes(self) -> int:
        return self.scored + self.unscored + self.declined

    @property
    def balanced(self) -> bool:
        return self.recorded == self.outcomes and self.recorded_digest == self.outcome_digest

    def record(self, pair: bytes, number: int = 1) -> None:
        """`number` is -1 to take it out again."""
        self.recorded += number
        self.recorded_digest = _sum(self.recorded_digest, pair, number)

    def outcome(self, pair: bytes, kind: str, reason: str, number: int = 1) -> None:
        if self.count(kind, reason, number):
            self.outcome_digest = _sum(self.outcome_digest, pair, number)

    def count(self, kind: str, reason: str, number: int) -> bool:
        """One of a kind that nobody knows counts nowhere, so that the day does not balance."""
        if kind not in KINDS:
            return False
        setattr(self, kind, getattr(self, kind) + number)
        if reason:
            name = f"{kind}: {reason}"
            self.reasons[name] = self.reasons.get(name, 0) + number
            if not self.reasons[name]:
                del self.reasons[name]
        return True


def _sum(digest: bytes, pair: bytes, number: int) -> bytes:
    total = int.from_bytes(digest, "big") + number * int.from_bytes(pair, "big")
    return (total % _MODULUS).to_bytes(SIZE, "big")


FORMAT = 1

RECORDED, OUTCOME, ASKED, EXTRACTED, CHAIN, JUDGED = READ = (
    "recorded",
    "outcome",
    "asked",
    "extracted",
    "chain",
    "judged",
)
"""Kinds of subjects that are read, each up to a position of its own."""

DROPPED_DAYS = 2
"""So long an erased pair is remembered: an outcome of it may still come from a stage that had held it."""


class Waiting(msgspec.Struct, array_like=True, gc=False):
    """A pair without an outcome. `sequence` is its response's; `at` its event's in the input of `stage`."""

    sequence: int
    day: int
    stage: str
    at: int


class Early(msgspec.Struct, array_like=True, gc=False):
    """An outcome whose response has not been read: it comes later, or never."""

    sequence: int
    time: float
    kind: str
    reason: str


class ErasedPair(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pair that an erasure removes, with the day of its recording. `recorded` and `outcome` are sequences
    of its messages, 0 where there is none. `replaced` is the reason of the outcome whose place this one took.
    `first` says that the pair is the first of its response."""

    pair: bytes
    day: int
    recorded: int = 0
    outcome: int = 0
    kind: str = ""
    reason: str = ""
    replaced: str = ""
    first: bool = False


class ErasedPairs(msgspec.Struct, frozen=True):
    """What an erasure says: pairs that it removes; `done` when their messages are gone. `others` are
    sequences of what else it removes from the stream of responses: those of other runs, or of nobody."""

    pairs: tuple[ErasedPair, ...]
    done: bool = False
    others: tuple[int, ...] = ()


class Gap(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Sequences that no message has; what was before them was stored at `since`, and nothing later."""

    first: int
    last: int
    since: float


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A response as its headers tell it; no protocols where no gateway wrote it."""

    sequence: int
    time: float
    key: str
    protocols: tuple[str, ...]


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A question."""

    sequence: int
    time: float
    key: str


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """An outcome as its headers tell it. `replaced` is the reason of the one whose place it took."""

    sequence: int
    time: float
    key: str
    protocol: str
    kind: str
    reason: str
    replaced: str


Event = Recorded | Asked | Outcome


class State(msgspec.Struct, kw_only=True):
    """`streams` are creation times by stream, in µs since the epoch, and `made` when the server made them,
    which is later where they were restored; `positions` the last sequences read.
    `since` is the time of the oldest response that was kept when the ledger was begun, 0 for all there ever
    were; `began` when that was, `ended` when the last audit was complete.

    `dropped` are erased pairs, with the day they were dropped and, where their outcome was counted, how far
    outcomes had been read and which was taken out: no outcome of theirs counts any more. `owed` are pairs
    whose response was erased after their outcome had been counted, by day: they go with it. `applied` names
    erasures that are counted. `expired` are outcomes whose responses had been removed before.

    `removed` are sequences of responses that were erased: 64 in a row by the number of their block, a bit for
    each. `lost` are those that have left without an erasure, for no age, and are not in the archive. `looked`
    is when the end of the responses was last looked up: what is behind it was stored later. `erased_before`
    are responses of the state before this one.
    """

    format: int = FORMAT
    began: float = 0.0
    ended: float = 0.0
    since: float = 0.0
    streams: dict[str, int] = {}
    made: dict[str, int] = {}
    positions: dict[str, int] = {}
    lines: dict[int, Line] = {}
    waiting: dict[bytes, Waiting] = {}
    early: dict[bytes, Early] = {}
    questions: dict[bytes, int] = {}
    dropped: dict[bytes, tuple[int, ...]] = {}
    owed: dict[bytes, int] = {}
    applied: set[str] = set()
    foreign: int = 0
    expired: int = 0
    removed: dict[int, int] = {}
    lost: list[Gap] = []
    looked: float = 0.0
    erased_before: int = 0

    @property
    def erased(self) -> int:
        """How many responses erasures have removed, hot or cold."""
        return self.erased_before + sum(line.erased for line in self.lines.values())

    def position(self, kind: str) -> int:
        return self.positions.get(kind, 0)

    @property
    def last_day(self) -> int:
        """The day of the newest response; 0 before there was one."""
        return max(self.lines, default=0)

    @property
    def sealed(self) -> int:
        """How many days are balanced and over: nothing of them is read again."""
        return sum(line.balanced for day, line in self.lines.items() if day < self.last_day)

    def count(
        self,
        events: Iterable[Event],
        reached: Mapping[str, int],
        erased: Mapping[str, ErasedPairs],
        today: int,
    ) -> list[Outcome]:
        """Count events that were read, up to the positions that the reading `reached`, and what erasures have
        said by then, by name. Returns outcomes that took the place of others: see `replace`.

        What is erased after its message was read, or before, has been said when we are asked to count. So a
        pair of these events that is named counts nowhere, and one of an earlier portion is taken out.
        """
        before = self.position(RECORDED)
        after = reached.get(RECORDED, before)
        gone: dict[str, set[int]] = {RECORDED: set(), OUTCOME: set()}
        read: list[ErasedPair] = []
        unread: list[ErasedPair] = []
        alone: list[ErasedPair] = []
        for name, entries in erased.items():
            for sequence in entries.others:
                self._remove(sequence)
            for pair in entries.pairs:
                if pair.pair in self.dropped:
                    # For as long as an erasure is not over, another may say the same of what it has left.
                    self.dropped[pair.pair] = (today, *self.dropped[pair.pair][1:])
                if pair.outcome > self.position(OUTCOME):
                    gone[OUTCOME].add(pair.outcome)
                if pair.recorded > before:
                    unread.append(pair)
                elif name not in self.applied:
                    (read if pair.recorded else alone).append(pair)
        for pair in read:
            self.erase(pair, today)
        # An id may have been taken again, and erased again, since its first response was read.
        for pair in unread:
            gone[RECORDED].add(pair.recorded)
            # No outcome of it counts, whenever it comes.
            self.early.pop(pair.pair, None)
            self.dropped[pair.pair] = (today, *self.dropped.get(pair.pair, (0, 0))[1:])
            if pair.first and pair.recorded <= after and self._remove(pair.recorded):
                self._line(pair.day).erased += 1
        # Who has removed a response knows its day, and who found its outcome alone may not.
        for pair in alone:
            self.erase(pair, today)
        self.applied = set(erased)
        moved: list[Outcome] = []
        for event in events:
            match event:
                case Recorded():
                    if event.sequence in gone[RECORDED]:
                        continue
                    if event.protocols:
                        self.record(event.sequence, event.time, event.key, event.protocols)
                    else:
                        self.foreign += 1
                case Asked():
                    if event.time >= self.since:
                        self.questions[key_hash(event.key)] = event.sequence
                case Outcome():
                    if event.sequence not in gone[OUTCOME] and not self.outcome(event):
                        moved.append(event)
        self.positions.update(reached)
        return moved

    def record(self, sequence: int, time: float, key: str, protocols: tuple[str, ...]) -> None:
        day = day_of(time)
        line = self._line(day)
        line.responses += 1
        for protocol in dict.fromkeys(protocols):
            pair = pair_hash(protocol, key)
            self.dropped.pop(pair, None)
            before = self.waiting.get(pair)
            if before is not None:
                # The server takes a second response on a subject only when it has removed the first.
                self._line(before.day).record(pair, -1)
            line.record(pair)
            self.waiting[pair] = Waiting(sequence, day, "extraction", sequence)
            early = self.early.pop(pair, None)
            if early is not None:
                self.settle(pair, early.kind, early.reason)
        self.questions.pop(key_hash(key), None)

    def outcome(self, outcome: Outcome) -> bool:
        """Count an outcome; False for one that took the place of one that is counted: see `replace`."""
        pair = pair_hash(outcome.protocol, outcome.key)
        if pair in self.dropped or self.settle(pair, outcome.kind, outcome.reason):
            return True
        if outcome.replaced and pair not in self.early:
            return False
        if outcome.time < self.since:
            self.expired += 1
            return True
        self.early[pair] = Early(outcome.sequence, outcome.time, outcome.kind, outcome.reason)
        return True

    def settle(self, pair: bytes, kind: str, reason: str) -> bool:
        """Give a pair that waits its outcome; False when it does not wait."""
        waiting = self.waiting.get(pair)
        if waiting is None:
            return False
        if kind in KINDS:
            del self.waiting[pair]
        self._line(waiting.day).outcome(pair, kind, reason)
        return True

    def replace(self, outcome: Outcome, day: int | None) -> None:
        """Move a pair of that day from the unscored to what a retry of its dead letter made of it; None for
        one whose response has not been read."""
        line = self.lines.get(day) if day is not None else None
        if line is None:
            pair = pair_hash(outcome.protocol, outcome.key)
            self.early[pair] = Early(outcome.sequence, outcome.time, outcome.kind, outcome.reason)
            return
        line.count("unscored", outcome.replaced, -1)
        line.count(outcome.kind, outcome.reason, 1)

    def reach(self, pair: bytes, stage: str, sequence: int) -> None:
        """Its event is in the input of a later stage."""
        waiting = self.waiting.get(pair)
        if waiting is not None:
            waiting.stage, waiting.at = stage, sequence

    def drop(self, pair: bytes, today: int) -> None:
        """A pair that waits no longer since its response is gone."""
        waiting = self.waiting.pop(pair, None)
        if waiting is not None:
            self._line(waiting.day).record(pair, -1)
            self.dropped[pair] = (today, 0)

    def erase(self, erased: ErasedPair, today: int) -> None:
        """Take out a pair whose messages had been read before they were erased."""
        known = not (erased.first and erased.recorded and self._remove(erased.recorded))
        pair = erased.pair
        unread = erased.outcome > self.position(OUTCOME) and not erased.replaced
        line = self.lines.get(self.owed.get(pair, erased.day))
        if line is not None and not known:
            line.responses -= 1
            line.erased += 1
        if pair in self.dropped:
            _, until, taken = (*self.dropped[pair], 0)[:3]
            if line is not None and erased.replaced and taken < erased.outcome <= until:
                # It had been moved when it was taken out as what an erasure had found before.
                line.count("unscored", erased.replaced, 1)
                line.count(erased.kind, erased.reason, -1)
                self.dropped[pair] = (today, until, erased.outcome)
            return
        waiting = self.waiting.get(pair)
        if waiting is not None:
            if waiting.sequence == erased.recorded or not erased.recorded:
                self.drop(pair, today)
            return
        if self.early.pop(pair, None) is not None or unread:
            # Its response has not been read: no line has either.
            self.dropped[pair] = (today, 0)
            return
        if line is None:
            return
        if not erased.outcome:
            self.owed[pair] = erased.day
            return
        kind, reason = erased.kind, erased.reason
        if erased.outcome > self.position(OUTCOME) and erased.replaced:
            kind, reason = "unscored", erased.replaced
        self.owed.pop(pair, None)
        self.dropped[pair] = (today, self.position(OUTCOME), erased.outcome)
        line.record(pair, -1)
        line.outcome(pair, kind, reason, -1)

    def forget(self, today: int) -> None:
        """Let go of what was dropped long ago."""
        self.dropped = {
            pair: dropped for pair, dropped in self.dropped.items() if dropped[0] >= today - DROPPED_DAYS
        }

    def _remove(self, sequence: int) -> bool:
        """Note that a response is erased; False where that was known."""
        block, bit = sequence >> 6, 1 << (sequence & 63)
        before = self.removed.get(block, 0)
        self.removed[block] = before | bit
        return not before & bit

    def lose(self, gaps: Iterable[Gap]) -> None:
        """Take these sequences for lost, but what was erased, or was known to be missing before; the first
        alone only where its response is known. One that was not has left its outcome, if it had one."""
        for gap in gaps:
            first = gap.first
            for before in self.lost:
                if before.first <= first <= before.last:
                    first = before.last + 1
            for start, end in self._not_removed(first, gap.last):
                if end == SKIPPED and all(waiting.sequence != end for waiting in self.waiting.values()):
                    continue
                self.lost.append(Gap(start, end, gap.since))

    def is_lost(self, sequence: int) -> bool:
        return any(gap.first <= sequence <= gap.last for gap in self.lost)

    def lost_between(self, first: int, last: int) -> int:
        """How many of these sequences are lost."""
        return sum(max(0, min(gap.last, last) - max(gap.first, first) + 1) for gap in self.lost)

    def removed_up_to(self, last: int) -> dict[int, int]:
        """Which of these sequences were erased, as `removed`."""
        return {
            block: bits & ((2 << (last - (block << 6))) - 1)
            for block, bits in self.removed.items()
            if block << 6 <= last
        }

    def removed_between(self, first: int, last: int) -> int:
        """How many of these sequences were erased."""
        return last - first + 1 - sum(end - start + 1 for start, end in self._not_removed(first, last))

    def _not_removed(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        blocks: Iterable[int] = range(first >> 6, (last >> 6) + 1)
        if len(self.removed) < (last - first) >> 6:
            blocks = sorted(block for block in self.removed if first >> 6 <= block <= last >> 6)
        for block in blocks:
            bits = self.removed.get(block, 0)
            for sequence in range(block << 6, (block + 1) << 6) if bits else ():
                if bits >> (sequence & 63) & 1 and first <= sequence <= last:
                    if first < sequence:
                        yield first, sequence - 1
                    first = sequence + 1
        if first <= last:
            yield first, last

    def _line(self, day: int) -> Line:
        line = self.lines.get(day)
        if line is None:
            line = self.lines[day] = Line()
        return line
