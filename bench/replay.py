"""How fast a replay is against reading the same stream, in one run on one server.

Both read the same recorded responses of about 1 KB. *Raw* is nats-py as its documentation has it: an
ephemeral pull consumer without acknowledgements, `fetch` of `batch` messages until all are there, nothing
decoded, nothing written. *Replay* is `groundwatch replay start` at full speed with no-op judges, from the
recorded responses to one outcome each in the outcomes stream, acknowledged by the server, with its position
and counts written down; an event is one recorded response. Both are one process with one connection, beside
the server's. Rounds alternate; `ratio` is of the medians of events per second over wall time. `reader_ratio`
is the same against our own reader, which is quicker than `fetch`. `cpu_us` is processor time for an event, in
the process and in nats-server: where fewer than two cores are free, their sum decides.

`memory` is one more replay over all events: the process's resident size is looked at all the time, and
`growth_mb` is the highest value after its first fifth less the highest within it. With `--set live=N` what
live traffic notices of a replay is measured too, in N windows with and N without: see `bench/courtesy.py`.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from nats.js.api import AckPolicy, ConsumerConfig

import courtesy
import hop
from groundwatch.ledger.ledger import audit
from groundwatch.replay.running import begin
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import Replayer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import read_batches
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ExtractionSettings, NatsSettings, Settings, StageSettings
from groundwatch.topology import RESPONSES

SUBJECTS = "gw.recorded.live.>"
LOOK_SECONDS = 0.05


class Round:
    """Seconds of wall time, and of CPU of this process and of the server, for the events of one round."""

    def __init__(self, server: psutil.Process) -> None:
        self._process = server
        self.wall, self.cpu, self.server = time.perf_counter(), time.process_time(), self._spent()

    def _spent(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def end(self) -> Round:
        """Stop the clocks."""
        self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        self.server = self._spent() - self.server
        return self


async def raw_round(bus: Bus, server: psutil.Process, count: int, batch: int) -> Round:
    """Read `count` messages with nats-py alone."""
    config = ConsumerConfig(
        ack_policy=AckPolicy.NONE, mem_storage=True, inactive_threshold=60.0, filter_subject=SUBJECTS
    )
    info = await bus.js.add_consumer(RESPONSES, config)
    subscription = await bus.js.pull_subscribe_bind(consumer=info.name, stream=RESPONSES)
    clock, done = Round(server), 0
    while done < count:
        done += len(await subscription.fetch(min(batch, count - done), timeout=30))
    clock.end()
    await subscription.unsubscribe()
    await bus.js.delete_consumer(RESPONSES, info.name)
    return clock


async def reader_round(bus: Bus, server: psutil.Process, count: int) -> Round:
    """Read the same with our own reader."""
    clock, done = Round(server), 0
    async for messages in read_batches(bus.js, RESPONSES, subjects=(SUBJECTS,), last_sequence=count):
        done += len(messages)
    assert done == count, done
    return clock.end()


async def replay_round(settings: Settings, server: psutil.Process, name: str) -> tuple[Round, Run]:
    """One replay of everything, over a connection of its own."""
    bus = Bus(settings.nats, name="replay")
    await bus.connect()
    run = await begin(bus, settings, Spec(run=name))
    replayer = Replayer(bus, await Runs.open(bus.js), settings, run)
    clock = Round(server)
    run = await replayer.work()
    clock.end()
    await bus.close()
    assert run.status == "done", run.status
    return clock, run


async def watched(settings: Settings, server: psutil.Process, name: str) -> dict[str, float]:
    """Resident sizes of this process, in MB, while a replay goes through everything."""
    process = psutil.Process()
    replaying = asyncio.create_task(replay_round(settings, server, name))
    sizes: list[float] = []
    while not replaying.done():
        sizes.append(process.memory_info().rss / 1e6)
        await asyncio.sleep(LOOK_SECONDS)
    await replaying
    fifth = max(1, len(sizes) // 5)
    begin_high, later_high = max(sizes[:fifth]), max(sizes[fifth:] or sizes)
    return {
        "first_fifth_mb": round(begin_high, 1),
        "highest_after_mb": round(later_high, 1),
        "growth_mb": round(later_high - begin_high, 1),
    }


async def measure(
    *, events: int = 1_000_000, rounds: int = 5, round_events: int = 100_000, batch: int = 500, live: int = 0
) -> dict[str, Any]:
    """Rounds over the first `round_events`, then memory over all `events`, then `live` windows if any."""
    noop = StageSettings(engine="noop")
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        server = NatsServer(Path(folder))
        await server.start()
        try:
            settings = Settings(
                nats=NatsSettings(url=server.url),
                extraction=ExtractionSettings(engine="noop"),
                verification=noop,
            )
            bus = Bus(settings.nats, name="bench")
            await bus.connect()
            await provision(bus.js)
            process = psutil.Process(server.pid)
            count = min(round_events, events)
            await hop.fill(bus, 0, count)
            raw, reader, ours = [], [], []
            for number in range(rounds + 1):
                first = await raw_round(bus, process, count, batch)
                second = await reader_round(bus, process, count)
                third, run = await replay_round(settings, process, f"round-{number}")
                assert run.counts.scored == count, run.counts
                if number:  # The first round warms caches up.
                    raw.append(first)
                    reader.append(second)
                    ours.append(third)
            await hop.fill(bus, count, events - count)
            memory = await watched(settings, process, "memory")
            ledger = await audit(bus.js, "memory")
            await bus.close()
        finally:
            await server.stop()

    def rate(clocks: list[Round]) -> float:
        return count / statistics.median(clock.wall for clock in clocks)

    def cpu(clocks: list[Round]) -> dict[str, float]:
        own = statistics.median(clock.cpu for clock in clocks)
        server = statistics.median(clock.server for clock in clocks)
        return {"process": round(own / count * 1e6, 1), "server": round(server / count * 1e6, 1)}

    found = {
        "events": events,
        "round_events": count,
        "raw_per_second": round(rate(raw), 1),
        "reader_per_second": round(rate(reader), 1),
        "replay_per_second": round(rate(ours), 1),
        "ratio": round(rate(ours) / rate(raw), 3),
        "reader_ratio": round(rate(ours) / rate(reader), 3),
        "cpu_us": {"raw": cpu(raw), "reader": cpu(reader), "replay": cpu(ours)},
        "memory": memory,
        "balanced": ledger.balanced and ledger.scored == events,
        "processes": {"raw": 1, "replay": 1},
    }
    if live:
        found["live"] = await courtesy.measure(rounds=live)
    return found
