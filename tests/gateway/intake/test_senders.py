"""Who has sent of late: what is kept of it is bounded, and goes with time."""

from __future__ import annotations

import time

import pytest

from groundwatch.conversations.conversation import Origin
from groundwatch.gateway.intake import senders as room
from groundwatch.gateway.intake.senders import LONGEST, MOST, OTHERS, STRETCH, Senders

SHOP = Origin(source="otlp", service="shop", library="openinference.instrumentation.openai", version="0.1.66")


@pytest.fixture
def clock(monkeypatch):
    """Moves the time on."""
    now = [time.monotonic()]
    monkeypatch.setattr(room.time, "monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def test_what_came_of_a_sender_is_counted():
    senders = Senders()
    senders.of(SHOP, "acme").record(2, ())
    senders.of(SHOP, "acme").record(0, ("openinference_redacted",))
    senders.of(SHOP, "acme").miss("ignored", 3, "GET / with http.method")
    senders.of(SHOP, "acme").miss("refused", 1, "messages with the keys speaker")
    senders.of(SHOP, "acme").miss("batch_refused", 1, "the body has more than 10 bytes")
    (one,) = senders.rows("acme")
    assert (one.service, one.library, one.version) == (SHOP.service, SHOP.library, SHOP.version)
    assert (one.calls, one.images, one.missing["openinference_redacted"]) == (2, 2, 1)
    told = {problem.kind: problem for problem in one.problems}
    assert "OPENINFERENCE_BASE64_IMAGE_MAX_LENGTH" in told["openinference_redacted"].setting
    assert "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16" in told["batch_refused"].setting
    assert "speaker" in told["refused"].what and "http.method" in told["ignored"].what
    assert [told[kind].number for kind in ("ignored", "refused", "batch_refused")] == [3, 1, 1]
    assert senders.rows("other") == [] and len(senders.rows()) == 1


def test_what_was_long_ago_is_forgotten(clock):
    senders = Senders()
    senders.of(SHOP, "").record(1, ("file_id",))
    clock(STRETCH)
    senders.of(SHOP, "").record(2, ("file_id",))
    (one,) = senders.rows()
    assert (one.calls, one.images, one.missing) == (2, 3, {"file_id": 2})
    clock(STRETCH)
    (one,) = senders.rows()
    assert (one.calls, one.missing) == (1, {"file_id": 1})
    clock(3 * STRETCH)
    assert senders.rows() == []


def test_no_sender_has_more_kept_than_is_bounded():
    senders = Senders()
    for number in range(3 * MOST):
        senders.of(Origin(source="otlp", service=f"s{number}"), "").miss("refused", 1, "x" * 10_000)
    rows = senders.rows()
    assert len(rows) == MOST + 1
    assert all(len(one.examples["refused"]) == LONGEST for one in rows)
    others = next(one for one in rows if one.source == OTHERS)
    assert others.missing == {"refused": 2 * MOST}
