"""Alarms on pages: what moved them and what changed, from real outcomes; who has seen them."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect
from tests.gateway.conftest import publisher
from tests.partitions.conftest import provisioned
from tests.runtime.conftest import eventually
from tests.support.pages import address, check_page, is_too_wide, open_page
from tests.support.second_opinions import review_all

from groundwatch.errors import UsageError
from groundwatch.events import AlarmRaised, Decision, Judge, JudgedClaim, SubSentence
from groundwatch.gateway.live.alarms import LONGEST_NOTE, Acknowledgements
from groundwatch.gateway.pages.alarms import Traffic, read_around
from groundwatch.gateway.pages.rendering import Pages, Standing
from groundwatch.keys import home_of, response_key
from groundwatch.reporting.trends import Point
from groundwatch.runtime.settings import AlarmSettings
from groundwatch.statistics.intervals import Interval

START = 1_700_000_000.0
PARTITIONS = 3


def claims(decision: Decision, category: str = "entity", text: str = "There is a frog."):
    return tuple(JudgedClaim(text=text, category=category, unit=0, decision=decision) for _ in range(5))


async def publish_turn(
    publish, *, model: str = "osprey-13b", text: str = "There is a frog.", partitions: int = 1
) -> None:
    """Twenty good answers of version 1.0, then twenty bad ones of 1.1, with another model's between; each
    in its partition."""
    for number in range(40):
        bad = number >= 20
        home = {
            name: home_of(response_key("default", name), partitions) for name in (f"a{number}", f"b{number}")
        }
        await publish(
            f"a{number}",
            model=model,
            claims=claims(Decision.REFUTED if bad else Decision.SUPPORTED, text=text),
            units=(SubSentence(start=0, end=30, text=f"A frog sits on leaf {number}.", label="descriptive"),),
            eligible=5,
            decided=5,
            score=0.0 if bad else 1.0,
            answer_words=90 if bad else 20,
            judges={"verification": Judge(engine="reference")},
            tags={"version": "1.1" if bad else "1.0"},
            recorded_at=START + number,
            partition=home[f"a{number}"],
        )
        name = f"b{number}"
        await publish(name, refuted=number % 2, recorded_at=START + number + 0.5, partition=home[name])


@pytest.fixture
async def gateway(gateway_factory, publish):
    gateway = await gateway_factory(alarm=AlarmSettings(responses=100, objective=0.05))
    await publish_turn(publish)
    await until_alarms(gateway, 2)
    # The report is computed a moment later; beside other work, seconds later.
    for _ in range(600):
        if "alarm-line" in (await gateway.http.get("/")).text:
            return gateway
        await asyncio.sleep(0.05)
    raise AssertionError("the overview shows no alarm")


async def until_alarms(gateway, number: int) -> list[AlarmRaised]:
    for _ in range(300):
        raised = [one.alarm for one in gateway.service.core.live.raised if one.alarm.model != "heron-7b"]
        if len(raised) == number:
            return raised
        await asyncio.sleep(0.03)
    raise AssertionError(raised)


def place(alarm: AlarmRaised) -> str:
    return f"/alarms/{alarm.key}?at={alarm.raised_at}"


async def test_what_moved_an_alarm_is_read_from_the_outcomes_around_it(gateway):
    alarm, _ = await until_alarms(gateway, 2)
    around = await read_around(gateway.bus, alarm, lambda tags: tags.get("version", ""))
    assert around.before.answers == 20 and around.before.versions == {"1.0": 20}
    assert around.after.versions == {"1.1": around.after.answers}
    assert (around.before.rate.value, around.after.rate.value) == (0.0, 1.0)
    assert (around.before.words, around.after.words) == (20.0, 90.0)
    assert around.before.lengths == (1.0, 0.0, 0.0) and around.after.lengths == (0.0, 0.0, 1.0)
    assert around.wrong_before == []
    first = around.wrong_after[0]
    assert (first.refuted, first.decided) == (5, 5)
    assert first.sentences[0][0].startswith("A frog sits on leaf")
    assert all(one.event.model == "osprey-13b" for one in around.wrong_after)


@pytest.mark.slow
async def test_the_pages_fit_every_screen_and_have_no_serious_fault(browser, gateway):
    alarm, _ = await until_alarms(gateway, 2)
    await check_page(browser, address(gateway, "/alarms"))
    await check_page(browser, address(gateway, place(alarm)), "#notes form")


async def test_an_alarm_says_what_changed_and_leads_to_its_answers(browser, gateway):
    async with open_page(browser, address(gateway), java_script_enabled=False) as page:
        await page.locator(".alarm-line a").first.click()
        await expect(page.locator("h1")).to_contain_text("osprey-13b")
        changed = page.locator("tr", has=page.locator(".chip.warn"))
        assert [await one.locator("th").inner_text() for one in await changed.all()] == [
            "Version changed",
            "Words an answer changed",
        ]
        answer = page.locator(".sentences a.sentence").first
        assert (await answer.get_attribute("href")).startswith("/answers/a")
        assert await page.locator("#runbook li").count() == 4


@pytest.mark.parametrize(
    ("right", "state", "said"),
    [(True, "rose", "rose too"), (False, "not_shown", "not shown to have risen")],
)
async def test_an_alarm_says_whether_the_corrected_rate_rose_too(browser, gateway, right, state, said):
    alarm, _ = await until_alarms(gateway, 2)

    async def told():
        alarms = (await gateway.http.get("/v1/alarms")).json()["alarms"]
        return next(one["corrected"] for one in alarms if one["raised_at"] == alarm.raised_at)

    assert (await told())["state"] == "too_few"
    shown = (await gateway.http.get(place(alarm))).text
    assert "too few opinions<small>0 before, 0 since</small>" in shown

    def truth(event):
        """People agree with the judge, or find nothing wrong."""
        return [right and claim.decision == "refuted" for claim in event.claims]

    await review_all(gateway.bus, "osprey-13b", truth)
    for _ in range(200):
        if (found := await told())["state"] != "too_few":
            break
        await asyncio.sleep(0.1)
    assert (found["state"], found["by"], found["opinions"]) == (state, "people", [20, 20])
    assert found["difference"]["value"] == (1.0 if right else 0.0)
    async with open_page(browser, address(gateway, place(alarm)), java_script_enabled=False) as page:
        figure = page.locator(".figures > div", has_text="Corrected")
        await expect(figure).to_contain_text(said)
        row = page.locator("tr", has_text="Corrected by people")
        await expect(row).to_contain_text("20 opinions in q")


@pytest.mark.slow
async def test_an_alarm_has_the_answers_of_all_partitions(browser, gateway_factory, tmp_path):
    async with provisioned(tmp_path / "nats", PARTITIONS) as bus:
        nats = {"url": bus._settings.url, "partitions": PARTITIONS}
        gateway = await gateway_factory(nats=nats, alarm=AlarmSettings(responses=100, objective=0.05))
        await publish_turn(publisher(bus), partitions=PARTITIONS)
        alarm, _ = await until_alarms(gateway, 2)
        around = await read_around(gateway.bus, alarm, lambda tags: tags.get("version", ""))
        assert around.before.versions == {"1.0": 20}
        assert set(around.after.versions) == {"1.1"} and around.after.answers >= PARTITIONS
        assert {one.event.partition for one in around.wrong_after} == set(range(PARTITIONS))
        async with open_page(browser, address(gateway, place(alarm))) as page:
            await expect(page.locator("h1")).to_contain_text("osprey-13b")
            changed = page.locator("tr", has=page.locator(".chip.warn")).first
            await expect(changed).to_contain_text("Version")
            shown = page.locator(".sentences a.sentence")
            names = [await one.get_attribute("href") for one in await shown.all()]
            assert len(names) == len(set(names)) == len(around.wrong_after)
            await page.get_by_label("Note").fill("Rolled back.")
            await page.get_by_role("button", name="Keep the note").click()
            await expect(page.locator("#notes .card").first).to_contain_text("Rolled back.")
        # Each answer has its page, in whatever partition it is.
        for name in names:

            async def shown_there(name: str = name) -> bool:
                return "There is a frog." in (await gateway.http.get(name)).text

            await eventually(shown_there, within=30)
        await check_page(browser, address(gateway, place(alarm)), "#notes form", widths=(390,))


async def test_who_has_seen_it_stands_there_for_everybody(browser, gateway):
    alarm, _ = await until_alarms(gateway, 2)
    async with open_page(browser, address(gateway, place(alarm)), 390) as page:
        head = page.locator(".alarm-head")
        await expect(head).to_contain_text("seen by nobody yet")
        await head.get_by_label("Your name").fill("Ann Lee")
        button = head.get_by_role("button", name="Acknowledge")
        assert await page.evaluate("scrollY") == 0
        assert (await button.bounding_box())["y"] < 400
        await button.click()
        await expect(head).to_contain_text("seen by Ann Lee")
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert (await head.bounding_box())["y"] < 1
        # A name is written once.
        await expect(head.get_by_label("Your name")).to_have_value("Ann Lee")
        await page.get_by_label("Note").fill("Rolled back. <b>Ticket 12</b>")
        await page.get_by_role("button", name="Keep the note").click()
        await expect(page.locator("#notes .card").nth(1)).to_contain_text("Rolled back. <b>Ticket 12</b>")
        await page.goto(address(gateway, "/alarms"))
        # One fault, in two categories, is one row.
        await expect(page.locator("tbody tr", has_text="osprey-13b")).to_have_count(1)
        await page.goto(address(gateway, "/"))
        await expect(page.locator(".alarm-line", has_text="osprey-13b")).to_contain_text("seen by Ann Lee")


async def test_people_look_at_an_alarms_answers_by_one_click(browser, gateway):
    alarm, _ = await until_alarms(gateway, 2)
    async with open_page(browser, address(gateway, place(alarm))) as page:
        head = page.locator(".alarm-head")
        compare = head.get_by_role("link", name="Compare 1.0 and 1.1")
        assert "by=version&model=osprey-13b&first=1.0&second=1.1" in await compare.get_attribute("href")
        # Of this alarm, whatever was raised since, and of one side of its change.
        await expect(head.locator("[name=since]")).to_have_value(str(alarm.since))
        await expect(page.locator("#runbook")).to_contain_text(
            "Have people look draws answers from the change on"
        )
        await head.get_by_role("button", name="Have people look").click()
        await page.wait_for_url("**/queues/alarm-*")
        await page.goto(address(gateway, place(alarm)))
        await expect(head.get_by_role("link", name="What people say")).to_have_count(1)


def test_a_burst_tells_nothing_of_an_hour():
    """Of nine answers in no time it was 9,330,755."""
    counts = {"rate": None, "versions": {}, "judges": {}, "tenants": {}}
    more = counts | {"words": None, "lengths": (), "unscored": 0}
    assert Traffic(answers=9, first=5.0, last=5.003, **more).per_hour is None
    assert Traffic(answers=61, first=0.0, last=600.0, **more).per_hour == 360.0


def test_a_chart_has_its_gaps_and_names_its_rules():
    rate = Interval(value=0.1, low=0.05, high=0.2, n=50)
    points = [Point(at * 60.0, 60.0, rate) for at in (0, 1, 2, 40, 41, 90)]
    charts = Pages(lambda: Standing())._environment.get_template("rate_chart.html").module
    drawn = str(charts.rate_chart(points, 0.4, [(2400.0, "change"), (2460.0, "alarm")], 0.05))
    assert (drawn.count("<polyline"), drawn.count('class="whisker"')) == (2, 1)
    assert "with 2 gaps" in drawn and ">change</text>" in drawn and ">alarm</text>" in drawn
    assert ">0 %</text>" in drawn.replace("\u202f", " ") and ">40 %</text>" in drawn.replace("\u202f", " ")


async def test_notes_at_the_same_moment_are_all_kept(bus, clean_streams):
    alarm = AlarmRaised(model="m", protocol="faithscore", category="all", base=0.1, after=0.5, raised_at=5.0)
    notes = Acknowledgements(bus)
    await asyncio.gather(*(notes.add(alarm, f"p{number}", "seen") for number in range(4)))
    assert sorted(one.by for one in await notes.of(alarm)) == ["p0", "p1", "p2", "p3"]
    with pytest.raises(UsageError, match="at most"):
        await notes.add(alarm, "p", "x" * (LONGEST_NOTE + 1))


async def test_an_alarm_that_is_over_keeps_its_address(gateway, publish):
    alarm, _ = await until_alarms(gateway, 2)
    gateway.service.core.live._alarms.reset()
    shown = await gateway.http.get(place(alarm))
    assert shown.status_code == 200 and "osprey-13b" in shown.text
    assert (await gateway.http.get(f"/alarms/{alarm.key}?at=1")).status_code == 404
    assert (await gateway.http.get("/alarms/none")).status_code == 404


HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e\u200b" + "w" * 2_000


async def test_hostile_names_do_nothing(browser, gateway_factory, publish):
    gateway = await gateway_factory(alarm=AlarmSettings(responses=100, objective=0.05))
    await publish_turn(publish, model=HOSTILE[:256], text=HOSTILE)
    alarm, _ = await until_alarms(gateway, 2)
    for path in ("/alarms", place(alarm)):
        async with open_page(browser, address(gateway, path), 390) as page:
            assert not await is_too_wide(page)
            assert await page.locator("img").count() == 0


async def test_a_form_has_its_limits(gateway):
    (alarm, *_) = gateway.service.core.live.raised
    at = f"/alarms/{alarm.alarm.key}/acknowledge"
    for path in (at, "/queues"):
        large = await gateway.http.post(path, data={"note": "x" * 100_000})
        many = await gateway.http.post(path, data={f"f{number}": "x" for number in range(200)})
        assert (large.status_code, many.status_code) == (413, 422)
    assert await Acknowledgements(gateway.bus).of(alarm.alarm) == []
