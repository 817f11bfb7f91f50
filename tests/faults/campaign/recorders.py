"""Applications with the SDK that record a little and close, whatever is away meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.campaign.traffic import Gateway
from tests.faults.campaign.truth import BRIEF, Truth

from groundwatch.client import Recorder
from groundwatch.client.worker import waiting
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.stores.losses import losses_by_sender

SENDER = "campaign"
TOLD_SECONDS = 150.0
"""More than a gateway takes to be sure of what was not acknowledged."""


class Recorders:
    """What they recorded is in the stream, or was told as lost, and nothing is both."""

    def __init__(self, truth: Truth, gateways: Sequence[Gateway], *, folder: Path, seed: int) -> None:
        self._truth = truth
        self._gateways = gateways
        self._random = random.Random(f"recorders {seed}")
        self._keys: set[str] = set()
        self.stopped = False
        self.closed = 0
        # Where reports wait that no gateway took.
        os.environ["XDG_STATE_HOME"] = str(folder / "state")

    @property
    def sent(self) -> int:
        return len(self._keys)

    async def lane(self) -> None:
        """One application after the other, until stopped."""
        chance = self._random
        while not self.stopped:
            recorder = Recorder(chance.choice(self._gateways).url, sender=SENDER)
            for _ in range(chance.randint(1, 30)):
                sent = self._truth.make()
                if sent.body["tenant"] == BRIEF:
                    continue
                sent.uncertain = True
                self._keys.add(sent.key)
                recorder.record(**sent.body)
                await asyncio.sleep(chance.uniform(0, 0.05))
            await recorder.aclose(chance.choice((0.2, 1.0, 5.0)))
            self.closed += 1

    async def tell(self) -> None:
        """Let the next start report what could not be told; all gateways are there by now."""
        recorders = [Recorder(gateway.url) for gateway in self._gateways]
        deadline = time.monotonic() + TOLD_SECONDS
        while any(waiting(gateway.url, "") for gateway in self._gateways):
            if time.monotonic() > deadline:
                self._truth.violation("stuck", "reports of losses are not taken")
                break
            await asyncio.sleep(0.1)
        for recorder in recorders:
            await recorder.aclose()

    def compare(self, recorded: set[str], lost: int) -> None:
        there = len(self._keys & recorded)
        if there + lost != len(self._keys):
            kind = "lost" if there + lost < len(self._keys) else "counted lost and there"
            self._truth.violation(kind, f"the SDK sent {len(self._keys)}: {there} there, {lost} told as lost")


async def lost_by_them(bus: Bus) -> int:
    """How many were told as lost."""
    return sum((await losses_by_sender(bus.js)).get(SENDER, {}).values())
