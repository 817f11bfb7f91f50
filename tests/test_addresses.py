"""Addresses without their secrets, in messages, logs, readiness and the records of runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from groundwatch.addresses import concealed, shown_address, without_secrets
from groundwatch.runtime.telemetry.logs import configure, logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.server import telemetry_routes

SECRET = "pl4nt3d"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://host:4222", "nats://host:4222"),
        ("nats://a:b@h:1,nats://c@k:2,tls://h", "nats://…@h:1,nats://…@k:2,tls://h"),
        ("user:pw@h:1,u:p@h:2", "…@h:2"),
        ("nats://u:p/a?b#c,d@e@h:1", "nats://…@h:1"),
        ("https://h/v1?api-key=x&version=2", "https://h/v1?api-key=…&version=2"),
        ("s3://bucket/path", "s3://bucket/path"),
        ("", ""),
    ],
)
def test_what_is_shown_of_an_address(url, shown):
    assert shown_address(url) == shown


@given(st.text(), st.text(), st.sampled_from(["nats://", "https://", ""]))
def test_nothing_before_the_last_at_is_shown(before, after, scheme):
    shown = shown_address(f"{scheme}{before}{SECRET}{after}@host:4222")
    assert SECRET not in shown
    assert shown.endswith("…@host:4222")


@given(st.text("abc:/?#,@[]%", max_size=12))
def test_a_sentence_that_quotes_an_address(password):
    assert SECRET not in concealed(f"cannot reach nats://u:{password}{SECRET}@host:1 (refused)")


def test_sentences_stay():
    for text in ("mail a@b.org", "see https://h/x.", "a = b", "monkey=1", "12 facts @ 3"):
        assert concealed(text) == text


def test_settings_of_a_library_are_shown_by_name():
    options = {"key": SECRET, "endpoint_url": f"http://u:{SECRET}@s3/", "region": "eu", "anon": False}
    shown = without_secrets({"archive": {"options": options}})["archive"]["options"]
    assert shown == {"key": "…", "endpoint_url": "http://…@s3/", "region": "eu", "anon": False}


@pytest.mark.parametrize("style", ["json", "console"])
def test_logs(capsys, style):
    configure(style=style)
    try:
        raise ValueError(f"nats://u:{SECRET}@h:1 is gone")
    except ValueError:
        logger.exception("x", url=f"nats://u:{SECRET}@h:1", many=[{"url": f"https://{SECRET}@h"}])
    told = capsys.readouterr().err
    assert SECRET not in told and "…@h:1" in told.encode().decode(
        "unicode_escape" if style == "json" else "utf-8"
    )


def test_readiness():
    routes = telemetry_routes(Metrics(), lambda: [f"no server at nats://u:{SECRET}@h:1"])
    told = TestClient(Starlette(routes=routes)).get("/readyz")
    assert told.json()["problems"] == ["no server at nats://…@h:1"]
