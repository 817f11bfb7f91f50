"""A real Chromium without a screen, driven by Playwright: for what only a browser can show or try."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
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
    """A browser that shares nothing with another test's but its process, which takes long to start. With more
    command-line `arguments`, such as `--host-resolver-rules=…`, it has one of its own."""
    path = find_chromium()
    async with async_playwright() as playwright:
        if arguments:
            browser = await playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *arguments])
        else:
            browser = await playwright.chromium.connect(_server(path))
        try:
            yield browser
        finally:
            await browser.close()


@functools.cache
def _server(chromium: str) -> str:
    """The address of this process's browser, until it ends."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as options:
        json.dump({"executablePath": chromium, "args": ARGUMENTS}, options)
        options.flush()
        command = ["playwright", "launch-server", "--browser=chromium", f"--config={options.name}"]
        server = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        atexit.register(os.killpg, server.pid, signal.SIGTERM)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
    assert address.startswith("ws://"), address
    return address
