"""`POST /v1/losses`: what senders lost, counted once however often it is said."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from groundwatch.runtime.stores.losses import REASONS, losses_by_sender


def report(**changes: Any) -> dict[str, Any]:
    return {"sender": "shop", "process": "p1", "sequence": 1, "lost": {"full": 5}} | changes


async def said(gateway: Any, body: object, **headers: str) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    reply = await gateway.http.post("/v1/losses", content=content, headers=headers)
    told = reply.json()
    if told.get("recorded") == {}:
        del told["recorded"]
    return reply.status_code, told


async def test_the_newest_of_each_process_counts(gateway: Any) -> None:
    assert await said(gateway, report()) == (200, {"counted": 5})
    assert await said(gateway, report()) == (200, {"counted": 0})
    assert await said(gateway, report(sequence=3, lost={"full": 7, "exit": 1})) == (200, {"counted": 3})
    assert await said(gateway, report(sequence=2, lost={"full": 6})) == (200, {"counted": 0})
    assert await said(gateway, report(process="p2", lost={"invented": 1})) == (200, {"counted": 1})
    assert await said(gateway, report(sender="another")) == (200, {"counted": 5})
    assert await losses_by_sender(gateway.bus.js) == {
        "another": {"full": 5},
        "shop": {"exit": 1, "full": 7, "invented": 1},
    }
    counts = {
        reason: gateway.count("groundwatch_lost_before_intake_total", reason=reason)
        for reason in (*REASONS, "invented", "other")
    }
    assert {reason: number for reason, number in counts.items() if number} == {
        "full": 12,
        "exit": 1,
        "other": 1,
    }


async def test_those_unconfirmed_count_if_they_are_not_recorded(gateway: Any, response: Any) -> None:
    there = response()
    assert (await gateway.post(there)).status_code == 202
    unconfirmed = [{"id": name, "reason": "exit"} for name in (there["id"], "a", "b")]
    told = await said(gateway, report(unconfirmed=unconfirmed))
    assert told == (200, {"counted": 7, "recorded": {"exit": 1}})
    assert await losses_by_sender(gateway.bus.js) == {"shop": {"exit": 2, "full": 5}}
    assert (await said(gateway, report(unconfirmed=[{"id": ""}])))[0] == 422


async def test_the_same_report_at_the_same_moment_counts_once(gateway: Any) -> None:
    replies = await asyncio.gather(*(said(gateway, report()) for _ in range(8)))
    assert sum(body.get("counted", 0) for status, body in replies) == 5


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"a":' * 3_000,
        report(sender=""),
        report(sender="x" * 129),
        report(sender="a\nb"),
        report(process="a.b"),
        report(process="*"),
        report(sequence=-1),
        report(sequence=1.5),
        report(lost={"full": -1}),
        report(lost={"full": 2**60}),
        report(lost={"a b": 1}),
        report(lost={f"reason_{number}": 1 for number in range(33)}),
        report(lost=[]),
    ],
    ids=range(16),
)
async def test_what_is_no_report_is_refused(gateway: Any, body: object) -> None:
    status, told = await said(gateway, body)
    assert status == 422 and told["reason"] == "invalid" and told["error"]
    assert await losses_by_sender(gateway.bus.js) == {}


async def test_a_body_beyond_the_limit_is_refused(gateway: Any) -> None:
    assert (await said(gateway, b" " * 300_000))[0] == 413


async def test_tenants_cannot_count_for_each_other(gateway_factory: Any, tmp_path: Any) -> None:
    """The same names of two tenants are two senders."""
    tokens = tmp_path / "tokens"
    tokens.write_text("acme acme-token-of-16-chars\nother other-token-16-chars\n")
    gateway = await gateway_factory(tokens_file=str(tokens))
    assert (await said(gateway, report()))[0] == 401
    for token in ("acme-token-of-16-chars", "other-token-16-chars"):
        assert await said(gateway, report(), authorization=f"Bearer {token}") == (200, {"counted": 5})
    assert await losses_by_sender(gateway.bus.js) == {"shop": {"full": 10}}


async def test_senders_without_end_are_told_of_together(gateway: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("groundwatch.runtime.stores.losses.MOST_SENDERS", 3)
    for at in range(6):
        assert (await said(gateway, report(sender=f"s{at}")))[0] == 200
    told = await losses_by_sender(gateway.bus.js)
    assert len(told) == 4
    assert told["all other senders"] == {"full": 15}
