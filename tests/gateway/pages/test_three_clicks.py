"""From the overview by way of the alarm to the sentence and the box in the image."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect
from tests.runtime.conftest import eventually
from tests.support.browser import open_browser
from tests.support.pages import open_page

from groundwatch.events import Box, Decision, JudgedClaim
from groundwatch.runtime.settings import AlarmSettings

BOX = Box(x0=0.1, y0=0.1, x1=0.5, y1=0.6, score=0.9, label="dog")


@pytest.fixture
async def alarmed(gateway_factory, publish, response, pictures):
    gateway = await gateway_factory(alarm=AlarmSettings(responses=100, objective=0.05))
    stored = await gateway.http.post(
        "/v1/images", content=pictures.encoded("PNG", (320, 240)), headers={"Content-Type": "image/png"}
    )
    images = [stored.json()["sha256"]]
    for number in range(40):
        bad = number >= 20
        name, recorded_at = f"answer-{number}", 1_700_000_000.0 + number
        await gateway.post(response(id=name, answer="A dog sits on a mat.", images=images))
        claims = tuple(
            JudgedClaim(
                text=f"The dog is {word}.",
                category="color",
                unit=0,
                decision=Decision.REFUTED if bad else Decision.SUPPORTED,
                boxes=(BOX,),
            )
            for word in ("black", "small", "old")
        )
        await publish(
            name,
            claims=claims,
            eligible=3,
            decided=3,
            score=0.0 if bad else 1.0,
            images=tuple(images),
            recorded_at=recorded_at,
        )

    async def raised() -> bool:
        return bool(gateway.service.core.live.raised)

    await eventually(raised)
    return gateway


async def test_from_the_alarm_to_the_box(alarmed):
    async with (
        open_browser() as browser,
        open_page(browser, f"http://127.0.0.1:{alarmed.service.port}/") as page,
    ):
        await page.get_by_role("link", name=re.compile("alarm heron-7b")).first.click()
        await page.get_by_role("link", name="A dog sits on a mat.").first.click()
        await expect(page).to_have_url(re.compile("/answers/answer-"))
        await expect(page.get_by_text("The dog is black.").first).to_be_visible()
        await expect(page.get_by_role("link", name="Box 1: dog")).to_be_visible()
