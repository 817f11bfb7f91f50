"""Logs for people and for machines, with texts of others in them."""

from __future__ import annotations

import json

import nats.errors

from groundwatch.runtime.telemetry.logs import configure, logger, outage

HOSTILE = "\x1b]0;owned\x07 [/x] \u202e\x9b2J\nfake line"


def test_a_terminal_obeys_nothing_in_a_log_line(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    configure(style="console")
    logger.warning("model.met", model=HOSTILE, many=[HOSTILE], **{HOSTILE: 1})
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("it.failed")
    told = capsys.readouterr().err
    for byte in ("\x07", "\x9b", "\u202e", "\x1b]"):
        assert byte not in told
    assert "\\x1b]0;owned" in told
    assert not any(line.startswith("fake line") for line in told.split("it.failed")[0].splitlines())
    assert "Traceback" in told


def test_what_is_lost_is_told_while_nats_is_away_too(capsys):
    configure(style="json")
    outage.begin()
    why = "publishing to gw.response.live.a failed: connection reconnecting"
    logger.warning("gateway.live", problem=why)
    logger.warning("gateway.gauges", error=repr(nats.errors.ConnectionReconnectingError()))
    logger.warning("gateway.proxy_lost", reason=why)
    logger.error("alarm.lost", error=why)
    told = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert told == ["gateway.proxy_lost", "alarm.lost"]


def test_a_machine_reads_what_was_said(capsys):
    configure(style="json")
    logger.warning("model.met", model=HOSTILE)
    line = capsys.readouterr().err
    assert json.loads(line)["model"] == HOSTILE
    assert line.isascii() and line.count("\n") == 1
