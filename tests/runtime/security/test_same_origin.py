"""Which requests are answered: by the name they were sent to and the page that sent them."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from pydantic import ValidationError

from groundwatch.runtime.security.same_origin import Hosts
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import HttpServer, telemetry_server
from groundwatch.section import in_words


@pytest.fixture
async def server():
    """A telemetry server that is reached under two names of the operator's."""
    hosts = ("gw.example.com", "*.pods.example")
    made = telemetry_server(Metrics(), list, host="127.0.0.1", port=0, hosts=hosts)
    await made.start()
    yield made
    await made.stop(1)


async def ask(server: HttpServer, *lines: str, method: str = "GET", path: str = "/metrics") -> httpx.Response:
    """One request with exactly these header lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = "\r\n".join((f"{method} {path} HTTP/1.1", *lines, "Connection: close", "", ""))
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    pairs = [tuple(line.split(": ", 1)) for line in headers]
    return httpx.Response(int(status.split()[1]), headers=pairs, content=body)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:80",
        "localhost.",
        "app.localhost",
        "127.0.0.1:8787",
        "127.8.8.8",
        "[::1]:8787",
        "[::1]",
        "10.1.2.3:9464",
        "gw.example.com",
        "GW.Example.com.:8443",
        "a.pods.example",
        "a.b.pods.example:80",
    ],
)
async def test_names_that_are_served(server, host):
    assert (await ask(server, f"Host: {host}")).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:8787",
        "localhost.evil.test",
        "evillocalhost",
        "127.0.0.1.evil.test",
        "127.1",
        "xgw.example.com",
        "gw.example.com.evil.test",
        "pods.example",
        "evilpods.example",
    ],
)
async def test_names_that_are_not_served(server, host):
    reply = await ask(server, f"Host: {host}")
    assert (reply.status_code, reply.json()["reason"]) == (421, "host")
    assert "telemetry.hosts" in reply.json()["error"]
    # A probe's name is nobody's business: it tells nothing that is kept here.
    assert (await ask(server, f"Host: {host}", path="/healthz")).status_code == 200
    assert (await ask(server, f"Host: {host}", path="/readyz")).status_code == 200


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Host:",),
        ("Host: localhost", "Host: evil.test"),
        ("Host: localhost@evil.test",),
        ("Host: local host",),
        ("Host: localhost:port",),
        ("Host: [::1",),
        ("Host: http://localhost",),
    ],
)
async def test_one_host_that_is_a_host(server, lines):
    reply = await ask(server, *lines)
    assert reply.status_code == 400
    assert reply.json()["reason"] == "no_host"


HERE = "Host: gw.example.com"
NAVIGATES = ("Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")


@pytest.mark.parametrize(
    ("lines", "passes"),
    [
        ((), True),
        (("Sec-Fetch-Site: same-origin",), True),
        (("Sec-Fetch-Site: none", *NAVIGATES), True),
        (("Sec-Fetch-Site: same-origin", "Origin: https://gw.example.com"), True),
        (("Sec-Fetch-Site: cross-site",), False),
        (("Sec-Fetch-Site: same-site",), False),
        (("Sec-Fetch-Site: CROSS-SITE",), False),
        (("Sec-Fetch-Site: new-word",), False),
        (("Sec-Fetch-Site: cross-site", *NAVIGATES), False),
        (("Sec-Fetch-Site: cross-site", "Origin: https://gw.example.com"), False),
        (("Origin: http://gw.example.com",), True),
        (("Origin: https://gw.example.com",), True),
        (("Origin: https://a.pods.example",), True),
        (("Origin: http://gw.example.com:9999",), False),
        (("Origin: http://127.0.0.1:9999",), False),
        (("Origin: http://localhost",), False),
        (("Origin: https://evil.test",), False),
        (("Origin: null",), False),
        (("Origin: ",), False),
        (("Origin: file://",), False),
        (("Origin: https://gw.example.com.evil.test",), False),
    ],
)
async def test_pages_that_may_ask(server, lines, passes):
    reply = await ask(server, HERE, *lines)
    assert reply.status_code == (200 if passes else 403)
    if not passes:
        assert reply.json()["reason"] == "cross_site"
        assert "telemetry.hosts" in reply.json()["error"]
    # What a browser is told besides: nothing of this is for another site's page.
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    assert reply.headers["x-content-type-options"] == "nosniff"


async def test_a_link_to_the_page_is_followed_and_nothing_else(server):
    cross = ("Sec-Fetch-Site: cross-site", *NAVIGATES)
    assert (await ask(server, HERE, *cross, path="/")).status_code == 404
    for path, lines, method in (
        ("/", ("Sec-Fetch-Site: cross-site",), "GET"),
        ("/", ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"), "GET"),
        ("/", cross, "POST"),
        ("/metrics", cross, "GET"),
    ):
        assert (await ask(server, HERE, *lines, path=path, method=method)).status_code == 403


def test_every_name_when_that_is_wanted():
    assert Hosts(["*"]).served("anything.at.all")
    assert not Hosts([]).served("anything.at.all")


@pytest.mark.parametrize("name", ["", "http://x", "a b", "x:80", "*x", "a.*", "**", "a..b", "[::1]"])
def test_what_is_no_name_is_told_with_its_setting(name):
    for section in ("gateway", "telemetry"):
        with pytest.raises(ValidationError) as caught:
            Settings.model_validate({section: {"hosts": [name]}})
        assert in_words(caught.value).startswith(f"{section}.hosts[0] '{name}' is no name of a host")
