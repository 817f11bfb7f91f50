"""The overview in a real browser: while a model is under alarm, with none, with hundreds."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import msgspec
import pytest
from playwright.async_api import expect
from tests.gateway.answers.test_search import archive_all
from tests.runtime.conftest import eventually
from tests.support.answers import VERSION_TAGS
from tests.support.pages import address, check_page, is_too_wide, open_page

from groundwatch.archive.outcomes import Archive
from groundwatch.events import Decision, Judge, JudgedClaim, OutcomeKind
from groundwatch.gateway.pages.first_steps import SAMPLE as FIRST
from groundwatch.reporting.corrected import CorrectedRow
from groundwatch.reporting.report import shipped
from groundwatch.reviews.corrected import CorrectedRates, write_corrected
from groundwatch.runtime.settings import AlarmSettings, ArchiveSettings
from groundwatch.statistics.intervals import Interval
from groundwatch.topology import OUTCOMES

NAME = "osprey-13b-chat-instruct-2026-11-20-rc2"
CATEGORIES = ("entity", "color", "count", "relation", "other")


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
            tags={"version": "1.1" if number >= 10 else "1.0"},
            recorded_at=1_700_000_000.5 + number,
        )
    for _ in range(300):
        report = (await gateway.http.get("/v1/report")).json()
        if len(report["alarms"]) == 6 and sum(row["responses"] for row in report["models"]) == 60:
            return gateway
        await asyncio.sleep(0.05)
    raise AssertionError(report["alarms"])


@pytest.mark.slow
async def test_it_fits_every_screen_and_has_no_serious_fault(browser, gateway):
    await check_page(browser, address(gateway), "#sentences > li")
    await check_page(browser, address(gateway, f"/models/{NAME}"), ".model-chart")
    await check_page(browser, address(gateway, "/wall"), ".fault")
    async with open_page(browser, address(gateway), 320) as page:
        assert not await is_too_wide(page)


async def test_the_worst_comes_first_its_versions_folded_and_the_way_to_the_alarm(browser, gateway):
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        rows = page.locator("table.models tbody tr")
        names = await rows.locator("th > a:first-child").all_inner_texts()
        assert names == [NAME, "heron-7b"]
        assert "66.7" in await rows.first.inner_text()
        await expect(rows.first.locator("td.versions")).to_contain_text("2 · new")
        await expect(rows.first.locator("td.versions")).to_contain_text("+100.0")
        await expect(page.locator(".lead")).to_contain_text("your limit: 5")
        alarm = page.locator(".alarm-line").first
        assert "0.0" in await alarm.inner_text() and "100.0" in await alarm.inner_text()
        links = [await one.get_attribute("href") for one in await alarm.locator("a").all()]
        assert len(links) == 1 + len(CATEGORIES) and all(one.startswith("/alarms/") for one in links)


async def test_title_and_icon_carry_the_alarms_and_times_are_the_readers(browser, gateway):
    async with open_page(browser, address(gateway, "/answers"), timezone_id="Asia/Tokyo") as page:
        await expect(page).to_have_title("(1) Answers · groundwatch")
        assert "icon-alarm.svg" in await page.locator("link[rel=icon]").get_attribute("href")
        await page.goto(address(gateway, "/alarms"))
        time = page.locator("#fresh time").first
        await expect(time).to_have_text("15 Nov 2023, 07:13")
        assert await time.get_attribute("title") == "14 Nov 2023, 22:13:30 UTC"
        await page.goto(address(gateway, f"/models/{NAME}"))
        await expect(page.locator("svg [data-form]").first).to_have_text(re.compile(r"^07:13:\d\d$"))


async def test_every_number_leads_to_the_answers_behind_it(browser, gateway):
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        rate = page.locator("table.models tbody tr").first.locator("td.headline a")
        assert await rate.get_attribute("href") == (
            f"/answers?model={NAME}&protocol=faithscore&verdict=refuted&run=live"
        )
        await page.get_by_role("link", name="By category").click()
        cell = page.locator("table.heat tbody tr").first.locator("td a").first
        assert await cell.get_attribute("href") == (
            f"/answers?model={NAME}&protocol=faithscore&category=color&verdict=refuted&run=live"
        )


async def test_columns_sort_names_are_looked_for_and_protocols_have_tabs(browser, gateway, publish):
    await publish("tab", model="heron-7b", protocol="valor")
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        names = page.locator("table.models tbody th > a:first-child")
        await page.get_by_role("columnheader", name="Model").get_by_role("link").click()
        await expect(names).to_have_text(["heron-7b", NAME])
        await expect(page.get_by_role("columnheader", name="Model")).to_have_attribute(
            "aria-sort", "ascending"
        )
        await page.get_by_role("columnheader", name="Model").get_by_role("link").click()
        await expect(names).to_have_text([NAME, "heron-7b"])
        await page.get_by_role("searchbox").fill("OSPREY chat")
        await page.keyboard.press("Enter")
        await expect(names).to_have_text([NAME])
        await page.goto(address(gateway, "/?q=dodo"))
        await expect(page.locator(".empty")).to_contain_text("dodo")
        await page.goto(address(gateway))
        await page.get_by_role("link", name="valor").click()
        await expect(names).to_have_text(["heron-7b"])


async def test_a_model_has_a_page_with_its_rollouts_alarms_and_what_was_left_out(browser, gateway, publish):
    judges = {"extraction": Judge(engine="rules"), "verification": Judge(engine="reference")}
    left_out = {"outcome": OutcomeKind.UNSCORED, "reason": "timed_out", "score": None, "judges": judges}
    await publish("left", model=NAME, claims=(), eligible=0, decided=0, **left_out)
    await eventually(lambda: _reads(gateway, f"/models/{NAME}", "timed out"))
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        await page.get_by_role("link", name=NAME, exact=True).first.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(NAME)
        chart = page.locator(".model-chart svg")
        assert await chart.locator(".rollout-name").all_text_contents() == ["1.1", "1.0"]
        assert await chart.locator(".alarm-name").all_text_contents() == ["alarm"]
        await expect(page.get_by_role("table", name="Versions").locator("tbody tr")).to_have_count(2)
        await expect(page.get_by_role("link", name="timed out")).to_have_attribute(
            "href", f"/answers?model={NAME}&protocol=faithscore&outcome=unscored&reason=timed_out&run=live"
        )
        # Who judged is told by name; hashes are for who asks.
        fingerprint = judges["extraction"].fingerprint
        await expect(page.locator("details", has_text=fingerprint)).to_have_count(1)
        assert fingerprint not in await page.locator("main").inner_text()
        await page.goto(address(gateway, f"/models/{NAME}?range=1h"))
        # Of an hour without an answer nothing is told, and not what is so of all time.
        told = await page.locator(".figures dd").all_inner_texts()
        assert [one.split("\n")[0] for one in told] == ["–", "–", "0", "$0.00"]
        assert (await gateway.http.get("/models/dodo/3", headers={"Accept": "text/html"})).status_code == 404
        # While the history is read, it is not known yet that there is none.
        gateway.service.core.live._caught_up.clear()
        assert (await gateway.http.get("/models/dodo/3")).status_code == 503


async def test_a_wall_is_read_from_afar_does_not_scroll_and_moves_by_itself(browser, gateway, publish):
    async with open_page(browser, address(gateway, "/wall"), 1920) as page:
        await page.set_viewport_size({"width": 1920, "height": 1080})
        fault = page.locator(".fault")
        await expect(fault).to_have_count(1)
        await expect(fault).to_contain_text(NAME)
        await expect(fault).to_contain_text("0.0 → 100.0")
        await expect(fault).to_contain_text("seen by nobody yet")
        assert await fault.locator(".name").evaluate("one => getComputedStyle(one).fontSize") == "48px"
        # Of answers from long ago nothing is told as of the last day.
        await expect(page.locator(".worst")).to_contain_text("No answer was judged in the last 24 hours.")
        for number in range(14):
            await publish(f"new-{number}", model=f"merlin-{number:02}", refuted=1)
        await expect(page.locator(".worst a.line")).to_have_count(12, timeout=20_000)
        await expect(page.locator(".worst")).to_contain_text("12 of 14 models")
        await expect(page.locator(".newest")).to_contain_text("There is a dog.", timeout=20_000)
        await expect(page.locator("#state")).to_contain_text("live · ")
        assert await page.evaluate("document.documentElement.scrollHeight") <= 1080
        assert not await is_too_wide(page)


async def test_a_range_shows_what_was_recorded_in_it(browser, gateway, publish):
    for number in range(4):
        await publish(f"now-{number}", refuted=1, supported=1)
    await eventually(lambda: _reads(gateway, "/?range=1h", "4 scored answers of 1 model"))
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        await page.get_by_role("link", name="1 h", exact=True).click()
        await expect(page.locator(".lead")).to_contain_text("1 had none")
        await expect(page.locator("table.models tbody td.headline")).to_contain_text("50.0")
        # What is counted begins with a whole stretch, and so does what the link asks for.
        link = await page.locator("td.headline a").get_attribute("href") or ""
        since = re.search(r"&since=(\d+)&run=live$", link)
        assert since and int(since[1]) % 150 == 0


async def _reads(gateway, path: str, words: str) -> bool:
    return words in (await gateway.http.get(path)).text


async def test_what_has_to_be_known_beside_a_rate_is_told_on_hover(gateway_factory, publish):
    gateway = await gateway_factory()
    guess = JudgedClaim(
        text="There is a cat.", category="entity", unit=0, decision=Decision.REFUTED, hedged=True
    )
    stated = msgspec.structs.replace(guess, hedged=False, decision=Decision.SUPPORTED)
    judges = {"extraction": shipped().judge, "verification": Judge(engine="fake")}
    await publish("a", claims=(guess, stated, stated), eligible=3, decided=3, judges=judges)

    async def told() -> bool:
        text = (await gateway.http.get("/")).text
        return 'title="without guesses 0.0%' in text and "by extraction alone (" in text

    await eventually(told, within=20)
    (row,) = (await gateway.http.get("/v1/report")).json()["models"]
    assert row["stated_rate"]["value"] == 0 and row["hallucination_rate"]["value"] == pytest.approx(1 / 3)
    assert 0 < row["extraction_alone"]["all"] < 0.05


async def test_corrected_rates_stand_beside_the_judged_ones(browser, gateway):
    row = CorrectedRow(
        queue="random",
        model=NAME,
        version="*",
        protocol="faithscore",
        fingerprint=(await gateway.service.core.live.versions())[-1].fingerprint,
        category="all",
        by="people",
        judged=Interval(0.667, 0.6, 0.7, 900),
        corrected=Interval(0.52, 0.47, 0.57, 200),
        labels_alone=Interval(0.5, 0.4, 0.6, 200),
        opinions=200,
    )
    other = partial(msgspec.structs.replace, row)
    by_model = other(by="model", opinions=900, corrected=Interval(0.9, 0.8, 1.0, 900))
    of_a_part = other(whole=False, opinions=500, corrected=Interval(0.1, 0.0, 0.2, 500))
    # One opinion tells no rate.
    of_one = other(model="heron-7b", opinions=1, corrected=Interval(0.0, 0.0, 0.994, 1))
    assert await write_corrected(gateway.bus, CorrectedRates(at=1.0, rows=(by_model, row, of_a_part, of_one)))

    async def known() -> bool:
        return len((await gateway.http.get("/v1/report")).json()["corrected"]) == 4

    await eventually(known)
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        first = page.locator("table.models tbody tr").first
        await expect(first.locator("b.corrected")).to_have_text("52.0\u202f%")
        await expect(first).to_contain_text("66.7")
        await expect(
            page.locator("table.models tbody tr").nth(1).locator("td[data-label=Corrected]")
        ).to_have_text("–")
        # Nothing is cut at the width of a small laptop.
        await page.set_viewport_size({"width": 1024, "height": 900})
        assert await page.locator(".scroll").evaluate("one => one.scrollWidth <= one.clientWidth")


async def test_new_answers_arrive_without_loading_again(browser, gateway, publish):
    async with open_page(browser, address(gateway)) as page:
        await expect(page.locator("#state")).to_contain_text("live · ")
        await publish("fresh", model="merlin-2b", refuted=2)
        sentence = page.locator("#sentences > li", has_text="merlin-2b")
        await expect(sentence).to_have_count(1)
        assert await sentence.locator("a").get_attribute("href") == "/answers/fresh"
        await expect(page.locator("table.models tbody th", has_text="merlin-2b")).to_have_count(1)


async def test_the_first_steps_tick_themselves(browser, gateway_factory, publish):
    gateway = await gateway_factory()
    await check_page(browser, address(gateway), ".first-steps pre", widths=(390,))
    async with open_page(
        browser, address(gateway), permissions=["clipboard-read", "clipboard-write"]
    ) as page:
        steps = page.locator(".first-steps > li")
        send = steps.filter(has_text="Send one answer")
        await send.get_by_role("button", name="Copy").click()
        await expect(send.get_by_role("button", name="Copied")).to_be_visible()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith(f"curl http://127.0.0.1:{gateway.service.port}/v1/responses -H")
        await page.get_by_text("Python SDK").click()
        await expect(page.get_by_text("wrap_openai(OpenAI()")).to_be_visible()
        assert (await gateway.post(FIRST)).status_code == 202
        await expect(send.get_by_text("done")).to_be_visible()
        await expect(page.get_by_text("wrap_openai(OpenAI()")).to_be_visible()
        await publish("other", model="heron-7b")
        await expect(steps.filter(has_text="Connect what you run").get_by_text("done")).to_be_visible()
        await expect(page.get_by_role("heading", name="One step is left")).to_be_visible()


async def test_an_archive_whose_streams_are_empty_shows_what_it_has(gateway_factory, publish, bus, tmp_path):
    archive = Archive(str(tmp_path / "archive"), version_tags=VERSION_TAGS)
    await publish("old", refuted=1)
    await archive_all(bus, archive)
    await bus.js.purge_stream(OUTCOMES)
    gateway = await gateway_factory(archive=ArchiveSettings(url=archive.url))

    async def told() -> bool:
        shown = (await gateway.http.get("/")).text
        return "the archive has 1." in shown and 'href="/answers?model=heron-7b&amp;run=live"' in shown

    await eventually(told, within=20)


HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e\u200b" + "w" * 2_000


async def test_hostile_names_are_shown_and_do_nothing(browser, gateway_factory, publish):
    gateway = await gateway_factory()
    claims = (JudgedClaim(text=HOSTILE, category=HOSTILE[:60], unit=0, decision=Decision.REFUTED),)
    await publish(
        "h" + HOSTILE[:200], model=HOSTILE[:256], claims=claims, tags={"version": HOSTILE}, tenant='t&"<b>'
    )
    await until_counted(gateway, 1)
    for width in (390, 1024):
        async with open_page(browser, address(gateway), width) as page:
            await expect(page.locator("#sentences > li")).to_have_count(1)
            assert not await is_too_wide(page)
            assert await page.locator("img").count() == 0


async def test_invented_models_leave_the_page_short_and_the_worst_first(browser, gateway_factory, publish):
    gateway = await gateway_factory()
    for number in range(240):
        await publish(f"i{number}", model=f"invented-{number % 120}")
        if number < 20:
            await publish(f"b{number}", model="bad", refuted=1)
    report = await until_counted(gateway, 260)
    async with open_page(browser, address(gateway)) as page:
        models = page.locator("table.models tbody tr")
        await expect(models).to_have_count(60)
        assert "bad" in await models.first.inner_text()
        height = "document.querySelector('table.models').offsetHeight"
        # Sixty in three screens of a desk, and six on one of a phone.
        await page.set_viewport_size({"width": 1600, "height": 900})
        assert await page.evaluate(height) < 3 * 900
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await page.evaluate(height) < 10 * 844
        await page.set_viewport_size({"width": 1024, "height": 900})
        assert "rare models are counted" in await page.locator(".lead").inner_text()
        await page.get_by_role("link", name="Show all").click()
        await expect(models).to_have_count(len(report["models"]))
        assert await models.last.locator("th > a").first.inner_text() == "other"


async def test_a_gateway_without_nats_shows_its_last_numbers(browser, gateway):
    await gateway.bus.client.close()
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        await expect(page.get_by_role("alert")).to_contain_text("NATS cannot be read")
        await expect(page.locator("table.models tbody tr")).to_have_count(2)
        await page.goto(address(gateway, "/wall"))
        await expect(page.get_by_role("heading", level=2).first).to_contain_text("NATS cannot be read")


async def until_counted(gateway, number: int):
    for _ in range(300):
        report = (await gateway.http.get("/v1/report")).json()
        if sum(row["responses"] for row in report["models"]) == number:
            return report
        await asyncio.sleep(0.05)
    raise AssertionError(report)
