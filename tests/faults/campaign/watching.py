"""People who watch the live scores, and come back where they were when their gateway goes away."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence

import httpx
from tests.faults.campaign.traffic import BROKEN, Gateway
from tests.faults.campaign.truth import Truth

from groundwatch.keys import response_key

READ_SECONDS = 40.0
"""Above the 15 s after which a gateway that has nothing to tell says so."""


class Watcher:
    """Reads `/v1/scores` on from the last event seen, now of this gateway, now of that."""

    def __init__(self, truth: Truth, gateways: Sequence[Gateway], *, seed: int, began: float) -> None:
        self._truth = truth
        self._gateways = gateways
        self._random = random.Random(f"watcher {seed}")
        self._began = began
        self.position = 0
        self.seen: set[int] = set()
        self.connections = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        timeout = httpx.Timeout(READ_SECONDS, connect=2.0)
        async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
            while True:
                gateway = self._random.choice(self._gateways)
                try:
                    await self._watch(http, gateway)
                except BROKEN:
                    await asyncio.sleep(0.2)

    async def _watch(self, http: httpx.AsyncClient, gateway: Gateway) -> None:
        asked = {"last-event-id": str(self.position)}
        async with http.stream("GET", f"{gateway.url}/v1/scores", headers=asked) as reply:
            if reply.status_code != 200:
                if reply.status_code == 500:
                    self._truth.violation("answers of 500", f"/v1/scores: {await reply.aread()!r}")
                await asyncio.sleep(0.2)
                return
            self.connections += 1
            # Somebody who never closes a page still moves on now and then, when a proxy has had enough.
            until = time.monotonic() + self._random.uniform(5, 60)
            identity, kind = "", ""
            async for line in reply.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    identity = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    if kind == "missed":
                        return
                    self._take(int(identity), value)
                elif not line and time.monotonic() > until:
                    return

    def _take(self, sequence: int, data: str) -> None:
        if sequence <= self.position:
            self._truth.violation("watched twice", f"outcome {sequence} after {self.position}")
        self.position = max(sequence, self.position)
        self.seen.add(sequence)
        outcome = json.loads(data)
        sent = self._truth.sent.get(response_key(outcome.get("tenant", "default"), outcome["id"]))
        if sent is not None and sent.outcome_at is None:
            sent.outcome_at = time.monotonic() - self._began
