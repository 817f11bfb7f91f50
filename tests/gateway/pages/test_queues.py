"""The pages of queues, which work without any script."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect
from tests.runtime.conftest import eventually
from tests.support.agreeing import JUDGES, write_down
from tests.support.browser import open_browser
from tests.support.pages import check_page, open_page
from tests.support.reviewing import QUEUE, Reviewing

from groundwatch.reporting.corrected import CorrectedRow
from groundwatch.reviews.corrected import CorrectedRates, write_corrected
from groundwatch.reviews.queues import Queues, QueueSpec
from groundwatch.runtime.settings import AlarmSettings
from groundwatch.statistics.intervals import Interval


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture
async def reviewing(gateway, publish, response, pictures, bus) -> Reviewing:
    return Reviewing(gateway, publish, response, pictures.encoded("PNG", (320, 240)), bus)


async def test_a_queue_is_made_and_closed_without_a_script(browser, reviewing):
    async with open_page(browser, reviewing.address("/queues"), java_script_enabled=False) as page:
        await expect(page.get_by_text("There is no queue yet.")).to_be_visible()
        await page.get_by_label("Name", exact=True).fill("doubtful")
        await page.get_by_role("radio", name="uncertain").check()
        await page.get_by_label("Number of answers").fill("50")
        await page.get_by_label("Reviewers for each item").fill("2")
        await page.get_by_label("Who may review").fill("ann, bob")
        await page.get_by_role("button", name="Draw the queue").click()
        await expect(page.get_by_role("heading", name="doubtful", level=1)).to_be_visible()
        spec = await reviewing.queues.find("doubtful")
        assert (spec.rule, spec.size, spec.reviewers, spec.assigned) == ("uncertain", 50, 2, ("ann", "bob"))
        assert await page.get_by_role("button", name="Close the queue").is_hidden()
        await page.get_by_text("Close …").click()
        await expect(page.get_by_text("nobody gets another item")).to_be_visible()
        await page.set_viewport_size({"width": 390, "height": 900})
        asked = await page.locator(".question-first form").bounding_box()
        assert asked and asked["x"] >= 0 and asked["x"] + asked["width"] <= 390
        await page.get_by_role("button", name="Close the queue").click()
        await expect(page.get_by_text("closed", exact=True)).to_be_visible()
        assert (await reviewing.queues.find("doubtful")).closed
        await page.goto(reviewing.address("/review/doubtful"))
        await expect(page.get_by_text("This queue is closed")).to_have_count(1)
        await page.goto(reviewing.address("/queues/doubtful"))
        await page.get_by_role("button", name="Open again").click()
        await expect(page.get_by_text("Close …")).to_be_visible()
    assert not (await reviewing.queues.find("doubtful")).closed


async def test_the_form_of_a_name_is_told(browser, reviewing):
    async with open_page(browser, reviewing.address("/queues")) as page:
        name = page.get_by_label("Name", exact=True)
        await expect(page.get_by_text("no spaces")).to_be_visible()
        assert "Letters, digits" in (await name.get_attribute("title") or "")


async def test_one_opinion_is_no_rate_and_one_item_is_one(reviewing, bus):
    await reviewing.create()
    key = await reviewing.add("first")
    await reviewing.items.hold(QUEUE, key, "ann")
    few = Interval(value=0.0, low=0.0, high=0.994, n=1)
    row = CorrectedRow(
        queue=QUEUE,
        model="heron-7b",
        version="*",
        protocol="faithscore",
        fingerprint="",
        category="all",
        by="people",
        judged=few,
        corrected=few,
        labels_alone=few,
        opinions=1,
        for_half=1,
        reason="fewer than 10 opinions: these alone are told",
    )
    assert await write_corrected(bus, CorrectedRates(rows=(row,)))
    for path, told in ((f"/queues/{QUEUE}", "fewer than 10 opinions"), ("/queues", QUEUE)):
        page = (await reviewing.gateway.http.get(path)).text
        assert told in page and "<b>0.0" not in page
    page = (await reviewing.gateway.http.get(f"/queues/{QUEUE}")).text
    assert "1 item is worked at now" in page and "opinion more" in page


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"name": "a b", "rule": "random"}, "name"),
        ({"name": "a", "rule": "odd"}, "choose how answers are drawn"),
        ({"name": "a", "rule": "random", "size": "many"}, "size: &#39;many&#39; is no number"),
        ({"name": "a", "rule": "random", "amount": "share", "share": "120"}, "no share between"),
        ({"name": "a", "rule": "random", "protocol": "none"}, "none"),
        ({"name": "a", "rule": "random", "protocol": "faithscore", "tag": "x"}, "name=value"),
    ],
)
async def test_what_is_wrong_is_told_beside_what_was_written(reviewing, written, why):
    reply = await reviewing.gateway.http.post("/queues", data=written)
    assert reply.status_code == 422
    assert why in reply.text
    assert f'value="{written["name"]}"' in reply.text
    assert await reviewing.queues.list() == []


async def test_progress_and_items_are_shown(browser, reviewing):
    await reviewing.create()
    key = await reviewing.add("first")
    await reviewing.add("<b>second</b>")
    await reviewing.items.hold(QUEUE, key, "ann")
    async with open_page(browser, reviewing.address("/queues")) as page:
        row = page.get_by_role("row").filter(has_text=QUEUE)
        await expect(row).to_contain_text("0 of 2 done")
        await expect(row).to_contain_text("1 at work")
        await row.get_by_role("link", name=QUEUE, exact=True).click()
        items = page.get_by_role("region", name="Items").get_by_role("row")
        await expect(items.nth(1)).to_contain_text("0.250")
        await expect(items.nth(1)).to_contain_text("ann now")
        await expect(items.nth(2).get_by_role("link")).to_have_text("<b>second</b>")


async def test_who_agrees_with_whom_is_shown_of_the_protocol(browser, reviewing, bus):
    await reviewing.create()
    address = reviewing.address(f"/queues/{QUEUE}")
    async with open_page(browser, address) as page:
        await expect(page.get_by_text("Who agrees with whom")).to_have_count(0)
    await write_down(bus, QUEUE)
    async with open_page(browser, address) as page:
        judges = page.get_by_role("region", name="Agreement of judges with people").get_by_role("row")
        # One of another protocol is not there.
        await expect(judges).to_have_count(5)
        await expect(judges.nth(1)).to_contain_text("all")
        for told in (JUDGES, "1,048", "of 212 answers", "0.62", "0.53 to 0.71", "81", "74–87"):
            await expect(judges.nth(1)).to_contain_text(told)
        await expect(judges.nth(4).get_by_role("cell").first).to_have_text("–")
        reviewers = page.get_by_role("region", name="Agreement among reviewers").get_by_role("row")
        await expect(reviewers).to_have_count(5)
        await expect(reviewers.nth(1).get_by_role("cell")).to_contain_text(["–", "0.62", "88"])
        await expect(page.locator("main")).to_contain_text(
            "is 0.48 (0.38 to 0.58); over the 400 before them it was 0.80"
        )


async def test_agreement_is_of_all_tenants_and_shown_to_those_who_see_all(gateway_factory, bus, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("* all-token-0123456789 viewer v\nacme one-token-0123456789 viewer a\n")
    gateway = await gateway_factory(tokens_file=str(tokens))
    await Queues(bus).create(QueueSpec(name=QUEUE, protocol="faithscore"))
    await write_down(bus, QUEUE)
    for token, shown in (("all", True), ("one", False)):
        headers = {"Authorization": f"Bearer {token}-token-0123456789"}
        reply = await gateway.http.get(f"/queues/{QUEUE}", headers=headers)
        assert reply.status_code == 200
        assert ("Who agrees with whom" in reply.text) is shown
        assert ("Corrected rates" in reply.text) is shown


async def test_an_alarm_can_be_chosen(gateway_factory, publish):
    gateway = await gateway_factory(alarm=AlarmSettings(responses=100, objective=0.05))
    for number in range(30):
        await publish(f"bad-{number}", refuted=3, recorded_at=1_700_000_000.0 + number)

    async def raised() -> bool:
        return bool(gateway.service.core.live.raised)

    await eventually(raised)
    key = gateway.service.core.live.raised[0].alarm.key
    reply = await gateway.http.get(f"/queues?rule=alarm&alarm={key}")
    assert reply.status_code == 200
    assert f'<option value="{key}" selected>heron-7b, ' in reply.text


async def test_no_such_queue(reviewing):
    for path in ("/queues/none", "/review/none"):
        reply = await reviewing.gateway.http.get(path)
        assert reply.status_code == 404
        assert "there is no queue &#39;none&#39;" in reply.text


@pytest.mark.slow
async def test_they_fit_and_can_be_used_by_everybody(browser, reviewing, bus):
    await check_page(browser, reviewing.address("/queues"))
    await reviewing.create(assigned=("ann", "bob"))
    await reviewing.add("first")
    await write_down(bus, QUEUE)
    await check_page(browser, reviewing.address("/queues"))
    await check_page(browser, reviewing.address(f"/queues/{QUEUE}"))
