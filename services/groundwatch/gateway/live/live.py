"""Live scores: one reading of the outcomes, fanned out to everybody who watches, and counted in one report.

Nobody who watches can hold up the others: each has a queue of its own, and who falls behind is told how
many outcomes were left out and from where to ask for them.
"""

import asyncio
import contextlib
import hashlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.events import LIVE, ResponseScored
from groundwatch.gateway.budgets.budgets import Budgets
from groundwatch.gateway.callers import Filter
from groundwatch.gateway.live.alarms import AlarmPublisher
from groundwatch.reporting.report import Report
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.outcomes import REPLACEABLE
from groundwatch.runtime.delivery.streams import FAULTS, Batch, Read, follow_stream, read_stream
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES, PREFIX

SUBJECT = f"{PREFIX}.outcome.{LIVE}.*.*"
HEARTBEAT_SECONDS = 15.0
QUEUE = 1_000
TOGETHER = 64

FRESH_SECONDS = 0.5
FIGURE_SECONDS = 15.0
COST_SHARE = 20
"""Intervals and changes take time to compute: at most a twentieth of it is spent on them."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class Missed(msgspec.Struct, frozen=True):
    """So many outcomes were left out because they were not read in time; those behind `after` are kept."""

    count: int
    after: int


class Heartbeat(msgspec.Struct, frozen=True):
    """Nothing for a while: what was wanted up to `position` has been sent."""

    position: int


class Shown(NamedTuple):
    """An outcome with its sequence in the stream and as it stands there."""

    sequence: int
    event: ResponseScored
    data: bytes


class Watcher:
    """One who watches: a bounded queue, and how many did not fit.

    What is at `after` or before it was seen already, perhaps at a gateway that had read further.
    """

    def __init__(self, wanted: Filter, after: int) -> None:
        self.wanted = wanted
        self.after = after
        self.awake = asyncio.Event()
        self._queue: deque[Shown] = deque()
        self._missed = 0
        self._last = 0

    def offer(self, shown: Shown) -> None:
        """Take an outcome, or count it as missed until the queue has been emptied."""
        if shown.sequence <= self.after:
            return
        if self._missed or len(self._queue) >= QUEUE:
            self._missed += 1
        else:
            self._queue.append(shown)
        self.awake.set()

    async def next(self, timeout: float) -> list[Shown | Missed]:
        """What to send next, with what was missed behind it; nothing if none came for `timeout` seconds."""
        if not self._queue and not self._missed:
            self.awake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.awake.wait()
        found: list[Shown | Missed] = []
        while self._queue and len(found) < TOGETHER:
            self._last = self._queue[0].sequence
            found.append(self._queue.popleft())
        if not self._queue and self._missed:
            found.append(Missed(self._missed, self._last))
            self._missed = 0
        return found


class Board:
    """A `Report` that takes outcomes while another thread computes its numbers.

    `most` and `kept` are the report's. An outcome that stands for a dead letter is kept until another one
    takes its place: then it is taken back, and the report is right at once, with nothing read again.
    """

    def __init__(self, most: int | None, kept: Callable[[], Container[str]]) -> None:
        self._report = Report(most=most, kept=kept)
        self._pending: list[tuple[int, ResponseScored | None, ResponseScored | None]] = []
        self._computing = asyncio.Lock()
        self._replaceable: dict[bytes, bytes] = {}
        self._sequence = 0
        self._told: dict[str, Any] | None = None
        self._changed = True
        self._stale_at = 0.0

    def add(self, sequence: int, subject: str, event: ResponseScored | None) -> None:
        """Count an outcome, in place of the dead letter's on the same subject; None could not be read."""
        old = None
        if event is not None and (self._replaceable or event.reason in REPLACEABLE):
            old = self._replace(hashlib.blake2b(subject.encode(), digest_size=16).digest(), event)
        self._changed = True
        if self._computing.locked():
            self._pending.append((sequence, old, event))
        else:
            self._apply(sequence, old, event)

    async def current(self) -> dict[str, Any]:
        """The report as of a moment ago, with the `sequence` of the last outcome that is in it."""
        async with self._computing:
            if self._told is None or (self._changed and time.monotonic() >= self._stale_at):
                self._changed = False
                began = time.monotonic()
                found = await asyncio.to_thread(self._report.to_dict)
                self._told = found | {"sequence": self._sequence}
                ended = time.monotonic()
                self._stale_at = ended + max(FRESH_SECONDS, COST_SHARE * (ended - began))
            pending, self._pending = self._pending, []
            for change in pending:
                self._apply(*change)
            return self._told

    def _replace(self, key: bytes, event: ResponseScored) -> ResponseScored | None:
        """The dead letter's outcome whose place this one takes. What the report does not need is not kept."""
        old = self._replaceable.pop(key, None)
        if event.reason in REPLACEABLE:
            bare = msgspec.structs.replace(event, detail="", units=(), claims=(), values={})
            self._replaceable[key] = ENCODER.encode(bare)
        return _DECODER.decode(old) if old is not None else None

    def _apply(self, sequence: int, old: ResponseScored | None, event: ResponseScored | None) -> None:
        self._sequence = sequence
        if old is not None:
            self._report.remove(old)
        if event is not None:
            self._report.add(event)


class Live:
    """Reads the outcomes of live traffic once, for the report and for all watchers."""

    def __init__(
        self, bus: Bus, alarms: AlarmPublisher, budgets: Budgets, metrics: Metrics, most: int | None
    ) -> None:
        self._bus = bus
        self._alarms = alarms
        self._budgets = budgets
        self._metrics = metrics
        self.watchers: set[Watcher] = set()
        self._new_board = partial(Board, most, lambda: alarms.alarms.alarmed())
        self._board = self._new_board()
        self._counting = SupervisedTask("gateway-live", self._count)
        self._measuring = SupervisedTask("gateway-figures", self._measure)
        self._showing_ahead: SupervisedTask | None = None
        self._caught_up = asyncio.Event()
        self._showing = asyncio.Event()
        self._closing = False
        self._counted = 0
        self._unread = ""
        self.position = 0
        """Up to where outcomes were shown to those who watch, or lie in the stream for them to be read."""

    def start(self) -> None:
        self._alarms.start()
        self._counting.start()
        self._measuring.start()

    def close(self) -> None:
        self._closing = True
        for watcher in self.watchers:
            watcher.awake.set()

    async def stop(self) -> None:
        self.close()
        await self._measuring.stop()
        await self._counting.stop()
        await self._stop_ahead()
        await self._alarms.stop()

    @property
    def problem(self) -> str:
        ahead = self._showing_ahead.problem if self._showing_ahead is not None else ""
        return self._unread or self._counting.problem or ahead or self._alarms.problem

    async def report(self) -> dict[str, Any]:
        """The report of live traffic. `sequence` is how far it goes, `complete` whether all was read."""
        told = await self._board.current()
        return {**told, "alarms": self._alarms.alarms.rows(), "complete": self._caught_up.is_set()}

    def alarms(self) -> dict[str, Any]:
        return {
            **self._alarms.alarms.to_dict(),
            "sequence": self._counted,
            "complete": self._caught_up.is_set(),
        }

    async def frames(self, wanted: Filter, since: int | None) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n: groundwatch\n\n"
        async with contextlib.aclosing(self.watch(wanted, since)) as watched:
            async for several in watched:
                yield b"".join(map(_frame, several))

    async def watch(
        self, wanted: Filter, since: int | None
    ) -> AsyncGenerator[Sequence[Shown | Missed | Heartbeat]]:
        """Outcomes after sequence `since`, or from now on, until the gateway closes, and heartbeats."""
        while not await self._ready():
            yield [Heartbeat(since or 0)]
        after = 0 if since is None else await self._floor(since)
        if since is not None:
            position = after
            async for past in self._past(wanted, after):
                position = position if past is None else past.sequence
                yield [past or Heartbeat(position)]
        watcher = Watcher(wanted, after)
        self.watchers.add(watcher)
        try:
            while not self._closing:
                if found := await watcher.next(HEARTBEAT_SECONDS):
                    yield found
                elif not self._closing:
                    yield [Heartbeat(max(self.position, watcher.after))]
        finally:
            self.watchers.discard(watcher)

    async def _ready(self) -> bool:
        """Wait until it is known from where on outcomes are shown, at most for a heartbeat."""
        if not self._closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._showing.wait()
        return self._closing or self._showing.is_set()

    async def _floor(self, since: int) -> int:
        """Up to where one who comes back has seen everything; what is behind our reading may be at another's.

        Ours, when the stream has never come so far: it was made anew.
        """
        if since <= self.position:
            return since
        with contextlib.suppress(*FAULTS):
            if (await self._bus.js.stream_info(OUTCOMES)).state.last_seq < since:
                return self.position
        return since

    async def _past(self, wanted: Filter, since: int) -> AsyncIterator[Shown | None]:
        """From the stream itself, until nothing lies between it and what is fanned out; None: must wait."""
        position = min(since, self.position)
        while position < self.position and not self._closing:
            last = self.position
            try:
                async for read in read_stream(
                    self._bus.js,
                    OUTCOMES,
                    subjects=[SUBJECT],
                    start_sequence=position + 1,
                    last_sequence=last,
                ):
                    event = _decode(read)
                    if event is not None and wanted.matches(event):
                        yield Shown(read.sequence, event, read.data)
                    position = read.sequence
            except (*FAULTS, TransientError):
                yield None
                await asyncio.sleep(1.0)
                continue
            position = last

    async def _count(self) -> None:
        """Report, alarms and budgets: every outcome once, in the order of the stream."""
        while True:
            # Begun again after a failure, the report is read beside the one that is shown.
            board, behind = self._new_board(), True
            if not self._caught_up.is_set():
                self._board = board
            async for batch in self._follow(1):
                for read in batch.messages:
                    self._take(board, read)
                if behind and batch.pending == 0:
                    behind, self._board = False, board
                    self._caught_up.set()
                    self._showing.set()
                    await self._stop_ahead()
                elif behind and self._showing_ahead is None:
                    self._showing_ahead = SupervisedTask("gateway-live-ahead", self._show_ahead)
                    self._showing_ahead.start()
            await self._begin_anew()

    async def _measure(self) -> None:
        """Show the report's figures as metrics, from when the history was read."""
        while True:
            await self._caught_up.wait()
            self._metrics.figures((await self._board.current())["models"])
            await asyncio.sleep(FIGURE_SECONDS)

    async def _begin_anew(self) -> None:
        await self._stop_ahead()
        self.position = self._counted = 0
        self._alarms.reset()
        for watcher in self.watchers:
            watcher.after = 0
        self._budgets.forget()
        self._caught_up.clear()
        self._showing.clear()

    async def _show_ahead(self) -> None:
        """While the history is being counted, those who watch see what comes now."""
        if not self._showing.is_set():
            state = (await self._bus.js.stream_info(OUTCOMES)).state
            self.position = max(self.position, state.last_seq)
            self._showing.set()
        async for batch in self._follow(self.position + 1):
            for read in batch.messages:
                if read.sequence > self.position and (event := _decode(read)) is not None:
                    self._show(read, event)
        # It is another stream: the counting finds that too, and begins anew.
        await asyncio.get_running_loop().create_future()

    async def _stop_ahead(self) -> None:
        ahead, self._showing_ahead = self._showing_ahead, None
        if ahead is not None:
            await ahead.stop()

    def _follow(self, start: int) -> AsyncGenerator[Batch]:
        return follow_stream(
            self._bus.js, OUTCOMES, subjects=[SUBJECT], start_sequence=start, on_fault=self._fault
        )

    def _take(self, board: Board, read: Read) -> None:
        event = _decode(read)
        board.add(read.sequence, read.subject, event)
        if read.sequence > self._counted:
            self._counted = read.sequence
            if event is not None:
                self._alarms.take(event, new=self._caught_up.is_set())
                self._budgets.charge(event, read.sequence)
        if read.sequence > self.position:
            self._show(read, event)

    def _show(self, read: Read, event: ResponseScored | None) -> None:
        """To everybody who watches. Only once: of the two who read, whoever comes first."""
        self.position = read.sequence
        if event is None:
            return
        shown = Shown(read.sequence, event, read.data)
        for watcher in self.watchers:
            if watcher.wanted.matches(event):
                watcher.offer(shown)

    def _fault(self, problem: str) -> None:
        if problem and not self._unread:
            logger.warning("gateway.live", problem=problem)
        self._unread = problem


def _frame(item: Shown | Missed | Heartbeat) -> bytes:
    match item:
        case Shown():
            return b"id: %d\nevent: outcome\ndata: %b\n\n" % (item.sequence, item.data)
        case Missed():
            return b'event: missed\ndata: {"count":%d,"since":%d}\n\n' % (item.count, item.after)
    return b": heartbeat\n\n"


def _decode(read: Read) -> ResponseScored | None:
    try:
        return _DECODER.decode(read.data)
    except UNDECODED as error:
        logger.warning("gateway.outcome", subject=read.subject, error=str(error))
        return None
