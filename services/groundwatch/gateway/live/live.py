"""Live scores: one reading of the outcomes, fanned out to everybody who watches, and counted in one report.

Nobody who watches can hold up the others: each has a queue of its own, and who falls behind is told how
many outcomes were left out and from where to ask for them.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from groundwatch.errors import GroundwatchError, words
from groundwatch.events import LIVE, AlarmRaised, ResponseScored
from groundwatch.gateway.auth import Filter
from groundwatch.gateway.budgets import Budgets
from groundwatch.gateway.live.alarms import AlarmPublisher
from groundwatch.gateway.live.board import Board, BoardState, Snapshots, State, packed
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.corrected import CorrectedRow
from groundwatch.reporting.trends import VersionReport
from groundwatch.reviews.corrected import read_corrected
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History, last_before, merged
from groundwatch.runtime.delivery.streams import FAULTS, Batch, Read, decoded, position_of
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.alarm import Rule
from groundwatch.topology import OUTCOMES, PREFIX
from groundwatch.topology.partitions import partition_of_subject, stream_in, streams_of_kind, subjects_in

QUEUE = 1_000
TOGETHER = 64


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
            await until_set(self.awake, timeout)
        found: list[Shown | Missed] = []
        while self._queue and len(found) < TOGETHER:
            self._last = self._queue[0].sequence
            found.append(self._queue.popleft())
        if not self._queue and self._missed:
            found.append(Missed(self._missed, self._last))
            self._missed = 0
        return found


def frame(item: Shown | Missed | Heartbeat) -> bytes:
    """As a server-sent event."""
    match item:
        case Shown():
            return b"id: %d\nevent: outcome\ndata: %b\n\n" % (item.sequence, item.data)
        case Missed():
            return b'event: missed\ndata: {"count":%d,"since":%d}\n\n' % (item.count, item.after)
    return b": heartbeat\n\n"


SUBJECT = f"{PREFIX}.outcome.{LIVE}.*.*"
HEARTBEAT_SECONDS = 15.0
FIGURE_SECONDS = 15.0
CORRECTED_SECONDS = 1.0

STOP_SECONDS = 10.0
"""What a stop gives to the last snapshot."""

SKEW_SECONDS = 300.0
"""By which the clocks of gateways and of NATS may differ."""

OVERLAP_SECONDS = 5.0
"""With several partitions, so much of what one has seen is shown again: one may be behind another."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class Live:
    """Reads the outcomes of live traffic once, for the report and for all watchers."""

    def __init__(
        self,
        bus: Bus,
        alarms: AlarmPublisher,
        budgets: Budgets,
        metrics: Metrics,
        most: int | None,
        *,
        erased: Erased,
        snapshots: Snapshots,
        every: float,
    ) -> None:
        """A snapshot is written `every` so many seconds, and at the end."""
        self._bus = bus
        self._partitions = bus.partitions
        self._erased = erased
        self._snapshots = snapshots
        self._every = every
        self._alarms = alarms
        self._budgets = budgets
        self._metrics = metrics
        self.watchers: set[Watcher] = set()
        self._new_board = partial(Board, most, lambda: alarms.alarms.alarmed(), metrics.version_of)
        self._board = self._new_board()
        self._counting = SupervisedTask("gateway-live", self._count)
        self._measuring = SupervisedTask("gateway-figures", self._measure)
        self._keeping = SupervisedTask("gateway-snapshots", self._keep)
        self._showing_ahead: SupervisedTask | None = None
        self._caught_up = asyncio.Event()
        self._showing = asyncio.Event()
        self._closing = False
        self._counted: dict[int, int] = {}
        self._shown: dict[int, int] = {}
        self._unread = ""
        self._corrected: tuple[CorrectedRow, ...] = ()
        self._corrected_until = 0.0
        self.position = 0
        """Up to where outcomes were shown to those who watch, or lie in the stream for them to be read: a
        sequence, or with several partitions a time in µs."""

    def start(self) -> None:
        self._alarms.start()
        self._counting.start()
        self._measuring.start()
        self._keeping.start()

    def close(self) -> None:
        self._closing = True
        for watcher in self.watchers:
            watcher.awake.set()

    async def stop(self) -> None:
        self.close()
        for task in (self._keeping, self._measuring, self._counting):
            await task.stop()
        await self._stop_ahead()
        if not self._bus.away:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self.write_snapshot()
        await self._alarms.stop()

    @property
    def problem(self) -> str:
        ahead = self._showing_ahead.problem if self._showing_ahead is not None else ""
        of_tasks = (self._counting.problem, ahead, self._keeping.problem, self._alarms.problem)
        return self._unread or next(filter(None, of_tasks), "")

    @property
    def notes(self) -> list[str]:
        """What is not quite right about the report."""
        found = [self._snapshots.problem] if self._snapshots.problem else []
        if forgotten := self._board.forgotten:
            found.append(
                f"{forgotten} dead letters are too old: one that is retried counts twice in the report"
            )
        return found

    async def report(self) -> dict[str, Any]:
        """The report of live traffic. `sequence` is how far it goes, `complete` whether all was read."""
        told = await self._board.current()
        return {
            **told,
            "alarms": [msgspec.structs.asdict(one.alarm) for one in self.raised],
            "corrected": msgspec.to_builtins(await self.corrected()),
            "complete": self._caught_up.is_set(),
        }

    async def corrected(self) -> tuple[CorrectedRow, ...]:
        """The corrected rates of all queues, as the annotation service computed them last."""
        if time.monotonic() >= self._corrected_until:
            with contextlib.suppress(GroundwatchError):
                self._corrected = (await read_corrected(self._bus)).rows
            self._corrected_until = time.monotonic() + CORRECTED_SECONDS
        return self._corrected

    async def versions(self, within: str = "") -> tuple[VersionReport, ...]:
        """The versions of the report's models, each with its rate over time; `within` is one of `RANGES`."""
        return await self._board.versions(within)

    @property
    def raised(self) -> Sequence[Raised]:
        """Alarms, the oldest first; those without an end are raised now."""
        found = self._alarms.raised
        if not self._caught_up.is_set():
            # The rule of now may find them yet.
            for one in found:
                one.earlier = False
        return found

    def end(self, alarm: AlarmRaised) -> None:
        """End an alarm that is raised by a rule not in use."""
        self._alarms.end(alarm)

    @property
    def rule(self) -> Rule:
        """When an alarm is raised."""
        return self._alarms.alarms.rule

    def alarms(self) -> dict[str, Any]:
        return {
            **self._alarms.alarms.to_dict(),
            "alarms": [msgspec.structs.asdict(one.alarm) for one in self.raised],
            "sequence": sum(self._counted.values()),
            "complete": self._caught_up.is_set(),
        }

    async def frames(self, wanted: Filter, since: int | None) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n: groundwatch\n\n"
        async with contextlib.aclosing(self.watch(wanted, since)) as watched:
            async for several in watched:
                yield b"".join(map(frame, several))

    async def watch(
        self, wanted: Filter, since: int | None
    ) -> AsyncGenerator[Sequence[Shown | Missed | Heartbeat]]:
        """Outcomes after position `since`, or from now on, until the gateway closes, and heartbeats.

        With several partitions those of the seconds before it come again: each has an order of its own.
        """
        while not await self._ready():
            yield [Heartbeat(since or 0)]
        after = 0 if since is None else await self._floor(since)
        if since is not None:
            position = after
            async for past in self._past(wanted, after):
                position = position if past is None else past.sequence
                yield [past or Heartbeat(position)]
        # Of several partitions, one may still be shown what another gateway has read.
        watcher = Watcher(wanted, after if self._partitions == 1 else 0)
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
            await until_set(self._showing, HEARTBEAT_SECONDS)
        return self._closing or self._showing.is_set()

    async def _floor(self, since: int) -> int:
        """Up to where one who comes back has seen everything; what is behind our reading may be at another's.

        Ours, when the stream has never come so far: it was made anew.
        """
        if since <= self.position or self._partitions > 1:
            return since
        with contextlib.suppress(*FAULTS):
            if (await self._bus.js.stream_info(OUTCOMES)).state.last_seq < since:
                return self.position
        return since

    async def _past(self, wanted: Filter, since: int) -> AsyncIterator[Shown | None]:
        """As recorded, until nothing lies between it and what is fanned out; None: must wait."""
        seen: dict[int, int] | None = None
        while not self._closing:
            try:
                if seen is None:
                    seen = await self._seen_until(since)
                behind = {one: last for one, last in self._shown.items() if seen.get(one, 0) < last}
                if not behind:
                    return
                for partition, last in behind.items():
                    async for read in self._outcomes.read(
                        stream_in(OUTCOMES, partition),
                        subjects=subjects_in([SUBJECT], partition),
                        start_sequence=seen.get(partition, 0) + 1,
                        last_sequence=last,
                    ):
                        event = decoded(_DECODER, read)
                        if event is not None and wanted.matches(event):
                            yield Shown(self._place(read), event, read.data)
                        seen[partition] = read.sequence
                    seen[partition] = last
            except (*FAULTS, GroundwatchError) as error:
                logger.warning("gateway.past_unread", since=since, error=words(error))
                yield None
                await asyncio.sleep(1.0)

    async def _seen_until(self, since: int) -> dict[int, int]:
        """Up to which sequence of each partition one has seen what there was at a position."""
        if self._partitions == 1:
            return {0: since}
        moment = since / 1e6 - OVERLAP_SECONDS
        partitions = range(self._partitions)
        found = await asyncio.gather(
            *(last_before(self._outcomes, stream_in(OUTCOMES, one), moment) for one in partitions)
        )
        return dict(zip(partitions, found, strict=True))

    def _place(self, read: Read) -> int:
        """The position of an outcome, for one who comes back."""
        return read.sequence if self._partitions == 1 else int(read.time * 1e6)

    async def _count(self) -> None:
        """Report, alarms and budgets: every outcome once, in the order of the stream."""
        try:
            await self._count_all()
        except GroundwatchError:
            # The archive cannot be read: who watches sees what comes.
            self._start_ahead()
            raise

    async def _count_all(self) -> None:
        while True:
            # Begun again after a failure, the report is read beside the one that is shown.
            board, behind = await self._begin(), True
            if not self._caught_up.is_set():
                self._board = board
            left = set(range(self._partitions))
            # It may go further than what those who watch, alarms and budgets were given.
            within = dict(board.sequences)
            start = {one: min(within.get(one, 0), self._counted.get(one, 0)) for one in left}
            async with contextlib.aclosing(self._follow(start)) as following:
                async for partition, batch in following:
                    for read in batch.messages:
                        self._take(board, read, within)
                    if batch.pending == 0:
                        left.discard(partition)
                    if behind and not left:
                        behind, self._board = False, board
                        self._caught_up.set()
                        self._show_from_now()
                        await self._stop_ahead()
                    elif behind:
                        self._start_ahead()
            await self._begin_anew()

    async def _measure(self) -> None:
        """Show the report's figures as metrics, from when the history was read."""
        while True:
            await self._caught_up.wait()
            self._metrics.figures((await self._board.current())["models"])
            await asyncio.sleep(FIGURE_SECONDS)

    async def _begin(self) -> Board:
        """The report as it was last written down; an empty one where there is none, or where it counts what
        was erased since."""
        board = self._new_board()
        state = await self._snapshots.read()
        if state is None:
            return board
        if not self._counted:
            # Also of a report that is not gone on from: who watched another gateway goes on behind it.
            _raise_to(self._shown, state.board.sequences)
        if self._erased.since(state.board.begun - SKEW_SECONDS):
            return board
        try:
            await asyncio.to_thread(board.restore, state.board)
            if not self._counted:
                await self._alarms.restore(state.alarms_state())
        except ValueError as error:
            logger.warning("gateway.snapshot_unread", error=repr(error))
            return self._new_board()
        if not self._counted:
            self._counted.update(board.sequences)
            if self._partitions == 1:
                self.position = max(self.position, board.sequence)
        logger.info("gateway.snapshot", sequence=board.sequence)
        return board

    async def _keep(self) -> None:
        """Write the report down, now and then."""
        while True:
            await asyncio.sleep(self._every)
            await self.write_snapshot(self._every / 2)

    async def write_snapshot(self, seconds: float = 0.0) -> bool:
        """Write the report down, unless a gateway has done so in so many seconds; whether it is written."""
        counted = sum(self._counted.values())
        if not self._caught_up.is_set() or not await self._snapshots.wanted(counted, seconds):
            return False
        sequence = 0

        def captured(board: BoardState) -> Callable[[], bytes] | None:
            nonlocal sequence
            if board.sequences != self._counted or self._alarms.waiting:
                return None
            sequence = sum(board.sequences.values())
            # Encoded at once: alarms take outcomes while the thread works.
            alarms = msgspec.Raw(msgspec.msgpack.encode(self._alarms.alarms.state()))
            return partial(packed, State(board, alarms))

        data = await self._board.written(captured)
        # What was charged to budgets up to there must be written first: nobody reads it again.
        return bool(data) and await self._budgets.settled() and await self._snapshots.write(sequence, data)

    async def _begin_anew(self) -> None:
        await self._stop_ahead()
        self.position = 0
        self._counted.clear()
        self._shown.clear()
        self._alarms.reset()
        for watcher in self.watchers:
            watcher.after = 0
        self._budgets.forget()
        self._caught_up.clear()
        self._showing.clear()

    async def _show_ahead(self) -> None:
        """While the history is being counted, those who watch see what comes now."""
        if not self._showing.is_set():
            streams = streams_of_kind(OUTCOMES, self._partitions)
            held = await asyncio.gather(*(position_of(self._bus.js, stream) for stream in streams))
            _raise_to(self._shown, {partition: one.last for partition, one in enumerate(held)})
            if self._partitions == 1:
                self.position = max(self.position, held[0].last)
            self._show_from_now()
        async for partition, batch in self._follow(self._shown):
            for read in batch.messages:
                if read.sequence > self._shown.get(partition, 0):
                    self._show(read, decoded(_DECODER, read))
        # It is another stream: the counting finds that too, and begins anew.
        await asyncio.get_running_loop().create_future()

    def _start_ahead(self) -> None:
        if self._showing_ahead is None:
            self._showing_ahead = SupervisedTask("gateway-live-ahead", self._show_ahead)
            self._showing_ahead.start()

    async def _stop_ahead(self) -> None:
        ahead, self._showing_ahead = self._showing_ahead, None
        if ahead is not None:
            await ahead.stop()

    def _show_from_now(self) -> None:
        if self._partitions > 1 and not self.position:
            self.position = int(time.time() * 1e6)
        self._showing.set()

    @property
    def _outcomes(self) -> History:
        """Where a stream is that of one partition."""
        return self._bus.history.of_one_partition

    def _follow(self, behind: Mapping[int, int]) -> AsyncGenerator[tuple[int, Batch]]:
        """What comes behind these sequences, with the partition that it is of."""
        return merged([self._follow_one(one, behind.get(one, 0) + 1) for one in range(self._partitions)])

    async def _follow_one(self, partition: int, start: int) -> AsyncGenerator[tuple[int, Batch]]:
        following = self._outcomes.follow(
            stream_in(OUTCOMES, partition),
            subjects=subjects_in([SUBJECT], partition),
            start_sequence=start,
            on_fault=self._fault,
        )
        async with contextlib.aclosing(following):
            async for batch in following:
                yield partition, batch

    def _take(self, board: Board, read: Read, within: Mapping[int, int]) -> None:
        """An outcome for each who has not had it; `within` the board is what came up to these sequences."""
        event = decoded(_DECODER, read)
        partition = partition_of_subject(read.subject)
        if read.sequence > within.get(partition, 0):
            board.add(read.sequence, read.subject, event)
        if read.sequence > self._counted.get(partition, 0):
            self._counted[partition] = read.sequence
            if event is not None:
                self._alarms.take(event)
                self._budgets.charge(event, read.sequence, partition)
        if read.sequence > self._shown.get(partition, 0):
            self._show(read, event)

    def _show(self, read: Read, event: ResponseScored | None) -> None:
        """To everybody who watches. Only once: of the two who read, whoever comes first."""
        self._shown[partition_of_subject(read.subject)] = read.sequence
        self.position = max(self.position, self._place(read))
        if event is None:
            return
        shown = Shown(self._place(read), event, read.data)
        for watcher in self.watchers:
            if watcher.wanted.matches(event):
                watcher.offer(shown)

    def _fault(self, problem: str) -> None:
        if problem and not self._unread:
            logger.warning("gateway.live", problem=problem)
        self._unread = problem


def _raise_to(sequences: dict[int, int], others: Mapping[int, int]) -> None:
    for partition, sequence in others.items():
        sequences[partition] = max(sequence, sequences.get(partition, 0))
