"""Small bodies that become large, each given to a gateway in a process of its own while others ask it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
from tests.faults.campaign.hostile.floods import ANSWER_SECONDS, FLOODS, OVER_GRPC, Probe, pour
from tests.faults.harness import System

from groundwatch.runtime.local.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SEED = 28
PROBE_SECONDS = 1.0
"""The longest that anybody else may wait."""

TRIES = 3
"""A busy machine makes somebody wait now and then; a loop that is blocked does each time."""

GROWTH = 500 * 2**20
"""Bytes by which a gateway may grow for a moment: the chart gives it 1 GiB, and it begins with 150 MiB."""

KEPT = 120 * 2**20
"""Bytes that may stay."""


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, int]]:
    """A gateway with NATS, and its port of gRPC."""
    folder, port = Path(tmp_path_factory.mktemp("floods")), free_port()
    settings = {"GROUNDWATCH_GATEWAY__GRPC_PORT": str(port), "GROUNDWATCH_GATEWAY__REPLAYS": "0"}
    system = System(folder, services={"gateway": "gateway"}, wait=60, settings=settings)
    try:
        system.start()
        yield system, port
    finally:
        system.stop()


@pytest.fixture
async def sender(flooded: tuple[System, int]) -> Any:
    """Clients of both doors."""
    system, port = flooded
    options = (("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1))
    async with contextlib.AsyncExitStack() as stack:
        url = f"http://127.0.0.1:{system.gateway_port}"
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False))
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        await stack.enter_async_context(channel)
        yield lambda flood: pour(flood, http, channel, ANSWER_SECONDS)


@pytest.mark.parametrize("name", FLOODS)
async def test_nobody_waits_for_a_flood_and_it_is_answered(name, flooded, sender):
    system, _ = flooded
    child = system.children["gateway"]
    flood = FLOODS[name](random.Random(SEED))
    waits = []
    for _ in range(TRIES):
        before = psutil.Process(child.pid).memory_info().rss
        with Probe(f"http://127.0.0.1:{system.gateway_port}", child.pid) as probe:
            status = await sender(flood)
        assert status not in ("500", "UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED"), system.tail("gateway")
        assert child.alive
        assert probe.peak - before < GROWTH, f"{(probe.peak - before) >> 20} MiB"
        waits.append(probe.worst)
        if probe.worst < PROBE_SECONDS:
            break
    assert min(waits) < PROBE_SECONDS, waits
    await asyncio.to_thread(system.wait_ready, "gateway")


def test_nothing_of_them_stays(flooded):
    system, _ = flooded
    process = psutil.Process(system.children["gateway"].pid)
    before = process.memory_info().rss
    with httpx.Client(base_url=f"http://127.0.0.1:{system.gateway_port}", trust_env=False) as http:
        for seed in range(10):
            flood = FLOODS["ids"](random.Random(seed))
            http.post(flood.path, content=flood.content, headers=flood.headers, timeout=ANSWER_SECONDS)
    assert process.memory_info().rss - before < KEPT


def test_each_goes_in_by_its_own_door():
    for name, made in FLOODS.items():
        assert bool(made(random.Random(SEED)).grpc) is (name in OVER_GRPC), name
