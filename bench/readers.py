"""What a new reader costs everybody who publishes: the longest wait for an acknowledgement, by what is read.

A stream as `admin provision` makes it holds `messages` of `payload` bytes, each on a subject of its own as
outcomes are: 97 of 100 of live traffic, two of a run `large`, one in 500 of a run `small`, and a run `short`
that came beside live traffic, one in 100 of all. Some were deleted, as an erasure does, unless `whole=1`. A
process beside publishes one message each millisecond with an expected sequence. Each case begins a reading,
takes `take` messages of it, and ends it; `next` and `last` look for one message. `first_ms` is until one
came, `stall_ms` the longest wait of a publisher meanwhile; of each the least of `rounds`, since other work on
the machine only adds to it. `idle_ms` is the longest wait in a second without a reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import follow_stream, next_message, read_batches
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import OUTCOMES
from wire.client import PlainClient
from wire.probe import Probe

FILTERS = {
    "all": (),
    "live": ("gw.outcome.live.>",),
    "large": ("gw.outcome.large.>",),
    "small": ("gw.outcome.small.>",),
    "short": ("gw.outcome.short.>",),
    "two": ("gw.outcome.large.>", "gw.outcome.small.>"),
}
PLACES = {"first": 0.0, "quarter": 0.25, "middle": 0.55, "last quarter": 0.75, "end": 1.0}
LIMIT_MS = 50.0


def subjects(count: int) -> Iterator[str]:
    for number in range(count):
        run = "small" if number % 500 == 7 else "large" if number % 50 == 3 else "live"
        if number % 2 and 0.4 <= number / count < 0.42:
            run = "short"
        key = hashlib.blake2b(number.to_bytes(8, "big"), digest_size=16).hexdigest()
        yield f"gw.outcome.{run}.faithscore.{key}"


async def begin(bus: Bus, filters: tuple[str, ...], start: int, take: int, *, follow: bool) -> float:
    """Seconds until the first message of a reading, or until it tells that there is none."""
    began, first, taken = time.perf_counter(), 0.0, 0
    reading: Any = (
        follow_stream(bus.js, OUTCOMES, subjects=filters, start_sequence=start)
        if follow
        else read_batches(bus.js, OUTCOMES, subjects=filters, start_sequence=start)
    )
    async with contextlib.aclosing(reading):
        async for batch in reading:
            first = first or time.perf_counter() - began
            taken += len(batch.messages if follow else batch)
            if taken >= take or (follow and not batch.messages):
                break
    return first or time.perf_counter() - began


@contextlib.asynccontextmanager
async def filled(messages: int, payload: int, *, whole: bool) -> AsyncIterator[tuple[NatsServer, Bus]]:
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        server = NatsServer(Path(folder))
        await server.start()
        bus = Bus(NatsSettings(url=server.url, publish_timeout=120.0), name="bench")
        try:
            await bus.connect()
            await provision(bus.js)
            with PlainClient(server.url) as client:
                body = b"x" * payload
                await asyncio.to_thread(client.fill, subjects(messages), lambda number: body)
            for part in () if whole else range(1, 10):
                await bus.js.delete_msg(OUTCOMES, messages * part // 10)
            yield server, bus
        finally:
            await bus.close()
            await server.stop()


def _case(what: dict[str, Any], firsts: list[float], stalls: list[float]) -> dict[str, Any]:
    return {
        **what,
        "first_ms": round(min(firsts) * 1e3, 1),
        "stall_ms": round(min(stalls) * 1e3, 1),
    }


async def measure(
    *, messages: int = 1_000_000, payload: int = 200, take: int = 2_000, rounds: int = 3, whole: int = 0
) -> dict[str, Any]:
    cases = []
    async with filled(messages, payload, whole=bool(whole)) as (server, bus):
        resident = psutil.Process(server.pid).memory_info().rss
        with Probe(server.url, "gw.outcome.probe.faithscore") as probe:
            await asyncio.sleep(1.0)
            idle, median = await asyncio.to_thread(probe.longest)
            for name, filters in FILTERS.items():
                for place, share in PLACES.items():
                    for follow in (False, True) if name in ("all", "live") else (False,):
                        firsts, stalls = [], []
                        for _ in range(rounds):
                            await asyncio.to_thread(probe.longest)
                            start = max(1, int(messages * share))
                            firsts.append(await begin(bus, filters, start, take, follow=follow))
                            stalls.append((await asyncio.to_thread(probe.longest))[0])
                        case = {"subjects": name, "from": place, "follow": follow}
                        cases.append(_case(case, firsts, stalls))
            for name in ("live", "short"):
                look = partial(next_message, bus.js, OUTCOMES, *FILTERS[name], messages // 10)
                firsts, stalls = [], []
                for _ in range(rounds):
                    await asyncio.to_thread(probe.longest)
                    began = time.perf_counter()
                    await look()
                    firsts.append(time.perf_counter() - began)
                    stalls.append((await asyncio.to_thread(probe.longest))[0])
                cases.append(_case({"subjects": name, "look": "next"}, firsts, stalls))
    worst = max(case["stall_ms"] for case in cases)
    return {
        "messages": messages,
        "payload": payload,
        "deleted": 0 if whole else 9,
        "server_mb": round(resident / 1e6),
        "idle_ms": round(idle * 1e3, 1),
        "publish_ms": round(median * 1e3, 2),
        "cases": cases,
        "worst_stall_ms": worst,
        "ok": worst <= LIMIT_MS,
    }
