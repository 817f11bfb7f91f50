"""A whole system in several partitions, and how far it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from groundwatch.events import LIVE
from groundwatch.keys import home_of, response_key
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ExtractionSettings, GatewaySettings, NatsSettings, Settings
from groundwatch.system.up import System
from groundwatch.topology import OUTCOMES
from groundwatch.topology.partitions import streams_of_kind

NOOP = ExtractionSettings(engine="noop")


def settings(partitions: int, **sections: Any) -> Settings:
    """Everything in this process, with engines that judge nothing unless others are named."""
    given: dict[str, Any] = {"extraction": NOOP, "verification": NOOP} | sections
    return Settings(
        nats=NatsSettings(partitions=partitions),
        gateway=GatewaySettings(port=0),
        **given,
    )


async def send(client: httpx.AsyncClient, name: str, answer: str = "A dog runs.") -> str:
    body = {"id": name, "model": "m", "answer": answer, "protocols": ["faithscore"]}
    async with asyncio.timeout(60):
        while True:
            reply = await client.post("/v1/responses", json=body)
            if reply.status_code != 503:
                return str(reply.json().get("status", reply.json().get("reason", reply.text)))
            await asyncio.sleep(0.2)


async def numbers(system: System, kind: str) -> list[int]:
    names = streams_of_kind(kind, system.bus.partitions)
    return [(await system.bus.js.stream_info(name)).state.messages for name in names]


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await check():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def scored(system: System) -> list[str]:
    return sorted([one.id async for one in read_outcomes(system.bus, LIVE, follow=False)])


async def all_judged(system: System, count: int) -> bool:
    return sum(await numbers(system, OUTCOMES)) == count


async def reported(client: httpx.AsyncClient, count: int) -> bool:
    report = (await client.get("/v1/report")).json()
    return bool(report["complete"] and report["sequence"] == count)


async def try_once(client: httpx.AsyncClient, name: str) -> str:
    body = {"id": name, "model": "m", "answer": "A dog runs.", "protocols": ["faithscore"]}
    reply = await client.post("/v1/responses", json=body)
    return str(reply.json().get("status", reply.status_code))


@contextlib.asynccontextmanager
async def provisioned_server(folder: Path, partitions: int) -> AsyncIterator[tuple[Bus, NatsServer]]:
    """A server of its own, and nobody who works at what is in it."""
    server = NatsServer(folder, max_payload=NatsSettings().max_payload)
    await server.start()
    bus = Bus(NatsSettings(url=server.url, partitions=partitions), name="test")
    try:
        await bus.connect()
        await provision(bus.js, partitions=partitions)
        yield bus, server
        await bus.close()
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def provisioned(folder: Path, partitions: int) -> AsyncIterator[Bus]:
    async with provisioned_server(folder, partitions) as (bus, _):
        yield bus


def spread(names: Sequence[str], partitions: int) -> bool:
    """Whether each partition has some of these responses."""
    return len({home_of(response_key("default", name), partitions) for name in names}) == partitions
