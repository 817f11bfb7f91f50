"""Replays outside a command: the service that takes up runs, the gateway's door to them, and how each stands.

`groundwatch serve replay` takes up runs that the gateway was asked for and runs whose process died. Any
number of these services may run: they share what there is, page by page, with each other and with whoever
types `replay resume`. The gateway only writes a replay down; a process of its own works at it, so that
judging never holds up the door.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from groundwatch.archive.cold import cold_events
from groundwatch.archive.images import archived_images
from groundwatch.errors import UNDECODED, GroundwatchError, TransientError, words
from groundwatch.events import DEAD_LETTER
from groundwatch.gateway.replays import OVER, Replay, Wanted
from groundwatch.replay import running
from groundwatch.replay.runs import DECODER, Run, Runs
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import Replayer, prefer_others
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import (
    ENVIRONMENT_PREFIX,
    JUDGING,
    as_variables,
    with_judge,
)
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics, ReplayMetrics
from groundwatch.topology import REPLAY, RUNS_BUCKET

LOOK_SECONDS = 1.0
GAUGES_SECONDS = 5.0

GRACE_SECONDS = 5.0
"""A run that somebody has just begun is theirs: their judges take a moment to load."""

UNABLE_SECONDS = 60.0
"""How long a run is left alone that this process could not work at."""

AT_ONCE = 4
"""Runs in work at once: one that keeps the recorded pace must not hold up the others."""

PASSING = (*FAULTS, TransientError)


class ReplayService:
    """Works at waiting runs, one set of judges for each."""

    name = REPLAY

    def __init__(self, settings: Settings, bus: Bus, metrics: Metrics) -> None:
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._looking = RunGauges(bus, metrics.replay, seconds=LOOK_SECONDS, then=self._seen)
        self._working: dict[str, tuple[Replayer, asyncio.Task[None]]] = {}
        self._unable: dict[str, float] = {}

    async def start(self) -> None:
        """Begin to look for runs. Raises `UsageError` where nothing is provisioned."""
        self._runs = await Runs.open(self._bus.js)
        self._looking.start()

    async def drain(self, timeout: float) -> None:
        """Finish what is in hand and let go of all runs: others go on with them, or we do, later."""
        await self._looking.stop()
        for replayer, _ in self._working.values():
            replayer.stop()
        tasks = [task for _, task in self._working.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def problems(self) -> list[str]:
        found = [*self._bus.problems(), self._looking.problem, self._looking.trouble]
        return [f"{self.name}: {why}" for why in found if why]

    def _seen(self, runs: list[Run]) -> None:
        for run in reversed(runs):
            if self._waits(run):
                self._take_up(run)
        for name, (replayer, _) in self._working.items():
            self._metrics.replay.waited.labels(name).set(replayer.throttle.waited)

    def _waits(self, run: Run) -> bool:
        """Whether it is ours to work at. Runs of another judge wait: a process has one set of protocols."""
        now = time.time()
        return (
            state_of(run, now) == "unattended"
            and now - run.updated_at > GRACE_SECONDS
            and run.name not in self._working
            and len(self._working) < AT_ONCE
            and self._unable.get(run.nonce, 0.0) < time.monotonic()
            and all(one.run.spec.judge == run.spec.judge for one, _ in self._working.values())
        )

    def _take_up(self, run: Run) -> None:
        try:
            run.spec.check_judges()
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
        try:
            run = await replayer.work()
            logger.info("replay.let_go", run=run.name, status=run.status, share=round(run.share, 3))
        except GroundwatchError as error:
            self._cannot(run, error)
        except Exception as error:
            logger.exception("replay.bug", run=run.name)
            self._cannot(run, error)

    def _cannot(self, run: Run, error: Exception) -> None:
        logger.warning("replay.unable", run=run.name, error=words(error), seconds=UNABLE_SECONDS)
        self._unable[run.nonce] = time.monotonic() + UNABLE_SECONDS

    def _progressed(self, run: Run) -> None:
        # Not before: on a busy machine the judges would take minutes to load.
        if run.counts.outcomes:
            prefer_others()


STOP_SECONDS = 10.0


class ReplayManager:
    """`groundwatch.gateway.replays.Replays` over the runs in NATS, by the rights of who replays."""

    def __init__(self, settings: Settings) -> None:
        seed = settings.gateway.replay_nkey_seed_file
        if seed:
            nats = settings.nats.model_copy(update={"nkey_seed_file": seed, "credentials": ""})
            settings = settings.model_copy(update={"nats": nats})
        self._settings = settings
        self._room = asyncio.Semaphore(settings.gateway.replays)
        self._lock = asyncio.Lock()
        self._bus: Bus | None = None
        self._board: Board | None = None
        self._working: set[asyncio.Task[None]] = set()

    async def start(self, wanted: Wanted) -> Replay:
        """Write it down, and have it worked at as soon as there is room."""
        with_judge(self._settings, wanted.judge)
        spec = Spec(**msgspec.structs.asdict(wanted))
        run = await running.begin(await self._connected(), self._settings, spec)
        self._work_at(run.name)
        return replay_of(run)

    async def find(self, run: str) -> Replay | None:
        try:
            found = await (await self._runs()).find(run)
        except FAULTS as error:
            raise TransientError(f"cannot look up run '{run[:64]}': {words(error)}") from error
        return replay_of(found) if found is not None else None

    async def list(self) -> Sequence[Replay]:
        """Every run, the newest first."""
        bus = await self._connected()
        if self._board is None or self._board.bus is not bus:
            self._board = Board(bus)
        return [replay_of(run) for run in await self._board.look()]

    async def pause(self, run: str) -> Replay:
        """Whoever works at it finishes what is in hand."""
        return replay_of(await running.pause(await self._runs(), run))

    async def resume(self, run: str) -> Replay:
        """Let it run again, and have it worked at as soon as there is room."""
        runs = await self._runs()
        (await runs.get(run)).spec.check_judges()
        found = await running.resume(runs, run)
        self._work_at(found.name)
        return replay_of(found)

    async def cancel(self, run: str) -> Replay:
        """End it; whoever works at it notices."""
        return replay_of(await running.cancel(await self._runs(), run))

    async def close(self) -> None:
        """Let go of our processes: SIGTERM lets them finish what is in hand."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        if self._bus is not None:
            await self._bus.close()

    async def _connected(self) -> Bus:
        async with self._lock:
            if self._bus is not None and self._bus.lost:
                await self._bus.close()
                self._bus = None
            if self._bus is None:
                bus = Bus(self._settings.nats, name=REPLAY, user=REPLAY)
                bus.cold = cold_events(self._settings.archive)
                bus.cold_images = archived_images(self._settings.archive)
                await bus.connect(timeout=3.0)
                self._bus = bus
        return self._bus

    async def _runs(self) -> Runs:
        bus = await self._connected()
        try:
            return await Runs.open(bus.js)
        except FAULTS as error:
            raise TransientError(f"cannot open the runs: {words(error)}") from error

    def _environment(self) -> dict[str, str]:
        """What our processes get: ours, and the settings by which this one reaches NATS and its judges."""
        sections = ("nats", *JUDGING, "judges")
        replaced = tuple(f"{ENVIRONMENT_PREFIX}{name.upper()}__" for name in sections)
        kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(replaced)}
        return kept | as_variables(self._settings, sections)

    def _work_at(self, name: str) -> None:
        task = asyncio.create_task(self._work(name), name=f"replay-{name}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self, name: str) -> None:
        async with self._room:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "groundwatch", "replay", "resume", name, "--json"),
                env=self._environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                _, said = await process.communicate()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), STOP_SECONDS)
                except TimeoutError:
                    process.kill()
                    await process.wait()
                raise
            if process.returncode:
                lines = said.decode("utf-8", "replace").strip().splitlines()
                logger.warning("replay.ended", run=name, status=process.returncode, said=lines[-1:])


def replay_of(run: Run) -> Replay:
    counts = run.counts
    return Replay(
        run=run.name,
        source=run.spec.source,
        stage=run.spec.stage,
        status=run.status,
        reason=run.reason,
        tenants=run.spec.tenants,
        share=run.share,
        events=counts.events,
        responses=counts.responses,
        scored=counts.scored,
        unscored=counts.unscored,
        declined=counts.declined,
        usage=counts.usage,
        workers=run.workers(time.time()),
        created_at=run.created_at,
        updated_at=run.updated_at,
        seconds_left=None if run.status in OVER else seconds_left(run),
    )


ENDED_SECONDS = 120.0
"""How long a run that is over still has series of its own, so that its last numbers are scraped."""

STATES = ("working", "unattended", "paused", "over_budget", "importing", "deleting", "done", "cancelled")
"""Of a run; `unattended` is running, and nobody works at it."""

MOST = 50
"""Runs that have series of their own at once: the newest."""


def state_of(run: Run, now: float) -> str:
    """What a run does, or why it does not: one of `STATES`."""
    match run.status:
        case "running":
            return "working" if run.workers(now) else "unattended"
        case "paused" if run.reason.startswith("its budget"):
            return "over_budget"
    return run.status


def seconds_left(run: Run) -> float | None:
    """At the pace so far; None before there is one."""
    if run.status == "done":
        return 0.0
    if run.share <= 0 or run.worked <= 0:
        return None
    return round(run.worked / run.share * (1 - run.share), 1)


class Board:
    """All runs. Each look reads what has changed since the one before, and nothing else."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._bucket = Bucket(bus, RUNS_BUCKET)
        self._position = (0, 0)
        self._runs: dict[str, Run] = {}

    async def look(self) -> list[Run]:
        """Every run, the newest first. Raises `Unavailable`."""
        (created, last), (begun, before) = await self._bucket.position(), self._position
        if created != begun:
            self._runs, before = {}, 0
        if last > before:
            async for document in self._bucket.read(">", before):
                self._note(document.key, document.data)
        self._position = created, last
        return sorted(self._runs.values(), key=lambda run: -run.created_at)

    def _note(self, name: str, data: bytes) -> None:
        """What a run is now; there are no bytes of one that was removed."""
        self._runs.pop(name, None)
        try:
            self._runs |= {name: DECODER.decode(data)} if data else {}
        except UNDECODED as error:
            logger.warning("replay.unreadable", run=name, error=str(error))


def show(runs: list[Run], metrics: ReplayMetrics, now: float) -> None:
    """Tell Prometheus of these runs: of those that are not over, or have just ended, by name."""
    metrics.clear()
    states = {run.name: state_of(run, now) for run in runs}
    for state in STATES:
        metrics.runs.labels(state).set(sum(found == state for found in states.values()))
    told = [
        run
        for run in runs
        if states[run.name] not in ("done", "cancelled") or now - run.finished_at < ENDED_SECONDS
    ][:MOST]
    for run in told:
        _show(run, states[run.name], metrics, now)


def _show(run: Run, now_in: str, metrics: ReplayMetrics, now: float) -> None:
    for state in STATES:
        metrics.state.labels(run.name, state).set(state == now_in)
    counts, share = run.counts, run.share
    metrics.progress.labels(run.name).set(share)
    metrics.events.labels(run.name).set(counts.events)
    metrics.expected.labels(run.name).set(counts.events / share if share > 0 else run.last - run.first + 1)
    for outcome in ("scored", "unscored", "declined"):
        metrics.outcomes.labels(run.name, outcome).set(getattr(counts, outcome))
    metrics.faults.labels(run.name).set(counts.reasons.get(f"unscored: {DEAD_LETTER}", 0))
    metrics.cost.labels(run.name).set(counts.usage.cost)
    metrics.calls.labels(run.name, "judge").set(counts.usage.calls)
    metrics.calls.labels(run.name, "cache").set(counts.usage.cached)
    metrics.workers.labels(run.name).set(run.workers(now))
    left = seconds_left(run)
    if left is not None:
        metrics.left.labels(run.name).set(left)


class RunGauges(SupervisedTask):
    """Looks at all runs every few seconds and tells Prometheus of them; `then` is told too. In a process that
    is there when nobody replays."""

    def __init__(
        self,
        bus: Bus,
        metrics: ReplayMetrics,
        *,
        seconds: float = GAUGES_SECONDS,
        then: Callable[[list[Run]], None] = lambda _: None,
    ) -> None:
        super().__init__("replay-gauges", self._watch)
        self._board = Board(bus)
        self._metrics = metrics
        self._seconds = seconds
        self._then = then
        self.trouble = ""
        """Why nothing could be seen the last time; empty where it could."""

    async def look(self) -> None:
        """Once. Raises `Unavailable`."""
        runs = await self._board.look()
        show(runs, self._metrics, time.time())
        self._then(runs)

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
                self.trouble = ""
            except PASSING as error:
                if not self.trouble:
                    logger.warning("replay.cannot_look", error=repr(error))
                self.trouble = f"cannot look for runs: {words(error)}"
                # Numbers that nobody has seen for a while are worse than none.
                self._metrics.clear()
            await asyncio.sleep(self._seconds)
