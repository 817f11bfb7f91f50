"""The recorded demo: answers written beforehand, with references, so that no model is needed."""

from __future__ import annotations

import asyncio
import time
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import msgspec

from groundwatch.cli.demo_folder import Kept
from groundwatch.cli.demo_shared import (
    ALARM,
    Next,
    by_model,
    judged_again,
    metrics_of,
    on_screen,
    settled,
    tell_change,
    tell_metrics,
    tell_next,
)
from groundwatch.cli.ledger import show_ledger
from groundwatch.cli.live import LiveView
from groundwatch.cli.output import print_json
from groundwatch.cli.system import whole_system
from groundwatch.cli.traffic import outcomes
from groundwatch.errors import UsageError
from groundwatch.events import LIVE
from groundwatch.ledger.ledger import Ledger
from groundwatch.reporting import Report, render
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.alarms import tell as tell_alarm
from groundwatch.runtime.settings import GatewaySettings, Settings
from groundwatch.terminal import Console, styled

SAMPLE = "answers.jsonl"
PATIENCE = 120.0
"""Seconds after the last answer until every outcome must be there."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What the recorded demo found."""

    report: Report
    ledger: Ledger
    seconds: float
    metrics: list[str]
    alarms: tuple[Raised, ...]


async def play(folder: Path, rate: float, *, quiet: bool) -> Played:
    """Stream the bundled answers, `rate` a second, through everything that `groundwatch up` starts."""
    console = Console(stderr=quiet)
    answers = [line for line in _sample().splitlines() if line]
    if not quiet:
        console.print(
            styled(("groundwatch demo", "bold"), ": starting NATS and all services on this machine…")
        )
    settings = Settings(gateway=GatewaySettings(port=0), alarm=ALARM)
    began = time.monotonic()
    async with whole_system(settings, folder) as system:
        if not quiet:
            console.print(f"sending {len(answers)} recorded answers of two models to {system.gateway_url}")
        view = LiveView("groundwatch demo", ALARM.rule)
        report = Report()
        async with on_screen(view, console, quiet=quiet):
            sending = asyncio.create_task(_send(system.gateway_url, answers, rate))
            async with asyncio.timeout(len(answers) / rate + PATIENCE):
                async for outcome in outcomes(system.bus, LIVE, follow=True):
                    view.add(outcome)
                    report.add(outcome)
                    if view.seen == len(answers):
                        break
            await sending
        return Played(
            report=report,
            ledger=await settled(system),
            seconds=time.monotonic() - began,
            metrics=await metrics_of(system.gateway_url),
            alarms=view.alarms,
        )


def again(place: Kept) -> Next | None:
    """The replay that is proposed: without any model there is no other judge, and this one is held to its
    word."""
    return judged_again(place, "again", "by the same judge, which must say the same")


def tell(played: Played, place: Kept, *, as_json: bool) -> None:
    """What was found, for people or as JSON, and what to type next."""
    change = played.report.to_dict()["change"]
    if as_json:
        found: dict[str, Any] = {
            "mode": "recorded",
            "audit": played.ledger,
            "models": by_model(played.report.models()),
            "change": change,
            "alarms": [msgspec.to_builtins(one) for one in played.alarms],
            "next": again(place),
        }
        print_json(found)
        return
    console = Console()
    console.print()
    render(played.report, console)
    console.print()
    show_ledger(played.ledger, console)
    console.print()
    tell_metrics(played.metrics, console)
    console.print()
    if change is not None:
        tell_change(change, console)
    for raised in played.alarms:
        console.print(f"⚠ {tell_alarm(raised)}", style="bold red")
    tell_next(played.seconds, "up", place, again(place), console)


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


def _sample() -> bytes:
    return resources.files("groundwatch.demo").joinpath(SAMPLE).read_bytes()
