"""Which requests are answered: by the name they were sent to and the page that sent them."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from pydantic import ValidationError
from tests.support.cases import cases

from groundwatch.runtime.security.same_origin import Hosts
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import HttpServer, telemetry_server
from groundwatch.section import in_words

CASES = cases(__file__)


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


async def test_names_that_are_served(server):
    found = {host: (await ask(server, f"Host: {host}")).status_code for host in CASES["served"]}
    assert found == dict.fromkeys(CASES["served"], 200)


async def test_names_that_are_not_served(server):
    wanted = dict.fromkeys(CASES["not_served"], (421, "host", True))
    assert {host: told(await ask(server, f"Host: {host}")) for host in wanted} == wanted
    # A probe's name is nobody's business: it tells nothing that is kept here.
    for path in ("/healthz", "/readyz"):
        found = {host: (await ask(server, f"Host: {host}", path=path)).status_code for host in wanted}
        assert found == dict.fromkeys(wanted, 200)


def told(reply: httpx.Response) -> tuple[int, str, bool]:
    """Its status, its reason, and whether it names the setting."""
    said = reply.json()
    return reply.status_code, said.get("reason", ""), "telemetry.hosts" in said.get("error", "")


async def test_one_host_that_is_a_host(server):
    found = [(lines, told(await ask(server, *lines))[:2]) for lines in CASES["no_host"]]
    assert found == [(lines, (400, "no_host")) for lines in CASES["no_host"]]


HERE = "Host: gw.example.com"
NAVIGATES = ("Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")


async def test_pages_that_may_ask(server):
    passing = [(lines, (await ask(server, HERE, *lines)).status_code) for lines in CASES["passing"]]
    assert passing == [(lines, 200) for lines in CASES["passing"]]
    replies = [(lines, await ask(server, HERE, *lines)) for lines in CASES["foreign"]]
    assert [(lines, told(reply)) for lines, reply in replies] == [
        (lines, (403, "cross_site", True)) for lines in CASES["foreign"]
    ]
    # What a browser is told besides: nothing of this is for another site's page.
    for _, reply in replies:
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["x-content-type-options"] == "nosniff"


async def test_a_link_to_what_has_no_pages_is_not_followed(server):
    cross = ("Sec-Fetch-Site: cross-site", *NAVIGATES)
    for path, lines, method in (
        ("/", cross, "GET"),
        ("/", ("Sec-Fetch-Site: cross-site",), "GET"),
        ("/", ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"), "GET"),
        ("/", cross, "POST"),
        ("/metrics", cross, "GET"),
    ):
        assert (await ask(server, HERE, *lines, path=path, method=method)).status_code == 403


def test_every_name_when_that_is_wanted():
    assert Hosts(["*"]).served("anything.at.all")
    assert not Hosts([]).served("anything.at.all")


def test_what_is_no_name_is_told_with_its_setting():
    for name in CASES["no_name"]:
        for section in ("gateway", "telemetry"):
            with pytest.raises(ValidationError) as caught:
                Settings.model_validate({section: {"hosts": [name]}})
            assert in_words(caught.value).startswith(f"{section}.hosts[0] '{name}' is no name of a host")
