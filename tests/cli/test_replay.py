"""Replays as a user types them, against a running system."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def sent(up, written, answer) -> str:
    """A tenant of its own with three judged responses."""
    tenant = "replayed"
    done = up("submit", written(*(answer(f"replay-{number}", tenant=tenant) for number in range(3))))
    assert done.returncode == 0, done.stderr
    up.settled(3)
    return tenant


def test_a_life(up, sent: str, tmp_path: Path) -> None:
    plan = up.json("replay", "start", "--run", "life", "--tenant", sent, "--dry-run")
    assert plan["responses"] == plan["judged"] == 3 and plan["measured_on"] >= 3
    told = up.json("replay", "start", "--run", "life", "--tenant", sent)
    assert told["status"] == "done" and told["counts"]["outcomes"] == 3
    ledger = up.json("audit", "--run", "life")
    assert ledger["balanced"] and ledger["recorded"] == 3 and ledger["run"] == "life"
    shown = up.json("replay", "show", "life")
    # The judges are those of live traffic, and said the same.
    assert shown["changed"] == {"pairs": 3, "same_judges": 3, "changed": 0, "share": 0.0}
    assert [run["run"] for run in up.json("replay", "list")["runs"]] == ["life"]
    assert up.json("report", "--run", "life")["models"][0]["responses"] == 3

    path = tmp_path / "f.gwx"
    written = up.json("replay", "export", "--tenant", sent, "--out", path)
    assert written["events"] == 3 and written["bytes"] == path.stat().st_size
    assert up.json("replay", "start", "--run", "from-file", "--file", path)["counts"]["scored"] == 3
    assert "is there already" in up.complaint("replay", "export", "--out", path)

    assert "exists already (done)" in up.complaint("replay", "start", "--run", "life")
    assert "it is done" in up.complaint("replay", "resume", "life")
    for name in ("life", "from-file"):
        assert up("replay", "delete", name, "--yes").returncode == 0
    assert "no run 'life'; there are: none yet" in up.complaint("replay", "show", "life")


def test_judged_by_one_that_settings_name(up, sent: str) -> None:
    strict = {"GROUNDWATCH_JUDGES": '{strict = {verification = {engine = "noop"}}}'}
    done = up("replay", "start", "--run", "named", "--tenant", sent, "--judge", "strict", **strict)
    assert done.returncode == 0, done.stderr
    shown = up.json("replay", "show", "named")
    assert shown["changed"]["same_judges"] == 0
    assert (shown["spec"].get("judge"), shown["spec"].get("own")) == ("strict", None)
    assert "no judge 'mild' is named in the settings; named are: strict" in up.complaint(
        "replay", "start", "--run", "r", "--judge", "mild", **strict
    )
    assert up("replay", "delete", "named", "--yes").returncode == 0


def test_wrong_use_is_one_line(up, tmp_path: Path) -> None:
    assert "another name" in up.complaint("replay", "start", "--run", "live")
    assert "--since" in up.complaint("replay", "start", "--run", "r", "--since", "yesterday")
    start = ("replay", "start", "--run", "r", "--judge", "a")
    for judge, told in (
        ("{gateway = {port = 1}}", "none of the sections that judge"),
        ('{verification = {engine = "nobody"}}', "nobody"),
    ):
        assert told in up.complaint(*start, GROUNDWATCH_JUDGES=f"{{a = {judge}}}")
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"PAR1")
    assert "byte 0: is no export" in up.complaint("replay", "start", "--run", "r", "--file", foreign)
    assert "no run 'r'" in up.complaint("audit", "--run", "r")
