"""Replays and comparisons on pages, over real runs and real outcomes."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect
from tests.support.pages import address, check_page, open_page
from tests.support.second_opinions import review_all

from groundwatch.gateway.replays import Wanted
from groundwatch.replay.service import ReplayManager
from groundwatch.runtime.settings import ExtractionSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings


@pytest.fixture
async def gateway(gateway_factory, bus, response, monkeypatch):
    """A gateway that keeps replays, of which none is worked at."""
    monkeypatch.delenv("GROUNDWATCH_CONFIG", raising=False)
    manager = ReplayManager(
        Settings(
            nats=bus._settings,
            gateway=GatewaySettings(replays=0),
            extraction=ExtractionSettings(engine="noop"),
            verification=StageSettings(engine="noop"),
        )
    )
    gateway = await gateway_factory(replays=manager)
    for _ in range(10):
        await gateway.post(response())
    return gateway


@pytest.fixture
async def replayed(gateway):
    await gateway.service.core.replays.start(Wanted(run="again"))
    return gateway


async def test_a_run_is_paused_resumed_and_cancelled(browser, replayed):
    async with open_page(browser, address(replayed, "/runs"), java_script_enabled=False) as page:
        row = page.locator("tbody tr", has_text="again")
        await expect(row).to_contain_text("nobody works at it")
        for action, state in (("Pause", "paused"), ("Resume", "running"), ("Cancel", "cancelled")):
            await page.goto(address(replayed, "/runs"))
            await row.get_by_role("button", name=action).click()
            await expect(page.locator("h1")).to_have_text("again")
            await expect(page.locator(".chip").first).to_contain_text(state)
        await expect(page.get_by_role("button")).to_have_count(0)


async def test_progress_comes_by_itself(browser, replayed):
    async with open_page(browser, address(replayed, "/runs/again")) as page:
        await expect(page.locator(".chip").first).to_contain_text("running")
        await replayed.service.core.replays.pause("again")
        await expect(page.locator(".chip").first).to_contain_text("paused")


@pytest.mark.slow
async def test_the_pages_fit_every_screen_and_have_no_serious_fault(browser, replayed, publish):
    for number in range(6):
        await publish(f"p{number}", refuted=number % 2)
        await publish(f"p{number}", refuted=1, run="again")
    await check_page(browser, address(replayed, "/runs"), "tbody tr")
    await check_page(browser, address(replayed, "/runs/again"))
    await check_page(browser, address(replayed, "/compare?first=live&second=again"), ".claims li")


async def test_answers_that_changed_most_come_first(browser, gateway, publish):
    for number in range(6):
        await publish(f"p{number}", refuted=0)
        await publish(f"p{number}", refuted=3 if number == 4 else 0, run="strict")
    path = "/compare?first=live&second=strict"
    async with open_page(browser, address(gateway, path), java_script_enabled=False) as page:
        changed = page.locator(".sentences > li")
        await expect(changed).to_have_count(1)
        assert await changed.locator("a").first.inner_text() == "p4"
        assert await changed.locator("a").first.get_attribute("href") == "/answers/p4?run=strict"
        await expect(changed).to_contain_text("0 of 3 → 3 of 6")


async def test_two_versions_stand_side_by_side(browser, gateway, publish):
    for number in range(40):
        version = "1.1" if number % 2 else "1.0"
        await publish(f"v{number}", refuted=2 * (number % 2), tags={"version": version})
    path = "/compare?by=version&model=heron-7b&first=1.0&second=1.1"
    async with open_page(browser, address(gateway, path), java_script_enabled=False) as page:
        judged = page.locator("tbody tr", has_text="As judged")
        for _ in range(100):
            if await judged.count() and "+40.0" in await judged.inner_text():
                break
            await page.reload()
        await expect(judged).to_contain_text("+40.0")
    await check_page(browser, address(gateway, path), "tbody tr", widths=(390,))


async def test_two_versions_are_corrected_by_what_people_say_of_each(browser, gateway, publish):
    for number in range(60):
        bad = number % 2
        await publish(f"v{number}", refuted=2 * bad, tags={"version": "1.1" if bad else "1.0"})

    def truth(event):
        """The judge raises a false alarm in every other fact that it refutes."""
        return [claim.decision == "refuted" and at == 0 for at, claim in enumerate(event.claims)]

    path = "/compare?by=version&model=heron-7b&first=1.0&second=1.1"

    async def shown(words):
        for _ in range(200):
            if words in (text := (await gateway.http.get(path)).text):
                return text
            await asyncio.sleep(0.1)
        raise AssertionError(text)

    await shown("No second opinion about 1.0 and 1.1: make a queue of its answers and review it.")
    await review_all(gateway.bus, "heron-7b", truth)
    await shown("Corrected by people: queue q.")
    async with open_page(browser, address(gateway, path), java_script_enabled=False) as page:
        corrected = page.locator("tbody tr", has=page.get_by_role("rowheader", name="Corrected", exact=True))
        await expect(corrected).to_contain_text("+20.0")
        await expect(page.locator("tbody tr", has_text="As judged")).to_contain_text("+40.0")
        await expect(page.locator("tbody tr", has_text="Second opinions")).to_contain_text("30")
        await expect(page.locator("tbody tr", has_text="Entity")).to_contain_text("+20.0")
    await check_page(browser, address(gateway, path), "tbody tr", widths=(390,))


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/runs/none", 404, "no replay &#39;none&#39;"),
        ("/compare?first=live&second=none", 200, "run live has no outcome"),
        ("/compare?first=live&second=live", 200, "name two different runs"),
        ("/runs", 200, "No replay yet"),
    ],
)
async def test_what_is_not_there_is_told(gateway, path, status, said):
    reply = await gateway.http.get(path)
    assert reply.status_code == status and said in reply.text
    assert reply.headers["content-type"].startswith("text/html")


async def test_a_run_that_is_over_cannot_be_paused(replayed):
    await replayed.service.core.replays.cancel("again")
    reply = await replayed.http.post("/runs/again/pause")
    assert reply.status_code == 409 and "is cancelled" in reply.text
    assert (await replayed.http.post("/runs/again/explode")).status_code == 404
