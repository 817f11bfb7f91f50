"""Working at a run: read a page, judge, publish, and only then say that it is done.

Publish, then move the page's position: a process that dies in between leaves outcomes behind its position,
which the next one finds in the stream. Every event is published with "expect no message on this subject",
so what comes twice adds nothing.
"""

import asyncio
import contextlib
import gc
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable

import msgspec
import nats.js.errors

from groundwatch.errors import TransientError
from groundwatch.replay.pipeline import Pipeline
from groundwatch.replay.planning import Stretch
from groundwatch.replay.runs import (
    Counts,
    Page,
    Run,
    RunGone,
    Runs,
    judged_by,
    page_of,
    reported,
    take,
    this_worker,
)
from groundwatch.replay.throttle import PIECE, LiveTrafficThrottle, Pace
from groundwatch.replay.writing import Choosing, Chosen, Writer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.streams import FAULTS, MOST, Read
from groundwatch.runtime.services.tasks import until_set
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

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
        self.spec = run.spec
        self._runs = runs
        self._me = this_worker()
        self._pipeline = Pipeline.of_run(run.spec, settings, bus, metrics)
        self.choosing = Choosing(run.spec)
        self.writer = Writer(bus, run, self._pipeline, begin_protocol=self._begin_protocol, away=self.away)
        self.throttle = LiveTrafficThrottle(bus)
        self.reader = PagedReader(
            Stretch(run.first, run.last, run.parts).of(bus.history),
            run.stream,
            run.spec.subjects,
            run.last,
            most=lambda: self.throttle.most(MOST, 5 * PIECE),
        )
        self._on_progress = on_progress or (lambda _: None)
        self.stopping = False
        self._reached = time.monotonic()

    def stop(self) -> None:
        """Finish what is in hand, let go of the page and return."""
        self.stopping = True

    @property
    def over(self) -> bool:
        """Whether no more may be begun."""
        return self.stopping or self.run.status != "running"

    @property
    def batch(self) -> int:
        """How many events are judged at a time: engines that wait for a server let go of few at once."""
        return BATCH if self._pipeline.compute else PATIENT_BATCH

    async def work(self) -> Run:
        """Work until the run is done, paused or cancelled, or until `stop`.

        Raises `TransientError` when the server stays away, `UsageError` when the judges are no longer those
        that the run was begun with.
        """
        self.throttle.start()
        try:
            while not self.stopping:
                run = await self.change(lambda run: take(run, self._me))
                if run.status != "running":
                    break
                page = page_of(run, self._me)
                if page is None:
                    # Others have what is left. Should one of them die, its page is ours.
                    await asyncio.sleep(PAUSE)
                    continue
                await PageWork(self, page).run()
        except RunGone:
            self.run = msgspec.structs.replace(self.run, status="deleting")
        finally:
            gc.unfreeze()
            gc.set_threshold(*GC_THRESHOLDS)
            await self.reader.close()
            await self.throttle.stop()
            await self._pipeline.close()
        return self.run

    async def change(self, how: Callable[[Run], Run]) -> Run:
        """Change the run's state, however long the server takes to come back."""
        while True:
            try:
                self.run = await self._runs.change(self.spec.run, how)
            except TransientError as error:
                await self.away(error)
                continue
            self.reached()
            self._on_progress(self.run)
            return self.run

    async def report(self, number: int, at: int, counts: Counts, seconds: float, *, let_go: bool) -> bool:
        """Write down how far our page is; False when it is no longer ours or the run no longer runs."""
        run = await self.change(
            lambda run: reported(run, self._me, number, at, counts, seconds, let_go=let_go)
        )
        return page_of(run, self._me) is not None

    def reached(self) -> None:
        """The server has just done what it was asked to do."""
        self._reached = time.monotonic()

    async def away(self, error: Exception) -> None:
        """Wait a moment for a server that does not answer; raises `TransientError` when it never will."""
        if time.monotonic() - self._reached > AWAY_SECONDS:
            raise TransientError(
                f"{error}; the run keeps what it has: go on with groundwatch replay resume {self.spec.run}"
            ) from error
        logger.debug("replay.waiting", run=self.spec.run, error=str(error))
        await asyncio.sleep(PAUSE)

    async def _begin_protocol(self, name: str, fingerprints: dict[str, str]) -> None:
        """Write down who judges; raises `UsageError` when it was somebody else before."""
        # The judges are loaded. To look through them for garbage again and again takes a fifth of the time;
        # to look through the events in work after every few hundred objects, a tenth.
        gc.freeze()
        gc.set_threshold(GARBAGE, *GC_THRESHOLDS[1:])
        await self.change(lambda run: judged_by(run, name, fingerprints))


class PageWork:
    """One page: batches in work in the order of the stream, and the position behind the finished ones."""

    def __init__(self, replayer: Replayer, page: Page) -> None:
        self._replayer = replayer
        self._page = page
        self._at = page.at
        self._waiting: deque[tuple[int, asyncio.Task[Counts]]] = deque()
        self._since = Counts()
        self._number = page.said
        self._counted = time.monotonic()
        self._pace = Pace(replayer.spec.speed)
        # What lies behind the position of a page that was somebody else's may be published already: as much
        # as was in work at once.
        self._look_first = (IN_WORK + 1) * BATCH if page.taken > 1 else 0
        self._lost = False
        self._quiet = asyncio.Event()

    async def run(self) -> None:
        """Until the page is through, or no more may be begun."""
        reporting = asyncio.create_task(self._report_loop())
        try:
            await self._through()
            await self._finish(0)
        finally:
            # Not cancelled: a report in the air counts what this object has already forgotten.
            self._quiet.set()
            await self._drop()
            await reporting
        await self._report(let_go=True)

    async def _through(self) -> None:
        replayer, page = self._replayer, self._page
        while not self._over() and self._at <= page.last:
            reading = replayer.reader.page(self._at, page.last)
            try:
                async with contextlib.aclosing(reading):
                    async for messages in reading:
                        replayer.reached()
                        await self._begin_all(messages)
                        if self._over():
                            return
            except TransientError as error:
                await self._finish(0)
                await replayer.away(error)
                continue
            await self._finish(0)
            self._at = page.last + 1

    async def _begin_all(self, messages: list[Read]) -> None:
        start = 0
        while start < len(messages) and not self._over():
            throttle = self._replayer.throttle
            part = messages[start : start + throttle.most(self._replayer.batch)]
            start += len(part)
            for piece in self._paced(part):
                await self._until_due(piece)
                await self._finish(0 if throttle.flowing else IN_WORK - 1)
                await throttle.wait()
                if self._over():
                    return
                self._begin(piece)

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
        choose = self._replayer.choosing.choose
        if not self._replayer.spec.speed:
            return [choose(part)]
        pieces: list[Chosen] = []
        for one in (choose([message]) for message in part):
            both = pieces[-1].joined(one, 0.1 * self._replayer.spec.speed) if pieces else None
            pieces[-1:] = [both] if both is not None else [*pieces[-1:], one]
        return pieces

    def _begin(self, chosen: Chosen) -> None:
        look = self._look_first > 0
        self._look_first -= chosen.events
        work = self._replayer.writer.write(chosen, look_first=look)
        self._waiting.append((chosen.last, asyncio.create_task(work)))

    async def _finish(self, most: int) -> None:
        """Wait until at most `most` batches are in work."""
        while self._waiting and (len(self._waiting) > most or self._waiting[0][1].done()):
            last, task = self._waiting[0]
            counts = await task
            self._waiting.popleft()
            self._since += counts
            self._at = last + 1
            self._replayer.reached()

    async def _drop(self) -> None:
        """Give up what is still in work, after an error."""
        for _, task in self._waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in self._waiting), return_exceptions=True)
        self._waiting.clear()

    def _over(self) -> bool:
        return self._lost or self._replayer.over

    async def _report_loop(self) -> None:
        while not self._quiet.is_set():
            await self._report(let_go=False)
            await until_set(self._quiet, REPORT_SECONDS)

    async def _report(self, *, let_go: bool) -> None:
        now = time.monotonic()
        counts, self._since = self._since, Counts()
        seconds, self._counted = now - self._counted, now
        self._number += 1
        at = self._at
        ours = await self._replayer.report(self._number, at, counts, seconds, let_go=let_go)
        self._lost = not ours


class PagedReader:
    """Reads page after page; one that begins where the last ended by the same consumer.

    For each new consumer the server counts everything behind its start, at 400,000 subjects for 0.1 s, and
    whoever writes to the stream waits meanwhile: live traffic would notice each page.
    """

    def __init__(
        self, history: History, stream: str, subjects: str, last: int, *, most: Callable[[], int]
    ) -> None:
        """`last` is the end of all pages; `most` as for `History.batches`."""
        self._history = history
        self._stream = stream
        self._subjects = subjects
        self._last = last
        self._most = most
        self._reading: AsyncGenerator[list[Read]] | None = None
        self._ahead: list[Read] = []
        self._at = 0
        self._dry = last + 1

    async def page(self, first: int, last: int) -> AsyncGenerator[list[Read]]:
        """What there is at sequences `first` to `last`.

        Raises `TransientError` when the server goes away, `nats.js.errors.NotFoundError` when there is no
        such stream.
        """
        if first >= self._dry:
            return
        if self._reading is None or self._at != first:
            await self.close()
            self._reading = self._history.batches(
                self._stream,
                subjects=(self._subjects,),
                start_sequence=first,
                last_sequence=self._last,
                most=self._most,
                timeout=0.0,
            )
        self._at = first
        while self._at <= last:
            messages, self._ahead = self._ahead, []
            if not messages:
                try:
                    messages = await anext(self._reading)
                except StopAsyncIteration:
                    self._reading, self._dry = None, self._at
                    return
                except BaseException as error:
                    self._reading = None
                    if isinstance(error, FAULTS) and not isinstance(error, nats.js.errors.NotFoundError):
                        raise TransientError(repr(error)) from error
                    raise
            inside = bisect_right(messages, last, key=lambda one: one.sequence)
            self._ahead = messages[inside:]
            self._at = messages[inside - 1].sequence + 1 if inside and not self._ahead else last + 1
            if inside:
                yield messages[:inside]

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        self._ahead = []
        if reading is not None:
            await reading.aclose()
