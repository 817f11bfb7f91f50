"""Logging in with a token: the session, its cookie, and what other pages cannot do with it."""

from __future__ import annotations

import html
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient
from tests.support.routes import served_by

from groundwatch.errors import SettingsError
from groundwatch.gateway.auth import KEPT, Access
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.settings.login import LoginSettings

EVERY = "every-token-0123456789"
ANSWER = {"id": "r1", "model": "m", "answer": "A dog."}


@pytest.fixture
async def guarded(gateway_factory: Any, tokens_file: Path) -> Any:
    return await gateway_factory(tokens_file=str(tokens_file))


@pytest.fixture
async def person(guarded: Any, person_factory: Any) -> Any:
    return await person_factory(guarded)


async def test_a_page_sends_to_the_login_and_the_login_back(person):
    sent = await person.open("/?model=a%26b")
    assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=%2F%3Fmodel%3Da%2526b")
    page = await person.open(sent.headers["location"])
    assert page.status_code == 200 and 'name="next" value="/?model=a%26b"' in page.text
    begun = await person.log_in(EVERY, "/?model=a%26b")
    assert (begun.status_code, begun.headers["location"]) == (303, "/?model=a%26b")
    assert (await person.open("/")).status_code == 200
    assert (await person.http.get("/v1/report")).status_code == 200
    again = await person.open("/login?next=/?x=1")
    assert (again.status_code, again.headers["location"]) == (303, "/?x=1")


@pytest.mark.parametrize("path", ["/answers/a%2Fb%3Fc%23d", "/answers/%C3%A4?run=x%26y", "/answers/a%20b"])
async def test_a_page_is_come_back_to_however_its_address_is_written(person, path):
    sent = await person.open(path)
    page = await person.open(sent.headers["location"])
    [goal] = re.findall(r'name="next" value="([^"]*)"', page.text)
    assert html.unescape(goal) == path
    assert (await person.log_in(EVERY, path)).headers["location"] == path


async def test_somebody_of_one_tenant_sees_the_pages_that_are_theirs(person):
    begun = await person.log_in("acme-token-0123456789")
    assert (begun.status_code, begun.headers["location"]) == (303, "/answers")
    page = await person.open("/answers")
    assert page.status_code == 200 and "acme" in page.text
    assert 'href="/answers"' in page.text and 'href="/health"' not in page.text
    told = await person.open("/health")
    assert told.status_code == 403 and "all tenants" in told.text and "<html" in told.text


async def test_programs_get_401_as_ever(person):
    for path in ("/", "/v1/report", "/v1/responses/x"):
        reply = await person.http.get(path)
        assert (reply.status_code, reply.json()["reason"]) == (401, "unauthenticated"), path
    reply = await person.open(
        "/v1/report", headers={"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    )
    assert reply.status_code == 401
    assert "Basic" not in reply.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("token", "word"),
    [
        ("", "not known here"),
        ("wrong-token-0123456789", "not known here"),
        ("send-token-0123456789", "sending"),
    ],
)
async def test_who_may_see_nothing_does_not_come_in(person, token, word):
    reply = await person.log_in(token)
    assert reply.status_code == 403 and word in reply.text
    assert "0123456789" not in reply.text
    assert (await person.open("/")).status_code == 303


async def test_tokens_are_not_tried_without_end(person, monkeypatch):
    told = [(await person.log_in(f"guess-{number}")).status_code for number in range(12)]
    assert told == [403] * 10 + [429] * 2
    refused = await person.log_in("guess")
    assert refused.status_code == 429 and "wait" in refused.text
    now = time.monotonic
    monkeypatch.setattr("groundwatch.gateway.login.time.monotonic", lambda: now() + 7)
    assert (await person.log_in("guess")).status_code == 403
    assert (await person.log_in("guess")).status_code == 429
    # Behind a proxy all have one address: who guesses there locks nobody out.
    assert (await person.log_in(EVERY)).status_code == 303


def test_a_session_of_another_version_is_none(tokens_file: Path) -> None:
    access = Access(GatewaySettings(tokens_file=str(tokens_file)))
    for kept in ({"token": "x"}, {"until": 1.0, "token": None}, "x", None):
        assert access.in_session({KEPT: kept}) is None


async def test_the_cookie_is_for_this_server_alone_and_no_script_reads_it(person):
    begun = await person.log_in(EVERY)
    [cookie] = [one for one in begun.headers.get_list("set-cookie") if one.startswith("groundwatch-session=")]
    said = cookie.lower()
    assert "httponly" in said and "samesite=lax" in said and "path=/" in said and "max-age=43" in said
    assert "domain" not in said and "secure" not in said
    assert EVERY not in cookie


async def test_behind_tls_the_cookie_goes_over_tls_alone(gateway_factory, tokens_file, person_factory):
    gateway = await gateway_factory(
        tokens_file=str(tokens_file), login={"url": "https://gw.test", "hours": 1}
    )
    person = await person_factory(gateway)
    headers = {"Host": "gw.test", "Accept": "text/html"}
    form = {"token": EVERY, "next": "/"}
    sent = headers | {"Origin": "https://gw.test"}
    begun = await person.http.post("/login", data=form, headers=sent)
    # What is copied from pages sends no token without TLS either.
    known = {"Host": "gw.test", "Authorization": f"Bearer {EVERY}"}
    assert "curl https://gw.test/v1/responses" in (await gateway.http.get("/", headers=known)).text
    session = begun.headers.get_list("set-cookie")[0]
    assert session.startswith("__Host-groundwatch-session=") and "; secure" in session.lower()
    assert "Max-Age=3599" in session or "Max-Age=3600" in session
    told = await person.http.post("/login", data=form, headers=sent | {"Origin": "http://gw.test"})
    assert told.status_code == 403 and "https://gw.test" in told.text


OTHERS = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Origin": "https://evil.test"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
]
"""What a browser says of a request that a page of another site, or of another port, sends."""


async def test_no_other_site_changes_anything_in_the_session_of_its_reader(person, guarded):
    await person.log_in(EVERY)
    changes = [
        (method, route.path)
        for route in served_by(guarded)
        for method in route.methods or ()
        if method not in ("GET", "HEAD")
    ]
    assert len(changes) > 20
    for method, path in changes:
        at = re.sub(r"\{[^}]*\}", "x", path)
        for headers in OTHERS:
            for options in ({"json": ANSWER}, {"data": {"token": EVERY, "next": "/"}}, {"content": b""}):
                reply = await person.http.request(method, at, headers=headers, **options)
                told = (reply.status_code, reply.json()["reason"])
                assert told == (403, "cross_site"), (method, path, headers)
                assert "set-cookie" not in reply.headers
    assert await guarded.events() == []
    assert (await person.open("/")).status_code == 200


async def test_a_page_of_ours_changes_what_its_reader_may(person, guarded):
    await person.log_in(EVERY)
    ours = f"http://127.0.0.1:{guarded.service.port}"
    for number, headers in enumerate(({"Sec-Fetch-Site": "same-origin", "Origin": ours}, {"Origin": ours})):
        sent = ANSWER | {"id": f"r{number}"}
        assert (await person.http.post("/v1/responses", json=sent, headers=headers)).status_code == 202
    out = await person.http.post("/logout", headers={"Origin": ours})
    assert (out.status_code, out.headers["location"]) == (303, "/login")


async def test_a_token_of_a_program_counts_whatever_the_cookie(person, guarded):
    await person.log_in("view-token-0123456789")
    bearer = {"Authorization": f"Bearer {EVERY}"}
    assert (await person.http.post("/v1/responses", json=ANSWER, headers=bearer)).status_code == 202
    wrong = {"Authorization": "Bearer wrong-token-0123456789"}
    assert (await person.http.get("/v1/report", headers=wrong)).status_code == 401


async def test_a_session_may_what_its_token_may(person):
    await person.log_in("view-token-0123456789")
    assert (await person.http.get("/v1/report")).status_code == 200
    reply = await person.http.post("/v1/responses", json=ANSWER)
    assert (reply.status_code, reply.json()["reason"]) == (403, "role")


async def test_a_session_ends_with_its_token(person, tokens_file, monkeypatch):
    monkeypatch.setattr("groundwatch.gateway.auth.LOOK_SECONDS", 0.0)
    await person.log_in("ann-token-0123456789")
    page = await person.open("/")
    assert page.status_code == 200 and "Ann" in page.text and "reviewer" in page.text
    text = tokens_file.read_text()
    tokens_file.write_text(text.replace("reviewer  Ann", "viewer  Ann"))
    os.utime(tokens_file, ns=(1, 1))
    assert "viewer" in (await person.open("/")).text
    tokens_file.write_text(text.replace("ann-token", "new-token"))
    os.utime(tokens_file, ns=(2, 2))
    assert (await person.open("/")).status_code == 303


async def test_logging_out_is_a_form_and_no_link(person):
    await person.log_in(EVERY)
    assert (await person.open("/logout")).status_code == 405
    assert (await person.open("/")).status_code == 200
    out = await person.http.post("/logout")
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert (await person.open("/")).status_code == 303
    late = await person.http.post("/logout", headers={"Accept": "text/html"})
    assert (late.status_code, late.headers["location"]) == (303, "/login?next=%2F")


async def test_a_login_is_a_form(person):
    form = {"token": EVERY, "next": "/"}
    assert (await person.http.post("/login", json=form)).status_code == 400
    assert (await person.open("/")).status_code == 303


@pytest.mark.parametrize("sent", ["{}", "x", "a.b", "..", "x" * 5_000, "eyJpZCI6IjEifQ.AAAA", '"'])
async def test_a_cookie_that_we_have_not_signed_is_none(person, sent):
    reply = await person.open("/", headers={"Cookie": f"groundwatch-session={sent}"})
    assert reply.status_code == 303


async def test_where_nobody_is_asked_there_is_no_login(gateway, person_factory):
    person = await person_factory(gateway)
    assert (await person.open("/")).status_code == 200
    assert (await person.open("/login?next=/x")).headers["location"] == "/"
    assert "Log out" not in (await person.open("/")).text


def access_of(tokens_file: Path, **login: Any) -> Access:
    return Access(GatewaySettings(tokens_file=str(tokens_file), login=LoginSettings(**login)))


def browser_at(access: Access) -> TestClient:
    """Somebody who logs in with a token at `/in`, and is told at any other address who they are."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope)
        if request.url.path == "/in":
            session = access.log_in(request.query_params["token"])
            request.session[KEPT] = {"until": session.until, "token": session.token}
        caller = access.in_session(scope["session"])
        told: Response = PlainTextResponse(caller.name if caller is not None else "nobody")
        await told(scope, receive, send)

    return TestClient(access.sessions(app))


def test_a_session_is_over_when_it_says_so(tokens_file, monkeypatch):
    browser = browser_at(access_of(tokens_file, hours=0.5))
    assert browser.get(f"/in?token={EVERY}").text == browser.get("/").text == "operator"
    now = time.time()
    monkeypatch.setattr("groundwatch.gateway.auth.time.time", lambda: now + 1_790)
    assert browser.get("/").text == "operator"
    monkeypatch.setattr("groundwatch.gateway.auth.time.time", lambda: now + 1_801)
    assert browser.get("/").text == "nobody"


def test_gateways_with_one_secret_know_each_others_sessions_and_no_others(tokens_file, monkeypatch):
    path = tokens_file.with_name("secret")
    path.write_text("s" * 32 + "\n")
    monkeypatch.setenv("SECRET", "s" * 32)
    first = browser_at(access_of(tokens_file, cookie_secret_file=str(path)))
    assert first.get(f"/in?token={EVERY}").text == "operator"
    second = browser_at(access_of(tokens_file, cookie_secret_env="SECRET"))
    second.cookies = first.cookies
    assert second.get("/").text == "operator"
    third = browser_at(access_of(tokens_file))
    third.cookies = first.cookies
    assert third.get("/").text == "nobody"


@pytest.mark.parametrize(
    ("login", "text", "word"),
    [
        ({"cookie_secret_file": "{path}"}, "short", "at least 32 characters"),
        ({"cookie_secret_file": "{path}"}, "", "is empty"),
        ({"cookie_secret_file": "/none/such"}, "", "No such file"),
        ({"cookie_secret_env": "NOT_SET"}, "", "not set or empty"),
    ],
)
def test_a_secret_that_is_none_is_told_by_its_setting(tmp_path, login, text, word):
    path = tmp_path / "secret"
    path.write_text(text)
    settings = LoginSettings(**{key: value.replace("{path}", str(path)) for key, value in login.items()})
    with pytest.raises(SettingsError, match=r"gateway\.login\.cookie_secret_") as caught:
        Access(GatewaySettings(login=settings))
    assert word in str(caught.value)


ELSEWHERE = [
    "",
    "//evil.test",
    "///evil.test",
    "/\\evil.test",
    "\\/evil.test",
    "https://evil.test/",
    "javascript:alert(1)",
    "/\t/evil.test",
    "/\n",
    "/%0d%0aSet-Cookie:x",
    "/login",
    "/login?next=/login",
    "/logout",
    "/v1/report",
    "/nothing",
    "evil.test",
    "/#x",
    "http://[",
    "/?q=\u202e",
]


async def test_nobody_is_sent_anywhere_but_to_a_page_of_ours(person):
    for address in ELSEWHERE:
        begun = await person.log_in(EVERY, address)
        assert (begun.status_code, begun.headers["location"]) == (303, "/"), address


async def test_a_page_of_ours_is_gone_to(person):
    begun = await person.log_in(EVERY, "/?model=a&category=b%20c")
    assert begun.headers["location"] == "/?model=a&category=b%20c"
