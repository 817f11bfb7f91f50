"""`groundwatch serve replay`: takes up the runs that nobody works at.

Those are runs that the gateway was asked for and runs whose process died. Any number of these services may
run: they share what there is, page by page, with each other and with whoever types `replay resume`.
"""

import asyncio
import contextlib
import time

from groundwatch.errors import GroundwatchError
from groundwatch.replay.results import changed
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.throttle import prefer_others
from groundwatch.replay.watching import FAULTS, Board, show, state_of
from groundwatch.replay.worker import Replayer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES, REPLAY

LOOK_SECONDS = 1.0

GRACE_SECONDS = 5.0
"""A run that somebody has just begun is theirs: their judges take a moment to load."""

UNABLE_SECONDS = 60.0
"""How long a run is left alone that this process could not work at."""

AT_ONCE = 4
"""Runs in work at once: one that keeps the recorded pace must not hold up the others."""

COMPARE_SECONDS = 10.0
COMPARED = 200
"""Judgements that are put beside those of the source each time: all of a slow run, a sample of a fast one."""


class ReplayService:
    """Works at waiting runs, one set of judges for each."""

    name = REPLAY

    def __init__(self, settings: Settings, bus: Bus, metrics: Metrics) -> None:
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._board = Board(bus)
        self._working: dict[str, tuple[Replayer, asyncio.Task[None]]] = {}
        self._unable: dict[str, float] = {}
        self._stopped = asyncio.Event()
        self._task = SupervisedTask("replay-service", self._watch)
        self._problem = ""

    async def start(self) -> None:
        """Begin to look for runs. Raises `UsageError` where nothing is provisioned."""
        self._runs = await Runs.open(self._bus.js)
        self._task.start()

    async def drain(self, timeout: float) -> None:
        """Finish what is in hand and let go of all runs: others go on with them, or we do, later."""
        self._stopped.set()
        await self._task.finish()
        for replayer, _ in self._working.values():
            replayer.stop()
        tasks = [task for _, task in self._working.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def problems(self) -> list[str]:
        found = self._bus.problems()
        if self._task.problem:
            found.append(self._task.problem)
        if self._problem:
            found.append(self._problem)
        return [f"{self.name}: {why}" for why in found]

    async def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                runs = await self._board.look()
                self._problem = ""
            except FAULTS as error:
                if not self._problem:
                    logger.warning("replay.cannot_look", error=repr(error))
                self._problem = f"cannot look for runs: {error!r}"
            else:
                show(runs, self._metrics.replay, time.time())
                for run in reversed(runs):
                    if self._waits(run):
                        self._take_up(run)
                for name, (replayer, _) in self._working.items():
                    self._metrics.replay.working(name, waited=replayer.throttle.waited)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), LOOK_SECONDS)

    def _waits(self, run: Run) -> bool:
        """Whether it is ours to work at. Runs of other protocols' settings wait: a process has one set."""
        now = time.time()
        protocols = run.spec.settings.get("protocols")
        return (
            state_of(run, now) == "unattended"
            and now - run.updated_at > GRACE_SECONDS
            and run.name not in self._working
            and len(self._working) < AT_ONCE
            and self._unable.get(run.nonce, 0.0) < time.monotonic()
            and all(one.spec.settings.get("protocols") == protocols for one, _ in self._working.values())
        )

    def _take_up(self, run: Run) -> None:
        try:
            replayer = Replayer(
                self._bus,
                self._runs,
                self._settings,
                run,
                on_progress=self._progressed,
                metrics=self._metrics,
            )
        except GroundwatchError as error:
            self._cannot(run, error)
            return
        logger.info("replay.taken_up", run=run.name, share=round(run.share, 3))
        task = asyncio.create_task(self._work(replayer), name=f"replay-{run.name}")
        self._working[run.name] = (replayer, task)
        task.add_done_callback(lambda _: self._working.pop(run.name, None))

    async def _work(self, replayer: Replayer) -> None:
        run = replayer.run
        over = asyncio.Event()
        comparing = asyncio.create_task(self._compare(run, over), name=f"replay-changes-{run.name}")
        try:
            run = await replayer.work()
            logger.info("replay.let_go", run=run.name, status=run.status, share=round(run.share, 3))
        except GroundwatchError as error:
            self._cannot(run, error)
        except Exception as error:
            logger.exception("replay.bug", run=run.name)
            self._cannot(run, error)
        finally:
            over.set()
            await comparing

    def _cannot(self, run: Run, error: Exception) -> None:
        logger.warning("replay.unable", run=run.name, error=str(error) or repr(error), seconds=UNABLE_SECONDS)
        self._unable[run.nonce] = time.monotonic() + UNABLE_SECONDS

    def _progressed(self, run: Run) -> None:
        # Not before: on a busy machine the judges would take minutes to load.
        if run.counts.outcomes:
            prefer_others()

    async def _compare(self, run: Run, over: asyncio.Event) -> None:
        """Count, while the run is worked at, what the same judges say otherwise than in its source."""
        if run.spec.source == run.name:
            return
        metrics = self._metrics.replay
        metrics.put_beside(run.name, compared=0, changed=0)
        last: int | None = None if run.counts.outcomes else 0
        while True:
            last_look = over.is_set()
            try:
                now = int((await self._bus.js.stream_info(OUTCOMES)).state.last_seq)
                if last is not None and now > last:
                    found = await changed(
                        self._bus.js, run.spec.source, run.name, first=last + 1, last=now, most=COMPARED
                    )
                    metrics.put_beside(run.name, compared=found.same_judges, changed=found.changed)
                last = now
            except FAULTS as error:
                logger.debug("replay.not_compared", run=run.name, error=repr(error))
            if last_look:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), COMPARE_SECONDS)
