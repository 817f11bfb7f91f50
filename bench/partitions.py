"""What 1, 4 and 16 partitions take and give on a cluster of three servers with three replicas.

A response is its four events, each published with "expect no message on this subject", as services do, by
`publishers` processes, in `STEPS` equal parts. For each number of partitions: responses a second between the
first and the last acknowledgement of a part, resident memory of each server at the end of each part, what its
heap holds once it has been idle since and has collected its garbage, and how many of the streams of events
each server leads. Servers and publishers share this machine: a rate here is no rate of three machines.

`lines` are straight lines of least squares through what was measured after each part, for the mean of the
servers: heap, and processor time. `extrapolated` is where they lead for `RATES` a second over `DAYS` days on
three servers, each of which has a copy of everything. Resident memory is up to twice the heap, and more while
a server stores as fast as it can: what it has then follows its caches, not what it holds.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import psutil

from groundwatch.errors import CheckFailed, UsageError
from groundwatch.keys import home_of, response_key
from groundwatch.runtime.delivery.bus import Bus, Outgoing, wait_acks
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import find_binary, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import ARCHIVED, DAY, subject_of
from groundwatch.topology.partitions import streams_of_kind

SERVERS = 3
PARTITIONS = (1, 4, 16)
TOGETHER = 500
IDLE_SECONDS = 150.0
"""Ids are kept for 120 s in each stream, and blocks that were written stay in memory for 10."""

START_SECONDS = 60.0
STEPS = 3
RATES = (1_000, 10_000)
DAYS = 3.0


class Cluster:
    """Three servers of one cluster in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._routes = [free_port() for _ in range(SERVERS)]
        self._ports = [free_port() for _ in range(SERVERS)]
        self._profiles = [free_port() for _ in range(SERVERS)]
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self._ports)

    def start(self) -> None:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        for number, (port, route) in enumerate(zip(self._ports, self._routes, strict=True)):
            config = self._folder / f"{number}.conf"
            store = self._folder / f"store-{number}"
            config.write_text(
                f'server_name: n{number}\nlisten: "127.0.0.1:{port}"\nmax_payload: 8MB\n'
                f'prof_port: {self._profiles[number]}\njetstream {{ store_dir: "{store}" }}\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}\n',
                "utf-8",
            )
            with (self._folder / f"{number}.log").open("wb") as log:
                command = (find_binary(), "-c", str(config))
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def resident(self) -> list[float]:
        """MB of each server."""
        return [psutil.Process(one.pid).memory_info().rss / 1e6 for one in self.processes]

    async def heaps(self) -> list[float]:
        """MB that each server's heap holds, after a collection."""
        found = []
        async with httpx.AsyncClient(timeout=60.0) as client:
            for port in self._profiles:
                reply = await client.get(f"http://127.0.0.1:{port}/debug/pprof/heap?gc=1&debug=1")
                held = re.search(r"^# HeapAlloc = (\d+)$", reply.text, re.MULTILINE)
                if held is None:
                    raise CheckFailed(f"the server's profile has no HeapAlloc: {reply.text[-200:]}")
                found.append(int(held[1]) / 1e6)
        return found

    def processor(self) -> float:
        """Seconds of processor time of all servers."""
        times = [psutil.Process(one.pid).cpu_times() for one in self.processes]
        return sum(one.user + one.system for one in times)


class _Step(NamedTuple):
    """After so many responses: MB of each server at once, and of its heap when it has been idle; seconds of
    processor time of all until then."""

    responses: int
    resident: list[float]
    heap: list[float]
    processor: float


def _subjects(number: int, partitions: int) -> list[str]:
    home = home_of(response_key("bench", str(number)), partitions)
    key = response_key("bench", str(number), home)
    return [
        subject_of("recorded", "live", key),
        subject_of("extracted", "live", "verification", "faithscore", key),
        subject_of("judged", "live", "scoring", "faithscore", key),
        subject_of("outcome", "live", "faithscore", key),
    ]


async def _publish(url: str, partitions: int, first: int, count: int, payload: int) -> None:
    bus = Bus(NatsSettings(url=url, partitions=partitions, publish_timeout=60.0), name="bench")
    await bus.connect()
    body = b"x" * payload
    try:
        for start in range(first, first + count, TOGETHER):
            receipts = [
                await bus.start_create(Outgoing(subject=subject, payload=body))
                for number in range(start, min(start + TOGETHER, first + count))
                for subject in _subjects(number, partitions)
            ]
            await wait_acks(receipts)
            for receipt in receipts:
                receipt.result()
    finally:
        await bus.close()


def publish(url: str, partitions: int, first: int, count: int, payload: int) -> None:
    """In a process of its own."""
    asyncio.run(_publish(url, partitions, first, count, payload))


async def _provisioned(url: str, partitions: int) -> Bus:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            bus = Bus(NatsSettings(url=url, partitions=partitions, publish_timeout=30.0), name="bench")
            await bus.connect()
            await provision(bus.js, replicas=SERVERS, partitions=partitions)
            return bus
        except Exception as error:
            # A cluster that has no leader yet.
            if time.monotonic() > deadline:
                raise CheckFailed(f"the cluster does not serve: {error}") from error
            await asyncio.sleep(1.0)


async def _measure(partitions: int, responses: int, publishers: int, payload: int) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        cluster = Cluster(Path(folder))
        cluster.start()
        try:
            bus = await _provisioned(cluster.url, partitions)
            steps = [_Step(0, cluster.resident(), await cluster.heaps(), cluster.processor())]
            each = responses // publishers // STEPS
            seconds = 0.0
            with ProcessPoolExecutor(publishers) as pool:
                for step in range(STEPS):
                    began = time.perf_counter()
                    await asyncio.gather(
                        *(
                            loop.run_in_executor(pool, publish, cluster.url, partitions, first, each, payload)
                            for first in range(step * publishers * each, (step + 1) * publishers * each, each)
                        )
                    )
                    seconds += time.perf_counter() - began
                    resident, processor = cluster.resident(), cluster.processor()
                    await asyncio.sleep(IDLE_SECONDS)
                    held = (step + 1) * publishers * each
                    steps.append(_Step(held, resident, await cluster.heaps(), processor))
            leaders: Counter[str] = Counter()
            stored = 0
            for kind in ARCHIVED:
                for stream in streams_of_kind(kind, partitions):
                    info = await bus.js.stream_info(stream)
                    stored += info.state.messages
                    leaders[(info.cluster.leader if info.cluster else None) or "nobody"] += 1
            await bus.close()
        finally:
            cluster.stop()
    return {
        "partitions": partitions,
        "responses_per_second": round(steps[-1].responses / seconds),
        "measured": [
            {
                "responses": one.responses,
                "server_mb": [round(mb) for mb in one.resident],
                "heap_mb": [round(mb, 1) for mb in one.heap],
                "server_cpu_s": round(one.processor / SERVERS, 1),
            }
            for one in steps
        ],
        "leads": dict(sorted(leaders.items())),
        "stored_all": stored == 4 * steps[-1].responses,
    } | fitted(steps)


def fitted(steps: Sequence[_Step]) -> dict[str, Any]:
    """Lines through what was measured, and what lies on them for `RATES`."""
    # Without the first: a server that has just begun has buffers yet to come, whatever it holds.
    steps = steps[1:]
    responses = [one.responses for one in steps]
    slope_mb, base_mb = np.polyfit(responses, [sum(one.heap) / SERVERS for one in steps], 1).tolist()
    slope_s, _ = np.polyfit(responses, [one.processor / SERVERS for one in steps], 1).tolist()
    return {
        "lines": {
            "heap_base_mb": round(base_mb, 1),
            "heap_bytes_per_response": round(slope_mb * 1e6),
            "server_cpu_ms_per_response": round(slope_s * 1e3, 3),
        },
        "extrapolated": [
            {
                "rate": rate,
                "heap_gb": round((base_mb + slope_mb * rate * DAYS * DAY) / 1e3, 1),
                "server_cores": round(slope_s * rate, 2),
            }
            for rate in RATES
        ],
    }


async def measure(*, responses: int = 100_000, publishers: int = 4, payload: int = 600) -> dict[str, Any]:
    if responses < publishers * STEPS:
        raise UsageError(f"responses: fewer than {publishers} publishers have in {STEPS} parts")
    runs = [await _measure(partitions, responses, publishers, payload) for partitions in PARTITIONS]
    return {
        "responses": responses,
        "payload": payload,
        "runs": runs,
        "ok": all(one["stored_all"] for one in runs),
    }
