"""What the live and the recorded demo share: who shows them, and the books at the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import msgspec

from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.reporting.live import LiveView
from groundwatch.reporting.report import ModelReport
from groundwatch.runtime.local.triton_server import OnProgress
from groundwatch.runtime.settings import AlarmSettings
from groundwatch.system.up import System

SHOWN_METRICS = ("groundwatch_responses_total", "groundwatch_score_count", "groundwatch_alarm_raised")
"""Each fits a line of a terminal; of the alarms those that are raised."""

ALARM = AlarmSettings(objective=0.06)
"""What still counts as good is said, not learnt: a demo has no day to spare for learning."""


class Screen:
    """Who watches a demo; this one is nobody."""

    def say(self, line: str) -> None:
        """What is done now."""

    @contextlib.contextmanager
    def loading(self, words: str) -> Iterator[OnProgress | None]:
        """Which models load while the block runs."""
        yield None

    @contextlib.asynccontextmanager
    async def live(self, view: LiveView) -> AsyncIterator[None]:
        """The live table while the block runs."""
        yield


async def settled(system: System) -> Ledger:
    """The ledger, once nothing is in flight any more."""
    ledger = await audit(system.bus.js)
    for _ in range(50):
        if not ledger.in_flight:
            break
        await asyncio.sleep(0.1)
        ledger = await audit(system.bus.js)
    return ledger


async def metrics_of(gateway: str, shown: Sequence[str] = SHOWN_METRICS) -> list[str]:
    """Lines of the gateway's /metrics that begin with one of `shown`."""
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        text = (await http.get("/metrics")).text
    found = [line for line in text.splitlines() if line.startswith(tuple(shown))]
    return [
        line for line in found if not (line.startswith("groundwatch_alarm_raised") and line.endswith(" 0.0"))
    ]


def by_model(models: Sequence[ModelReport]) -> dict[str, dict[str, Any]]:
    """Each model's numbers under its name, for JSON."""
    found: dict[str, dict[str, Any]] = {}
    for model in models:
        rate = model.hallucination_rate
        told = {
            "rate": rate.value if rate else None,
            "interval": [rate.low, rate.high] if rate else None,
            "score": msgspec.to_builtins(model.score),
            "responses": model.responses,
            "scored": model.scored,
            "unscored": model.unscored,
            "coverage": model.coverage,
            "answer_words": model.answer_words,
        }
        # Rows of other judges have fewer answers and come later.
        found.setdefault(model.model, told)
    return found
