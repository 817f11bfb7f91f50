"""Logging in with an account elsewhere, at a provider that is honest and at one that is not."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from tests.support.oidc import CLIENT_ID, CLIENT_SECRET, Provider

GROUPS = [
    {"name": "boss", "role": "operator", "tenant": "*"},
    {"name": "quality", "role": "reviewer", "tenant": "*"},
    {"name": "acme", "role": "viewer", "tenant": "acme"},
]


@pytest.fixture
async def guarded(gateway_factory: Any, provider: Provider, tokens_file: Any, tmp_path: Any) -> Any:
    """A gateway at which people log in with their accounts, and programs with tokens."""
    secret = tmp_path / "client"
    secret.write_text(CLIENT_SECRET + "\n")
    oidc = {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "timeout": 5.0,
        "client_secret_file": str(secret),
        "groups": GROUPS,
    }
    login = {"url": "http://127.0.0.1:1", "oidc": oidc}
    gateway = await gateway_factory(tokens_file=str(tokens_file), login=login)
    provider.redirects.add("http://127.0.0.1:1/login/oidc/callback")
    return gateway


@pytest.fixture
async def person(guarded: Any, person_factory: Any) -> Any:
    return await person_factory(guarded)


async def asked(person: Any, goal: str = "/") -> str:
    """Begin at the login; the provider's address, to which a browser is sent."""
    begun = await person.open(f"/login/oidc?{urlencode({'next': goal})}")
    assert begun.status_code == 303
    return str(begun.headers["location"])


async def back(person: Any, address: str) -> str:
    """Say who one is at the provider; where it sends the browser back, as the gateway's path."""
    page = await person.http.get(address)
    assert page.status_code == 200
    fields = dict(re.findall(r'name="([a-z_]+)" value="([^"]*)"', page.text))
    sent = await person.http.post(address, data=fields)
    parts = urlsplit(sent.headers["location"])
    return f"{parts.path}?{parts.query}"


async def log_in(person: Any, goal: str = "/") -> Any:
    return await person.open(await back(person, await asked(person, goal)))


async def is_in(person: Any) -> bool:
    return bool((await person.open("/")).status_code == 200)


async def test_somebody_with_an_account_comes_in_as_the_role_of_their_group(person):
    assert 'href="/login/oidc?next=%2F%3Fmodel%3Da"' in (await person.open("/login?next=/?model=a")).text
    begun = await log_in(person, "/?model=a")
    assert (begun.status_code, begun.headers["location"]) == (303, "/?model=a")
    page = (await person.open("/")).text
    assert "ann@example.com" in page and "reviewer" in page
    reply = await person.http.post("/v1/responses", json={"model": "m", "answer": "A."})
    assert (reply.status_code, reply.json()["reason"]) == (403, "role")


async def test_the_group_of_a_tenant_sees_that_tenant(person, provider):
    provider.person["groups"] = ["else", "acme"]
    assert (await log_in(person)).status_code == 303
    assert (await person.http.get("/v1/responses/x?tenant=other")).status_code == 403
    assert (await person.http.get("/v1/responses/x?tenant=acme")).status_code == 404
    assert (await person.http.get("/v1/report")).json()["reason"] == "all_tenants"


@pytest.mark.parametrize("groups", [[], ["else"], None, "qualit", {"quality": 1}, [["quality"]], ["*"]])
async def test_who_is_in_none_of_the_groups_does_not_come_in(person, provider, groups):
    provider.person["groups"] = groups
    reply = await log_in(person)
    assert reply.status_code == 403 and "none of the groups" in reply.text
    assert not await is_in(person)


def over(**changes: Any) -> Any:
    return lambda claims: claims | changes


def without(name: str) -> Any:
    return lambda claims: {key: value for key, value in claims.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        over(iss="https://evil.test"),
        over(aud="another"),
        over(aud=["another", "third"]),
        over(aud=[CLIENT_ID, "another"], azp="another"),
        over(azp="another"),
        over(nonce="another"),
        over(exp=int(time.time()) - 120),
        over(iat=int(time.time()) + 7_200),
        over(nbf=int(time.time()) + 7_200),
        over(exp="never"),
        over(at_hash="wrong"),
        *(without(name) for name in ("iss", "aud", "exp", "iat", "nonce", "sub")),
    ],
)
async def test_a_token_whose_claims_do_not_hold_lets_nobody_in(person, provider, change):
    provider.change = change
    reply = await log_in(person)
    assert reply.status_code == 403 and "does not hold" in reply.text
    assert not await is_in(person)


@pytest.mark.parametrize("sign", ["unsigned", "signed_with_public_key", "signed_by_another"])
async def test_a_token_that_the_provider_has_not_signed_lets_nobody_in(person, provider, sign):
    provider.sign = getattr(provider, sign)
    reply = await log_in(person)
    assert reply.status_code == 403 and "does not hold" in reply.text
    assert not await is_in(person)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", 5, None])
async def test_what_is_no_token_lets_nobody_in(person, provider, token):
    provider.sign = lambda claims: token
    assert (await log_in(person)).status_code == 403
    assert not await is_in(person)


async def test_clocks_may_differ_a_little(person, provider):
    provider.change = over(exp=int(time.time()) - 30, iat=int(time.time()) - 90)
    assert (await log_in(person)).status_code == 303
    assert await is_in(person)


@pytest.mark.parametrize("verified", [False, "false", "False", None, 0, ""])
async def test_an_email_address_that_nobody_has_verified_is_no_name(person, provider, verified):
    provider.person["email_verified"] = verified
    reply = await log_in(person)
    assert reply.status_code == 403 and "verified" in reply.text


async def test_a_code_is_good_once_and_in_the_browser_that_asked_for_it(person, guarded, person_factory):
    address = await back(person, await asked(person))
    other = await person_factory(guarded)
    assert (await other.open(address)).status_code == 400
    # Somebody who has begun a login of their own, and is given the answer to another's.
    await asked(other)
    told = await other.open(address)
    assert told.status_code == 403 and "another login" in told.text
    assert not await is_in(other)
    kept = dict(person.http.cookies)
    assert (await person.open(address)).status_code == 303
    person.http.cookies.clear()
    assert (await person.open(address)).status_code == 400
    for name, value in kept.items():
        person.http.cookies.set(name, value)
    again = await person.open(address)
    assert again.status_code == 403 and "did not take its code" in again.text
    assert not await is_in(person)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"state": "x"}, "another login"),
        ({"state": ""}, "another login"),
        ({"iss": "https://evil.test"}, "another provider"),
        ({"error": "access_denied"}, "access_denied"),
        ({"error": "<script>alert(1)</script>"}, "&lt;script&gt;"),
        ({"code": ""}, "nothing"),
        ({"code": "x"}, "did not take its code"),
    ],
)
async def test_an_answer_that_is_not_the_providers_lets_nobody_in(person, changes, word):
    path, _, query = (await back(person, await asked(person))).partition("?")
    said = {name: values[0] for name, values in parse_qs(query).items()} | changes
    reply = await person.open(f"{path}?{urlencode(said)}")
    assert reply.status_code == 403 and word in reply.text
    assert "<script>alert" not in reply.text
    assert not await is_in(person)


async def test_new_keys_of_the_provider_are_found_and_known_ones_are_not_asked_for_again(person, provider):
    for _ in range(2):
        assert (await log_in(person)).status_code == 303
        person.http.cookies.clear()
    assert provider.asked == ["description", "keys"]
    provider.change_key()
    assert (await log_in(person)).status_code == 303
    assert provider.asked == ["description", "keys", "keys"]


async def test_a_provider_that_does_not_answer_is_no_end_of_all(person, provider):
    provider.broken = True
    reply = await person.open("/login/oidc")
    assert reply.status_code == 503 and "does not answer" in reply.text
    assert (await person.log_in("every-token-0123456789")).status_code == 303
    provider.broken = False
    person.http.cookies.clear()
    assert (await log_in(person)).status_code == 303


async def test_an_endpoint_that_drips_is_given_up(person, provider, guarded):
    async def drip(reader, writer):
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
            for _ in range(400):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        provider.described = {"token_endpoint": f"http://127.0.0.1:{port}/token"}
        address = await back(person, await asked(person))
        began = time.monotonic()
        reply = await person.open(address)
    assert reply.status_code == 503 and "does not answer" in reply.text
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://evil.test"},
        {"token_endpoint": "http://evil.test/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
        ["x"],
        "x",
    ],
)
async def test_a_provider_that_describes_another_is_not_believed(person, provider, described):
    provider.described = described
    assert (await person.open("/login/oidc")).status_code == 503


@pytest.mark.parametrize("keys", ["x", ["x"], {"keys": 1}, {"keys": [{"kty": "x"}]}, {"keys": [5]}])
async def test_keys_that_are_none_let_nobody_in(person, provider, keys):
    provider.keys = keys
    assert (await log_in(person)).status_code == 503
    assert not await is_in(person)


async def test_keys_that_are_none_when_the_provider_changes_its_own_are_its_fault(person, provider):
    assert (await log_in(person)).status_code == 303
    person.http.cookies.clear()
    provider.change_key()
    provider.keys = {"error": "busy"}
    assert (await log_in(person)).status_code == 503
    provider.keys = None
    assert (await log_in(person)).status_code == 303


async def test_a_token_endpoint_that_sends_a_page_is_the_providers_fault(person, provider):
    address = await back(person, await asked(person))
    provider.page = "<html>busy</html>"
    assert (await person.open(address)).status_code == 503


async def test_a_login_that_was_begun_too_long_ago_lets_nobody_in(person, monkeypatch):
    address = await back(person, await asked(person))
    now = time.time
    monkeypatch.setattr("groundwatch.gateway.oidc.time.time", lambda: now() + 601)
    reply = await person.open(address)
    assert reply.status_code == 403 and "too long ago" in reply.text
    assert not await is_in(person)


async def test_anothers_link_neither_says_anything_nor_ends_a_login(person):
    address = await back(person, await asked(person))
    reply = await person.open("/login/oidc/callback?error=call+0800&state=x")
    assert reply.status_code == 403 and "0800" not in reply.text
    assert (await person.open(address)).status_code == 303


async def test_logins_that_nobody_finished_do_not_fill_the_cookie(person):
    for _ in range(6):
        address = await asked(person)
    assert all(len(f"{one.name}={one.value}") < 4096 for one in person.http.cookies.jar)
    assert (await person.open(await back(person, address))).status_code == 303


async def test_nobody_is_sent_on_to_another_site(person):
    begun = await log_in(person, "//evil.test/")
    assert (begun.status_code, begun.headers["location"]) == (303, "/")


async def test_a_session_ends_with_its_group(gateway_factory, guarded, person, person_factory, tmp_path):
    assert (await log_in(person)).status_code == 303
    access = guarded.service.core.access
    left = [group for group in access.oidc.groups if group.name != "quality"]
    access.oidc = access.oidc.model_copy(update={"groups": tuple(left)})
    assert not await is_in(person)
