"""Reviewing where one has to log in: the session's name and its role."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect
from tests.gateway.test_cross_site import tried
from tests.support.reviewing import ANSWER, QUEUE, Reviewer, Reviewing

from groundwatch.events import Decision

TOKENS = """
*     oper-token-0123456789    operator  Op
*     ann-token-0123456789     reviewer  Ann
*     view-token-0123456789    viewer    Vi
"""


@pytest.fixture
async def reviewing(gateway_factory, publish, response, pictures, bus, tmp_path) -> Reviewing:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    gateway = await gateway_factory(tokens_file=str(tokens))
    gateway.http.headers["Authorization"] = "Bearer oper-token-0123456789"
    made = Reviewing(gateway, publish, response, pictures.encoded("PNG", (320, 240)), bus)
    await made.create()
    await made.add("first")
    await made.add("second", "A cat sits on a chair.", [])
    return made


async def logged_in(browser: Browser, reviewing: Reviewing, token: str) -> Page:
    """Somebody who asked for the page of the queue, and was sent to log in."""
    page = await (await browser.new_context(viewport={"width": 1024, "height": 900})).new_page()
    await page.goto(reviewing.address())
    await page.wait_for_url("**/login?next=*")
    await page.fill("#token", token)
    await page.press("#token", "Enter")
    await page.wait_for_url(f"**/review/{QUEUE}")
    return page


async def test_who_has_logged_in_reviews_by_keys_in_their_own_name(browser, reviewing):
    ann = Reviewer(await logged_in(browser, reviewing, "ann-token-0123456789"))
    await ann.page.wait_for_selector("#workbench:not([hidden])")
    await ann.sees(ANSWER)
    await expect(ann.page.locator(".who")).to_contain_text("Ann")
    assert [one["httpOnly"] for one in await ann.page.context.cookies()] == [True]
    await ann.is_at("A dog sits on a mat.")
    await ann.press(*"11211")
    await ann.is_at("It seems happy.")
    await ann.press("2", "4", "Control+Enter")
    await ann.sees("A cat sits on a chair.")
    (opinion,) = await reviewing.opinions()
    assert (opinion.id, opinion.reviewer, opinion.queue, opinion.mark) == ("first", "Ann", QUEUE, 4)
    assert [one.decision for one in opinion.facts] == [
        Decision.SUPPORTED,
        Decision.REFUTED,
        Decision.SUPPORTED,
    ]


async def test_a_viewer_does_not_get_the_page_and_records_nothing(browser, reviewing):
    page = await logged_in(browser, reviewing, "view-token-0123456789")
    shown = await page.goto(reviewing.address())
    assert shown is not None and shown.status == 403
    await expect(page.locator("#workbench")).to_have_count(0)
    # The queue itself they may look at; nothing leads from there to reviewing.
    for path in ("/queues", f"/queues/{QUEUE}"):
        shown = await page.goto(reviewing.address(path))
        assert shown is not None and shown.status == 200
        await expect(page.locator(f"a[href='/review/{QUEUE}']")).to_have_count(0)
    await page.goto(reviewing.address("/queues"))
    await expect(page.get_by_text("New queue")).to_have_count(0)
    # A form from before the role was taken away: it is told why, and what was written stands there.
    await page.evaluate(
        "document.querySelector('main').innerHTML = '<form method=post action=/queues>"
        "<input name=name value=mine><input name=rule value=random><button>Draw</button></form>'"
    )
    await page.get_by_role("button", name="Draw").click()
    await expect(page.get_by_role("alert")).to_contain_text("role operator")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("mine")
    headers = {"Content-Type": "application/json"}
    told = await tried(page, f"/v1/queues/{QUEUE}/next", method="POST", headers=headers, body="{}")
    assert told.startswith("403 "), told
    assert {one.state for one in await reviewing.items.all(QUEUE)} == {"open"}
