"""Reviewing in a real browser by keyboard alone, with a real gateway and a real server behind it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import httpx
import pytest
from playwright.async_api import Browser, expect
from tests.gateway.serving.test_killed import started
from tests.gateway.test_cross_site import site
from tests.runtime.conftest import eventually
from tests.support.browser import open_browser
from tests.support.pages import SCHEMES, WIDTHS, is_too_wide, serious_faults
from tests.support.reviewing import ANSWER, QUEUE, Reviewing, reviewer_at

from groundwatch.events import Decision, Label
from groundwatch.runtime.local.servers import free_port

HOSTILE = {
    "script": "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'> A dog.",
    "long": "A dog. " + "x" * 1_000_000,
    "right to left": "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627.",
    "ansi": "\x1b[31mred\x1b[0m \x07 A dog.",
    "zero width": "A\u200b \u200d\ufeffdog\u2060.",
}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture
async def reviewing(gateway_factory, publish, response, pictures, bus) -> Reviewing:
    gateway = await gateway_factory(intake={"max_answer": 2_000_000})
    made = Reviewing(gateway, publish, response, pictures.encoded("PNG", (320, 240)), bus)
    await made.create()
    return made


@pytest.fixture
async def two(reviewing) -> Reviewing:
    await reviewing.add("first")
    await reviewing.add("second", "A cat sits on a chair.", [])
    return reviewing


async def test_an_item_is_reviewed_by_keys(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.sees(ANSWER)
    await expect(ann.left).to_have_text("3 of 3 facts to decide · 3 sub-sentences to mark")
    await ann.is_at("A dog sits on a mat.")
    # Enter right behind a digit is habit, and goes no further.
    await ann.page.evaluate(
        """() => ["1", "Enter"].forEach((key) => document.activeElement.dispatchEvent(
             new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })))"""
    )
    await ann.is_at("There is a dog.")
    await ann.press("1")
    await ann.is_at("The dog sits on a mat.")
    await ann.press("2")
    await ann.is_at("It is red.")
    # Who decides a fact says that its sub-sentence describes.
    await ann.press("ArrowDown", "3")
    await ann.is_at("It seems happy.")
    await ann.press("2")
    await ann.is_at("The answer as a whole")
    await expect(ann.left).to_have_text("all decided")
    await ann.press("4", "Control+Enter")
    await ann.sees("A cat sits on a chair.")
    await expect(ann.message).to_have_text(
        "Completed. You and the judge agree on 2 of 3 facts; u takes it back."
    )
    differing = ann.page.locator("#judged li")
    await expect(differing).to_have_text(["The mat is red. You: undecidable. The judge: true."])
    (opinion,) = await two.opinions()
    assert (opinion.id, opinion.reviewer, opinion.queue, opinion.probability) == ("first", "ann", QUEUE, 0.25)
    assert opinion.labels == (Label.DESCRIPTIVE, Label.DESCRIPTIVE, Label.ANALYTICAL)
    assert [(fact.claim, fact.decision, fact.removed) for fact in opinion.facts] == [
        (0, Decision.SUPPORTED, False),
        (1, Decision.REFUTED, False),
        (2, Decision.UNDECIDED, False),
    ]
    assert (opinion.mark, opinion.judged["all"]) == (4, (1, 3))


async def test_the_judge_is_silent_before(browser, two):
    asked: list[str] = []
    ann = await reviewer_at(browser, two.address())

    async def keep(reply) -> None:
        if "/v1/queues/" in reply.url:
            asked.append(await reply.text())

    ann.page.on("response", keep)
    await ann.page.reload()
    await ann.sees(ANSWER)
    await asyncio.sleep(0.2)
    assert asked
    assert not re.search('supported|refuted|undecided|probability": ?0.9', "".join(asked))


async def test_not_complete_before_all_is_decided(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.press("Control+Enter")
    await expect(ann.message).to_contain_text("Not yet: 3 of 3 facts to decide")
    await ann.sees(ANSWER)
    assert await two.opinions() == []


async def test_facts_are_added_edited_and_removed_by_keys(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.press("1", "5")
    await ann.is_at("removed: There is a dog.")
    await ann.press("ArrowDown", "4")
    await ann.press("Control+a")
    await ann.write("The dog lies on a mat, 1 of 2.")
    await ann.press("Enter")
    await ann.is_at("The dog lies on a mat, 1 of 2.")
    await ann.press("1")
    await ann.is_at("It is red.")
    await ann.press("ArrowUp", "1")
    await ann.write("The mat is square.")
    await ann.press("Tab")
    await ann.write("oth")
    await ann.press("Shift+Tab", "Enter")
    await ann.is_at("The mat is square. other added")
    await ann.press("1", "2", "2", "Control+Enter")
    await ann.sees("A cat sits on a chair.")
    (opinion,) = await two.opinions()
    said = [(one.text, one.category, one.claim, one.decision.value, one.removed) for one in opinion.facts]
    assert said == [
        ("There is a dog.", "entity", 0, "undecided", True),
        ("The dog lies on a mat, 1 of 2.", "relation", 1, "supported", False),
        # Of an analytical sub-sentence no fact counts.
        ("The mat is red.", "color", 2, "undecided", True),
        ("The mat is square.", "other", None, "supported", False),
    ]


async def test_escape_leaves_a_text_and_help_opens_by_key(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.press("ArrowDown", "4")
    await ann.write("nonsense?")
    await ann.press("Escape")
    await ann.is_at("There is a dog.")
    await ann.press("?")
    await expect(ann.page.get_by_role("dialog", name="How to review")).to_be_visible()
    assert await serious_faults(ann.page) == []
    await ann.press("Escape")
    await expect(ann.page.get_by_role("dialog")).to_be_hidden()
    await ann.is_at("There is a dog.")


async def test_back_and_forth_loses_nothing(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.press("1", "2", "ArrowRight")
    await ann.sees("A cat sits on a chair.")
    await ann.press("ArrowLeft")
    await ann.sees(ANSWER)
    await expect(ann.left).to_have_text("2 of 3 facts to decide · 2 sub-sentences to mark")
    # A reload, and another day.
    await ann.page.reload()
    await expect(ann.left).to_have_text("2 of 3 facts to decide · 2 sub-sentences to mark")
    again = await reviewer_at(browser, two.address())
    await expect(again.left).to_have_text("2 of 3 facts to decide · 2 sub-sentences to mark")


async def test_what_was_completed_can_be_changed(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.press("1", "1", "1", "2", "2", "Control+Enter")
    await ann.sees("A cat sits on a chair.")
    await ann.press("ArrowLeft")
    await ann.sees(ANSWER)
    await expect(ann.left).to_have_text("all decided")
    await ann.press("ArrowDown", "2", "Control+Enter")
    await ann.sees("A cat sits on a chair.")
    (opinion,) = await two.opinions()
    assert (opinion.revision, opinion.facts[0].decision) == (2, Decision.REFUTED)


async def test_an_empty_queue_says_so(browser, reviewing):
    ann = await reviewer_at(browser, reviewing.address())
    await expect(ann.page.get_by_role("heading", name="Nothing is left here for you")).to_be_visible()


async def test_a_digit_goes_on_by_itself_and_what_was_completed_is_taken_back(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.press("1", "1", "2", "2", "2", "5", "Control+Enter")
    await ann.sees("A cat sits on a chair.")
    (opinion,) = await two.opinions()
    assert opinion.labels == (Label.DESCRIPTIVE, Label.ANALYTICAL, Label.ANALYTICAL)
    await ann.press("u")
    await ann.sees(ANSWER)
    await expect(ann.message).to_contain_text("Taken back")
    await expect(ann.left).to_have_text("all decided")
    (opinion,) = await two.opinions()
    assert (opinion.facts, opinion.probability, opinion.revision) == ((), 0.0, 2)
    assert (await two.queues.progress(QUEUE)).done == 0
    await ann.press("Control+Enter")
    await ann.sees("A cat sits on a chair.")
    (opinion,) = await two.opinions()
    assert (len(opinion.facts), opinion.probability, opinion.revision) == (3, 0.25, 3)


async def test_where_nobody_logs_in_a_name_is_asked_for_before_the_first_item(browser, two):
    page = await browser.new_page()
    await page.goto(two.address())
    await expect(page.get_by_label("Your name")).to_be_focused()
    assert (await two.queues.progress(QUEUE)).held == 0
    await page.keyboard.type("eve")
    await page.keyboard.press("Enter")
    await expect(page.locator("#answer")).to_have_text(ANSWER)
    assert (await two.items.list(QUEUE))[0].held_by.keys() == {"eve"}
    await page.reload()
    await expect(page.locator("#answer")).to_have_text(ANSWER)


async def test_two_reviewers_never_hold_one_item(browser, reviewing):
    for number in range(6):
        await reviewing.add(f"answer-{number}", f"This is answer {number}.", [])

    async def all_of(name: str) -> list[str]:
        person = await reviewer_at(browser, reviewing.address(), name)
        seen = []
        while await person.page.locator("#workbench").is_visible():
            seen.append(answer := await person.answer())
            held = await reviewing.items.all(QUEUE)
            assert all(len({*item.held_by} - {*item.done_by}) <= 1 for item in held)
            await person.press("1", "Control+Enter")
            await expect(person.page.locator("#answer", has_text=answer)).not_to_be_visible()
        return seen

    ann, bob = await asyncio.gather(all_of("ann"), all_of("bob"))
    assert sorted(ann + bob) == [f"This is answer {number}." for number in range(6)]
    assert len(await reviewing.opinions()) == 6


async def test_an_item_that_somebody_else_has_now_is_left(browser, two):
    ann = await reviewer_at(browser, two.address())
    (held, _) = await two.items.list(QUEUE)
    await two.items.release(QUEUE, held.key, "ann")
    await two.items.hold(QUEUE, held.key, "bob")
    await ann.press("1")
    await expect(ann.message).to_contain_text("has this now")
    await ann.sees("A cat sits on a chair.")


@pytest.mark.slow
async def test_a_gateway_that_is_killed_in_the_middle_loses_nothing(browser, two, nats_server):
    port = free_port()

    async def ready(process) -> bool:
        assert process.poll() is None
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient() as http:
                return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
        return False

    with started(nats_server, port) as process:
        await eventually(lambda: ready(process), within=60)
        ann = await reviewer_at(browser, f"http://127.0.0.1:{port}/review/{QUEUE}")
        await ann.press("1", "1")
        await expect(ann.saved).to_have_text("saved")
        process.kill()
        process.wait(20)
        await ann.press("2", "1")
        await expect(ann.saved).to_have_text("not saved, trying again")
        await ann.press("1", "2", "Control+Enter")
        await expect(ann.saved).to_have_text("not saved, trying again")
        await ann.sees(ANSWER)
    assert await two.opinions() == []
    with started(nats_server, port) as process:
        await eventually(lambda: ready(process), within=60)
        await expect(ann.page.locator("#answer")).to_have_text("A cat sits on a chair.", timeout=20_000)
        await expect(ann.saved).not_to_have_text("not saved, trying again")
    (opinion,) = await two.opinions()
    assert [fact.decision.value for fact in opinion.facts] == ["supported", "refuted", "supported"]


async def test_leaving_while_the_gateway_is_away_loses_nothing(browser, two):
    ann = await reviewer_at(browser, two.address())
    await ann.page.context.set_offline(True)
    await ann.press("1", "2")
    await expect(ann.saved).to_have_text("not saved, trying again")
    await ann.page.goto("about:blank")
    await ann.page.context.set_offline(False)
    await ann.page.goto(two.address())
    await expect(ann.left).to_have_text("2 of 3 facts to decide · 2 sub-sentences to mark")


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_answers_stay_text(browser, reviewing, kind):
    text = HOSTILE[kind]
    await reviewing.add("bad", text, [(text[:1500], "entity", 0, Decision.REFUTED)])
    for width in WIDTHS:
        ann = await reviewer_at(browser, reviewing.address(), width=width)
        await expect(ann.page.locator("#answer")).to_contain_text("dog" if "dog" in text else "evil")
        assert await ann.page.evaluate("window.owned") is None
        assert not await is_too_wide(ann.page)
        assert "\x1b" not in await ann.page.locator("#answer").inner_text()
        await ann.page.context.close()
    ann = await reviewer_at(browser, reviewing.address())
    await ann.press(*"11111", "Control+Enter")
    await expect(ann.page.get_by_role("heading", name="Nothing is left here for you")).to_be_visible()
    assert await ann.page.evaluate("window.owned") is None


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
async def test_it_fits_and_can_be_used_by_everybody(browser, two, width, scheme):
    ann = await reviewer_at(browser, two.address(), width=width, color_scheme=scheme)
    await ann.press("1", "2", "ArrowDown", "5", "ArrowDown", "1")
    await ann.write("A fact")
    assert await serious_faults(ann.page) == []
    assert not await is_too_wide(ann.page)
    await ann.press("Escape", "z")
    assert not await is_too_wide(ann.page)


async def test_it_works_by_touch_on_a_phone(browser, two):
    ann = await reviewer_at(browser, two.address(), width=390, has_touch=True, is_mobile=True)
    page = ann.page
    for legend, word in (
        ("There is a dog.", "true"),
        ("The dog sits on a mat.", "false"),
        ("The mat is red.", "true"),
        ("It seems happy.", "analytical"),
    ):
        await page.get_by_role("group", name=legend).get_by_text(word, exact=True).tap()
    await page.get_by_role("button", name="Complete").tap()
    await ann.sees("A cat sits on a chair.")


async def test_a_link_of_another_site_takes_no_item(browser, two):
    async def held() -> int:
        return (await two.queues.progress(QUEUE)).held

    async with site() as port:
        page = await browser.new_page()
        await page.goto(f"http://127.0.0.1:{port}/")
        await page.evaluate("(url) => { document.body.innerHTML = `<a href=${url}>x</a>` }", two.address())
        await page.click("a")
        await expect(page.get_by_role("button", name="Begin")).to_be_visible()
        assert await held() == 0
        await page.get_by_label("Your name").fill("ann")
        await page.get_by_role("button", name="Begin").click()
        await expect(page.locator("#answer")).to_have_text(ANSWER)
        assert await held() == 1
