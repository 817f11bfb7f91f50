"""`query`, `admin archive status` and the report over the history, as a user types them."""

from __future__ import annotations

import json
import time

import pytest

from groundwatch.cli.query import _show
from groundwatch.terminal import Console


@pytest.fixture(scope="module")
def filled(up, tmp_path_factory):
    lines = [
        {
            "id": f"history-{number}",
            "model": f"history-{number % 2}",
            "tenant": "history",
            "answer": "A dog sits beside a blue ball.",
            "tags": {"version": "7"},
            "reference": {
                "objects": ["dog", "ball"],
                "triplets": [["ball", "is", "red"], ["dog", "beside", "ball"]],
                "complete": True,
            },
        }
        for number in range(10)
    ]
    path = tmp_path_factory.mktemp("history") / "responses.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    up("submit", path)
    up.settled(10)
    return up


def test_sql_over_archive_and_stream(filled):
    sql = (
        "SELECT model, version, count(*) AS answers FROM outcomes WHERE tenant = 'history' "
        "GROUP BY ALL ORDER BY model"
    )
    assert filled.json("query", sql) == {
        "columns": ["model", "version", "answers"],
        "rows": [["history-0", "7", 5], ["history-1", "7", 5]],
    }
    assert "history-0" in filled("query", sql).stdout


def test_rows_go_into_a_file(filled, tmp_path):
    out = tmp_path / "claims.jsonl"
    sql = "SELECT * FROM claims WHERE tenant = 'history'"
    told = filled.json("query", sql, "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert told["rows"] == len(rows) > 0
    assert {row["verdict"] for row in rows} == {"supported", "refuted"}
    assert list(tmp_path.iterdir()) == [out]


def test_the_report_by_model_and_category(filled):
    def rows(*arguments):
        # Others use this system too, and what they sent may still be on its way from one report to the next.
        found = filled.json("report", *arguments, "--by", "model,category,tenant")["rows"]
        return [row for row in found if row["by"]["tenant"] == "history"]

    colors = [row for row in rows("--since", "1h") if row["by"]["category"] == "color"]
    assert [row["by"]["model"] for row in colors] == ["history-0", "history-1"]
    for row in colors:
        rate = row["hallucination_rate"]
        assert (rate["value"], rate["n"]) == (1.0, 5)
        assert 0 < rate["low"] < 1
    assert rows("--stream-only") == rows() != []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("query", "selct"), "SQL: Parser Error: syntax error"),
        (("query", "SELECT * FROM read_csv('/etc/passwd')"), "disabled by configuration"),
        (("query", "DROP VIEW outcomes"), "one SELECT is wanted"),
        (("report", "--since", "yesterday"), "--since yesterday: write a time"),
        (("report", "--since", "1h", "--until", "2h"), "--until 2h is not after --since 1h"),
        (("report", "--archive-only", "--stream-only"), "do not go together"),
    ],
)
def test_wrong_use_is_one_line(filled, arguments, told):
    assert told in filled.complaint(*arguments)


def test_without_a_system(nobody):
    assert "NATS" in nobody.complaint("query", "SELECT 1", "--nats", "nats://127.0.0.1:1")
    off = {"GROUNDWATCH_ARCHIVE__URL": "off"}
    assert "archive.url" in nobody.complaint("admin", "archive", "status", **off)
    assert "archive.url" in nobody.complaint("query", "SELECT 1", "--archive-only", **off)
    assert nobody.json("query", "SELECT count(*) AS n FROM outcomes", "--archive-only")["rows"] == [[0]]


def test_a_value_of_millions_is_cut_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.process_time()
    _show(["long", "none"], [["x" * 10_000_000, None]], Console())
    # Laid out whole it takes a minute.
    assert time.process_time() - begun < 10
    assert "(10,000,000 characters: use --json or --out)" in " ".join(capsys.readouterr().out.split())
