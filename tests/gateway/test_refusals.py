"""A refusal is one exception, with its status over HTTP and over gRPC."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any, get_args

import grpc
import msgspec
import pytest

from groundwatch.conversations.conversation import ImageUrl
from groundwatch.errors import (
    ConnectionLost,
    DecodeError,
    HeldByOthers,
    TransientError,
    Unavailable,
    UnknownName,
    UsageError,
)
from groundwatch.events import ResponseRecorded
from groundwatch.gateway.auth import EVERYBODY
from groundwatch.gateway.intake.submissions import Submission
from groundwatch.gateway.intake.window import Bulk
from groundwatch.gateway.refusals import STATUS, OtherReason, Reason, Refused, refusal_of


def test_every_reason_has_a_status_of_both_protocols():
    assert STATUS.keys() == {*get_args(Reason), *get_args(OtherReason)}
    for status in STATUS.values():
        assert grpc.StatusCode[status.grpc] and 400 <= status.http < 600


@pytest.mark.parametrize(
    ("error", "reason", "field"),
    [
        (UnknownName("no queue"), "not_found", ""),
        (HeldByOthers("by Ann"), "held", ""),
        (TransientError("later"), "unavailable", ""),
        (Unavailable("later"), "unavailable", ""),
        (UsageError("wrong", "queue"), "invalid", "queue"),
        (DecodeError("no JSON"), "invalid", ""),
    ],
)
def test_an_error_that_somebody_can_mend_is_told_as_it_is(error, reason, field, capsys):
    refused = refusal_of(error)
    assert (refused.reason, refused.message, refused.field) == (reason, str(error), field)
    assert refused.passing == isinstance(error, TransientError)
    assert "gateway.bug" not in capsys.readouterr().out


@pytest.mark.parametrize("error", [ConnectionLost("closed"), KeyError("secret")])
def test_an_error_of_ours_is_logged_and_tells_nobody_what_it_says(error, capsys):
    refused = refusal_of(error)
    assert (refused.reason, refused.status.http) == ("internal", 500)
    assert str(error) not in refused.message
    assert "gateway.bug" in capsys.readouterr().out


def test_a_refusal_of_one_response_may_be_changed_and_stays_what_it_is():
    refused = Refused("rate_limited", "too many", after=2.2, field="a")
    changed = refused.but(id="r1", field="b")
    assert (changed.reason, changed.message, changed.id, changed.field) == (
        "rate_limited",
        "too many",
        "r1",
        "b",
    )
    assert (changed.retry_after, changed.passing, refused.id) == (3, True, "")
    assert refusal_of(refused) is refused


@pytest.mark.parametrize("why", ["backlog", "image", "left out", "address", "conflict", "full", "bulk"])
async def test_what_was_refused_is_held_by_nobody(why, gateway_factory, pictures, monkeypatch):
    """The collector of cycles comes too late for a flood of large ones: no exception may lead to itself."""
    core = (await gateway_factory()).service.core
    response = ResponseRecorded(id="r1", model="heron-7b", answer="A dog.")
    image = pictures.encoded("PNG")
    images: list[Any] = [bytes(bytearray(image))]
    match why:
        case "backlog":
            monkeypatch.setattr(core.backlog, "_limit", -1)
        case "image" | "left out":
            images = [b"no image at all" * 100]
        case "address":
            images.append(ImageUrl("http://127.0.0.1:1/a.png"))
        case "conflict":
            await core.record(lambda: Submission(response=response, images=(image,), sender="a"))
            response = msgspec.structs.replace(response, answer="A cat.")
        case "full" | "bulk":
            monkeypatch.setattr(core.bus.storage, "pausing", lambda subject: "is full")
    left_out = () if why == "left out" else None
    sent = Submission(response=response, images=tuple(images), sender="a", left_out=left_out)

    def read() -> Submission:
        return sent

    def holders() -> list[int]:
        return [sys.getrefcount(one) for one in (read, sent, images[0])]

    gc.collect()
    gc.disable()
    try:
        before = holders()
        if why == "bulk":
            bulk = Bulk(core, EVERYBODY, lambda held: None)
            bulk._timeout = 0.0
            await bulk.put(1, 10, read)
            await bulk.drain()
            assert bulk.summary.refused == 1
        else:
            try:
                await core.record(read)
                assert why == "left out"
            except Refused:
                assert why != "left out"
        await asyncio.sleep(0.01)
        assert holders() == before
    finally:
        gc.enable()
