"""Replays for the gateway's gRPC door, which knows nothing of them: this brings the two together.

The gateway only writes a replay down. It is worked at by a process of its own, `groundwatch replay resume`,
so that judging never holds up the door; and when that dies or is none, by whoever calls the same command.
"""

import asyncio
import contextlib
import os
import sys
import time

import msgspec

from groundwatch.errors import TransientError
from groundwatch.gateway.replays import OVER, Replay, Wanted
from groundwatch.replay import running
from groundwatch.replay.runs import FAULTS, Run, Runs
from groundwatch.replay.spec import Spec
from groundwatch.replay.watching import seconds_left
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import (
    ENVIRONMENT_PREFIX,
    JUDGING,
    as_variables,
    recorded_sections,
    with_judge,
)
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import REPLAY

STOP_SECONDS = 10.0


class ReplayManager:
    """`groundwatch.gateway.replays.Replays` over the runs in NATS, by the rights of who replays."""

    def __init__(self, settings: Settings) -> None:
        seed = settings.gateway.grpc.replay_nkey_seed_file
        if seed:
            nats = settings.nats.model_copy(update={"nkey_seed_file": seed, "credentials": ""})
            settings = settings.model_copy(update={"nats": nats})
        self._settings = settings
        self._room = asyncio.Semaphore(settings.gateway.grpc.replays)
        self._lock = asyncio.Lock()
        self._bus: Bus | None = None
        self._working: set[asyncio.Task[None]] = set()

    async def start(self, wanted: Wanted) -> Replay:
        """Write it down, and have it worked at as soon as there is room."""
        judging = recorded_sections(with_judge(self._settings, wanted.judge))
        spec = Spec(**msgspec.structs.asdict(wanted), settings=judging)
        run = await running.begin(await self._connected(), self._settings, spec)
        task = asyncio.create_task(self._work(run.name), name=f"replay-{run.name}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return replay_of(run)

    async def find(self, run: str) -> Replay | None:
        try:
            found = await (await self._runs()).find(run)
        except FAULTS as error:
            raise TransientError(f"cannot look up run '{run[:64]}': {error!r}") from error
        return replay_of(found) if found is not None else None

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
                await bus.connect(timeout=3.0)
                self._bus = bus
        return self._bus

    async def _runs(self) -> Runs:
        bus = await self._connected()
        try:
            return await Runs.open(bus.js)
        except FAULTS as error:
            raise TransientError(f"cannot open the runs: {error!r}") from error

    def _environment(self) -> dict[str, str]:
        """What our processes get: ours, and the settings by which this one reaches NATS and its judges."""
        sections = ("nats", *JUDGING, "judges")
        replaced = tuple(f"{ENVIRONMENT_PREFIX}{name.upper()}__" for name in sections)
        kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(replaced)}
        return kept | as_variables(self._settings, sections)

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
