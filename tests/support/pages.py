"""What any page must pass in a real browser, at a phone's width and a desk's, light and dark."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

import axe_playwright_python
from playwright.async_api import Browser, Page

WIDTHS = (390, 1024, 1600)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SERIOUS = ("serious", "critical")
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")


def address(gateway: Any, path: str = "/") -> str:
    """Of a page of a started gateway."""
    return f"http://127.0.0.1:{gateway.service.port}{path}"


@contextlib.asynccontextmanager
async def open_page(browser: Browser, url: str, width: int = 1024, **options: Any) -> AsyncIterator[Page]:
    """A page that may report no error and be refused nothing by its policy while it is open."""
    context = await browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = await context.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        await page.goto(url)
        yield page
        assert errors == [], f"{url} at {width} pixels"
    finally:
        await context.close()


async def serious_faults(page: Page) -> list[str]:
    """What axe-core finds serious or critical, with the elements that have it."""
    # Through the debugger: the page's own policy lets no other script in.
    await page.evaluate(AXE)
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]


async def is_too_wide(page: Page) -> bool:
    """Whether one has to scroll to the side."""
    return bool(
        await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    )


async def check_page(
    browser: Browser, url: str, ready: str = "main h1", widths: Sequence[int] = WIDTHS
) -> None:
    """The page is shown without an error, fits each width and has no serious fault, light and dark.

    `ready` is a selector of what is there when the page is whole.
    """
    for width in widths:
        for scheme in SCHEMES:
            async with open_page(browser, url, width, color_scheme=scheme) as page:
                await page.wait_for_selector(ready)
                assert not await is_too_wide(page), f"{url} does not fit {width} pixels"
                faults = await serious_faults(page)
                assert not faults, f"{url} at {width} pixels, {scheme}: {faults}"
