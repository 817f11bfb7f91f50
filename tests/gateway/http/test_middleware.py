"""Who may call over HTTP; what goes wrong inside a request, and what of it is ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from structlog.testing import capture_logs

from groundwatch.client.files.submitting import Submission
from groundwatch.errors import UsageError
from groundwatch.gateway.http.requests import Guard

TOKENS = """
acme   acme-token-0123456789
other  other-token-0123456789
*      every-token-0123456789
"""

FOR_ALL = ("/", "/metrics", "/v1/report", "/v1/alarms")
OPEN = ("/healthz", "/readyz")


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-token-0123456789"}


@pytest.fixture
async def guarded(gateway_factory: Any, tmp_path: Path) -> Any:
    """A gateway that wants tokens."""
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    return await gateway_factory(tokens_file=str(path))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong-token-0123456789"},
        {"Authorization": "acme-token-0123456789"},
        {"Authorization": "Basic !"},
        {"Authorization": "Basic d3Jvbmc6d3Jvbmc="},
    ],
)
async def test_without_a_known_token_nothing_is_told(guarded, said):
    for path in (*FOR_ALL, "/v1/responses/r1", "/v1/scores", "/v1/images/" + "0" * 64, "/nothing"):
        reply = await guarded.http.get(path, headers=said)
        assert reply.status_code == 401, path
        told = reply.json()
        assert told["reason"] == "unauthenticated"
        assert "0123456789" not in reply.text
        assert reply.headers["www-authenticate"].startswith("Basic ")
        assert "Bearer " in reply.headers["www-authenticate"]
    for path in ("/v1/responses", "/v1/questions", "/v1/images"):
        reply = await guarded.http.post(path, content=b"{}", headers=said)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == 'Bearer realm="groundwatch"'
    for path in OPEN:
        assert (await guarded.http.get(path, headers=said)).status_code == 200


async def test_what_shows_all_tenants_wants_a_token_for_all(guarded):
    for path in FOR_ALL:
        reply = await guarded.http.get(path, headers=bearer("acme"))
        assert (reply.status_code, reply.json()["reason"]) == (403, "all_tenants")
        assert "acme" in reply.json()["error"]
        assert "www-authenticate" not in reply.headers
        assert (await guarded.http.get(path, headers=bearer("every"))).status_code == 200


async def test_a_browser_reads_with_the_token_for_a_password_and_writes_nothing(guarded):
    good, bad = ("anybody", "every-token-0123456789"), ("anybody", "every")
    assert "<html" in (await guarded.http.get("/", auth=good)).text
    assert (await guarded.http.get("/v1/report", auth=good)).json()["models"] == []
    assert (await guarded.http.get("/v1/report", auth=bad)).status_code == 401
    assert (await guarded.http.get("/v1/report", auth=("me", "acme-token-0123456789"))).status_code == 403
    reply = await guarded.http.post("/v1/responses", json={"model": "m", "answer": "A dog."}, auth=good)
    assert reply.status_code == 401
    assert await guarded.events() == []


async def test_images_are_for_whoever_has_a_token(guarded, pictures):
    picture = pictures.encoded("PNG")
    stored = await guarded.http.post(
        "/v1/images", content=picture, headers=bearer("acme") | {"Content-Type": "image/png"}
    )
    assert stored.status_code == 200
    path = f"/v1/images/{stored.json()['sha256']}"
    assert (await guarded.http.get(path, headers=bearer("acme"))).content == picture
    assert (await guarded.http.get(path)).status_code == 401


async def test_questions_are_the_callers_own(guarded):
    body = {"id": "q", "model": "m", "prompt": "What is there?", "tenant": "other"}
    reply = await guarded.http.post("/v1/questions", json=body, headers=bearer("acme"))
    assert (reply.status_code, reply.json()["reason"]) == (403, "other_tenant")
    assert (reply.json()["field"], reply.json()["id"]) == ("tenant", "q")
    reply = await guarded.http.post("/v1/questions", json=body | {"tenant": ""}, headers=bearer("acme"))
    assert reply.status_code == 202


async def test_who_sends_much_without_a_token_is_told_so(guarded):
    line = json.dumps({"model": "m", "answer": "A dog. " * 100}).encode() + b"\n"
    reply = await guarded.post(line * 20_000, bulk=True)
    assert (reply.status_code, reply.json()["reason"]) == (401, "unauthenticated")
    assert await guarded.events() == []


@pytest.fixture
def lines(tmp_path: Path, response: Any) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(response()) + "\n" for _ in range(3)))
    return path


async def sent(gateway: Any, path: Path) -> Any:
    submission = Submission(f"http://127.0.0.1:{gateway.service.port}", path)
    await asyncio.to_thread(lambda: list(submission.send()))
    submission.close()
    return submission.result


async def test_submit_takes_its_token_from_the_environment(guarded, lines, monkeypatch):
    monkeypatch.setenv("GROUNDWATCH_TOKEN", "acme-token-0123456789\n")
    assert (await sent(guarded, lines)).accepted == 3
    assert {event.tenant for event in await guarded.events()} == {"acme"}


@pytest.mark.parametrize(
    ("token", "word"),
    [("", "send a token"), ("wrong-token-0123456789", "not known here"), ("a\nb", "letters, digits")],
)
async def test_submit_says_what_is_wrong_with_its_token(guarded, lines, monkeypatch, token, word):
    monkeypatch.setenv("GROUNDWATCH_TOKEN", token)
    with pytest.raises(UsageError, match=word) as caught:
        await sent(guarded, lines)
    assert "GROUNDWATCH_TOKEN" in str(caught.value)
    assert "0123456789" not in str(caught.value)


async def test_a_token_that_is_not_wanted_does_no_harm(gateway, lines, monkeypatch):
    monkeypatch.setenv("GROUNDWATCH_TOKEN", "acme-token-0123456789")
    assert (await sent(gateway, lines)).accepted == 3


SCOPE = {"type": "http", "method": "GET", "path": "/metrics", "headers": [], "query_string": b""}
CUT = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"
"""What uvloop's transport raises for a connection that was reset while the answer was made."""


@pytest.mark.parametrize(("raised", "ours"), [(CUT, False), ("unexpected ASGI message", True)])
async def test_a_connection_that_was_cut_is_no_error_of_ours(raised, ours):
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 1:
            raise RuntimeError(raised)

    with capture_logs() as logs:
        await Guard(PlainTextResponse("all of it"))(SCOPE, receive, send)
    assert [entry["event"] for entry in logs] == (["gateway.request"] if ours else [])
