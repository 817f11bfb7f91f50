"""audit again and again, and people's verdicts, against a running system."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
import structlog

from groundwatch.ledger.ledger import AuditMetrics, Ledger, audit_once


def ledger(**changes: object) -> Ledger:
    zero = dict.fromkeys(
        ("responses", "recorded", "scored", "unscored", "declined", "in_flight", "lost", "orphans"), 0
    )
    more = {"run": "live", "expired": 0, "foreign": 0, "dead_letters": 0, "reasons": {}, "in_flight_at": {}}
    return Ledger(**(zero | more | {"balanced": True} | changes))


@pytest.mark.parametrize(
    ("found", "number"),
    (
        (ledger(recorded=5, scored=3, in_flight=2), 0),
        (ledger(recorded=5, scored=3, lost=2, balanced=False), 2),
        (ledger(recorded=5, scored=5, orphans=3, balanced=False), 3),
        (ledger(recorded=5, scored=5, questions_lost=1, balanced=False), 1),
        (ledger(recorded=5, scored=3, in_flight=2, unsettled=2, balanced=False), 0),
    ),
)
def test_how_far_it_is_out_of_balance(found: Ledger, number: int) -> None:
    assert found.unaccounted == number
    metrics = AuditMetrics()
    metrics.show(found, 0.5)
    assert metrics.registry.get_sample_value("groundwatch_audit_unaccounted", {"run": "live"}) == number


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_audit_periodically_tells_prometheus(up, written, answer) -> None:
    up.json("submit", written(answer("audited")))
    up.settled(1)
    port = free_port()
    auditor = up.start(
        "audit",
        "--every",
        "1s",
        "--metrics-port",
        port,
        "--json",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert auditor.stdout is not None
        first = json.loads(auditor.stdout.readline())
        second = json.loads(auditor.stdout.readline())
        assert first["balanced"] is second["balanced"] is True
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert 'groundwatch_audit_unaccounted{run="live"} 0.0' in text
        assert 'groundwatch_audit_period_seconds{run="live"} 1.0' in text
        assert f'groundwatch_audit_pairs{{run="live",state="recorded"}} {float(second["recorded"])}' in text
        (ended,) = [
            line for line in text.splitlines() if line.startswith("groundwatch_audit_end_time_seconds{")
        ]
        assert abs(time.time() - float(ended.split()[-1])) < 3600
    finally:
        auditor.send_signal(signal.SIGTERM)
        assert auditor.wait(30) == 0


async def test_a_bug_in_a_repeated_audit_is_told_and_counted() -> None:
    metrics = AuditMetrics()

    def broken() -> NoReturn:
        raise KeyError("of a later version")

    with structlog.testing.capture_logs() as logs:
        assert await audit_once(broken, "live", metrics) is None
    assert metrics.failed.labels("live")._value.get() == 1
    (line,) = logs
    assert line["event"] == "audit.failed" and isinstance(line["exc_info"], KeyError)


@pytest.mark.slow
def test_mistakes_with_audit(up) -> None:
    assert "--metrics-port goes with --every" in up.complaint("audit", "--metrics-port", 9000)
    assert "must be a time such as" in up.complaint("audit", "--every", "often")


def test_verdicts_of_people_beside_the_judge(up, written, answer, tmp_path: Path) -> None:
    up.json("submit", written(answer("verdicts-seen")))
    up.settled(1)
    found = httpx.get(f"{up.gateway}/v1/responses/verdicts-seen").json()
    claims = found["outcomes"]["faithscore"]["claims"]
    assert claims
    lines = [
        {
            "id": "verdicts-seen",
            "protocol": "faithscore",
            "claim": claim["text"],
            "holds": claim["decision"] == "supported",
        }
        for claim in claims
    ]
    file = tmp_path / "verdicts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    metrics = tmp_path / "people.prom"
    told = up.json("validate", "verdicts", file, "--metrics-file", metrics)
    decided = sum(claim["decision"] != "undecided" for claim in claims)
    assert told["faithscore"]["verdicts"] == len(claims)
    if decided:
        assert told["faithscore"]["agreement"]["value"] == 1.0
    text = metrics.read_text()
    assert 'groundwatch_people_verdicts{judge="supported",people="refuted",protocol="faithscore"} 0.0' in text
    assert "groundwatch_people_compared_time_seconds" in text
    shown = up("validate", "verdicts", file)
    assert shown.returncode == 0
    assert "Agreement of judges with people" in shown.stdout

    file.write_text(json.dumps(lines[0] | {"id": "nobody"}))
    assert "verdicts.jsonl" in up.complaint("validate", "verdicts", file)
    file.write_text(json.dumps(lines[0] | {"claim": 99}))
    assert "has no claim 99" in up.complaint("validate", "verdicts", file)
    assert "Missing argument" in up.complaint("validate", "verdicts")
