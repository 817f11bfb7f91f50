"""The live page in a real browser: at a phone's width and a desk's, while a model is under alarm."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect
from tests.support.browser import open_browser

from groundwatch.events import Box, Decision, JudgedClaim
from groundwatch.runtime.settings import AlarmSettings

NAME = "osprey-13b-chat-instruct-2026-11-20-rc2"
CATEGORIES = ("entity", "color", "count", "relation", "other")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture
async def gateway(gateway_factory, publish, response, pictures):
    """Two models, of which the second turns bad in every category; one of its answers has two images."""
    gateway = await gateway_factory(alarm=AlarmSettings(responses=100, objective=0.05))
    images = []
    for size in ((640, 480), (90, 300)):
        stored = await gateway.http.post(
            "/v1/images", content=pictures.encoded("PNG", size), headers={"Content-Type": "image/png"}
        )
        images.append(stored.json()["sha256"])
    await gateway.post(response(id="bad-29", model=NAME, answer="A dog sits on a mat.", images=images))
    for number in range(30):
        await publish(f"good-{number}", supported=6, recorded_at=1_700_000_000.0 + number)
        claims = tuple(
            JudgedClaim(
                text=f"There is a {category}, and there are many more words about it than fit into a line.",
                category=category,
                unit=0,
                decision=Decision.REFUTED if number >= 10 else Decision.SUPPORTED,
            )
            for category in CATEGORIES
        )
        await publish(
            f"bad-{number}",
            model=NAME,
            claims=claims,
            eligible=5,
            decided=5,
            score=0.0 if number >= 10 else 1.0,
            recorded_at=1_700_000_000.5 + number,
        )
    for _ in range(300):
        report = (await gateway.http.get("/v1/report")).json()
        if len(report["alarms"]) == 6 and sum(row["responses"] for row in report["models"]) == 60:
            return gateway
        await asyncio.sleep(0.05)
    raise AssertionError(report["alarms"])


async def opened(browser: Browser, gateway, width: int, **options) -> Page:
    page = await browser.new_page(viewport={"width": width, "height": 900}, **options)
    await page.goto(f"http://127.0.0.1:{gateway.service.port}/")
    await expect(page.locator("article.answer").first).to_be_visible()
    await expect(page.locator("article.answer img").first).to_be_visible()
    return page


async def test_nothing_is_wider_than_the_screen(browser, gateway):
    needed = {}
    for width in (320, 390, 1024, 1600):
        page = await opened(browser, gateway, width)
        needed[width] = await page.evaluate("document.documentElement.scrollWidth")
    assert {width: wide for width, wide in needed.items() if wide > width} == {}


async def test_an_alarmed_model_comes_first_and_its_fault_is_told_once(browser, gateway):
    page = await opened(browser, gateway, 1024)
    models = page.locator("article.model")
    assert await models.locator(".title b").all_inner_texts() == [NAME, "heron-7b"]
    alarm = models.first.get_by_role("note")
    assert await alarm.count() == 1
    said = await alarm.inner_text()
    assert "0.0 % → 100.0 %" in said
    assert all(category in said for category in CATEGORIES)
    assert await models.first.locator(".chip.bad").count() == 0


async def test_the_figures_of_the_paper_are_shown_with_what_they_rest_on(browser, gateway_factory, publish):
    gateway = await gateway_factory()
    for number in range(6):
        values = {"accuracy": 1.0, "yes": 1.0, "tp": 1.0, "fp": 0.0, "tn": 0.0, "fn": 0.0}
        await publish(f"p{number}", protocol="pope", values=values if number else {})
    page = await browser.new_page(viewport={"width": 1024, "height": 900})
    await page.goto(f"http://127.0.0.1:{gateway.service.port}/")
    figures = page.locator("article.model .headline > div")
    await expect(figures).to_have_count(5)
    await expect(figures.nth(2)).to_have_text(re.compile(r"recall1\.0000\.\d+ – 1\.000\s+n = 5 · of 83 %"))


async def test_images_are_shown_whole_and_open_by_keyboard(browser, gateway):
    page = await opened(browser, gateway, 1024)
    thumbs = page.locator("article.answer").filter(has=page.locator("img")).first.get_by_role("button")
    assert await thumbs.count() == 2
    for thumb, shape in zip(await thumbs.all(), (640 / 480, 90 / 300), strict=True):
        box = await thumb.locator("img").bounding_box()
        assert box is not None and box["width"] / box["height"] == pytest.approx(shape, rel=0.05)
    await thumbs.first.focus()
    await page.keyboard.press("Enter")
    large = page.get_by_role("dialog").locator("img")
    await expect(large).to_be_visible()
    assert await large.evaluate("image => image.naturalWidth") == 640
    await page.keyboard.press("Escape")
    await expect(large).to_be_hidden()
    await expect(thumbs.first).to_be_focused()


BOXES = (
    (Decision.REFUTED, Box(x0=0.25, y0=0.5, x1=0.75, y1=0.9, score=0.9, label="ball", image=1)),
    (Decision.SUPPORTED, Box(x0=0.25, y0=0.5, x1=0.75, y1=0.9, score=0.9, label="ball", image=1)),
    (Decision.SUPPORTED, Box(x0=0.0, y0=0.0, x1=0.4, y1=0.4, score=0.8, label="<b>dog</b>", image=1)),
)


async def test_boxes_are_drawn_where_they_are(browser, gateway_factory, publish, response, pictures):
    gateway = await gateway_factory()
    images = []
    for size in ((640, 480), (90, 300)):
        stored = await gateway.http.post(
            "/v1/images", content=pictures.encoded("PNG", size), headers={"Content-Type": "image/png"}
        )
        images.append(stored.json()["sha256"])
    await gateway.post(response(id="boxed", answer="A dog sits on a mat.", images=images))
    claims = tuple(
        JudgedClaim(text=f"Claim {at}.", category="entity", unit=0, decision=decision, boxes=(box,))
        for at, (decision, box) in enumerate(BOXES)
    )
    await publish("boxed", claims=claims, score=0.7, eligible=3, decided=3)
    page = await opened(browser, gateway, 1024)
    thumbs = page.locator("article.answer .thumb")
    await expect(thumbs.nth(1).locator("rect")).to_have_count(2)
    await expect(thumbs.nth(0).locator("rect")).to_have_count(0)
    # The place of two facts is drawn once, and in red for the one that it refutes.
    wrong = thumbs.nth(1).locator(".bad")
    await expect(wrong).to_have_count(1)
    assert await wrong.locator("title").text_content() == "✗ Claim 0.\n✓ Claim 1."
    await thumbs.nth(1).click()
    for shown in (thumbs.nth(1), page.get_by_role("dialog")):
        await expect(shown.locator("rect")).to_have_count(2)
        image, drawn = (
            await shown.locator("img").bounding_box(),
            await shown.locator(".bad rect").bounding_box(),
        )
        # The image is shown whole within its element, in the middle of it.
        scale = min(image["width"] / 90, image["height"] / 300)
        left = image["x"] + (image["width"] - 90 * scale) / 2
        top = image["y"] + (image["height"] - 300 * scale) / 2
        found = (
            (drawn["x"] - left) / 90,
            (drawn["y"] - top) / 300,
            drawn["width"] / 90,
            drawn["height"] / 300,
        )
        assert [one / scale for one in found] == pytest.approx([0.25, 0.5, 0.5, 0.4], abs=0.07)
    assert "<b>dog</b> 0.80" in await page.get_by_role("dialog").locator("text").all_text_contents()


async def test_invented_models_leave_the_page_quick_and_the_busiest_first(browser, gateway_factory, publish):
    gateway = await gateway_factory()
    for number in range(240):
        await publish(f"i{number}", model=f"invented-{number % 120}")
        if number < 20:
            await publish(f"b{number}", model="busy", refuted=1)
    for _ in range(300):
        report = (await gateway.http.get("/v1/report")).json()
        if sum(row["responses"] for row in report["models"]) == 260:
            break
        await asyncio.sleep(0.05)
    page = await browser.new_page(viewport={"width": 1024, "height": 900})
    await page.goto(f"http://127.0.0.1:{gateway.service.port}/")
    models = page.locator("article.model")
    await expect(models).to_have_count(20)
    assert await models.first.locator("b").first.inner_text() == "busy"
    await expect(page.locator("#seen")).to_have_text(
        re.compile(r"260 outcomes · \d+ rare models are counted")
    )
    await page.get_by_role("button", name="show all").click()
    await expect(models).to_have_count(len(report["models"]))
    assert len(report["models"]) <= 101
    assert await models.last.locator("b").first.inner_text() == "other"
    await page.get_by_role("button", name="show fewer").click()
    await expect(models).to_have_count(20)
