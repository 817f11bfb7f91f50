"""People who look up a response, and what has become of it, whether it is hot or cold."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
from tests.faults.campaign.traffic import BROKEN, Gateway
from tests.faults.campaign.truth import BRIEF, Sent, Truth, difference

from groundwatch.events import REPLACEABLE, ResponseScored

SECONDS = 45.0
PAUSE = 0.5


class Lookups:
    """One after the other, of any response that was acknowledged."""

    def __init__(self, truth: Truth, gateways: Sequence[Gateway], *, seed: int, began: float) -> None:
        self._truth = truth
        self._gateways = gateways
        self._random = random.Random(f"lookups {seed}")
        self._began = began
        self.answers: Counter[str] = Counter()

    async def run(self) -> None:
        """Look up until cancelled."""
        timeout = httpx.Timeout(SECONDS, connect=2.0)
        async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
            while True:
                await asyncio.sleep(self._random.uniform(0, 2 * PAUSE))
                known = [sent for sent in self._truth.acknowledged() if sent.body["tenant"] != BRIEF]
                if known:
                    await self._look_up(http, self._random.choice(known))

    async def _look_up(self, http: httpx.AsyncClient, sent: Sent) -> None:
        tenant, name = sent.name
        age = ", old" if sent.is_old(time.monotonic() - self._began) else ""
        url = f"{self._random.choice(self._gateways).url}/v1/responses/{name}"
        try:
            reply = await http.get(url, params={"tenant": tenant})
        except BROKEN as error:
            self.answers[type(error).__name__] += 1
            return
        self.answers[f"{reply.status_code}{age}"] += 1
        if sent.gone or sent.conflicting:
            return
        if reply.status_code == 404:
            self._truth.violation("lost", f"{sent.name} was acknowledged, and a lookup does not find it")
        elif reply.status_code == 200:
            self._compare(sent, reply.json())
        elif reply.status_code != 503:
            kind = "answers of 500" if reply.status_code == 500 else "odd answers"
            self._truth.violation(kind, f"lookup of {sent.name}: {reply.status_code} {reply.text[:200]}")

    def _compare(self, sent: Sent, told: dict[str, Any]) -> None:
        if told["response"]["answer"] != sent.body["answer"]:
            self._truth.violation("wrong score", f"{sent.name}: a lookup gives another answer of it")
        for found in told["outcomes"].values():
            outcome = msgspec.convert(found, ResponseScored)
            if outcome.reason not in REPLACEABLE and (wrong := difference(sent.body, outcome)):
                self._truth.violation("wrong score", f"{sent.name}: by a lookup {wrong}")
