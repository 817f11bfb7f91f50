"""A refusal is one exception, with its status over HTTP and over gRPC."""

from __future__ import annotations

from typing import get_args

import grpc
import pytest

from groundwatch.errors import (
    ConnectionLost,
    DecodeError,
    HeldByOthers,
    TransientError,
    Unavailable,
    UnknownName,
    UsageError,
)
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
