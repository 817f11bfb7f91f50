"""A real Chromium without a screen, driven by Playwright: for what only a browser can show or try."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str:
    """The path of Debian's Chromium; without one the test is skipped, and fails where CI is set."""
    if (path := shutil.which("chromium")) is None:
        why = "needs the program chromium (Debian's package of that name)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    return path


@contextlib.asynccontextmanager
async def open_browser(*arguments: str) -> AsyncIterator[Browser]:
    """A browser with more command-line `arguments`, such as `--host-resolver-rules=…`."""
    path = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *arguments])
        try:
            yield browser
        finally:
            await browser.close()
