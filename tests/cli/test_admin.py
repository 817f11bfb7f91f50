"""`groundwatch admin budget` as it is typed, against a running system."""

from __future__ import annotations

import time

import pytest


def test_a_budget_is_set_used_shown_and_removed(up, written, answer):
    assert "settings alone decide" in up("admin", "budget", "list").stdout
    done = up("admin", "budget", "set", "small", "--tenant", "thrifty", "--responses-per-minute", 5)
    assert (done.returncode, done.stdout) == (0, "budget small set\n"), done.stderr
    time.sleep(1)
    recorded = up.json("audit")["recorded"]
    lines = [answer(f"thrifty-{number}", tenant="thrifty") for number in range(40)]
    up.json("submit", written(*lines))
    ledger = up.settled(recorded + 40)
    assert ledger["balanced"]
    # Five of each minute's; the forty may have come in two of them.
    assert 30 <= ledger["reasons"]["declined: over_budget"] <= 39
    shown = up.json("admin", "budget", "list")["budgets"]
    assert [(one["name"], one["tenant"], one["responses_per_minute"]) for one in shown] == [
        ("small", "thrifty", 5)
    ]
    assert "thrifty" in up("admin", "budget", "list").stdout
    told = next(one for one in up.json("report")["models"] if "over_budget" in one["declined"])
    assert told["without_chance"] <= told["declined"]["over_budget"]
    assert up.json("admin", "budget", "remove", "small") == {"name": "small", "removed": True}
    assert up.json("admin", "budget", "list") == {"budgets": []}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "x"], "budget 'x' limits nothing"),
        (["set", "a.b", "--rate", "0.5"], "a name is of letters"),
        (["set", "x", "--rate", "2"], "rate 2.0: must be from 0 to 1 (--rate)"),
        (["set", "x", "--protocol", "gossip", "--rate", "0.5"], "no protocol 'gossip'; known are"),
        (["set", "x", "--responses-per-minute", "many"], "--responses-per-minute"),
        (["remove", "nobody"], "no budget 'nobody'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(up, arguments, message):
    assert message in up.complaint("admin", "budget", *arguments)


def test_without_a_server_the_command_says_so(nobody):
    assert "no NATS server answers" in nobody.complaint(
        "admin", "budget", "list", "--nats", "nats://127.0.0.1:1"
    )
