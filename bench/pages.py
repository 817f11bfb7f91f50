"""How long pages take over so many archived outcomes, in one gateway process beside live traffic.

The archive is generated: outcomes over a hundred days, twelve models, eight facts each, and beside them the
responses as they were recorded. A NATS server and `groundwatch serve gateway` have processes of their own.
Live traffic comes at an even rate: responses over HTTP, and outcomes as a stage publishes them, which a
watcher of `/v1/scores` gets. First it comes alone; then `users` load pages, one after the other, each of
another model, time or answer. Times are the client's, in milliseconds, until the whole page is there.

`ok` is true when p95 of the overview, each kind of search and one answer is at most 150 ms, and the p99 of
live traffic with page loads is at most 50 ms above that without.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import psutil
import pyarrow as pa

import groundwatch
import query
from groundwatch.archive.events import SCHEMA as MESSAGES
from groundwatch.archive.events import Events
from groundwatch.archive.outcomes import Archive
from groundwatch.archive.table import Change
from groundwatch.errors import CheckFailed
from groundwatch.events import OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.keys import response_key
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import RESPONSES

WITHIN_MS, WORSE_MS = 150.0, 50.0
HOST = "127.0.0.1"
ANSWER = "A brown dog sits on a red mat beside a small ball. Behind it, a window lets in the light. " * 3
READING_SECONDS = 900.0


def generate(url: str, number: int, days: int) -> None:
    """Outcomes and recorded responses of `number` responses, evenly over `days` days."""
    archive, events, draw = Archive(url), Events(url), np.random.default_rng(7)
    each = -(-number // days)
    for day in range(days):
        first, end = day * each, min((day + 1) * each, number)
        if first >= end:
            return
        when = query.FIRST + timedelta(days=day)
        rows = query._day(draw, when, first, end)
        keys = [
            response_key(*names)
            for names in zip(rows["tenant"].to_pylist(), rows["response_id"].to_pylist(), strict=True)
        ]
        rows = rows.set_column(rows.schema.get_field_index("key"), "key", pa.array(keys))
        recorded = _recorded(rows, keys)

        def outcomes_of(change: Change, rows: pa.Table = rows, when: Any = when) -> bool:
            change.write(rows, {"day": when.isoformat()})
            return True

        def responses_of(change: Change, rows: pa.Table = recorded, when: Any = when) -> bool:
            change.write(rows, {"stream": RESPONSES, "day": when.isoformat()})
            return True

        archive.change(outcomes_of)
        events.change(responses_of)


def _recorded(rows: pa.Table, keys: list[str]) -> pa.Table:
    """The recorded response of each outcome."""
    encoder = msgspec.json.Encoder()
    names = ("response_id", "tenant", "model", "recorded_at")
    listed = zip(*(rows[name].to_pylist() for name in names), strict=True)
    data = [
        encoder.encode(
            ResponseRecorded(
                id=name,
                tenant=tenant,
                model=model,
                answer=ANSWER,
                prompt="Describe the image.",
                protocols=("faithscore",),
                recorded_at=at.timestamp(),
            )
        )
        for name, tenant, model, at in listed
    ]
    count = len(rows)
    values = {
        "stream": pa.repeat(RESPONSES, count),
        "created": rows["stream"],
        "sequence": rows["sequence"],
        "time": rows["recorded_at"],
        "run": pa.repeat("live", count),
        "kind": pa.repeat("recorded", count),
        "protocol": pa.repeat("", count),
        "key": pa.array(keys),
        "tenant": rows["tenant"],
        "subject": pa.array([f"gw.recorded.live.{key}" for key in keys]),
        "headers": pa.array([[] for _ in keys], MESSAGES.field("headers").type),
        "data": pa.array(data, pa.binary()),
        "day": rows["day"],
    }
    return pa.Table.from_arrays(
        [_plain(values[field.name]).cast(field.type) for field in MESSAGES], schema=MESSAGES
    )


def _plain(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@contextlib.asynccontextmanager
async def serving(folder: Path, nats: str, archive: str, port: int) -> AsyncIterator[psutil.Process]:
    """The gateway, as it is served."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(groundwatch.__file__).parents[1]),
        "GROUNDWATCH_NATS__URL": nats,
        "GROUNDWATCH_ARCHIVE__URL": archive,
        "GROUNDWATCH_GATEWAY__PORT": str(port),
        "GROUNDWATCH_GATEWAY__GRPC_PORT": "-1",
        "GROUNDWATCH_TELEMETRY__PORT": "0",
    }
    with (folder / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "groundwatch", "serve", "gateway", "--wait", "30"),
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


class Live:
    """Live traffic at an even rate, and how long it takes."""

    def __init__(self, bus: Bus, http: httpx.AsyncClient, rate: int) -> None:
        self._bus, self._http, self._rate = bus, http, rate
        self._number = 0
        self._sent: dict[str, float] = {}
        self.recorded: list[float] = []
        self.shown: list[float] = []

    def forget(self) -> None:
        self.recorded, self.shown = [], []

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            await asyncio.sleep(1.0)
            due = time.monotonic()
            while True:
                due += 1 / self._rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                self._number += 1
                group.create_task(self._one(f"live-{self._number}"))

    async def _one(self, name: str) -> None:
        began = time.monotonic()
        body = {"id": name, "model": "model-1", "answer": ANSWER, "protocols": ["faithscore"]}
        (await self._http.post("/v1/responses", json=body)).raise_for_status()
        self.recorded.append(time.monotonic() - began)
        event = ResponseScored(
            id=name, model="model-1", protocol="faithscore", outcome=OutcomeKind.SCORED, score=1.0,
            recorded_at=time.time(), scored_at=time.time(),
        )  # fmt: skip
        self._sent[name] = time.monotonic()
        await self._bus.create(outcomes.outgoing(event))

    async def _watch(self) -> None:
        async with self._http.stream("GET", "/v1/scores", timeout=None) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data:") and '"id":"live-' in line:
                    name = msgspec.json.decode(line.partition("data:")[2])["id"]
                    if (sent := self._sent.pop(name, None)) is not None:
                        self.shown.append(time.monotonic() - sent)


def address(kind: str, draw: random.Random, number: int, days: int) -> str:
    """Of a page of this kind, seldom the same twice."""
    model = f"model-{draw.randrange(12)}"
    since = query.FIRST + timedelta(days=draw.randrange(days))
    match kind:
        case "overview":
            return "/"
        case "newest":
            return f"/answers?model={model}&verdict=refuted"
        case "worst":
            return f"/answers?order=worst&model={model}&until={since + timedelta(days=1)}"
        case "uncertain":
            category, tenant = draw.choice(query.CATEGORIES), draw.choice("abcd")
            return f"/answers?order=uncertain&category={category}&tenant={tenant}"
        case "tag":
            return f"/answers?tag=strategy=direct&model={model}&since={since}&order=worst"
        case "words":
            words = "+".join(draw.sample(query.NOUNS, 2))
            return f"/answers?q={words}&model={model}&until={since + timedelta(days=1)}"
        case "rare words":
            return f"/answers?q=unicorn-{draw.randrange(10**6)}"
    one = draw.randrange(number)
    # As the generator draws tenants, nobody knows whose it is: a search by id says so.
    return f"response-{one}"


KINDS = ("overview", "newest", "worst", "uncertain", "tag", "words", "rare words", "answer")


async def load(
    http: httpx.AsyncClient, until: float, users: int, number: int, days: int
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)

    async def user(seed: int) -> None:
        draw, turn = random.Random(seed), seed
        while time.monotonic() < until:
            kind = KINDS[turn % len(KINDS)]
            turn += 1
            path = address(kind, draw, number, days)
            if kind == "answer":
                found = (await http.get("/v1/answers", params={"id": path})).json()["answers"]
                path = f"/answers/{path}?tenant={found[0]['tenant']}"
            began = time.monotonic()
            reply = await http.get(path)
            times[kind].append(time.monotonic() - began)
            if reply.status_code != 200 or (kind == "answer" and ANSWER[:20] not in reply.text):
                raise CheckFailed(f"{path}: {reply.status_code} {reply.text[:200]}")
            await asyncio.sleep(0.05)

    await asyncio.gather(*(user(seed) for seed in range(users)))
    return times


def _figures(times: list[float]) -> dict[str, Any]:
    in_order = sorted(1e3 * one for one in times)
    if len(in_order) < 2:
        return {"n": len(in_order)}
    cuts = statistics.quantiles(in_order, n=100, method="inclusive")
    return {"n": len(in_order), **{f"p{at}_ms": round(cuts[at - 1], 1) for at in (50, 95, 99)}}


async def measure(
    *, outcomes: int = 1_000_000, days: int = 100, seconds: int = 60, users: int = 2, rate: int = 40
) -> dict[str, Any]:
    """Milliseconds by kind of page, and of live traffic without and with page loads."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-pages-") as name:
        folder = Path(name)
        archive = str(folder / "archive")
        began = time.monotonic()
        await asyncio.to_thread(generate, archive, outcomes, days)
        generated = time.monotonic() - began
        server = NatsServer(folder / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="bench")
        port = free_port()
        try:
            await bus.connect()
            await provision(bus.js)
            began = time.monotonic()
            async with (
                serving(folder, server.url, archive, port) as process,
                httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=60) as http,
            ):
                await _until_read(http, folder)
                reading = time.monotonic() - began
                traffic = Live(bus, http, rate)
                live = asyncio.create_task(traffic.run())
                await asyncio.sleep(5)
                traffic.forget()
                await asyncio.sleep(seconds)
                alone = {"recorded": _figures(traffic.recorded), "shown": _figures(traffic.shown)}
                await load(http, time.monotonic() + 5, users, outcomes, days)
                traffic.forget()
                times = await load(http, time.monotonic() + seconds, users, outcomes, days)
                beside = {"recorded": _figures(traffic.recorded), "shown": _figures(traffic.shown)}
                live.cancel()
                await asyncio.gather(live, return_exceptions=True)
                resident = process.memory_info().rss
        finally:
            await bus.close()
            await server.stop()
    pages = {kind: _figures(times[kind]) for kind in KINDS}
    unharmed = all(beside[one]["p99_ms"] <= alone[one]["p99_ms"] + WORSE_MS for one in alone)
    return {
        "outcomes": outcomes,
        "generated_s": round(generated, 1),
        "read_s": round(reading, 1),
        "gateway_mb": round(resident / 1e6),
        "pages": pages,
        "live_alone": alone,
        "live_beside": beside,
        "ok": unharmed and all(one.get("p95_ms", 0.0) <= WITHIN_MS for one in pages.values()),
    }


async def _until_read(http: httpx.AsyncClient, folder: Path) -> None:
    """Wait until the gateway has read the whole archive."""
    async with asyncio.timeout(READING_SECONDS):
        while True:
            with contextlib.suppress(httpx.TransportError):
                reply = await http.get("/v1/answers")
                if reply.status_code == 200 and not reply.json()["reading"]:
                    return
            await asyncio.sleep(0.5)
