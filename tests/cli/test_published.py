"""`report --published` and `score --published` as they are typed."""

from __future__ import annotations

import json


def test_report_puts_models_beside_the_published_ones(up, written, answer):
    up.json("submit", written(answer("beside-1", model="sandpiper"), answer("beside-2", model="sandpiper")))
    up.settled(2)
    found = up.json("report", "--published", "faithscore")
    assert found["protocol"] == "faithscore"
    assert [table["table"] for table in found["tables"]] == ["4", "5", "10"]
    rows = found["tables"][2]["groups"][0]["rows"]
    (mine,) = [row for row in rows if row["model"] == "sandpiper"]
    assert mine["published"] is False
    cell = mine["cells"]["overall"]
    assert cell["low"] <= cell["value"] <= cell["high"]
    assert cell["n"] == 2
    assert {"GPT-4V", "Gemini"} <= {row["model"] for row in rows if row["published"]}
    told = up("report", "--published", "faithscore", COLUMNS="80")
    assert told.returncode == 0, told.stderr
    assert "▶sandpiper" in told.stdout
    assert "Not the same measurement." in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80


def test_report_beside_what_is_not_there(up, nobody):
    told = nobody.complaint("report", "--published", "faithscor")
    assert told.startswith("no published table of 'faithscor'; there are tables of faithscore, ")
    told = up.complaint("report", "--published", "tri-he")
    assert told.startswith("no scored outcome of protocol 'tri-he'")


def test_score_beside(nobody, written, answer):
    file = written(answer("s-1"), answer("s-2", answer="A dog sits beside a red ball."))
    done = nobody("score", "faithscore", file, "--published", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found["tables"][0]["groups"][0]["rows"]
    assert [row["cells"]["overall"]["n"] for row in rows if not row["published"]] == [2]
    told = nobody.complaint("score", "valor", file, "--published", "--subset", "object-existence")
    assert "valor-object-existence" in told
