"""Pages that change by themselves tell how old they are: nothing is green that is not so."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
from playwright.async_api import Page, expect
from tests.runtime.conftest import eventually
from tests.support.frozen import frozen

Mode = Literal["pass", "502", "hang"]


class Proxy:
    """What stands before a gateway, passes on, answers 502 or nothing; a change of `mode` cuts all."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._mode: Mode = "pass"
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    def set(self, mode: Mode) -> None:
        self._mode = mode
        for writer in self._open:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if self._mode == "pass":
                await self._pass(reader, writer)
            elif self._mode == "502":
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
            else:
                await reader.read()
        writer.close()
        self._open.discard(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._to)
        self._open.add(ours)
        both = [asyncio.create_task(_copy(reader, ours)), asyncio.create_task(_copy(theirs, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        ours.close()
        writer.close()
        await asyncio.wait(both)
        self._open.discard(ours)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.set("502")
        server.close()


@contextlib.asynccontextmanager
async def shown(browser: Any, url: str) -> AsyncIterator[Page]:
    """A page whose clock can be put forward."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.clock.install()
    await page.goto(url)
    try:
        yield page
    finally:
        await context.close()


async def is_state(page: Page, kind: str, words: str) -> None:
    await expect(page.locator(f"#state.{kind}")).to_contain_text(words, timeout=15_000)


HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""

ADDRESSES = ("/", "/health", "/runs", "/alarms", "/queues", "/answers", "/compare")
"""Of pages that keep themselves as they are now, and of two that only tell whether the gateway answers."""


@pytest.fixture
async def gateway(gateway_factory, bus, publish):
    gateway = await gateway_factory()
    await publish("first", refuted=1)

    async def counted() -> bool:
        return bool((await gateway.http.get("/v1/report")).json()["models"])

    await eventually(counted)
    return gateway


@pytest.mark.parametrize("mode", ["502", "hang"])
async def test_every_page_without_answers_turns_amber_and_red_and_comes_back(browser, gateway, mode):
    async with proxied(gateway.service.port) as proxy, contextlib.AsyncExitStack() as stack:
        at = f"http://127.0.0.1:{proxy.port}"
        pages = [await stack.enter_async_context(shown(browser, at + path)) for path in ADDRESSES]

        async def are_states(kind: str, words: str) -> None:
            await asyncio.gather(*(is_state(page, kind, words) for page in pages))

        await are_states("live", "live · ")
        proxy.set(mode)
        for page in pages:
            await page.clock.fast_forward(12_000)
        await are_states("late", "no answer · ")
        for page in pages:
            await page.clock.fast_forward(25_000)
        await are_states("lost", "since ")
        proxy.set("pass")
        await are_states("live", "live · ")


async def test_a_page_of_a_gateway_that_is_gone_is_not_green(browser, gateway):
    at = f"http://127.0.0.1:{gateway.service.port}"
    async with shown(browser, f"{at}/health") as health, shown(browser, f"{at}/") as overview:
        for page in (health, overview):
            await is_state(page, "live", "live · ")
        # Of one that nobody sees it is only asked whether the gateway answers: its numbers grow old.
        await overview.evaluate(HIDE, True)
        async with overview.expect_response("**/pulse"):
            await overview.clock.fast_forward(300_000)
        await gateway.service.drain(0.1)
        await overview.evaluate(HIDE, False)
        await is_state(overview, "lost", "no answer · since ")
        for page in (health, overview):
            await page.clock.fast_forward(40_000)
            await is_state(page, "lost", "no answer · since ")


async def test_wrong_sentences_come_again_after_a_502(browser, gateway, publish):
    async with (
        proxied(gateway.service.port) as proxy,
        shown(browser, f"http://127.0.0.1:{proxy.port}/") as page,
    ):
        await expect(page.locator("#sentences > li")).to_have_count(1)
        for mode, name in (("502", "merlin-2b"), ("hang", "kestrel-7b")):
            proxy.set(mode)  # type: ignore[arg-type]
            await page.clock.fast_forward(12_000)
            await is_state(page, "late", "no answer")
            await publish(f"of {name}", model=name, refuted=1)
            proxy.set("pass")
            await expect(page.locator("#sentences > li", has_text=name)).to_have_count(1, timeout=15_000)


async def test_what_is_new_comes_into_lists_by_itself(browser, gateway):
    async with shown(browser, f"http://127.0.0.1:{gateway.service.port}/queues") as page:
        await is_state(page, "live", "live · ")
        made = await gateway.http.post("/v1/queues", json={"name": "new-one", "protocol": "faithscore"})
        assert made.status_code == 201
        await expect(page.locator("#fresh th", has_text="new-one")).to_have_count(1, timeout=15_000)


@pytest.mark.slow
async def test_it_is_not_green_while_nats_does_not_answer(browser, gateway, nats_server):
    at = f"http://127.0.0.1:{gateway.service.port}"
    async with shown(browser, f"{at}/") as page, shown(browser, f"{at}/health") as health:
        await is_state(page, "live", "live · ")
        with frozen(nats_server.pid):
            await expect(page.locator("#state.lost")).to_contain_text("NATS cannot be read", timeout=45_000)
            await expect(page.get_by_role("alert")).to_contain_text("NATS cannot be read")
            await expect(health.locator("#fresh")).to_contain_text("NATS is away", timeout=45_000)
            await expect(health.locator("#state.lost")).to_contain_text("NATS cannot be read")
        await expect(page.locator("#state.live")).to_be_visible(timeout=45_000)
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_link_with_the_focus_stays_and_the_table_goes_on(browser, gateway, publish):
    numbers = itertools.count()
    async with shown(browser, f"http://127.0.0.1:{gateway.service.port}/") as page:
        link = page.locator("table.models tbody tr th > a").first
        await link.click(modifiers=["Control"])
        assert await link.evaluate("(it) => it === document.activeElement")
        for model in ("kestrel-7b", "merlin-2b"):
            await publish(f"n{next(numbers)}", model=model)
            await expect(page.locator("table.models th", has_text=model)).to_have_count(1, timeout=15_000)
        assert await page.evaluate("document.activeElement.textContent") == "heron-7b"
        # Who selects text keeps it, and is told that what they see grows old.
        await page.locator("table.models th", has_text="merlin-2b").select_text()
        await publish("last", model="osprey-13b")
        await page.clock.fast_forward(12_000)
        await is_state(page, "late", "held while you are in it · ")
        await page.evaluate("getSelection().removeAllRanges()")
        await expect(page.locator("table.models th", has_text="osprey-13b")).to_have_count(1, timeout=15_000)
        await is_state(page, "live", "live · ")
