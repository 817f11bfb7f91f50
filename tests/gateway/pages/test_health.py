"""The page of health: the last audit, what waits, and dead letters that are sent again."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from tests.support.pages import address, check_page, open_page

from groundwatch.gateway import budgets
from groundwatch.gateway.budgets import Budget
from groundwatch.gateway.pages.health import newest_letters
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import Outgoing
from groundwatch.runtime.stores.losses import LossReport, put_report
from groundwatch.topology import HEADER_ORIGIN, HEADER_REASON, subject_of

HOSTILE = "bug: <script>alert(1)</script>\x1b[31m" + "w" * 3_000


async def bury(bus, number: int, reason: str = "bug: it broke") -> None:
    await bus.create(
        Outgoing(
            subject=subject_of("dead", "verification", "live", f"{number:032x}"),
            payload=b"not an event",
            message_id=("dead", str(number)),
            headers={HEADER_ORIGIN: f"gw.judged.live.faithscore.{number:032x}", HEADER_REASON: reason},
        )
    )


@pytest.fixture
async def letters(bus, clean_streams):
    for number in range(3):
        await bury(bus, number)


@pytest.mark.slow
async def test_it_fits_every_screen_and_has_no_serious_fault(browser, gateway, bus, letters):
    await bury(bus, 9, HOSTILE[:800])
    await budgets.put(bus.js, "acme", Budget(tenant="acme", responses_per_minute=60, cost_per_day=5.0))
    await put_report(bus, "", LossReport(sender="<b>app</b>", process="p1", sequence=1, lost={"full": 12}))
    await gateway.post(b"{")
    await audit(bus.js)
    await check_page(browser, address(gateway, "/health"))
    shown = (await gateway.http.get("/health")).text
    for said in ("balanced", "malformed", "&lt;b&gt;app&lt;/b&gt;", "acme", "of $5.00"):
        assert said in shown
    assert "<script>alert" not in shown


async def test_before_an_audit_it_says_how_to_make_one(gateway):
    shown = (await gateway.http.get("/health")).text
    assert "Nobody has audited yet" in shown and "groundwatch audit" in shown


async def test_the_last_audit_is_shown(gateway, bus, response):
    await gateway.post(response())
    ledger = await audit(bus.js)
    shown = (await gateway.http.get("/health")).text
    assert ledger.standing in shown


async def test_what_waits_is_shown_by_stage(gateway, response):
    for _ in range(3):
        await gateway.post(response())
    await gateway.service.core.gauges.look()
    shown = (await gateway.http.get("/health")).text
    row = shown.partition('<th scope="row">extraction</th>')[2].partition("</tr>")[0]
    assert '<td class="number">3</td>' in row and "nobody asks for it" in row


async def test_a_dead_letter_is_sent_again(browser, gateway, bus, letters):
    async with open_page(browser, address(gateway, "/health"), java_script_enabled=False) as page:
        rows = page.locator("table[aria-label='Dead letters'] tbody tr")
        await expect(rows).to_have_count(3)
        await rows.first.get_by_role("button").click()
        await expect(rows).to_have_count(2)
        await page.get_by_role("button", name="Send these again").click()
        await expect(rows).to_have_count(0)
    stream = await bus.js.stream_info("GW_RETRY")
    assert stream.state.messages == 3


async def test_what_was_sent_again_already_is_told(gateway, letters, bus):
    found, number = await newest_letters(bus)
    assert number == 3 and [one.sequence for one in found] == sorted(
        (one.sequence for one in found), reverse=True
    )
    for _ in range(2):
        reply = await gateway.http.post(f"/health/dead/{found[0].sequence}/retry")
    assert reply.status_code == 422 and "sent again already" in reply.text
    assert (await gateway.http.post("/health/dead/x/retry")).status_code == 404


async def test_gaps_of_many_letters_hide_none(bus, letters):
    found, _ = await newest_letters(bus)
    last = found[0].sequence
    await bus.js.delete_msg("GW_DEAD", last)
    await bus.js.delete_msg("GW_DEAD", last - 1)
    left, number = await newest_letters(bus, most=1)
    assert [one.sequence for one in left] == [last - 2] and number == 1


async def test_without_nats_it_says_what_cannot_be_read(gateway):
    await gateway.bus.client.close()
    shown = await gateway.http.get("/health")
    assert shown.status_code == 200
    assert "not ready" in shown.text and "cannot be read now" in shown.text
