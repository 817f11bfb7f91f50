"""Reading on from where the ledger's state is: questions, responses and outcomes in the order of their times.

In that order what waits at any moment of the reading is what was in flight at that moment of the traffic,
also when years are read for the first time. Events are gathered in portions; what erasures say is asked for
after a portion was read and before it is counted.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch import topology
from groundwatch.errors import UNDECODED, MissingExtraError, TransientError
from groundwatch.events import LIVE, REPLACEABLE, ResponseScored
from groundwatch.ledger.state import (
    ASKED,
    CHAIN,
    EXTRACTED,
    JUDGED,
    OUTCOME,
    RECORDED,
    Asked,
    ErasedPairs,
    Event,
    Gap,
    Outcome,
    Recorded,
    State,
    day_of,
    pair_hash,
)
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.streams import Read, position_of, read_stream
from groundwatch.runtime.stores.tombstones import Tombstone, tombstones
from groundwatch.topology import (
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    HEADER_REPLACED,
    OUTCOMES,
    RESPONSES,
    is_token,
    parse_subject,
    run_subjects,
    subject_of,
)
from groundwatch.topology.partitions import subjects_in

STREAM_OF = {
    RECORDED: RESPONSES,
    OUTCOME: OUTCOMES,
    ASKED: topology.ASKED,
    EXTRACTED: topology.EXTRACTED,
    CHAIN: topology.ASKED,
    JUDGED: topology.JUDGED,
}

PORTION = 20_000
"""Events that are read before they are counted."""

DETAILS_SECONDS = 30.0

CHECKPOINT = 500_000
"""Events after which a long reading saves its state."""

AWAY = (TransientError, MissingExtraError)
"""What is raised for something that has left the streams where the archive cannot be read."""

Erasures = Callable[[], Awaitable[dict[str, ErasedPairs]]]


class Ages(msgspec.Struct, frozen=True, kw_only=True):
    """Before when a response may have left for its age, in seconds since the epoch: by `retention`; by its
    stream's own limit; and from a stream without one, `before` an archive was there."""

    retention: float
    stream: float
    before: float

    def explain(self, gap: Gap) -> bool:
        return gap.since <= max(self.retention, self.stream, self.before if gap.first == 1 else 0.0)


async def ages_of(history: History) -> Ages:
    """Of a partition's responses."""
    age = (await history.js.stream_info(history.name(RESPONSES))).config.max_age or 0.0
    known = (await stones(history.js)).values()
    now = time.time()
    return Ages(
        retention=max([stone.at for stone in known if stone.kind == "retention"], default=0.0),
        stream=now - age if age else 0.0,
        before=now - topology.stream(RESPONSES).max_age,
    )


async def stones(js: JetStreamContext) -> dict[str, Tombstone]:
    """The tombstones by name."""
    return {stone.name: stone async for stone in tombstones(js)}


async def holes(history: History, state: State) -> list[Gap]:
    """Sequences between the first response of the stream and the last that was read, which no message has any
    more, where they are more than is known of."""
    name, until = history.name(RESPONSES), state.position(RECORDED)
    held = (await history.js.stream_info(name)).state
    first, last = held.first_seq, held.last_seq
    known = state.removed_between(first, last) + state.lost_between(first, last)
    if not held.messages or last - first + 1 - held.messages <= known:
        return []
    asked = msgspec.json.encode({"deleted_details": True})
    details = await history.js._api_request(f"$JS.API.STREAM.INFO.{name}", asked, timeout=DETAILS_SECONDS)
    found: list[Gap] = []
    for sequence in sorted(one for one in details["state"].get("deleted") or () if one <= until):
        if found and found[-1].last == sequence - 1:
            found[-1] = msgspec.structs.replace(found[-1], last=sequence)
        else:
            found.append(Gap(sequence, sequence, 0.0))
    return found


async def dated(history: History, gap: Gap) -> Gap:
    """With the time of what the stream has before it, where it has that."""
    if gap.since:
        return gap
    with contextlib.suppress(nats.js.errors.NotFoundError):
        before = await history.js.get_msg(history.name(RESPONSES), gap.first - 1)
        return msgspec.structs.replace(gap, since=before.time.timestamp() if before.time else 0.0)
    return gap


def recorded_of(message: Read) -> Recorded:
    address = parse_subject(message.subject)
    protocols = message.headers.get(HEADER_PROTOCOLS, "").split(",")
    if address is None or not all(map(is_token, protocols)):
        return Recorded(message.sequence, message.time, "", ())
    return Recorded(message.sequence, message.time, address.key, tuple(protocols))


def outcome_of(message: Read) -> Outcome | None:
    address = parse_subject(message.subject)
    if address is None:
        return None
    headers = message.headers
    replaced = headers.get(HEADER_REPLACED, "")
    if replaced not in REPLACEABLE:
        replaced = ""
    return Outcome(
        message.sequence,
        message.time,
        address.key,
        address.protocol,
        headers.get(HEADER_OUTCOME, ""),
        headers.get(HEADER_REASON, ""),
        replaced,
    )


def asked_of(message: Read) -> Asked | None:
    address = parse_subject(message.subject)
    return Asked(message.sequence, message.time, address.key) if address is not None else None


def live_recorded_of(message: Read) -> Recorded | None:
    """None for one of another run: it is read since a sequence that no message has is a loss."""
    address = parse_subject(message.subject)
    return recorded_of(message) if address is None or address.run == LIVE else None


_READ: dict[str, Callable[[Read], Event | None]] = {
    ASKED: asked_of,
    RECORDED: live_recorded_of,
    OUTCOME: outcome_of,
}
"""In the order in which events of the same time are taken."""


async def last_sequences(history: History) -> dict[str, int]:
    """How far each kind is read: a later stage before the one that it follows, so that with an event of a
    pair its response is read too."""
    return {
        kind: (await position_of(history.js, history.name(STREAM_OF[kind]))).last
        for kind in (JUDGED, CHAIN, EXTRACTED, RECORDED, ASKED, OUTCOME)
    }


class Reading:
    """One reading into a state, up to `last` of each kind. Raises what NATS and the archive raise."""

    def __init__(
        self,
        history: History,
        state: State,
        last: Mapping[str, int],
        *,
        ages: Ages,
        erasures: Erasures,
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self._history = history
        self._state = state
        self._last = last
        self._erasures = erasures
        self._checkpoint = checkpoint
        self._today = day_of(time.time())
        self._ages = ages
        self._gaps: list[Gap] = []
        self._before = (state.position(RECORDED), state.looked)
        self.read = 0

    async def run(self) -> None:
        portion: list[Event] = []
        reached: dict[str, int] = {}
        saved = 0
        async with contextlib.aclosing(self._merged()) as events:
            async for kind, sequence, event in events:
                reached[kind] = sequence
                if event is not None:
                    portion.append(event)
                if len(portion) >= PORTION:
                    await self._count(portion, reached)
                    portion = []
                    if self.read - saved >= CHECKPOINT:
                        saved = self.read
                        await self._checkpoint()
        self._pass(self._last[RECORDED] + 1, 0.0)
        await self._count(portion, {kind: self._last[kind] for kind in _READ})
        await self._follow()
        self._state.forget(self._today)

    async def _merged(self) -> AsyncGenerator[tuple[str, int, Event | None]]:
        """Each message by its kind, in the order of times."""
        async with contextlib.AsyncExitStack() as stack:
            readings = {
                kind: await stack.enter_async_context(contextlib.aclosing(self._history_of(kind)))
                for kind in _READ
            }
            heads = {kind: head for kind in readings if (head := await anext(readings[kind], None))}
            while heads:
                kind = min(heads, key=lambda one: heads[one].time)
                message = heads[kind]
                self.read += 1
                if kind == RECORDED:
                    self._pass(message.sequence, message.time)
                yield kind, message.sequence, _READ[kind](message)
                head = await anext(readings[kind], None)
                if head is None:
                    del heads[kind]
                else:
                    heads[kind] = head

    async def _history_of(self, kind: str) -> AsyncGenerator[Read]:
        start = self._state.position(kind) + 1
        if start > self._last[kind]:
            return
        reading = self._history.read(
            STREAM_OF[kind],
            subjects=(run_subjects(kind, LIVE),) if kind != RECORDED else (),
            headers_only=True,
            start_sequence=start,
            last_sequence=self._last[kind],
        )
        async with contextlib.aclosing(reading) as messages:
            async for message in messages:
                yield message

    def _pass(self, sequence: int, time: float) -> None:
        """Note what is missing before this response, unless it may have left for its age."""
        before, since = self._before
        gap = Gap(before + 1, sequence - 1, since)
        if gap.first <= gap.last and not self._ages.explain(gap):
            self._gaps.append(gap)
        self._before = (sequence, time)

    async def _count(self, events: list[Event], reached: Mapping[str, int]) -> None:
        """Count a portion that reaches so far, without what was erased of it."""
        # First: what an erasure removes while this is read, it has said before.
        moved = self._state.count(events, reached, await self._erasures(), self._today)
        self._state.lose(self._gaps)
        self._gaps.clear()
        for outcome in moved:
            await self._move(outcome)

    async def _move(self, outcome: Outcome) -> None:
        """Find the day of a pair whose dead letter was retried, and move it."""
        try:
            found = await self._history.last(RESPONSES, subject_of("recorded", LIVE, outcome.key))
        except AWAY:
            found = None
        day: int | None = None
        if found is None:
            # Retention has removed it, or it lies where we cannot read: its outcome knows about when it was
            # recorded.
            subject = subject_of("outcome", LIVE, outcome.protocol, outcome.key)
            last = await self._history.last(OUTCOMES, subject)
            with contextlib.suppress(*UNDECODED):
                scored = msgspec.json.decode(last.data if last is not None else b"", type=ResponseScored)
                day = day_of(scored.recorded_at) if scored.recorded_at >= self._state.since else None
        elif found.sequence <= self._state.position(RECORDED):
            day = day_of(found.time)
        self._state.replace(outcome, day)

    async def _follow(self) -> None:
        """Find how far each pair that waits has come.

        What has left these streams was acknowledged by every stage: a pair that waits still is lost
        wherever it was.
        """
        state = self._state
        for kind in (EXTRACTED, CHAIN, JUDGED):
            last = self._last[kind]
            if state.waiting and state.position(kind) < last:
                async for message in self._stage_inputs(kind, last):
                    self.read += 1
                    address = parse_subject(message.subject)
                    if address is not None:
                        pair = pair_hash(address.protocol, address.key)
                        state.reach(pair, address.stage, message.sequence)
            state.positions[kind] = last

    def _stage_inputs(self, kind: str, last: int) -> AsyncIterator[Read]:
        return read_stream(
            self._history.js,
            self._history.name(STREAM_OF[kind]),
            subjects=subjects_in([run_subjects(kind, LIVE)], self._history.partition),
            headers_only=True,
            start_sequence=self._state.position(kind) + 1,
            last_sequence=last,
        )
