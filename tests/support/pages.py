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
COLORS = {"runOnly": ["color-contrast", "link-in-text-block"]}
"""axe-core's options for those of its rules that are about colors."""
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
    return await _found(page, {})


async def _found(page: Page, options: dict[str, Any]) -> list[str]:
    """The serious and critical faults that axe, which is loaded, finds with these options."""
    run = "options => axe.run(document, {resultTypes: ['violations'], ...options}).then(r => r.violations)"
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in await page.evaluate(run, options)
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

    `ready` is a selector of what is there when the page is whole. It is loaded at each width. A scheme
    changes nothing but colors, so of what axe knows, the rules about these are asked again in the dark.
    """
    async with open_page(browser, url, widths[0]) as page:
        for width in widths:
            await page.emulate_media(color_scheme="light")
            await page.set_viewport_size({"width": width, "height": 900})
            if width != widths[0]:
                await page.goto(url)
            await page.wait_for_selector(ready)
            assert not await is_too_wide(page), f"{url} does not fit {width} pixels"
            faults = await serious_faults(page)
            await page.emulate_media(color_scheme="dark")
            assert not await is_too_wide(page), f"{url} does not fit {width} pixels in the dark"
            faults += [f"dark: {one}" for one in await _found(page, COLORS)]
            assert not faults, f"{url} at {width} pixels: {faults}"
