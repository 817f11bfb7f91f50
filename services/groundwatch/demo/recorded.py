"""The recorded demo: answers written beforehand, with references, so that no model is needed."""

import asyncio
import time
from importlib import resources
from pathlib import Path

import httpx

from groundwatch.demo.findings import Findings, Watched
from groundwatch.demo.shared import ALARM, Screen, metrics_of, settled
from groundwatch.errors import UsageError
from groundwatch.events import LIVE
from groundwatch.reporting.live import LiveView
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.settings import GatewaySettings, Settings
from groundwatch.system.up import whole_system

SAMPLE = "answers.jsonl"
PATIENCE = 120.0
"""Seconds after the last answer until every outcome must be there."""


async def play(folder: Path, rate: float, screen: Screen) -> Findings:
    """Stream the bundled answers, `rate` a second, through everything that `groundwatch up` starts."""
    sample = resources.files("groundwatch.demo").joinpath(SAMPLE).read_bytes()
    answers = [line for line in sample.splitlines() if line]
    screen.say("groundwatch demo: starting NATS and all services on this machine…")
    settings = Settings(gateway=GatewaySettings(port=0), alarm=ALARM)
    began = time.monotonic()
    async with whole_system(settings, folder) as system:
        screen.say(f"sending {len(answers)} recorded answers of two models to {system.gateway_url}")
        view = LiveView("groundwatch demo", ALARM.rule)
        watched = Watched()
        async with screen.live(view):
            sending = asyncio.create_task(_send(system.gateway_url, answers, rate))
            async with asyncio.timeout(len(answers) / rate + PATIENCE):
                async for outcome in read_outcomes(system.bus, LIVE, follow=True):
                    view.add(outcome)
                    watched.add(outcome)
                    if view.seen == len(answers):
                        break
            await sending
        ledger = await settled(system)
        return Findings(
            watched=watched,
            ledger=ledger,
            seconds={"total": time.monotonic() - began},
            metrics=await metrics_of(system.gateway_url),
            alarms=view.alarms,
        )


async def _send(gateway: str, answers: list[bytes], rate: float) -> None:
    """As an application would: one request for each answer, evenly paced."""
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        for number, answer in enumerate(answers):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            reply = await http.post(
                "/v1/responses", content=answer, headers={"content-type": "application/json"}
            )
            if reply.status_code not in (200, 202):
                raise UsageError(f"the gateway refused answer {number + 1} of the sample: {reply.text[:300]}")
