"""audit and the dead letters against a running system."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from groundwatch.events import ResponseRecorded
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.topology import HEADER_PROTOCOLS, subject_of

GARBAGE_KEY = "00000000000000000000000000000001"


def letters(up, count: int) -> list[dict]:
    """The dead letters once there are `count` of them."""
    deadline = time.monotonic() + 60
    while True:
        told = up.json("admin", "dead", "list")
        if told["count"] == count:
            return told["dead_letters"]
        assert time.monotonic() < deadline, told
        time.sleep(0.2)


@pytest.fixture(scope="module")
def garbage(up) -> dict:
    """A dead letter: an event that no service can decode."""
    up.publish(
        subject_of("recorded", "live", GARBAGE_KEY),
        b'{"id": "x", "model": 7}',
        {HEADER_PROTOCOLS: "faithscore"},
    )
    return letters(up, 1)[0]


def test_audit_balances(up, written, answer):
    up.json("submit", written(answer("1"), answer("2", reference=None)))
    ledger = up.settled(2)
    assert ledger["balanced"] is True
    assert {"recorded", "scored", "unscored", "declined", "in_flight", "balanced"} <= ledger.keys()
    assert ledger["recorded"] == ledger["scored"] + ledger["unscored"] + ledger["declined"]
    shown = up("audit")
    assert shown.returncode == 0
    assert shown.stderr == ""
    assert shown.stdout.rstrip().endswith("balanced")


def test_audit_of_a_run_that_nobody_knows(up):
    done = up("audit", "--run", "replay-1")
    assert done.returncode == 2
    assert done.stderr.strip() == "groundwatch: no run 'replay-1'; there are: none yet"


def test_garbage_is_listed_with_the_decoders_message(up, garbage):
    assert garbage["stage"] == "extraction"
    assert garbage["reason"].startswith("undecodable: ")
    assert "Expected `str`, got `int` - at `$.model`" in garbage["reason"]
    assert garbage["subject"] == subject_of("recorded", "live", GARBAGE_KEY)
    assert garbage["payload"] == '{"id": "x", "model": 7}'
    shown = up("admin", "dead", "list")
    assert shown.returncode == 0
    assert "undecodable: Expected `str`" in shown.stdout
    assert "1 in all" in shown.stdout


def test_garbage_has_its_outcome_and_stops_nothing(up, garbage, written, answer):
    up.json("submit", written(answer("after")))
    ledger = up.settled(2)
    assert ledger["balanced"] is True
    assert ledger["dead_letters"] == 1
    assert ledger["reasons"]["unscored: undecodable"] == 1


def test_a_retry_of_what_is_still_wrong_comes_back(up, garbage):
    before = letters(up, 1)[0]
    again = up("admin", "dead", "retry", before["sequence"])
    assert again.returncode == 0, again.stderr
    assert again.stdout == "sent 1 again\n"
    deadline = time.monotonic() + 60
    while (letter := letters(up, 1)[0])["sequence"] == before["sequence"]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert letter["retries"] == before["retries"] + 1
    assert letter["reason"] == garbage["reason"]
    assert up.json("audit")["balanced"] is True


def test_retry_all(up, garbage):
    before = letters(up, 1)[0]
    assert up.json("admin", "dead", "retry", "--all") == {"sent": 1, "unknown": []}
    deadline = time.monotonic() + 60
    while letters(up, 1)[0]["retries"] == before["retries"]:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_retry_of_a_number_that_is_not_there(up):
    done = up("admin", "dead", "retry", 999_999)
    assert done.returncode == 2
    assert "no dead letter has number 999999" in done.stderr
    assert up.json("admin", "dead", "retry", 999_999, status=2) == {"sent": 0, "unknown": [999_999]}


def test_retry_must_say_which(up):
    assert "--all" in up.complaint("admin", "dead", "retry")


def test_list_no_more_than_asked_for(up, garbage):
    told = up.json("admin", "dead", "list", "--limit", 0)
    assert told["count"] == 1
    assert told["dead_letters"] == []


def test_an_event_without_a_gateways_headers_is_foreign(up):
    event = ResponseRecorded(id="s", model="m", answer="", protocols=())
    up.publish(subject_of("recorded", "live", event.key), msgspec.json.encode(event))
    ledger = up.json("audit")
    assert ledger["foreign"] == 1
    assert ledger["balanced"] is True


@pytest.mark.parametrize("command", ["audit", "report", "admin dead list"])
def test_a_server_without_our_streams(nobody, tmp_path, command):
    async def ask() -> str:
        server = NatsServer(tmp_path / "bare")
        await server.start()
        try:
            return await asyncio.to_thread(nobody.complaint, *command.split(), "--nats", server.url)
        finally:
            await server.stop()

    assert "run groundwatch admin provision first" in asyncio.run(ask())
