"""Take docs/pictures from the demo: `make pictures`. Needs Debian's chromium, and what `make demo` needs."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Browser, async_playwright

from groundwatch.demo import live
from groundwatch.demo.findings import VERSION, Findings, LiveFindings
from groundwatch.demo.shared import Screen
from groundwatch.ledger.ledger import audit
from groundwatch.reviews.queues import Items, Queues, QueueSpec
from groundwatch.statistics.alarm import ALL
from groundwatch.system.up import System

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
QUEUE = "first-look"
ITEMS = 20


class Shot(NamedTuple):
    """A page of the demo's gateway, and how much of it: its first `height` pixels."""

    name: str
    path: str
    width: int = 1280
    height: int = 900
    scheme: str = "light"


class Told(Screen):
    """The demo's steps, so that whoever waits knows for what."""

    def say(self, line: str) -> None:
        print(line)


async def take(found: Findings, system: System) -> None:
    """While the demo is still up."""
    assert isinstance(found, LiveFindings)
    await audit(system.bus.js, partitions=system.bus.partitions)
    await Queues(system.bus).create(QueueSpec(name=QUEUE, protocol="faithscore", size=ITEMS))
    items = Items(system.bus)
    while len(await items.all(QUEUE)) < ITEMS:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    rollout = found.rollout
    # The first answer of the worse version with one wrong fact, among some that hold, and with a box for it.
    worst = next(
        outcome.id
        for _, outcome, wrong in found.watched.refuted
        if outcome.model == rollout.model and outcome.tags.get(VERSION) == rollout.version
        if wrong.boxes and outcome.decided > 4 and outcome.answer_words < 40
    )
    alarm = next(one.alarm for one in found.alarms if one.alarm.category == ALL)
    versions = f"model={rollout.model}&first=1&second={rollout.version}"
    shots = [
        Shot("overview", "/"),
        Shot("model", f"/models/{rollout.model}"),
        Shot("answers", "/answers?verdict=refuted&order=worst"),
        Shot("answer", f"/answers/{worst}"),
        Shot("alarm", f"/alarms/{alarm.key}?at={alarm.raised_at}", height=1300),
        Shot("compare", f"/compare?by=version&{versions}", height=720),
        Shot("health", "/health"),
        Shot("queues", "/queues", height=420),
        Shot("queue", f"/queues/{QUEUE}"),
        Shot("review", f"/review/{QUEUE}?reviewer=ann"),
        Shot("review-phone", f"/review/{QUEUE}?reviewer=bob", width=390, height=844, scheme="dark"),
    ]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for shot in shots:
            await _take(browser, system.gateway_url, shot)
        await browser.close()


async def _take(browser: Browser, at: str, shot: Shot) -> None:
    size = {"width": shot.width, "height": shot.height}
    dark = "dark" if shot.scheme == "dark" else "light"
    context = await browser.new_context(viewport=size, color_scheme=dark)  # type: ignore[arg-type]
    page = await context.new_page()
    await page.goto(at + shot.path)
    # Until images are there, and what comes by itself.
    await page.wait_for_timeout(3000)
    await page.screenshot(path=PICTURES / f"pages-{shot.name}.png")
    print(f"docs/pictures/pages-{shot.name}.png")
    await context.close()


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="groundwatch-pictures-") as folder:
        await live.run_live(Path(folder), live.models_needed(), live.ANSWERS, Told(), take)


if __name__ == "__main__":
    asyncio.run(main())
