"""A whole campaign of hostile input against one system, and what came of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.faults.campaign.halves import waiting_halves
from tests.faults.campaign.hostile.calls import Calls
from tests.faults.campaign.hostile.commands import Commands
from tests.faults.campaign.hostile.doors import Doors
from tests.faults.campaign.hostile.findings import Findings
from tests.faults.campaign.hostile.floods import Probe
from tests.faults.campaign.hostile.halves import SETTINGS
from tests.faults.campaign.hostile.sockets import Sockets
from tests.faults.campaign.verdict import unplanned
from tests.faults.harness import System

from groundwatch.runtime.local.servers import free_port

SHARES = {"http": 60, "gRPC": 25, "socket": 13, "command": 2}
WORKERS = {"http": 6, "gRPC": 3, "socket": 3, "command": 1}
MEMORY = 700 * 1024 * 1024
"""Resident bytes of a gateway that has had all of it; it begins with about 120 MiB."""
PEAK = 2**30
"""What the chart gives it."""

BLOCKED_SECONDS = 5.0
"""No event loop that works is blocked for so long, but for what a service beside it waits too."""

CALM_SECONDS = 60.0


async def hostile(*, inputs: int, seed: int, keep: Path | None = None) -> dict[str, Any]:
    """Give a system so many hostile inputs; `ok` is false when anything forbidden came of one."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-hostile-", ignore_cleanup_errors=True) as name:
        folder, grpc_port = Path(name), free_port()
        system = System(
            folder,
            wait=60,
            settings={
                "GROUNDWATCH_GATEWAY__GRPC_PORT": str(grpc_port),
                "GROUNDWATCH_GATEWAY__REPLAYS": "0",
                **SETTINGS,
            },
        )
        try:
            await asyncio.to_thread(system.start)
            return await _hostile(system, grpc_port, inputs=inputs, seed=seed)
        finally:
            await asyncio.to_thread(system.stop)
            if keep is not None:
                shutil.copytree(
                    folder, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("nats", "fifo")
                )


async def _hostile(system: System, grpc_port: int, *, inputs: int, seed: int) -> dict[str, Any]:
    findings, began = Findings(), time.monotonic()
    url = f"http://127.0.0.1:{system.gateway_port}"
    doors = Doors(system.gateway_port, findings, seed)
    calls = Calls(grpc_port, findings, seed)
    sockets = Sockets(system.gateway_port, findings, seed)
    commands = Commands(system.folder, system.environment, url, findings, seed)
    asks = {"http": doors.ask, "gRPC": calls.ask, "socket": sockets.misbehave, "command": commands.ask}

    async def worker(kind: str, count: int) -> None:
        for _ in range(count):
            await asks[kind]()

    probe = Probe(url, system.children["gateway"].pid)
    # Nobody pours anything into this one: what it waits is the machine's fault.
    beside = Probe(system.readiness("scoring").removesuffix("/readyz"), system.children["scoring"].pid)
    try:
        probe.start()
        beside.start()
        async with asyncio.TaskGroup() as group:
            for kind, share in SHARES.items():
                count = max(1, inputs * share // 100)
                for at in range(WORKERS[kind]):
                    mine = count // WORKERS[kind] + (at < count % WORKERS[kind])
                    group.create_task(worker(kind, mine))
        for one in (probe, beside):
            await asyncio.to_thread(one.__exit__)
        if probe.failed:
            findings.add("unhealthy", f"/healthz: {probe.failed}")
        if probe.worst > BLOCKED_SECONDS + 2 * beside.worst:
            findings.add("slow", f"/healthz: somebody else waited {probe.worst:.1f} s")
        if probe.peak > PEAK:
            findings.add("memory", f"the gateway had {probe.peak / 2**20:.0f} MiB for a moment")
        memory = psutil.Process(system.children["gateway"].pid).memory_info().rss
        if memory > MEMORY:
            findings.add("memory", f"the gateway has {memory / 2**20:.0f} MiB")
        await commands.show()
        await _healthy(system, url, findings)
        await _joined(system, findings)
    finally:
        await doors.close()
        await calls.close()
        await sockets.close()
    ledger = await asyncio.to_thread(system.settle)
    if not ledger.balanced or ledger.in_flight:
        findings.add("unbalanced", str(ledger))
    for what in unplanned(system.folder):
        findings.add("tracebacks", what)
    return findings.told() | {
        "recorded": ledger.responses,
        "gateway_mib": round(memory / 2**20),
        "gateway_peak_mib": round(probe.peak / 2**20),
        "waited_s": round(probe.worst, 2),
        "waited_beside_s": round(beside.worst, 2),
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
    }


async def _joined(system: System, findings: Findings) -> None:
    """No half waits for ever."""
    deadline = time.monotonic() + CALM_SECONDS
    while waiting := await asyncio.to_thread(system.ask, waiting_halves):
        if time.monotonic() > deadline:
            findings.add("unhealthy", f"{waiting} halves of logged calls are left after {CALM_SECONDS} s")
            return
        await asyncio.sleep(0.5)


async def _healthy(system: System, url: str, findings: Findings) -> None:
    """A well-meaning client is served as ever: recorded, and scored in a moment."""
    for name, child in system.children.items():
        if not child.alive:
            findings.add("unhealthy", f"{name} has ended: {child.status}")
    body = {"id": "after all of it", "model": "good", "answer": "a red dog sits near two blue cups"}
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        try:
            ready = await http.get(f"{url}/readyz")
            if ready.status_code != 200:
                findings.add("unhealthy", f"/readyz: {ready.text}")
            reply = await http.post(f"{url}/v1/responses", json=body)
            if reply.status_code != 202:
                findings.add("unhealthy", f"{reply.status_code} {reply.text}")
            deadline = time.monotonic() + CALM_SECONDS
            told: dict[str, Any] = {}
            while not told.get("outcomes") and time.monotonic() < deadline:
                told = json.loads((await http.get(f"{url}/v1/responses/after%20all%20of%20it")).content)
                await asyncio.sleep(0.1)
            if not told.get("outcomes"):
                findings.add("unhealthy", f"not scored in {CALM_SECONDS} s: {told}")
        except httpx.HTTPError as error:
            findings.add("unhealthy", repr(error))
