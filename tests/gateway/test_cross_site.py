"""What other sites' pages can do to a gateway, tried with a real browser: nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page
from tests.support.browser import open_browser
from tests.support.routes import served_by

ANSWER = {"id": "theirs", "model": "m", "answer": "A dog."}


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[int]:
    """A page of somebody else's on a port of its own; its requests for anything else are 404."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<!doctype html><title>theirs</title><p>a page"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """One that was made to believe that a foreign name is this machine."""
    async with open_browser("--host-resolver-rules=MAP evil.test 127.0.0.1") as opened:
        yield opened


async def opened(browser: Browser, url: str) -> Page:
    page = await browser.new_page()
    await page.goto(url)
    return page


TRY = """async ([url, options]) => {
  try { const reply = await fetch(url, options); return reply.status + ' ' + await reply.text() }
  catch (error) { return 'nothing' }
}"""


async def tried(page: Page, url: str, **options: Any) -> str:
    """What a page learns by `fetch`: the status and the text, or nothing."""
    return str(await page.evaluate(TRY, [url, options]))


async def test_a_name_that_was_made_to_resolve_to_us_reads_and_writes_nothing(gateway, response, browser):
    assert (await gateway.post(response(id="ours", answer="A secret."))).status_code == 202
    port = gateway.service.port
    async with httpx.AsyncClient() as http:
        plain = await http.get(f"http://127.0.0.1:{port}/v1/report", headers={"Host": "evil.test"})
    assert (plain.status_code, plain.json()["reason"]) == (421, "host")
    # The browser takes our refusal for a page of evil.test: its scripts then ask under one origin.
    page = await opened(browser, f"http://evil.test:{port}/healthz")
    for path in ("/v1/report", "/v1/responses/ours", "/v1/alarms", "/v1/scores?since=0", "/metrics", "/"):
        told = await tried(page, path)
        assert told.startswith("421 "), path
        assert "gateway.hosts" in told
    sent = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": json.dumps(ANSWER)}
    assert (await tried(page, "/v1/responses", **sent)).startswith("421 ")
    assert [event.id for event in await gateway.events()] == ["ours"]


async def test_another_port_of_the_same_name_reads_and_writes_nothing(gateway, pictures, browser):
    picture = pictures.encoded("PNG")
    image = "data:image/png;base64," + base64.b64encode(picture).decode()
    stored = (await gateway.http.post("/v1/images", files={"image": ("a.png", picture)})).json()["sha256"]
    base = f"http://127.0.0.1:{gateway.service.port}"
    async with site() as port:
        page = await opened(browser, f"http://127.0.0.1:{port}/")
        # Readable answers, and writes that need no leave of ours: forms and texts.
        for path in ("/v1/report", "/v1/scores?since=0", f"/v1/images/{stored}", "/metrics"):
            assert await tried(page, base + path) == "nothing", path
        for kind in ("text/plain", "application/json"):
            await tried(
                page,
                f"{base}/v1/responses",
                method="POST",
                mode="no-cors" if kind == "text/plain" else "cors",
                headers={"Content-Type": kind},
                body=json.dumps(ANSWER),
            )
        other = pictures.encoded("PNG", (8, 8))
        await page.evaluate(
            """async ([url, bytes]) => {
              const form = new FormData();
              form.append('image', new Blob([new Uint8Array(bytes)], {type: 'image/png'}), 'a.png');
              await fetch(url, {method: 'POST', mode: 'no-cors', body: form}).catch(() => {});
            }""",
            [f"{base}/v1/images", list(other)],
        )
        # Neither an image's tag nor a stream of events tells whether there is something.
        loaded = await page.evaluate(
            """(urls) => Promise.all(urls.map((url) => new Promise((end) => {
              const image = new Image();
              image.onload = () => end('there'); image.onerror = () => end('nothing');
              image.src = url;
            })))""",
            [image, f"{base}/v1/images/{stored}", f"{base}/v1/images/{'0' * 64}"],
        )
        assert loaded == ["there", "nothing", "nothing"]
        events = await page.evaluate(
            """(url) => new Promise((end) => {
              const source = new EventSource(url);
              source.onopen = () => end('open'); source.onerror = () => end('refused');
            })""",
            f"{base}/v1/scores?since=0",
        )
        assert events == "refused"
        # A form that is sent as a navigation.
        async with page.expect_response(f"{base}/v1/responses") as navigated:
            await page.evaluate(
                """([url, text]) => {
                  document.body.innerHTML =
                    `<form method=post enctype=text/plain action=${url}><input name=a></form>`;
                  document.querySelector('input').name = text;
                  document.querySelector('form').submit();
                }""",
                [f"{base}/v1/responses", json.dumps(ANSWER)],
            )
        assert (await navigated.value).status == 403
        # A link to the page itself is followed, and the page may ask for what it shows. (A page of its own:
        # the one that sent the form is still on its way to the refusal.)
        page = await opened(browser, f"http://127.0.0.1:{port}/")
        await page.evaluate("(url) => { document.body.innerHTML = `<a href=${url}>there</a>` }", f"{base}/")
        async with page.expect_response(f"{base}/v1/scores*") as reply:
            await page.click("a")
        assert (await reply.value).status == 200
        assert await tried(page, "/v1/images/" + stored) != "nothing"
    assert await gateway.events() == []
    assert gateway.count("groundwatch_images_total", result="stored") == 1


async def test_our_own_page_works_under_a_name_that_the_operator_gave(gateway_factory, browser):
    gateway = await gateway_factory(hosts=["evil.test"])
    page = await browser.new_page()
    async with page.expect_response(f"http://evil.test:{gateway.service.port}/v1/scores*") as reply:
        await page.goto(f"http://evil.test:{gateway.service.port}/")
    assert (await reply.value).status == 200
    sent = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": json.dumps(ANSWER)}
    assert (await tried(page, "/v1/responses", **sent)).startswith("202 ")


LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def test_a_link_leads_to_pages_and_to_nothing_else(gateway):
    routes = served_by(gateway)
    assert len({route.path for route in routes if route.need.page}) > 3
    for route in routes:
        path, need, [method] = route.path, route.need, (route.methods or set()) - {"HEAD"}
        at = re.sub(r"\{[^}]*\}", "x", path)
        reply = await gateway.http.request(method, at, headers=LINK)
        followed = need.page and method == "GET"
        assert (reply.status_code == 403) != (followed or path in ("/healthz", "/readyz")), (method, path)
        # Not as a frame, an image, a script, or in the background.
        for dest in ("iframe", "frame", "embed", "image", "script", "empty"):
            other = await gateway.http.request(method, at, headers=LINK | {"Sec-Fetch-Dest": dest})
            assert other.status_code == 403 or path in ("/healthz", "/readyz"), (method, path, dest)
        fetched = await gateway.http.request(method, at, headers=LINK | {"Sec-Fetch-Mode": "no-cors"})
        assert fetched.status_code == 403 or path in ("/healthz", "/readyz"), (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.test"},
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_every_address_is_guarded_alike(gateway, headers):
    for method, path in (
        ("POST", "/v1/responses"),
        ("POST", "/v1/questions"),
        ("POST", "/v1/images"),
        ("OPTIONS", "/v1/responses"),
        ("GET", "/v1/responses/x"),
        ("GET", "/v1/images/" + "0" * 64),
        ("GET", "/v1/scores"),
        ("GET", "/v1/report"),
        ("GET", "/v1/alarms"),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
        ("GET", "/"),
    ):
        reply = await gateway.http.request(method, path, headers=headers)
        assert reply.status_code == (421 if "Host" in headers else 403), path
        assert "gateway.hosts" in reply.json()["error"]
    for path in ("/healthz", "/readyz"):
        assert (await gateway.http.get(path, headers=headers)).status_code == 200
