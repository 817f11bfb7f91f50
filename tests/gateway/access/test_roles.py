"""Every address, method and call, tried as every role, as nobody and as another tenant.

What is tried comes from what a running gateway serves: a new route fails here until it has its line.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from starlette.responses import PlainTextResponse
from tests.support.routes import served_by

from groundwatch.errors import SettingsError
from groundwatch.gateway.auth import MAY, Tokens
from groundwatch.gateway.http.requests import Route

ADDRESSES = """
DELETE  /v1/queues/{name}/items/{key}/opinion   reviewer
GET     /                               viewer      all tenants
GET     /answers                        viewer
GET     /answers/{id:path}              viewer
GET     /alarms                         viewer      all tenants
GET     /alarms/{key}                   viewer      all tenants
GET     /compare                        viewer      all tenants
GET     /connect                        viewer
GET     /favicon.ico                    anybody
GET     /health                         viewer      all tenants
GET     /healthz                        anybody
GET     /login                          anybody
GET     /login/oidc                     anybody
GET     /login/oidc/callback            anybody
GET     /metrics                        viewer      all tenants
GET     /queues                         viewer      shared
GET     /queues/{name}                  viewer      shared
GET     /models/{name:path}             viewer      all tenants
GET     /pulse                          viewer      shared
GET     /readyz                         anybody
GET     /runs                           viewer      all tenants
GET     /runs/{name}                    viewer      all tenants
GET     /review/{name}                  reviewer    shared
GET     /static/{name}                  anybody
GET     /static/{version}/{name}        anybody
GET     /v1/agreement                   viewer      all tenants
GET     /v1/alarms                      viewer      all tenants
GET     /v1/answers                     viewer
GET     /v1/compare                     viewer
GET     /v1/connect                     viewer
GET     /v1/images/{sha256}             viewer      shared
GET     /v1/opinions                    viewer
GET     /v1/queues                      viewer
GET     /v1/queues/{name}               viewer
GET     /v1/queues/{name}/items/{key}   reviewer
GET     /v1/report                      viewer      all tenants
GET     /v1/responses/{id:path}         viewer
GET     /v1/runs                        viewer
GET     /v1/runs/{name}                 viewer
GET     /v1/scores                      viewer
GET     /wall                           viewer      all tenants
POST    /alarms/{key}/acknowledge       reviewer    all tenants
POST    /answers/{id:path}              reviewer
POST    /api/public/media               sender      shared
POST    /api/public/otel/v1/traces      sender
POST    /health/dead/{number}/retry     operator    all tenants
POST    /login                          anybody
POST    /logout                         viewer      shared
POST    /runs/{name}/{action}           operator    all tenants
POST    /queues                         operator    shared
POST    /queues/{name}/close            operator    shared
POST    /queues/{name}/open             operator    shared
POST    /v1/cloudevents                 sender
POST    /v1/images                      sender      shared
POST    /v1/litellm                     sender
POST    /v1/logs                        sender
POST    /v1/losses                      sender
POST    /v1/metrics                     sender
POST    /v1/opinions                    operator
POST    /v1/questions                   sender
POST    /v1/queues                      operator
POST    /v1/queues/{name}/close         operator
POST    /v1/queues/{name}/items/{key}/opinion   reviewer
POST    /v1/queues/{name}/items/{key}/release   reviewer
POST    /v1/queues/{name}/next          reviewer
POST    /v1/queues/{name}/open          operator
POST    /v1/responses                   sender
POST    /v1/runs                        operator
POST    /v1/runs/{name}/{action}        operator
POST    /v1/traces                      sender
PUT     /v1/queues/{name}/items/{key}/draft     reviewer
"""
"""Who may: at least this role, of one tenant or of all, or with the last words of all tenants alone."""

CALLED = """
/groundwatch.v1.MonitorService/GetReport                                viewer      all tenants
/groundwatch.v1.MonitorService/GetResponse                              viewer
/groundwatch.v1.MonitorService/Submit                                   sender
/groundwatch.v1.MonitorService/SubmitStream                             sender
/groundwatch.v1.MonitorService/WatchScores                              viewer
/grpc.health.v1.Health/Check                                            anybody
/grpc.health.v1.Health/Watch                                            anybody
/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo          anybody
/opentelemetry.proto.collector.logs.v1.LogsService/Export               sender
/opentelemetry.proto.collector.metrics.v1.MetricsService/Export         sender
/opentelemetry.proto.collector.trace.v1.TraceService/Export             sender
"""

RANKS = {
    "viewer": ("viewer", "reviewer", "operator"),
    "reviewer": ("reviewer", "operator"),
    "operator": ("operator",),
    "sender": ("sender", "operator"),
}

TOKENS = {
    (role, tenant): f"{role}-of-{'all' if tenant == '*' else tenant}-0123456789"
    for role in ("viewer", "reviewer", "operator", "sender")
    for tenant in ("acme", "*")
}

THEIRS: dict[tuple[str, str], tuple[str, Any]] = {
    ("GET", "/v1/responses/{id:path}"): ("/v1/responses/r1?tenant=other", None),
    ("GET", "/v1/answers"): ("/v1/answers?tenant=other", None),
    ("GET", "/answers"): ("/answers?tenant=other", None),
    ("GET", "/answers/{id:path}"): ("/answers/r1?tenant=other", None),
    ("POST", "/answers/{id:path}"): ("/answers/r1?tenant=other", None),
    ("GET", "/v1/scores"): ("/v1/scores?tenant=other", None),
    ("GET", "/v1/compare"): ("/v1/compare?first=live&second=x&tenant=other", None),
    ("GET", "/v1/opinions"): ("/v1/opinions?tenant=other", None),
    ("GET", "/connect"): ("/connect?tenant=other", None),
    ("GET", "/v1/connect"): ("/v1/connect?tenant=other", None),
    ("POST", "/v1/queues"): ("/v1/queues", {"name": "x", "protocol": "faithscore", "tenant": "other"}),
    ("POST", "/v1/opinions"): (
        "/v1/opinions",
        {"id": "x", "tenant": "other", "protocol": "faithscore", "claim": 0, "holds": True},
    ),
    ("POST", "/v1/responses"): (
        "/v1/responses",
        {"id": "x", "model": "m", "answer": "A dog.", "tenant": "other"},
    ),
    ("POST", "/v1/questions"): (
        "/v1/questions",
        {"id": "x", "model": "m", "prompt": "What is it?", "tenant": "other"},
    ),
}
"""Requests for what is another tenant's: of what takes many at once, each has a test with its own."""

MANY = {
    "/api/public/otel/v1/traces",
    "/v1/cloudevents",
    "/v1/litellm",
    "/v1/logs",
    "/v1/losses",
    "/v1/metrics",
    "/v1/traces",
    # Of these `tests/gateway/http/test_runs.py` asks for another's.
    "/v1/runs",
    "/v1/runs/{name}",
    "/v1/runs/{name}/{action}",
    # Of these `tests/gateway/http/test_review.py` asks for another's.
    "/v1/queues/{name}",
    "/v1/queues/{name}/close",
    "/v1/queues/{name}/next",
    "/v1/queues/{name}/open",
    "/v1/queues/{name}/items/{key}",
    "/v1/queues/{name}/items/{key}/draft",
    "/v1/queues/{name}/items/{key}/opinion",
    "/v1/queues/{name}/items/{key}/release",
}
"""What takes many calls at once, or names no tenant."""


def lines(table: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in table.strip().splitlines()]


EXPECTED = {(method, path): (role, *(more or ["own"])) for method, path, role, *more in lines(ADDRESSES)}
EXPECTED_CALLS = {call: (role, *(more or ["own"])) for call, role, *more in lines(CALLED)}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


@pytest.fixture
async def guarded(gateway_factory: Any, tmp_path: Path) -> Any:
    """A gateway with a token of each role, of one tenant and of all."""
    path = tmp_path / "tokens"
    rows = [f"{tenant} {token} {role} {role}-1" for (role, tenant), token in TOKENS.items()]
    path.write_text("\n".join(rows))
    return await gateway_factory(grpc_port=0, tokens_file=str(path))


def routes_of(gateway: Any) -> list[tuple[str, str]]:
    """The methods and addresses that a running gateway serves."""
    routes = served_by(gateway)
    return sorted(
        (method, route.path) for route in routes for method in route.methods or () if method != "HEAD"
    )


async def status_of(
    gateway: Any, method: str, path: str, token: str = "", body: Any = None
) -> tuple[int, str]:
    """The status of an answer, of which no more is read than its reason where it is refused."""
    async with gateway.http.stream(
        method, path, headers=bearer(token), json=body if body is not None else {}
    ) as reply:
        if reply.status_code not in (401, 403):
            return reply.status_code, ""
        await reply.aread()
        return reply.status_code, reply.json()["reason"]


def address(path: str) -> str:
    return re.sub(r"\{sha256\}", "0" * 64, re.sub(r"\{(?!sha256)[^}]*\}", "x", path))


async def test_every_address_is_for_those_roles_that_the_table_says(guarded):
    served = routes_of(guarded)
    assert served == sorted(EXPECTED), "say in ADDRESSES who may call what is new"
    for (method, path), (role, tenants) in EXPECTED.items():
        at = address(path)
        status = {"nobody": await status_of(guarded, method, at)}
        status |= {"unknown": await status_of(guarded, method, at, "unknown-token-0123456789")}
        for who in ("nobody", "unknown"):
            if role == "anybody":
                assert status[who][0] not in (401, 403), (method, path, who)
            else:
                assert status[who] == (401, "unauthenticated"), (method, path, who)
        for (own, tenant), token in TOKENS.items():
            told = await status_of(guarded, method, at, token)
            if role != "anybody" and own not in RANKS[role]:
                assert told == (403, "role"), (method, path, own, tenant)
            elif tenants == "all tenants" and tenant != "*":
                assert told == (403, "all_tenants"), (method, path, own, tenant)
            else:
                assert told[0] not in (401, 403, 500), (method, path, own, tenant, told)
    assert await guarded.events() == []


async def test_what_is_not_for_a_method_tells_nobody_what_there_is(guarded):
    for _, path in EXPECTED:
        closed = {role for (_, at), (role, _) in EXPECTED.items() if at == path} != {"anybody"}
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            if (method, path) in EXPECTED:
                continue
            assert (await status_of(guarded, method, address(path)))[0] == (401 if closed else 405)
            assert (await status_of(guarded, method, address(path), TOKENS["viewer", "acme"]))[0] == 405
    for path in (
        "/nothing",
        "/v1",
        "/v1/",
        "/V1/report",
        "/v1/report/",
        "/metrics/",
        "/%2e%2e/metrics",
    ):
        assert (await status_of(guarded, "GET", path))[0] == 401, path
        assert (await status_of(guarded, "GET", path, TOKENS["viewer", "*"]))[0] == 404, path


async def test_who_opens_what_is_not_theirs_is_led_to_what_is(guarded):
    headers = {**bearer(TOKENS["viewer", "acme"]), "Accept": "text/html"}
    first = await guarded.http.get("/", headers=headers)
    assert (first.status_code, first.headers["location"]) == (303, "/answers")
    for path, status in (("/alarms", 403), ("/nothing", 404), ("/alarms/x/acknowledge", 405)):
        page = await guarded.http.get(path, headers=headers)
        assert page.status_code == status and page.headers["content-type"].startswith("text/html"), path
        assert '<p><a href="/answers">Answers</a></p>' in page.text and 'href="/"' not in page.text
    unknown = await guarded.http.get("/nothing", headers={"Accept": "text/html"})
    assert (unknown.status_code, unknown.headers["location"]) == (303, "/login?next=%2Fnothing")


async def test_nothing_of_another_tenant_is_read_or_written(guarded):
    own = {key for key, (role, tenants) in EXPECTED.items() if tenants == "own" and role != "anybody"}
    own -= {("GET", "/v1/queues")}
    assert {key for key in own if key[1] not in MANY} == set(THEIRS), "say in THEIRS how to ask for another's"
    for (method, path), (at, body) in THEIRS.items():
        for (role, tenant), token in TOKENS.items():
            if tenant == "acme" and role in RANKS[EXPECTED[method, path][0]]:
                told = await status_of(guarded, method, at, token, body)
                assert told == (403, "other_tenant"), (method, path, role)
    assert await guarded.events() == []


async def code_of(channel: Any, call: str, token: str, seconds: float = 20.0) -> grpc.StatusCode:
    """How a call with one empty message ends, or begins; OK for one that waits for more after `seconds`."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    # On the wire a stream of one message is the same. As a stream, the client's library ends with "internal"
    # where the answer is there before the message has gone.
    made = channel.unary_stream(call)(b"", timeout=30, metadata=metadata)
    reading = asyncio.ensure_future(made.read())
    try:
        await asyncio.wait([reading], timeout=seconds)
        if not reading.done():
            return grpc.StatusCode.OK
        return grpc.StatusCode.OK if not made.done() else await made.code()
    finally:
        made.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_every_call_is_for_those_roles_that_the_table_says(guarded):
    pool = descriptor_pool.Default()
    services = {name.split("/")[1]: pool.FindServiceByName(name.split("/")[1]) for name in EXPECTED_CALLS}
    calls = [f"/{name}/{method.name}" for name, one in services.items() for method in one.methods]
    assert sorted(calls) == sorted(EXPECTED_CALLS)
    refusals = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.service.grpc_port}") as channel:
        for call, (role, tenants) in EXPECTED_CALLS.items():
            for token in ("", "unknown-token-0123456789"):
                code = await code_of(channel, call, token, 0.3 if role == "anybody" else 20.0)
                assert (code in refusals) == (role != "anybody"), (call, code)
                assert role == "anybody" or code is grpc.StatusCode.UNAUTHENTICATED
            for (own, tenant), token in TOKENS.items():
                allowed_here = role == "anybody" or own in RANKS[role]
                allowed_here &= tenants != "all tenants" or tenant == "*"
                code = await code_of(channel, call, token, 0.3 if allowed_here else 20.0)
                if not allowed_here:
                    assert code is grpc.StatusCode.PERMISSION_DENIED, (call, own, tenant)
                else:
                    assert code not in (*refusals, grpc.StatusCode.UNKNOWN), (call, own, tenant)
    assert await guarded.events() == []


async def test_every_route_says_what_its_callers_must_be(guarded):
    assert all(isinstance(route, Route) for route in served_by(guarded))
    with pytest.raises(TypeError, match="need"):
        Route("/new", PlainTextResponse)  # type: ignore[call-arg]


def test_each_role_may_what_a_lower_one_may():
    assert MAY["viewer"] < MAY["reviewer"] < MAY["operator"]
    assert MAY["sender"] < MAY["operator"]
    assert MAY["sender"].isdisjoint(MAY["reviewer"])


def test_a_line_of_the_tokens_says_role_and_name(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(
        "acme acme-token-0123456789\n* every-token-0123456789\n"
        "acme send-token-0123456789 sender\n* ann-token-0123456789 reviewer Ann\n"
    )
    found = {
        name: Tokens(str(path)).caller(f"{name}-token-0123456789")
        for name in ("acme", "every", "send", "ann")
    }
    told = {name: (caller.only, caller.role, caller.name) for name, caller in found.items()}
    assert told == {
        "acme": ("acme", "operator", "acme"),
        "every": (None, "operator", "operator"),
        "send": ("acme", "sender", "acme"),
        "ann": (None, "reviewer", "Ann"),
    }


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (
            "acme acme-token-0123456789 boss",
            ":1: no role 'boss': it is one of viewer, reviewer,",
        ),
        ("acme acme-token-0123456789 reviewer", "a reviewer needs a name"),
        ("acme acme-token-0123456789 viewer judge:x", "the name begins with judge:"),
        ("acme acme-token-0123456789 viewer " + "n" * 65, "the name has 65 characters"),
        ("acme acme-token-0123456789 viewer a\u202eb", "not shown"),
        ("acme acme-token-0123456789 viewer a b", "write TENANT TOKEN"),
    ],
)
def test_a_wrong_role_or_name_is_told_by_its_line(tmp_path, line, word):
    path = tmp_path / "tokens"
    path.write_text(line + "\n")
    with pytest.raises(SettingsError) as caught:
        Tokens(str(path))
    assert word in str(caught.value)
    assert "0123456789" not in str(caught.value)
