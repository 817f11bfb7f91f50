"""`groundwatch review`: queues by command, and files of opinions in and out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.annotation.conftest import Publish, outcome, publish
from tests.support.command_line import CommandLine

__all__ = ["publish"]


@pytest.fixture
def command(nats_server, tmp_path: Path):
    typed = CommandLine(tmp_path, apart=True)

    async def run(*words: object):
        # The commands have an event loop of their own.
        return await asyncio.to_thread(typed, *words, "--nats", nats_server.url)

    return run


@pytest.mark.slow
async def test_a_queue_and_its_opinions(command, publish: Publish, tmp_path: Path) -> None:
    await publish([outcome("r0"), outcome("r1")])
    made = await command(
        *("review", "create", "first", "--protocol", "faithscore", "--rule", "uncertain", "--share", "0.1"),
        *("--assign", "ann", "--assign", "bob", "--since", "1h", "--json"),
    )
    assert made.returncode == 0, made.stderr
    spec = json.loads(made.stdout)
    assert (spec["name"], spec["rule"], spec["assigned"]) == ("first", "uncertain", ["ann", "bob"])
    again = await command("review", "create", "first", "--protocol", "faithscore")
    assert again.returncode == 2 and "there is a queue 'first' already" in again.stderr
    file = tmp_path / "verdicts.jsonl"
    lines = [
        {"id": name, "tenant": "default", "protocol": "faithscore", "claim": 0, "holds": True}
        for name in ("r0", "r1")
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    taken = await command("review", "import", file, "--reviewer", "ann", "--json")
    assert json.loads(taken.stdout) == {"opinions": 2, "new": 2}
    out = tmp_path / "out.jsonl"
    assert (await command("review", "export", "--format", "verdicts", "--out", out)).returncode == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == lines
    exported = await command("review", "export", "--format", "faithscore")
    told = "opinions that have no line: 2 about answers that are kept no longer"
    assert (exported.returncode, exported.stdout, exported.stderr.strip()) == (0, "", told)
    listed = await command("review", "list", "--json")
    assert json.loads(listed.stdout)["queues"][0]["queue"]["name"] == "first"
    assert (await command("review", "close", "first")).returncode == 0
    shown = json.loads((await command("review", "show", "first", "--json")).stdout)
    assert shown["queue"]["closed"] and shown["progress"]["items"] == 0
    assert (await command("review", "delete", "first", "--yes")).returncode == 0
    gone = await command("review", "show", "first")
    assert gone.returncode == 2 and len(gone.stderr.splitlines()) == 1
    file.write_text(json.dumps(lines[0] | {"id": "none"}))
    wrong = await command("review", "import", file)
    assert wrong.returncode == 2 and "line 1: response 'none'" in wrong.stderr
