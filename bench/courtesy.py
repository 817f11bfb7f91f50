"""What live traffic notices of a replay at full speed: its delay with and without one, in turns, in one run.

Live responses come one by one at a steady rate through extraction, verification and scoring, each a process
`groundwatch serve` with no-op judges, or with `--set embedded=1` those that the system begins with, which
need no server. *Beside* a replay means beside one process `groundwatch replay` at
`--speed max` over events of another run, which is stopped (SIGSTOP) while the others are measured. A delay is
from recording, just before the stream is given the response, to scoring. Windows with and without alternate
and every window has its own percentiles; told are medians over windows, and `ratio` is p99 beside over p99
alone. `p99_ms` has every window's, in order: how far they lie apart says how busy the machine was otherwise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

import groundwatch
import hop
from groundwatch.errors import CheckFailed
from groundwatch.events import ResponseScored
from groundwatch.replay.runs import Run, Runs
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, wait_acks
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import HEADER_PROTOCOLS, OUTCOMES, subject_of

STAGES = ("extraction", "verification", "scoring")
SOURCE = "past"
REPLAYED = "again"
NOOP = {"GROUNDWATCH_EXTRACTION__ENGINE": "noop", "GROUNDWATCH_VERIFICATION__ENGINE": "noop"}
PATIENCE = 120.0
SETTLE_SECONDS = 1.0

_OUTCOMES = msgspec.json.Decoder(ResponseScored)


class Processes:
    """Processes of the command line, ended by their ids."""

    def __init__(self, folder: Path, url: str, *, embedded: bool) -> None:
        self._folder = folder
        judges = {} if embedded else NOOP
        self._environment = os.environ | {
            "PYTHONPATH": str(Path(groundwatch.__file__).parents[1]),
            "GROUNDWATCH_NATS__URL": url,
            "GROUNDWATCH_TELEMETRY__PORT": "0",
            **judges,
        }
        self._started: list[asyncio.subprocess.Process] = []

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start `groundwatch` with these arguments."""
        with (self._folder / f"{len(self._started)}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "groundwatch", *arguments, env=self._environment, stdout=log, stderr=log
            )
        self._started.append(process)
        return process

    async def stop(self) -> None:
        """End those that still run."""
        for process in self._started:
            await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """End one in good order, or by force."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), 30)
    except TimeoutError:
        process.kill()
        await process.wait()


async def record_past(bus: Bus, count: int) -> None:
    """Events of another run: the live stages never see them."""
    for start in range(0, count, 1_000):
        receipts = []
        for number in range(start, min(start + 1_000, count)):
            event = msgspec.structs.replace(hop.recorded(number), run=SOURCE)
            subject = subject_of("recorded", SOURCE, event.key)
            headers = {HEADER_PROTOCOLS: "faithscore"}
            out = Outgoing(subject=subject, payload=ENCODER.encode(event), headers=headers)
            receipts.append(await bus.start_create(out))
        await wait_acks(receipts)


class Live:
    """Live responses at a steady rate."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._windows = 0

    async def window(self, rate: int, seconds: int) -> list[float]:
        """Delays in seconds of the responses of one window."""
        self._windows += 1
        count, began = rate * seconds, time.monotonic()
        after = (await self._bus.js.stream_info(OUTCOMES)).state.last_seq
        receipts = []
        for number in range(count):
            if (wait := began + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            event = msgspec.structs.replace(
                hop.recorded(number), id=f"live-{self._windows}-{number}", recorded_at=time.time()
            )
            out = Outgoing(
                subject=subject_of("recorded", "live", event.key),
                payload=ENCODER.encode(event),
                message_id=event.key,
                headers={HEADER_PROTOCOLS: "faithscore"},
            )
            receipts.append(await self._bus.start_create(out))
        await wait_acks(receipts)
        return await self._delays(count, after)

    async def _delays(self, count: int, after: int) -> list[float]:
        deadline = time.monotonic() + PATIENCE
        while True:
            found = []
            async for read in read_stream(
                self._bus.js, OUTCOMES, subjects=("gw.outcome.live.>",), start_sequence=after + 1
            ):
                outcome = _OUTCOMES.decode(read.data)
                if outcome.id.startswith(f"live-{self._windows}-"):
                    found.append(outcome.scored_at - outcome.recorded_at)
            if len(found) == count:
                return found
            if time.monotonic() > deadline:
                raise CheckFailed(f"only {len(found)} of {count} live responses have their outcome")
            await asyncio.sleep(0.2)


async def replaying(processes: Processes, runs: Runs, name: str) -> asyncio.subprocess.Process:
    """A replay that has published its first outcomes."""
    process = await processes.start("replay", "start", "--run", name, "--source", SOURCE, "--json")
    deadline = time.monotonic() + PATIENCE
    while (run := await runs.find(name)) is None or not run.counts.outcomes:
        if process.returncode is not None or time.monotonic() > deadline:
            raise CheckFailed(f"the replay {name} does not work")
        await asyncio.sleep(0.1)
    return process


async def measure(
    *, rate: int = 100, seconds: int = 8, rounds: int = 15, past: int = 400_000, embedded: int = 0
) -> dict[str, Any]:
    """Windows of so many seconds at `rate` live responses a second, beside replays of `past` events."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as name:
        folder = Path(name)
        server = NatsServer(folder / "nats")
        await server.start()
        processes = Processes(folder, server.url, embedded=bool(embedded))
        bus = Bus(NatsSettings(url=server.url), name="bench")
        try:
            await bus.connect()
            await provision(bus.js)
            runs = await Runs.open(bus.js)
            await record_past(bus, past)
            for stage in STAGES:
                await processes.start("serve", stage)
            live = Live(bus)
            await live.window(rate, 2)  # The first responses wait for the services to start.
            alone: list[list[float]] = []
            beside: list[list[float]] = []
            speeds = []
            process = await replaying(processes, runs, REPLAYED)
            for _ in range(rounds):
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(SETTLE_SECONDS)
                alone.append(await live.window(rate, seconds))
                process.send_signal(signal.SIGCONT)
                await asyncio.sleep(SETTLE_SECONDS)
                before, began = await runs.get(REPLAYED), time.monotonic()
                beside.append(await live.window(rate, seconds))
                speeds.append(_speed(before, await runs.get(REPLAYED), time.monotonic() - began))
        finally:
            await processes.stop()
            await bus.close()
            await server.stop()
    return _told(alone, beside) | {
        "embedded_judges": bool(embedded),
        "rate": rate,
        "seconds": seconds,
        "rounds": rounds,
        "replay_per_second": round(statistics.median(speeds), 1),
        "processes": {"live": len(STAGES), "replay": 1},
    }


def _speed(before: Run, after: Run, seconds: float) -> float:
    if after.status != "running":
        raise CheckFailed(f"the replay was {after.status} before the window was over: replay more with past")
    return (after.counts.outcomes - before.counts.outcomes) / seconds


def _told(alone: list[list[float]], beside: list[list[float]]) -> dict[str, Any]:
    def of(windows: list[list[float]], percent: int) -> list[float]:
        return [statistics.quantiles(delays, n=100)[percent - 1] * 1e3 for delays in windows]

    p99 = {"alone": of(alone, 99), "beside": of(beside, 99)}
    medians = {name: statistics.median(found) for name, found in p99.items()}
    return {
        "p50_ms_alone": round(statistics.median(of(alone, 50)), 2),
        "p50_ms_beside": round(statistics.median(of(beside, 50)), 2),
        "p99_ms_alone": round(medians["alone"], 2),
        "p99_ms_beside": round(medians["beside"], 2),
        "ratio": round(medians["beside"] / medians["alone"], 3),
        "p99_ms": {name: [round(one, 2) for one in found] for name, found in p99.items()},
    }
