"""Logging in with a real browser: by token, by an account elsewhere, and what other sites cannot do."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser
from tests.gateway.test_cross_site import site, tried
from tests.support.browser import open_browser
from tests.support.oidc import CLIENT_ID, CLIENT_SECRET, Provider
from tests.support.pages import check_page

EVERY = "every-token-0123456789"
ANSWER = {"id": "theirs", "model": "m", "answer": "A dog."}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with open_browser("--host-resolver-rules=MAP evil.test 127.0.0.1") as opened:
        yield opened


@pytest.fixture
async def guarded(gateway_factory: Any, tokens_file: Path) -> Any:
    return await gateway_factory(tokens_file=str(tokens_file))


async def test_somebody_logs_in_with_a_token_and_out_again(guarded, browser):
    base = f"http://127.0.0.1:{guarded.service.port}"
    page = await browser.new_page()
    await page.goto(f"{base}/?model=a")
    assert page.url.startswith(f"{base}/login?next=")
    await page.keyboard.type("wrong-token-0123456789")
    await page.keyboard.press("Enter")
    assert "not known here" in await page.inner_text("[role=alert]")
    await page.fill("#token", EVERY)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{base}/?model=a")
    assert "operator" in await page.inner_text(".who")
    assert await page.evaluate("document.cookie") == ""
    assert (await tried(page, "/v1/report")).startswith("200 ")
    sent = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": json.dumps(ANSWER)}
    assert (await tried(page, "/v1/responses", **sent)).startswith("202 ")
    await page.click("text=Log out")
    await page.wait_for_url(f"{base}/login")
    await page.goto(f"{base}/")
    assert page.url.startswith(f"{base}/login?next=")


async def test_somebody_logs_in_with_an_account_elsewhere(
    gateway_factory, provider: Provider, browser, tmp_path
):
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    (tmp_path / "client").write_text(CLIENT_SECRET)
    oidc = {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret_file": str(tmp_path / "client"),
        "groups": [{"name": "quality", "role": "viewer", "tenant": "*"}],
    }
    provider.redirects.add(f"{base}/login/oidc/callback")
    await gateway_factory(port=port, login={"url": base, "oidc": oidc})
    page = await browser.new_page()
    await page.goto(f"{base}/?model=a")
    assert await page.locator("#token").count() == 0
    await page.click("text=Log in with your account")
    await page.click("button")
    await page.wait_for_url(f"{base}/?model=a")
    assert "ann@example.com" in await page.inner_text(".who")


async def test_the_login_fits_every_screen_and_has_no_serious_fault(guarded, browser):
    await check_page(browser, f"http://127.0.0.1:{guarded.service.port}/login")


async def test_another_site_does_nothing_in_the_session_of_its_reader(guarded, browser):
    base = f"http://127.0.0.1:{guarded.service.port}"
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{base}/login")
    await page.fill("#token", EVERY)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{base}/")
    async with site() as port:
        for host in ("127.0.0.1", "evil.test"):
            theirs = await context.new_page()
            await theirs.goto(f"http://{host}:{port}/")
            for path in ("/v1/report", "/", "/login"):
                assert await tried(theirs, base + path, credentials="include") == "nothing", path
            for path, body in (("/v1/responses", json.dumps(ANSWER)), ("/logout", "")):
                await tried(theirs, base + path, method="POST", mode="no-cors", body=body)
            # A link is followed, and shows the page to its reader; a frame of it stays empty.
            await theirs.evaluate(
                "(url) => { document.body.innerHTML = `<iframe src=${url}></iframe><a href=${url}>go</a>` }",
                f"{base}/?model=a",
            )
            [frame] = theirs.main_frame.child_frames
            await theirs.wait_for_timeout(300)
            assert "operator" not in await frame.content()
            await theirs.click("a")
            await theirs.wait_for_url(f"{base}/?model=a")
            assert "operator" in await theirs.inner_text(".who")
            await theirs.close()
    await page.reload()
    assert "operator" in await page.inner_text(".who")
    assert await guarded.events() == []
