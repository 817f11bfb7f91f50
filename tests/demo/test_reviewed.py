"""The live demo, and somebody who reviews a queue of its answers by keys and knows what is in the images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.demo.test_live import LONG, needs_checkpoints
from tests.runtime.conftest import eventually
from tests.support.browser import open_browser
from tests.support.reviewing import Reviewer, reviewer_at

from groundwatch.demo import live
from groundwatch.demo.findings import VERSION, LiveFindings
from groundwatch.demo.shared import Screen
from groundwatch.miniature.language import holds
from groundwatch.miniature.world import Scene
from groundwatch.reviews.corrected import compute_corrected
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Items, Queues, QueueSpec

ANSWERS, REVIEWED = 130, 80
DECISIONS = {True: "1", False: "2", None: "3"}


async def fields(person: Reviewer) -> list[dict[str, Any]]:
    """Those that wait for a decision, in their order."""
    found: list[dict[str, Any]] = await person.page.evaluate(
        """() => [...document.querySelectorAll("#form .question")].map(field => ({
            fact: field.dataset.fact !== undefined, unit: field.dataset.unit !== undefined,
            stated: field.parentElement.querySelectorAll("[data-fact]").length,
            text: field.querySelector("legend .foreign")?.textContent,
        }))"""
    )
    return found


async def review(person: Reviewer, shown: Scene) -> None:
    """One item, by keys alone: a sub-sentence without facts is none that describes."""
    for field in await fields(person):
        if field["unit"]:
            await person.press("1" if field["stated"] else "2")
        elif field["fact"]:
            await person.press(DECISIONS[holds(shown, field["text"])])
    await person.press("Control+Enter")


@needs_checkpoints
@pytest.mark.slow
@pytest.mark.timeout(2 * LONG)
async def test_rates_of_what_is_reviewed_by_keys_hold_the_truth(tmp_path: Path):
    corrected: list[Any] = []

    async def over(found: Any, system: Any) -> None:
        assert isinstance(found, LiveFindings)
        queues = Queues(system.bus)
        await queues.create(QueueSpec(name="demo", protocol="faithscore", size=REVIEWED))
        items = Items(system.bus)

        async def drawn() -> bool:
            return len(await items.all("demo")) == REVIEWED

        await eventually(drawn, within=60)
        ids = {item.key: item.id for item in await items.all("demo")}
        async with open_browser() as browser:
            person = await reviewer_at(browser, f"{system.gateway_url}/review/demo")
            await person.page.evaluate("document.querySelector('#form input').focus()")
            finished = person.page.locator("#finished")
            for done in range(REVIEWED):
                key = person.page.url.rpartition("item=")[2]
                await review(person, found.sent[ids[key]].shown)
                if done < REVIEWED - 1:
                    await person.page.wait_for_url(lambda url, key=key: not url.endswith(key))
            await expect(finished).to_be_visible()
        assert len(await Opinions(system.bus).latest()) == REVIEWED
        corrected.extend(await compute_corrected(system.bus, lambda tags: tags.get(VERSION, "")))

    found = await live.run_live(tmp_path, live.models_needed(), ANSWERS, Screen(), over)
    assert isinstance(found, LiveFindings)
    rates = {
        (row.model, row.version): row.corrected
        for row in corrected
        if row.category == "all" and row.corrected is not None
    }
    for version in (("heron", "1"), ("osprey", "2")):
        true = found.true_rate(*version)
        assert true is not None
        # One interval in twenty misses, and hardly one of twice its width.
        low, value, high = rates[version].low, rates[version].value, rates[version].high
        assert 2 * low - value <= true <= 2 * high - value, (version, true, rates[version])
