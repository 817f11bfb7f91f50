"""What the commands print when names, answers and reasons were written by somebody who means harm."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
from collections.abc import Iterator

import pytest
from tests.support.command_line import CommandLine, Up

from groundwatch.topology import HEADER_PROTOCOLS, subject_of

BITE = "[/x][bold]\x1b]0;owned\x07\x1b[2J\x9b2J\u202e\u200b\x7f\r\nALL IS WELL :boom:"
"""Markup that closes nothing, a title for the window, what clears a screen in two ways, a direction."""

FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
OURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
"""Colours and movements of the cursor, as rich makes them on a terminal; never a title or a question."""


def hostile(name: str) -> dict[str, object]:
    return {
        "id": f"{name} {BITE}",
        "model": f"m {BITE}",
        "prompt": f"Describe. {BITE}",
        "answer": f"A dog sits beside a blue ball {BITE}.",
        "tenant": f"t {BITE}",
        "tags": {"strategy": f"s {BITE}"},
        "reference": {
            "objects": ["dog", "ball"],
            "triplets": [["ball", "is", "red"], ["dog", "beside", "ball"]],
            "complete": True,
        },
    }


@pytest.fixture(scope="module")
def bitten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A system of this file's own, since the others count what is in theirs."""
    folder = tmp_path_factory.mktemp("bitten")
    system = Up(folder)
    file = folder / "hostile.jsonl"
    file.write_text("".join(json.dumps(hostile(str(number))) + "\n" for number in range(3)))
    try:
        assert system("submit", file).returncode == 0
        system.publish(
            subject_of("recorded", "live", "e" * 32),
            json.dumps({"id": BITE, "model": 7, BITE: 1}).encode(),
            {HEADER_PROTOCOLS: "faithscore"},
        )
        # Past every service: what a neighbour with rights to the streams may write into an outcome.
        odd = {
            "id": BITE,
            "model": f"odd {BITE}",
            "protocol": "faithscore",
            "run": "live",
            "outcome": "unscored",
            "reason": BITE,
            "judges": {"verification": {"engine": BITE, "model": BITE, "prompt": "", "version": "1"}},
        }
        system.settled(3)
        system.publish(subject_of("outcome", "live", "faithscore", "f" * 32), json.dumps(odd).encode())
        yield system
    finally:
        system.stop()


def checked(done_out: str, *, shows: str = "") -> None:
    found = FORBIDDEN.search(done_out)
    assert not found, ascii(done_out[max(0, found.start() - 80) : found.end() + 40])
    assert "Traceback" not in done_out
    assert not re.search(r"(?m)^ALL IS WELL", done_out)
    assert shows in done_out


COMMANDS = [
    ("report",),
    ("report", "--by", "strategy"),
    ("report", "--by", "model,category,tenant"),
    ("report", "--published", "faithscore"),
    ("report", "--run", "no [/x]"),
    ("watch", "--seconds", "3"),
    ("audit",),
    ("admin", "dead", "list"),
    ("admin", "budget", "list"),
    ("replay", "list"),
    ("query", "select * from outcomes"),
    ("query", f'select model as "{"[/x]"}", id, tenant, tags from outcomes'),
    ("query", "select [/x]"),
    ("admin", "archive", "status"),
    ("replay", "show", f"r {BITE}"),
    ("replay", "faults", f"r {BITE}"),
    ("replay", "pause", f"r {BITE}"),
    ("admin", "erase", "--tenant", f"t {BITE}", "--dry-run"),
    ("admin", "erase", "--response", BITE, "--dry-run"),
    ("compare", "live", "live"),
    ("compare", "live", f"r {BITE}"),
    ("submit", f"/tmp/no {BITE}.jsonl"),
    ("score", BITE, "nothing"),
    ("score", "faithscore", BITE, "--recorded"),
    ("admin", "config", "check", "--config", BITE),
    ("replay", "start", "--run", BITE),
    ("report", BITE),
    (BITE,),
]


AS_JSON = [(*one, "--json") for one in COMMANDS if one[0] not in ("watch", "submit", BITE)][:12]


def several(system: CommandLine, *commands: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each command."""
    done = [system(*command, COLUMNS="1000") for command in commands]
    return [(one.returncode, one.stdout, one.stderr) for one in done]


@pytest.fixture(scope="module")
def printed(bitten) -> dict[tuple[str, ...], tuple[int, str, str]]:
    """What each command printed."""
    commands = COMMANDS + AS_JSON
    return dict(zip(commands, several(bitten, *commands), strict=True))


def test_a_terminal_obeys_nothing_that_is_printed(printed):
    wrong = {}
    for command, (status, out, err) in printed.items():
        try:
            assert status in (0, 1, 2)
            checked(out)
            checked(err)
            if command in AS_JSON and out:
                json.loads(out)
        except (AssertionError, ValueError) as error:
            wrong[command] = str(error)
    assert wrong == {}


@pytest.mark.parametrize("command", [("report",), ("watch", "--seconds", "3")])
def test_it_is_shown_all_the_same(printed, command):
    shown = "m [/x][bold]\\x1b]0;owned\\x07\\x1b[2J\\x9b2J\\u202e\\u200b\\x7f\\r\\nALL IS WELL :boom:"
    assert shown in printed[command][1]


def test_budgets_runs_and_pages_of_hostile_names(bitten):
    page = bitten.folder / "compare.html"
    commands = (
        ("admin", "budget", "set", "b1", "--tenant", f"t {BITE}", "--rate", "0.5"),
        ("admin", "budget", "list"),
        ("replay", "start", "--run", "again", "--from", "verification"),
        ("replay", "show", "again"),
        ("replay", "list"),
        ("compare", "live", "again", "--out", str(page)),
    )
    for status, out, err in several(bitten, *commands):
        assert status == 0, err
        checked(out)
        checked(err)
    checked(page.read_text(), shows="[/x][bold]\\x1b]0;owned")


def test_refused_lines_and_files_are_told_safely(bitten, written):
    wrong = hostile("w") | {"answer": 7, "model": BITE}
    lines = written(wrong, {BITE: 1}, BITE, name="l [x] \x1b]0;x\x07.jsonl")
    scored = written(hostile("s"), name="s [x].jsonl")
    (refused, out, err), (status, told, _) = several(
        bitten, ("submit", str(lines)), ("score", "faithscore", str(scored))
    )
    assert (refused, status) == (1, 0)
    checked(out)
    checked(err, shows="\\x1b]0;x\\x07.jsonl:1")
    checked(told, shows="\\x1b]0;owned")


@pytest.mark.slow
def test_a_watch_on_a_terminal_goes_on(bitten):
    told = on_terminal(bitten, "watch", "--seconds", "4")
    assert "Traceback" not in told
    assert "outcomes" in told
    checked(OURS.sub("", told), shows="[/x]")


def on_terminal(system: CommandLine, *command: str) -> str:
    """What a terminal is sent, until the command ends."""
    main, side = pty.openpty()
    process = system.start(*command, stdin=side, stdout=side, stderr=side)
    os.close(side)
    told = b""
    try:
        while True:
            try:
                read = os.read(main, 65536)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                break
            if not read:
                break
            told += read
    finally:
        os.close(main)
        process.wait(60)
    assert process.returncode == 0, told.decode("utf-8", "replace")
    return told.decode()
