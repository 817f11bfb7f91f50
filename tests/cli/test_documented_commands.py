"""Every `groundwatch …` in a fenced block of the pages, run as it stands there against a running system."""

from __future__ import annotations

import hashlib
import json
import shlex
from itertools import product

import pytest
from tests.support.documented import commands, ours

from groundwatch.system.up import MINIATURE

ELSEWHERE = {
    "up": "the system here is one; with models: runtime/local/test_triton_server.py",
    "serve": "goes on until it is stopped: tests/faults runs each as a process",
    "watch": "goes on until it is stopped: cli/test_traffic.py",
    "replay start --run by-osprey": "works in the folder that `make demo` writes: tests/demo",
    "compare live by-osprey": "works in the folder that `make demo` writes: tests/demo",
}
"""Where commands are run that this test leaves out, by how they begin."""

WITH_USERS = "GROUNDWATCH_NATS__NKEY_SEED_FILE"
"""A server with users: runtime/security runs what is typed with this variable."""

FAILS = {
    "compare 1.0 1.1 --by version": "of version 1.0",
    "compare live new-judges": "no outcome",
    "review create since --rule alarm": "alarm",
    "admin erase --response 42 --tenant acme --verify": "say --yes",
    "admin erase --image": "nothing found",
    "replay pause": "is done",
    "replay resume": "is done",
    "replay cancel": "is done",
    "replay delete": "Delete run",
}
"""What is told of those that want a terminal, or days, versions, alarms and replays that are not here."""

OURS = "typed"
"""In names of what other tests of the same system know nothing of."""

PLACES = {
    "NAME": f"{OURS}-run",
    "KEY": "0" * 32,
    "42": f"{OURS}-0",
    "acme": f"{OURS}-acme",
    "2026-05-01": "2100-05-01",  # what is older than the oldest event may be missing
    "2026-05-08": "2100-05-08",
    "9f86d081…": hashlib.sha256(b"none").hexdigest(),
}
STRICT = {"GROUNDWATCH_JUDGES__STRICT": '{verification = {engine = "reference"}}'}
"""The judge that docs/replay.md names."""


def typed() -> list[list[str]]:
    """Each once, those in pods and containers too, in the order of the pages: but replays first, which other
    pages compare."""
    found: dict[tuple[str, ...], None] = {}
    for command in sorted(commands(), key=lambda one: one.page != "docs/replay.md"):
        words = ours(command)
        if words and WITH_USERS not in command.variables:
            found.setdefault(tuple(words))
    return [list(words) for words in found]


def left_out(words: list[str]) -> bool:
    return any(shlex.join(words).startswith(start) for start in ELSEWHERE)


def test_what_is_left_out_is_typed_somewhere() -> None:
    lines = [shlex.join(words) for words in typed()]
    assert [one for one in (*ELSEWHERE, *FAILS) if not any(line.startswith(one) for line in lines)] == []
    assert sum(not left_out(words) for words in typed()) > 50


@pytest.mark.slow
def test_each_runs(up, answer, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answers = [answer(f"{OURS}-{number}", tenant=PLACES["acme"]) for number in range(3)]
    labels = [
        {"item": item, "annotator": by, "label": item % 2 if by != "c" else 0}
        for item, by in product(range(12), "abc")
    ]
    answers.append(answer(f"{OURS}-seen"))
    opinions = [{"id": f"{OURS}-seen", "protocol": "faithscore", "claim": 0, "holds": True}]
    for name, lines in (("answers", answers), ("labels", labels), ("verdicts", opinions)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    served = f'verifier = {{ kind = "verifier", checkpoint = "{MINIATURE / "verifier"}" }}\n'
    (tmp_path / "served.toml").write_text(served)
    before = up.settled(0)["recorded"]
    assert up("submit", "answers.jsonl").returncode == 0
    up.settled(before + len(answers))
    for run in ("newer-judge", PLACES["NAME"]):
        assert up("replay", "start", "--run", run, "--tenant", PLACES["acme"]).returncode == 0
    wrong = []
    try:
        for words in typed():
            if left_out(words):
                continue
            line = shlex.join(words)
            told = next((why for start, why in FAILS.items() if line.startswith(start)), "")
            done = up(*(PLACES.get(word, word) for word in words), **STRICT)
            if (
                (done.returncode != 0) != bool(told)
                or told not in done.stdout + done.stderr
                or "Traceback" in done.stderr
            ):
                wrong.append(f"{line}: {done.returncode} {done.stderr[-300:] or done.stdout[-300:]}")
    finally:
        up("admin", "budget", "remove", "all")
        for run in ("again", "new-judge", "newer-judge", "new-judges", "elsewhere", PLACES["NAME"]):
            up("replay", "delete", run, "--yes")
    assert not wrong, "\n".join(wrong)
