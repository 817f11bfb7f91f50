"""What 1, 4 and 16 partitions take and give on a cluster of three servers with three replicas.

A response is its four events, each published with "expect no message on this subject", as services do, by
`publishers` processes. For each number of partitions: responses a second from the first to the last
acknowledgement, resident memory of each server once it is idle, and how many of the streams of events each
server leads. Servers and publishers share this machine: a rate here is no rate of three machines.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from groundwatch.errors import CheckFailed, UsageError
from groundwatch.keys import home_of, response_key
from groundwatch.runtime.delivery.bus import Bus, Outgoing, wait_acks
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import find_binary, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import ARCHIVED, subject_of
from groundwatch.topology.partitions import streams_of_kind

SERVERS = 3
PARTITIONS = (1, 4, 16)
TOGETHER = 500
IDLE_SECONDS = 3.0
START_SECONDS = 60.0


class Cluster:
    """Three servers of one cluster in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._routes = [free_port() for _ in range(SERVERS)]
        self._ports = [free_port() for _ in range(SERVERS)]
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
                f'jetstream {{ store_dir: "{store}" }}\n'
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
            empty = cluster.resident()
            each = responses // publishers
            with ProcessPoolExecutor(publishers) as pool:
                began = time.perf_counter()
                await asyncio.gather(
                    *(
                        loop.run_in_executor(
                            pool, publish, cluster.url, partitions, one * each, each, payload
                        )
                        for one in range(publishers)
                    )
                )
                seconds = time.perf_counter() - began
            await asyncio.sleep(IDLE_SECONDS)
            full = cluster.resident()
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
        "responses_per_second": round(each * publishers / seconds),
        "server_mb_empty": [round(one) for one in empty],
        "server_mb": [round(one) for one in full],
        "leads": dict(sorted(leaders.items())),
        "stored_all": stored == 4 * each * publishers,
    }


async def measure(*, responses: int = 100_000, publishers: int = 4, payload: int = 600) -> dict[str, Any]:
    if responses < publishers:
        raise UsageError("responses: fewer than there are publishers")
    runs = [await _measure(partitions, responses, publishers, payload) for partitions in PARTITIONS]
    return {
        "responses": responses,
        "payload": payload,
        "runs": runs,
        "ok": all(one["stored_all"] for one in runs),
    }
