"""The pages of answers and of one answer: what they show, to whom, and in a real browser."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import AsyncIterator
from urllib.parse import quote

import msgspec
import pytest
from markupsafe import Markup
from playwright.async_api import Browser, expect
from tests.support.answer_pages import ANSWER, Filler, fact, picture
from tests.support.browser import open_browser
from tests.support.pages import check_page, is_too_wide, open_page, serious_faults

from groundwatch.events import (
    Decision,
    JudgedClaim,
    Label,
    LeftOut,
    LeftOutKind,
    OutcomeKind,
    SubSentence,
)
from groundwatch.gateway.pages.answers import by_object, facts_of, unread_shares, with_words
from groundwatch.gateway.pages.markdown import as_markdown
from groundwatch.gateway.pages.painting import marked, marked_sentence, said_in, stretches_of
from groundwatch.keys import response_key
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Queues, QueueSpec
from groundwatch.runtime.stores.tombstones import Tombstone, tombstone_name, write

HOSTILE = quote("hostile <b>&'\"/?#", safe="")
TOKENS = "* all-tenants-token-1\na token-of-tenant-a-1\nb token-of-tenant-b-1\n"


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture
async def filled(gateway, bus):
    """A gateway with an answer of each kind."""
    await Filler(gateway, bus).everything()
    async with asyncio.timeout(60):
        while len((await gateway.http.get("/v1/answers")).json()["answers"]) < 7:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return gateway


def url(gateway, path):
    return f"http://127.0.0.1:{gateway.service.port}{path}"


def claim(text, decision=Decision.REFUTED, unit=0, span=None):
    return JudgedClaim(text=text, category="entity", unit=unit, decision=decision, span=span)


def unit(start, end, text, label=Label.DESCRIPTIVE):
    return SubSentence(start=start, end=end, text=text, label=label)


def test_words_of_refuted_facts_are_marked_in_their_sub_sentence():
    answer = "Two dogs run. It is fun. <b>A cat</b> sleeps."
    units = (unit(0, 13, ""), unit(13, 24, "", Label.ANALYTICAL), unit(24, len(answer), ""))
    made = str(marked(answer, units, (claim("There are two dogs."), claim("A cat sleeps.", unit=2))))
    assert re.findall("<mark[^>]*>(.*?)</mark>", made) == ["Two", "dogs", "cat", "sleeps"]
    assert '<span class="unit analytical" title="analytical: not judged">It is fun.</span>' in made
    assert "<b>" not in made and "&lt;" in made
    assert "mark" not in str(marked(answer, units, (claim("A dog.", Decision.SUPPORTED),)))


def test_of_a_fact_the_words_are_marked_that_say_it_and_no_others_like_them():
    """Two dogs and one red ball: "The dog is red." is said by one word."""
    answer = "Look: a dog chases a red ball beside a dog. The dog barks."
    red = answer.index("red")
    units = (unit(6, 43, ""), unit(43, len(answer), ""))
    wrong = claim("The dog is red.", span=(red, red + 3))
    made = str(marked(answer, units, (wrong,)))
    assert re.findall("<mark[^>]*>(.*?)</mark>", made) == ["red"]
    assert 'title="✗ The dog is red."' in made and html.unescape(re.sub("<.*?>", "", made)) == answer
    both = str(marked(answer, units, (wrong, claim("A ball."))))
    assert re.findall("<mark[^>]*>(.*?)</mark>", both) == ["red", "ball"]


def test_words_that_several_facts_share_are_marked_once_and_around_what_was_not_read():
    answer = "A <b>red b</b>all."
    facts = (claim("Red.", span=(5, 18)), claim("Ball.", span=(9, 17)))
    left_out = (
        LeftOut(start=2, end=5, kind=LeftOutKind.MARK),
        LeftOut(start=10, end=14, kind=LeftOutKind.MARK),
    )
    made = str(marked(answer, (unit(0, len(answer), ""),), facts, left_out=left_out))
    assert re.findall("<mark[^>]*>(.*?)</mark>", made) == ["red ", "b", "all", "."]
    assert html.unescape(re.sub("(?s)<.*?>", "", made)) == answer


@pytest.mark.parametrize("span", [None, (0, 0), (5, 2), (-4, 3), (0, 4), (17, 10_000)])
def test_a_fact_whose_place_is_not_in_its_sub_sentence_is_marked_by_its_words(span):
    """`(0, 0)` is what the question alone says."""
    made = marked(
        "Yes. The dog runs.", (unit(0, 4, ""), unit(5, 18, "")), (claim("A dog.", unit=1, span=span),)
    )
    assert re.findall("<mark[^>]*>(.*?)</mark>", str(made)) == ["dog"]


def test_what_was_not_read_is_grey_with_its_reason():
    answer = "<think>A cat.</think> A dog <b>runs</b>. Ein Hund."
    left_out = (
        LeftOut(start=0, end=21, kind=LeftOutKind.REASONING),
        LeftOut(start=28, end=31, kind=LeftOutKind.MARK),
        LeftOut(start=41, end=50, kind=LeftOutKind.LANGUAGE, detail="de"),
    )
    made = str(marked(answer, (unit(22, 39, ""),), (claim("A dog runs."),), left_out=left_out))
    assert html.unescape(re.sub("<.*?>", "", made)) == answer
    grey = re.findall('<span class="unit analytical" title="(.*?)">(.*?)</span>', made)
    assert [(why, html.unescape(text).strip()) for why, text in grey] == [
        ("reasoning: not judged", "<think>A cat.</think>"),
        ("a mark: not judged", "<b>"),
        ("another language: not read (de)", "Ein Hund."),
    ]
    assert re.findall("<mark[^>]*>(.*?)</mark>", made) == ["A", "dog", "runs"][1:]


@pytest.mark.parametrize("places", [(0, -2), (5, 2), (-4, -1), (3, 10_000)])
def test_what_was_left_out_at_no_place_changes_no_answer(places):
    answer, (start, end) = "A dog. A cat.", places
    left_out = (LeftOut(start=start, end=end, kind=LeftOutKind.CODE),)
    made = str(marked(answer, (unit(0, 6, ""),), (), left_out=left_out))
    assert html.unescape(re.sub("<.*?>", "", made)) == answer


def test_of_a_mixed_answer_the_share_that_was_not_read_is_told():
    answer = "A dog runs. 12 Ein Hund."
    foreign = (LeftOut(start=12, end=24, kind=LeftOutKind.LANGUAGE, detail="de"),)
    assert unread_shares(answer, foreign) == {"de": 7 / 15}
    assert unread_shares("", ()) == {}


@pytest.mark.parametrize("places", [(-5, 3), (5, 2), (0, 10_000), (3, 3)])
def test_a_sub_sentence_whose_place_is_none_is_left_as_it_is(places):
    made = marked("A dog runs.", (unit(*places, "dog"),), (claim("dog"),))
    assert re.sub("<.*?>", "", str(made)) == "A dog runs."


def test_a_long_answer_is_cut_and_the_rest_can_be_opened():
    answer = "word " * 40_000
    made = str(marked(answer, (), ()))
    assert "<details><summary>all 200,000 characters</summary>" in made
    assert "100,000 more characters are not shown" in made and len(made) < 110_000
    assert str(marked_sentence("<i>", ["x"])).count("&lt;i&gt;") == 1


async def test_every_filter_is_in_the_address_and_can_be_taken_away(filled):
    page = (await filled.http.get("/answers?q=dog&verdict=refuted&order=worst")).text
    assert 'value="dog"' in page and "<option selected>refuted</option>" in page
    assert 'href="/answers?verdict=refuted&amp;order=worst"' in page
    assert 'href="/answers?q=dog&amp;order=worst"' in page
    assert 'href="/answers?q=dog&amp;verdict=refuted"' in page
    worst = re.findall(r'<a class="sentence" href="/answers/(\w+)', page)
    assert worst == ["kitchen", "kitchen", "features"]
    nothing = await filled.http.get("/answers?q=nothing-like-that")
    assert nothing.status_code == 200 and "No answer is like that." in nothing.text
    wrong = await filled.http.get("/answers?since=someday")
    assert wrong.status_code == 422 and "write a time such as" in wrong.text


async def test_one_answer_with_all_that_is_known_of_it(filled):
    page = (await filled.http.get("/answers/kitchen")).text
    assert page.count('class="box ') + page.count('class="box"') == 3
    assert 'x="50.000%" y="75.000%" width="7.000%" height="10.000%"' in page
    assert re.findall(r'<li id="fact-(\d)" class="fact (\w+)"', page) == [
        ("2", "refuted"),
        ("4", "refuted"),
        ("5", "undecided"),
        ("0", "supported"),
        ("1", "supported"),
        ("3", "supported"),
    ]
    assert re.search("<mark[^>]*>cat</mark>", page) and "What is in the kitchen?" in page
    assert "judged by <bdi>detector</bdi>" in page
    assert page.count("the model places it at") == 1 and "112, 340, 655, 498" in page
    assert 'href="/answers/kitchen?run=again&amp;protocol=faithscore"' in page
    assert "gw.recorded.live" in page and "gw.outcome.live.tri-he" in page
    triplets = (await filled.http.get("/answers/kitchen?protocol=tri-he")).text
    assert "relation hallucination" in triplets and "object hallucination" in triplets
    assert "dog" in triplets and "2 triplets" in triplets
    again = (await filled.http.get("/answers/kitchen?run=again")).text
    assert len(re.findall(r'<li id="fact-', again)) == 2
    chain = (await filled.http.get("/answers/chain")).text
    assert chain.count("Image of round") == 3 and "0.83, 0.61, 0.58" in chain
    features = (await filled.http.get("/answers/features")).text
    assert (
        "not in the image" in features and "broader" in features and "Not said: <bdi>ball</bdi>" in features
    )


async def test_what_has_no_score_says_why(filled, bus):
    assert "No score: refused." in (await filled.http.get("/answers/none")).text
    waiting = await filled.http.get("/answers/waiting")
    assert waiting.status_code == 200 and "has not judged it yet" in waiting.text
    absent = await filled.http.get("/answers/absent?tenant=x")
    assert absent.status_code == 404 and "is recorded" in absent.text
    name = tombstone_name("response", response_key("default", "kitchen"))
    await write(bus.js, Tombstone(kind="response", name=name, at=1.0))
    async with asyncio.timeout(30):
        while (await filled.http.get("/answers/kitchen")).status_code != 410:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    page = (await filled.http.get("/answers/kitchen")).text
    assert "erased" in page and ANSWER[:20] not in page
    assert "/answers/kitchen" not in (await filled.http.get("/answers")).text


async def test_pages_of_a_search_lead_both_ways_and_a_link_keeps_its_times(browser, filled, publish):
    for number in range(60):
        await publish(f"many-{number}", model="many-7b", refuted=1)
    async with asyncio.timeout(30):
        while len((await filled.http.get("/v1/answers?model=many-7b")).json()["answers"]) < 50:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    async with open_page(browser, url(filled, "/answers?model=Many-7B&since=24h&q=DOG")) as page:
        await expect(page.locator(".place")).to_have_text(re.compile("^1–25 of 60$"))
        await expect(page.locator(".looked-for").first).to_have_text("dog")
        first = await page.locator(".result .code").all_inner_texts()
        await page.get_by_role("link", name="Next page").click()
        await page.get_by_role("link", name="Next page").click()
        await expect(page.locator(".place")).to_have_text("51–60 of 60")
        await expect(page.get_by_role("link", name="Next page")).to_have_count(0)
        await page.get_by_role("link", name="Previous page").click()
        await expect(page.locator(".place")).to_have_text("26–50 of 60")
        await page.locator(".result a.sentence").nth(1).click()
        await expect(page.locator("#found")).to_contain_text("27 of 60")
        await page.go_back()
        await page.get_by_role("link", name="Previous page").click()
        await expect(page.locator(".place")).to_have_text("1–25 of 60")
        assert await page.locator(".result .code").all_inner_texts() == first
        await expect(page.get_by_role("link", name="Previous page")).to_have_count(0)
        link = await page.get_by_role("link", name="Copy link").get_attribute("href")
        assert re.search(r"since=20\d\d-\d\d-\d\dT", link)
        assert await serious_faults(page) == []


def test_words_that_are_looked_for_are_marked_in_texts_alone():
    marked = with_words(Markup('<b title="a dog">A dog &amp; a &lt;Dog&gt;</b>'), ("dog", "<dog", "amp"))
    assert marked.count('<b class="looked-for">') == 2 and 'title="a dog"' in marked and "&amp;" in marked


async def test_what_has_no_score_is_found_by_its_reason_with_what_mends_it(browser, filled, publish):
    """Of the commonest newcomer's answers: an image, no reference, and no judge that looks."""
    unscored = {"outcome": OutcomeKind.UNSCORED, "score": None, "claims": (), "reason": "no_reference"}
    for number in range(3):
        await publish(f"bare-{number}", **unscored)
    async with asyncio.timeout(30):
        while len((await filled.http.get("/v1/answers?reason=no_reference")).json()["answers"]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await filled.http.get("/v1/answers?outcome=none")).status_code == 422
    assert len((await filled.http.get("/v1/answers?outcome=unscored&model=Heron-7B")).json()["answers"]) == 3
    async with open_page(browser, url(filled, "/answers?outcome=unscored&q=")) as page:
        assert page.url.endswith("/answers?outcome=unscored")
        reasons = page.locator(".reasons")
        await expect(reasons).to_contain_text("why 4 have no score")
        await expect(reasons).to_contain_text("No judge here looks at images")
        await reasons.get_by_role("link", name="no reference 3").click()
        await page.wait_for_url("**/answers?outcome=unscored&reason=no_reference")
        await expect(page.locator(".result")).to_have_count(3)
        await page.goto(url(filled, "/"))
        await page.locator(".unscored").get_by_role("link", name="no reference 3").click()
        await page.wait_for_url(
            "**/answers?protocol=faithscore&outcome=unscored&reason=no_reference&run=live"
        )
        assert await serious_faults(page) == [] and not await is_too_wide(page)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("over_budget", "The budget for judging had too little left"),
        ("url_not_fetched", "gateway.fetch.allow"),
        ("prompt_too_long", "gateway.intake.max_prompt"),
    ],
)
async def test_an_answer_that_nobody_judged_says_why(gateway, publish, reason, told):
    await publish("declined", outcome=OutcomeKind.DECLINED, score=None, reason=reason, units=(), claims=())
    page = ""
    async with asyncio.timeout(30):
        while "Not judged" not in page:
            page = (await gateway.http.get("/answers/declined")).text
            await asyncio.sleep(0.05)
    assert told in page


async def test_a_tenant_opens_its_own_alone(gateway_factory, publish, tmp_path):
    (tmp_path / "tokens").write_text(TOKENS)
    gateway = await gateway_factory(tokens_file=str(tmp_path / "tokens"))
    await publish("r1", tenant="b", refuted=1)

    async def status(token, path):
        reply = await gateway.http.get(path, headers={"authorization": f"Bearer {token}"})
        return reply.status_code

    async with asyncio.timeout(30):
        while await status("token-of-tenant-b-1", "/answers/r1") != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await status("token-of-tenant-a-1", "/answers/r1") == 404
    assert await status("token-of-tenant-a-1", "/answers/r1?tenant=b") == 403
    assert await status("token-of-tenant-a-1", "/answers?tenant=b") == 403
    assert await status("all-tenants-token-1", "/answers/r1?tenant=b") == 200


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/answers", "/answers/kitchen", f"/answers/{HOSTILE}"])
async def test_the_pages_fit_and_have_no_serious_fault(browser, filled, path):
    await check_page(browser, url(filled, path))


@pytest.mark.slow
async def test_other_answers_fit_a_phone(browser, filled):
    for path in ("/answers?q=x", "/answers/kitchen?protocol=tri-he", "/answers/chain", "/answers/features"):
        async with open_page(browser, url(filled, path), 390) as page:
            assert not await is_too_wide(page) and await serious_faults(page) == [], path


def test_facts_stand_under_the_object_that_they_name_first():
    texts = (
        "The mat is striped.",
        "There are two balls.",
        "There is a dog.",
        "The dog has a ball.",
        "A ball rolls.",
    )
    groups = by_object(facts_of([claim(text) for text in texts], (), ()))
    assert [(name, [one.number for one in facts]) for name, facts in groups] == [
        ("", [0]),
        ("balls", [1, 4]),
        ("dog", [2, 3]),
    ]
    assert [name for name, _ in by_object(facts_of([claim(text) for text in texts[:3]], (), ()))] == [""]


def test_words_name_the_facts_that_they_say():
    answer = "A brown dog sits."
    facts = (claim("A dog.", Decision.SUPPORTED, span=(2, 11)), claim("It sits.", span=(8, 16)))
    made = str(marked(answer, (unit(0, 17, ""),), facts))
    assert '<span data-facts="0">brown </span><mark data-facts="0 1">dog</mark>' in made
    assert '<mark data-facts="1"> sits</mark>' in made


def shown(source: str, *wrong: str) -> str:
    """Its Markdown, with these words wrong."""
    facts = [claim(word, span=(source.index(word), source.index(word) + len(word))) for word in wrong]
    units = (unit(0, len(source), ""),)
    return str(as_markdown(source, stretches_of(source, units, said_in(facts))) or "")


def test_markdown_is_shown_as_people_saw_it_with_marks_where_they_stand():
    source = (
        '# A *kitchen*\r\n\n- **There is** a [cat](http://x/dog "cat dog") dog\n'
        "- `two` \\*x\\* &amp; balls\n\n"
        "| a | b |\n|---|---|\n| fish | fish 2 |\n\n```py\nfish\nbird\n```\n"
    )
    made = shown(source, "kitchen", "There is", "two", "balls", "fish 2", "bird")
    assert re.findall("<mark[^>]*>(.*?)</mark>", made) == [
        "kitchen",
        "There is",
        "two",
        "balls",
        "fish 2",
        "bird",
    ]
    assert '<div class="heading">' in made and "<h1" not in made and "<table>" in made
    assert "*x* & balls" in html.unescape(re.sub("<.*?>", "", made))
    assert re.search(r'<td><span class="unit wrong">fish</span></td>', made)
    # The word behind a link is that one, and not the same in its title.
    behind = source.index(") dog") + 2
    facts = [claim("dog", span=(behind, behind + 3))]
    made = as_markdown(source, stretches_of(source, (unit(0, len(source), ""),), said_in(facts)))
    assert re.findall("</a>.*?<mark[^>]*>(.*?)</mark>", str(made)) == ["dog"]
    assert shown("A dog.\nA cat.", "cat") == "" and shown("**a** " * 20_000) == ""


@pytest.mark.parametrize(
    "hostile",
    [
        "**x** <script>owned</script> <img src=x onerror=owned>",
        "**x** [a](javascript:owned) [b](data:text/html,owned) [c](vbscript:owned) [d](//x/owned)",
        "**x** ![remote](http://x/owned.png) ![j](javascript:owned)",
        '**x** [a](http://x/" onclick=owned) `<b>owned</b>` \x1b[31m',
        "<div>**x**</div>\n\n<!-- owned -->\n\n<https://x/> <javascript:owned>",
    ],
)
def test_markdown_runs_nothing_and_loads_nothing(hostile):
    made = shown(hostile)
    tags = re.findall(r"<[^>]*>", made)
    assert tags and not any(word in tag for tag in tags for word in ("owned", "script", "<img", "\x1b"))
    assert "<script" not in made and "\x1b" not in made
    assert all(re.match(r'<a href="(https?|mailto):', tag) for tag in tags if tag.startswith("<a"))


def test_numbers_of_a_table_stand_right_without_a_style_of_their_own():
    made = shown("|a|b|\n|:-|-:|\n|1|2|")
    assert "style=" not in made and "<td>1</td>" in made and '<td class="number">2</td>' in made


TABLE = "|a" * 300 + "|\n" + "|-" * 300 + "|\n" + "b\n" * 200 + "\n"
"""Few characters, and 60,000 cells."""


@pytest.mark.parametrize(
    "hostile",
    ["[" * 20_000, "![a](" * 4_000, "*a " * 6_600, "`a" * 10_000, "**a**" * 4_000, TABLE * 12],
    ids=["brackets", "images", "stars", "ticks", "bold", "tables"],
)
def test_no_markdown_takes_long(hostile):
    begun = time.process_time()
    shown(hostile)
    assert time.process_time() - begun < 0.8


async def test_the_text_as_it_was_written_is_one_key_away(browser, filled):
    answer = "- **A brown dog** sits.\n- A cat sleeps."
    await Filler(filled, None).record("list", answer=answer, protocols=["faithscore"])
    async with open_page(browser, url(filled, "/answers/list")) as page:
        await expect(page.locator(".rendered li")).to_have_count(2)
        assert await serious_faults(page) == []
        await page.keyboard.press("r")
        await expect(page.locator(".answer-text")).to_have_text(answer)
        await expect(page.locator(".rendered")).to_have_count(0)
        await page.keyboard.press("r")
        await expect(page.locator(".rendered strong")).to_have_text("A brown dog")


def test_twenty_thousand_characters_with_every_word_wrong_are_shown_in_time():
    answer = "dog cat " * 2_500
    facts = [claim(f"dog cat {at}") for at in range(200)]
    begun = time.process_time()
    marked(answer, (unit(0, len(answer), ""),), facts)
    assert time.process_time() - begun < 0.8


async def test_one_click_says_that_the_judge_is_wrong_and_another_takes_it_back(browser, filled, bus):
    async with open_page(browser, url(filled, "/answers/kitchen")) as page:
        await page.evaluate("localStorage.setItem('groundwatch.reviewer', 'ann')")
        await page.reload()
        wrong = page.locator("#fact-2")
        await wrong.get_by_role("button", name="The judge is wrong here").click()
        await expect(page).to_have_url(re.compile("protocol=faithscore#fact-2$"))
        await expect(wrong.locator(".chip.good")).to_have_text("ann: holds not drawn")
        await page.locator("#fact-5").get_by_role("button", name="It does not hold").click()
        await expect(page.locator("#fact-5 .chip.bad")).to_have_text("ann: does not hold not drawn")
        (said,) = await Opinions(bus).latest()
        assert (said.objection, said.probability, said.queue, said.reviewer) == (True, 0.0, "", "ann")
        assert {one.claim: one.decision.value for one in said.facts} == {2: "supported", 5: "refuted"}
        await expect(page.get_by_role("row", name="ann")).to_contain_text("in no rate")
        await page.locator("#fact-2").get_by_role("button", name="take back").click()
        await expect(wrong.locator(".chip.good")).to_have_count(0)
        assert await serious_faults(page) == []
    for absurd in ("", "99 supported", "1 absurd", "x", f"{'9' * 5_000} supported"):
        reply = await filled.http.post("/answers/kitchen?protocol=faithscore", data={"fact": absurd})
        assert reply.status_code == 422, absurd[:20]


async def test_an_answer_is_put_into_a_queue_by_hand_and_copied_as_curl(browser, filled, bus):
    queues = Queues(bus)
    await queues.create(QueueSpec(name="look", protocol="faithscore", rule="all"))
    await queues.create(QueueSpec(name="other", protocol="pope", rule="all"))
    async with open_page(browser, url(filled, "/answers/kitchen")) as page:
        await page.evaluate(
            "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }"
        )
        await page.get_by_role("button", name="Copy as curl").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        command = await page.evaluate("copied")
        assert command == f"curl -s '{url(filled, '/v1/responses/kitchen')}'"
        await page.get_by_role("button", name="Add to queue look").click()
        await expect(page.get_by_role("link", name="in look, chosen by hand")).to_be_visible()
        assert await page.get_by_role("button", name="Add to queue").count() == 0
        # Without TLS there is no clipboard, and what is copied stands nowhere on the page.
        await page.evaluate(
            """() => {
                Object.defineProperty(navigator, "clipboard", { value: undefined });
                document.addEventListener("copy", () => { window.copied = String(getSelection()); });
            }"""
        )
        await page.get_by_role("button", name="Copy as curl").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert await page.evaluate("window.copied") == command
    (item,) = await queues.items.list("look")
    assert (item.id, item.probability, item.wanted) == ("kitchen", 0.0, 1)
    # What the queue draws later is an item like any other, to be looked at anew.
    assert await queues.items.create(msgspec.structs.replace(item, probability=0.5, order=0.3))
    assert not await queues.items.create(item)
    assert [one.probability for one in await queues.items.list("look")] == [0.5]
    reply = await filled.http.post("/answers/kitchen?protocol=faithscore", data={"queue": "other"})
    assert reply.status_code == 422


async def test_one_goes_through_what_a_search_found(browser, filled):
    async with open_page(browser, url(filled, "/answers?model=osprey-13b")) as page:
        links = [await one.get_attribute("href") for one in await page.locator(".result a.sentence").all()]
        await page.locator(".result a.sentence").nth(1).click()
        where = page.get_by_role("navigation", name="What the search found")
        await expect(where).to_contain_text(f"2 of {len(links)}")
        await page.keyboard.press("j")
        await expect(where).to_contain_text(f"3 of {len(links)}")
        assert page.url.endswith(links[2])
        await page.keyboard.press("k")
        await expect(where).to_contain_text(f"2 of {len(links)}")
        await where.get_by_role("link", name="Previous").click()
        await expect(where).to_contain_text(f"1 of {len(links)}")
        await page.goto(url(filled, "/answers/chain?tenant=default"))
        await expect(where).to_be_hidden()


@pytest.mark.slow
async def test_words_light_their_fact_and_a_fact_its_words(browser, filled):
    async with open_page(browser, url(filled, "/answers/kitchen")) as page:
        word = page.locator("mark", has_text="two")
        await page.hover("#fact-2")
        await expect(word).to_have_class("on")
        await word.focus()
        await expect(page.locator("#fact-2")).to_have_class(re.compile(r"\bon\b"))
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile("#fact-2$"))
        score = await page.locator(".told .figures").bounding_box()
        answer = await page.locator("#answered").bounding_box()
        assert score["y"] < answer["y"]
        await expect(page.locator("figcaption")).to_contain_text("a fact that does not hold")


async def test_many_images_and_a_tall_one_leave_the_answer_in_reach(browser, filled, bus):
    fill = Filler(filled, bus)
    tall = await fill.image(picture(size=(60, 3_000)))
    many = [await fill.image(picture(f"#{at:x}0{at:x}0{at:x}0")) for at in range(11)]
    await fill.record("album", images=[*many, tall])
    await fill.judge("album", images=(*many, tall))
    await fill.record("tall", images=[tall])
    await fill.judge("tall", images=(tall,))
    asked = fact(
        "Is there a cat in the image? No.", Decision.REFUTED, category="no", parts=("Is there a cat?", "no")
    )
    await fill.record("asked", protocols=["pope"])
    await fill.judge("asked", "pope", claims=(asked,))
    for name in ("album", "tall"):
        async with open_page(browser, url(filled, f"/answers/{name}?protocol=faithscore"), 390) as page:
            await page.wait_for_selector("#answered")
            await expect(page.locator(".frame img").last).to_have_js_property("complete", True)
            assert (await page.locator("#answered").bounding_box())["y"] < 1_300, name
            assert not await is_too_wide(page)
    async with open_page(browser, url(filled, "/answers/asked")) as page:
        await expect(page.locator("#fact-0")).to_contain_text("Is there a cat? “no” is wrong")
        await page.goto(url(filled, "/answers/chain"))
        assert await page.locator("#answered").count() == 1


@pytest.mark.slow
async def test_a_fact_shows_its_box_and_a_box_its_fact(browser, filled):
    async with open_page(browser, url(filled, "/answers/kitchen")) as page:
        ball, dog = page.locator('.box[data-facts="2"]'), page.locator('.box[data-facts="0 1"]')
        await page.hover("#fact-2")
        await expect(ball).to_have_class(re.compile(r"\bon\b"))
        await expect(dog).not_to_have_class(re.compile(r"\bon\b"))
        await dog.locator("> rect").hover()
        await expect(page.locator("#fact-1")).to_have_class(re.compile(r"\bon\b"))
        await expect(page.locator("#fact-2")).not_to_have_class(re.compile(r"\bon\b"))
        await page.focus("#fact-3")
        await expect(page.locator('.box[data-facts="3"]')).to_have_class(re.compile(r"\bon\b"))


@pytest.mark.slow
async def test_without_scripts_one_finds_an_answer_and_its_box(browser, filled):
    async with open_page(browser, url(filled, "/answers"), java_script_enabled=False) as page:
        await page.fill("#filter-q", "dog")
        await page.select_option("#filter-verdict", "refuted")
        await page.press("#filter-q", "Enter")
        await page.wait_for_url("**/answers?q=dog**")
        assert "verdict=refuted" in page.url
        await page.get_by_role("link", name="Most wrong").click()
        await page.locator(".result .sentence", has_text="balls").nth(1).click()
        await expect(page.locator(".box")).to_have_count(3)
        await page.locator('.box[data-facts="2"] > rect').click()
        assert page.url.endswith("#fact-2")


async def test_a_list_of_photographs_is_light(filled, publish, pictures):
    """It was 75 MB: 25 photographs of 3 MB."""
    sent = await filled.http.post(
        "/v1/images", content=pictures.encoded("PNG", (900, 700)), headers={"Content-Type": "image/png"}
    )
    sha256 = sent.json()["sha256"]
    await publish("photograph", images=(sha256,))
    async with asyncio.timeout(30):
        while f"/v1/images/{sha256}?width=224" not in (await filled.http.get("/answers")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    page = await filled.http.get("/answers")
    assert page.headers["content-encoding"] == "gzip" and page.num_bytes_downloaded < len(page.content) / 2
    assert (
        "content-encoding" not in (await filled.http.get("/answers", headers={"accept-encoding": ""})).headers
    )
    for image in set(re.findall(r'src="(/v1/images/[^"]+)"', page.text)):
        assert len((await filled.http.get(image)).content) < 30_000


@pytest.mark.slow
async def test_hostile_texts_stay_texts(browser, filled):
    for path in ("/answers", f"/answers/{HOSTILE}"):
        async with open_page(browser, url(filled, path)) as page:
            await page.wait_for_timeout(200)
            assert await page.title() != "owned"
            shown = await page.inner_text("main")
            assert "\x1b" not in shown and "<script>" in shown and "49" not in shown.split("7*7")[0][-5:]
            assert len(await page.content()) < 2_000_000
