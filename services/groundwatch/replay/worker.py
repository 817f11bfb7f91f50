"""Working at a run: read a page, judge, publish, and only then say that it is done.

Publish, then move the page's position: a process that dies in between leaves outcomes behind its position,
which the next one finds in the stream. Every event is published with "expect no message on this subject",
so what comes twice adds nothing. Live traffic goes first: a replay waits while the services have work.
"""

import asyncio
import contextlib
import gc
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
import nats.js.errors

from groundwatch.errors import TransientError
from groundwatch.replay.pipeline import Choosing, Chosen, Pipeline, Writer
from groundwatch.replay.planning import Stretch
from groundwatch.replay.runs import (
    Counts,
    Page,
    Run,
    RunGone,
    Runs,
    grown,
    judged_by,
    page_of,
    reported,
    take,
    this_worker,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, MOST, Read
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import RETRY
from groundwatch.topology.partitions import consumers

LOOK_SECONDS = 0.25
"""Between two looks, each a question for every consumer, while no traffic is seen to flow."""

LOOK_SECONDS_FLOWING = 1.0
BUSY = 20
"""Events that wait for, or are held by, the services of live traffic: a replay gives way from here on."""

FLOWING = 2.5
"""Seconds after live traffic was last seen during which a replay works in turns."""

SHARE = 0.1
"""How much of the time it works while live traffic flows."""

PIECE = 3
"""Events that it works at between two pauses then: what a live event waits for, at most."""

FIRST_SECONDS = 0.1
"""Until the second look, which is the first that can see traffic flow, it is taken to flow."""

NICE = 5


def prefer_others() -> None:
    """Let the operating system give this whole process less than others: for one that only replays."""
    with contextlib.suppress(OSError):
        os.nice(max(0, NICE - os.nice(0)))


class LiveTrafficThrottle:
    """Watches the consumers of live traffic; `wait` returns when a replay may go on."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._watching = SupervisedTask("replay-throttle", self._watch)
        self._stopped = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._seen: dict[str, int] = {}
        self._looks = 0
        self._flowed = -FLOWING
        self._last = time.monotonic()
        self.waited = 0.0

    def start(self) -> None:
        """Begin to watch."""
        self._watching.start()

    async def stop(self) -> None:
        """Watch no more."""
        # Told and not cancelled: a cancellation can be lost in nats-py while it waits for an answer.
        self._stopped.set()
        await self._watching.finish()
        self._free.set()

    @property
    def flowing(self) -> bool:
        """Whether live traffic flows: then one piece is finished before another is begun."""
        return self._looks < 2 or time.monotonic() - self._flowed < FLOWING

    def most(self, wanted: int, flowing: int = PIECE) -> int:
        """How many events may be worked at, or read, at a time: at most `flowing` while traffic flows."""
        return min(wanted, flowing) if self.flowing else wanted

    async def wait(self) -> None:
        """Wait until live traffic leaves room. Called before each piece, with the one before it finished
        while traffic flows."""
        began = time.monotonic()
        if not self._free.is_set():
            await self._free.wait()
        elif self.flowing:
            # Some times as long a pause as the piece before took, so that the services find an idle core.
            await asyncio.sleep(min((began - self._last) * (1 / SHARE - 1), 0.5))
        self._last = time.monotonic()
        self.waited += self._last - began

    async def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                waiting = await self._look()
            except FAULTS as error:
                logger.debug("throttle.unknown", error=repr(error))
                waiting = 0
            self._looks += 1
            if waiting > BUSY:
                self._free.clear()
            else:
                self._free.set()
            pause = FIRST_SECONDS
            if self._looks >= 2:
                pause = LOOK_SECONDS_FLOWING if self.flowing else LOOK_SECONDS
            await until_set(self._stopped, pause)

    async def _look(self) -> int:
        """How many events wait for the services or are in their hands.

        What nobody fetches is not waited for: it would be for ever.
        """
        waiting = 0
        for spec in consumers(self._bus.partitions):
            if spec.stream == RETRY:
                continue
            info = await self._bus.js.consumer_info(spec.stream, spec.name)
            if info.num_waiting or info.num_ack_pending:
                waiting += (info.num_pending or 0) + (info.num_ack_pending or 0)
            delivered = int(info.delivered.consumer_seq) if info.delivered else 0
            if self._seen.setdefault(spec.name, delivered) != delivered:
                self._seen[spec.name] = delivered
                self._flowed = time.monotonic()
        return waiting


class Pace:
    """Keeps the distances at which responses were recorded, `speed` times as fast; 0: no distances."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._began = 0.0
        self._first: float | None = None

    def left(self, recorded_at: float) -> float:
        """Seconds until it is this one's turn; the first one's is at once."""
        if not self._speed:
            return 0.0
        if self._first is None:
            self._first, self._began = recorded_at, time.monotonic()
        due = self._began + (recorded_at - self._first) / self._speed
        return due - time.monotonic()


BATCH = 200
PATIENT_BATCH = 16
IN_WORK = 4
"""Batches that are judged or published at once."""

REPORT_SECONDS = 1.0
"""How often the position is written while a page is in work."""

AWAY_SECONDS = 600.0
"""How long a server may stay away before the replay gives up; its run can be resumed."""

PAUSE = 0.5

GC_THRESHOLDS = gc.get_threshold()
GARBAGE = 20_000
"""Objects after which garbage is looked for: those of about two batches."""

Progress = Callable[[Run], None]


class Replayer:
    """One process's work at one run. Any number of them may work at the same run."""

    def __init__(
        self,
        bus: Bus,
        runs: Runs,
        settings: Settings,
        run: Run,
        *,
        on_progress: Progress | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.run = run
        self._runs = runs
        self._me = this_worker()
        self._history = Stretch(run.first, run.last, run.parts).of(bus.history)
        self._pipeline = Pipeline.of_run(run.spec, settings, bus, metrics)
        self._choosing = Choosing(run.spec)
        self.writer = Writer(bus, run, self._pipeline, begin_protocol=self._begin_protocol, away=self._away)
        self.throttle = LiveTrafficThrottle(bus)
        self._on_progress = on_progress or (lambda _: None)
        self._stopping = False
        self._reached = time.monotonic()
        # Of the page in work: the position behind what is finished, what was counted since it was written
        # down, and what is in work, in the order of the stream, each with its last sequence.
        self._at = 0
        self._since = Counts()
        self._reported = 0.0
        self._waiting: deque[tuple[int, asyncio.Task[Counts]]] = deque()
        self._pace = Pace(run.spec.speed)
        self._look_first = 0

    def stop(self) -> None:
        """Finish what is in hand, let go of the page and return."""
        self._stopping = True

    async def work(self) -> Run:
        """Work until the run is done, paused or cancelled, or until `stop`.

        Raises `TransientError` when the server stays away, `UsageError` when the judges are no longer those
        that the run was begun with.
        """
        self.throttle.start()
        try:
            while not self._stopping:
                run = await self._change(partial(take, worker=self._me))
                if run.status != "running":
                    break
                page = page_of(run, self._me)
                if page is None:
                    # Others have what is left. Should one of them die, its page is ours.
                    await asyncio.sleep(PAUSE)
                    continue
                await self._work_at(page)
        except RunGone:
            self.run = msgspec.structs.replace(self.run, status="deleting")
        finally:
            gc.unfreeze()
            gc.set_threshold(*GC_THRESHOLDS)
            await self.throttle.stop()
            await self._pipeline.close()
        return self.run

    async def _work_at(self, page: Page) -> None:
        """Until the page is through, with what it grows by, or no more may be begun."""
        self._at, self._since, self._reported = page.at, Counts(), time.monotonic()
        self._pace = Pace(self.run.spec.speed)
        # What lies behind the position of a page that was somebody else's may be published already: as much
        # as was in work at once.
        self._look_first = (IN_WORK + 1) * BATCH if page.taken > 1 else 0
        quiet = asyncio.Event()
        reporting = asyncio.create_task(self._report_until(quiet))
        try:
            await self._through()
            await self._finish(0)
        finally:
            # Not cancelled: a report in the air counts what this object has already forgotten.
            quiet.set()
            for _, task in self._waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in self._waiting), return_exceptions=True)
            self._waiting.clear()
            await reporting
        await self._report(let_go=True)

    async def _through(self) -> None:
        """Read on behind what is finished, by one consumer as long as nobody else has what follows.

        For each new consumer the server counts everything behind its start, at 400,000 subjects for 0.1 s,
        and whoever writes to the stream waits meanwhile: live traffic would notice each page.
        """
        run = self.run
        while not self._over():
            reading = self._history.batches(
                run.spec.stream,
                subjects=(run.spec.subjects,),
                start_sequence=self._at,
                last_sequence=run.last,
                most=lambda: self.throttle.most(MOST, 5 * PIECE),
                timeout=0.0,
            )
            try:
                async with contextlib.aclosing(reading):
                    async for messages in reading:
                        self._reached = time.monotonic()
                        if not await self._begin_all(messages):
                            break
                    else:
                        # There are no more: what nobody has taken is through as well.
                        await self._change(partial(grown, worker=self._me, sequence=run.last))
                await self._finish(0)
            except nats.js.errors.NotFoundError:
                raise
            except (*FAULTS, TransientError) as error:
                await self._finish(0)
                await self._away(error)
                continue
            if not self._over():
                self._at = self._last + 1
            return

    async def _begin_all(self, messages: list[Read]) -> bool:
        """Begin with these; False where no more may be begun, or somebody else has what follows."""
        start = 0
        while start < len(messages):
            first = messages[start].sequence
            if not self._over() and self._last < first:
                await self._change(partial(grown, worker=self._me, sequence=first))
            if self._over() or self._last < first:
                return False
            # Engines that wait for a server let go of few at once.
            size = self.throttle.most(BATCH if self._pipeline.compute else PATIENT_BATCH)
            until = min(start + size, len(messages))
            end = bisect_right(messages, self._last, start, until, key=lambda one: one.sequence)
            for piece in self._paced(messages[start:end]):
                await self._until_due(piece)
                await self._finish(0 if self.throttle.flowing else IN_WORK - 1)
                await self.throttle.wait()
                if self._over():
                    return False
                work = self.writer.write(piece, look_first=self._look_first > 0)
                self._look_first -= piece.events
                self._waiting.append((piece.last, asyncio.create_task(work)))
            start = end
        return True

    async def _until_due(self, piece: Chosen) -> None:
        while True:
            left = self._pace.left(piece.due)
            if left <= 0 or self._over():
                return
            await asyncio.sleep(min(left, PAUSE))

    def _paced(self, part: list[Read]) -> list[Chosen]:
        """One piece at full speed; else pieces of responses that were recorded within a tenth of a second.

        Each knows its own last sequence: what is counted is always behind the position that goes with it.
        """
        choose, speed = self._choosing.choose, self.run.spec.speed
        if not speed:
            return [choose(part)]
        pieces: list[Chosen] = []
        for one in (choose([message]) for message in part):
            both = pieces[-1].joined(one, 0.1 * speed) if pieces else None
            pieces[-1:] = [both] if both is not None else [*pieces[-1:], one]
        return pieces

    async def _finish(self, most: int) -> None:
        """Wait until at most `most` batches are in work."""
        while self._waiting and (len(self._waiting) > most or self._waiting[0][1].done()):
            last, task = self._waiting[0]
            counts = await task
            self._waiting.popleft()
            self._since += counts
            self._at = last + 1
            self._reached = time.monotonic()

    @property
    def _last(self) -> int:
        """The last sequence of our page; 0 where it is no longer ours."""
        page = page_of(self.run, self._me)
        return page.last if page is not None else 0

    def _over(self) -> bool:
        """Whether no more may be begun."""
        return self._stopping or self.run.status != "running" or not self._last

    async def _report_until(self, quiet: asyncio.Event) -> None:
        while not quiet.is_set():
            await self._report()
            await until_set(quiet, REPORT_SECONDS)

    async def _report(self, *, let_go: bool = False) -> None:
        """Write down how far our page is."""
        now = time.monotonic()
        counts, self._since = self._since, Counts()
        seconds, self._reported = now - self._reported, now
        at = self._at
        await self._change(lambda run: reported(run, self._me, at, counts, seconds, let_go=let_go))

    async def _change(self, how: Callable[[Run], Run]) -> Run:
        """Change the run's state, however long the server takes to come back."""
        while True:
            try:
                self.run = await self._runs.change(self.run.name, how)
            except TransientError as error:
                await self._away(error)
                continue
            self._reached = time.monotonic()
            self._on_progress(self.run)
            return self.run

    async def _away(self, error: Exception) -> None:
        """Wait a moment for a server that does not answer; raises `TransientError` when it never will."""
        if time.monotonic() - self._reached > AWAY_SECONDS:
            raise TransientError(
                f"{error}; the run keeps what it has: go on with groundwatch replay resume {self.run.name}"
            ) from error
        logger.debug("replay.waiting", run=self.run.name, error=str(error))
        await asyncio.sleep(PAUSE)

    async def _begin_protocol(self, name: str, fingerprints: dict[str, str]) -> None:
        """Write down who judges; raises `UsageError` when it was somebody else before."""
        # The judges are loaded. To look through them for garbage again and again takes a fifth of the time;
        # to look through the events in work after every few hundred objects, a tenth.
        gc.freeze()
        gc.set_threshold(GARBAGE, *GC_THRESHOLDS[1:])
        await self._change(lambda run: judged_by(run, name, fingerprints))
