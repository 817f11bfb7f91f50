"""The command line given hostile files and names: one line, status 2, and nothing that moves a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.campaign.hostile import texts
from tests.faults.campaign.hostile.findings import Findings
from tests.faults.harness import COMMAND

COMMAND_SECONDS = 90.0
WATCH_SECONDS = 8.0
ALLOWED = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K|\r\n|\r|\n|\t")
"""What a terminal is told on purpose: colours, the cursor, line ends."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SECRET = "root:x:0:0"


class Commands:
    """Runs commands at a terminal of their own, each on a file made by the seed."""

    def __init__(
        self, folder: Path, environment: dict[str, str], gateway: str, findings: Findings, seed: int
    ):
        self._folder = folder / "files"
        self._folder.mkdir()
        self._environment = os.environ | environment | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        self._environment.pop("NO_COLOR", None)
        self._gateway = gateway
        self._findings = findings
        self._random = random.Random(f"commands {seed}")
        self._number = 0

    async def ask(self) -> None:
        """One command that must say what is wrong with its file, or do its work."""
        chance = self._random
        self._number += 1
        path = self._folder / f"f{self._number}{chance.choice(('.jsonl', '.json', '.toml', '.gwexport', ''))}"
        ways = (self._submit, self._score, self._tally, self._replay, self._config, self._query, self._names)
        way = chance.choices(ways, (5, 4, 3, 3, 3, 2, 2))[0]
        await self.run(way.__name__.strip("_"), *way(path))

    async def show(self) -> None:
        """What prints names that others chose."""
        for arguments in (
            ("report",),
            ("audit",),
            ("admin", "dead", "list"),
            ("replay", "list"),
            ("admin", "budget", "list"),
            ("query", "select id, model, tenant, reason from outcomes limit 500"),
        ):
            await self.run(f"show {arguments[0]}", *arguments)
        await self.run("show watch", "watch", seconds=WATCH_SECONDS)

    async def run(self, what: str, *arguments: str, seconds: float = COMMAND_SECONDS) -> None:
        """Run one to its end; `seconds` for those that never end by themselves."""
        self._findings.count(f"command: {what}")
        began = time.monotonic()
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, env=self._environment, stdin=asyncio.subprocess.DEVNULL, stdout=theirs,
            stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        reading = asyncio.create_task(asyncio.to_thread(_read, ours))
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            if seconds == COMMAND_SECONDS:
                self._findings.add("unanswered", f"{what}: {self._shown(arguments)}")
            process.send_signal(signal.SIGTERM if seconds != COMMAND_SECONDS else signal.SIGKILL)
            await process.wait()
        finally:
            said = (await reading).decode("utf-8", "replace")
            os.close(ours)
        self._findings.took(f"command: {what}", time.monotonic() - began)
        status = process.returncode
        self._findings.status(f"exit {status}")
        given = f"{self._shown(arguments)}: {said[-500:]!r}"
        if "Traceback (most recent" in said or "Traceback (most" in said:
            self._findings.add("tracebacks", given)
        elif status not in (0, 1, 2) and seconds == COMMAND_SECONDS:
            self._findings.add("command line", f"status {status}: {given}")
        elif status == 2 and len(re.findall(r"groundwatch: ", said)) != 1 and "Usage:" not in said:
            self._findings.add("command line", f"no single line: {given}")
        if found := CONTROL.search(ALLOWED.sub("", said)):
            at = ALLOWED.sub("", said)[max(0, found.start() - 60) : found.start() + 60]
            self._findings.add("control bytes", f"{self._shown(arguments)}: {at!r}")
        if SECRET in said:
            self._findings.add("not as promised", f"shows a file of somebody else: {given}")

    def _shown(self, arguments: Sequence[str]) -> str:
        shown = " ".join(arguments)[:300]
        path = next((Path(each) for each in arguments if each.startswith(str(self._folder))), None)
        if path is None or not path.is_file():
            return repr(shown)
        return f"{shown!r} on {path.read_bytes()[:300]!r} ({path.stat().st_size} bytes)"

    def _submit(self, path: Path) -> tuple[str, ...]:
        chance = self._random
        path.write_bytes(texts.lines(chance, 900_000 + self._number))
        if chance.random() < 0.3:
            names = (
                "/etc/passwd",
                "/dev/zero",
                "../../../../etc/passwd",
                "/proc/self/mem",
                "fifo",
                ".",
                "\x00",
            )
            line = {"id": f"f{self._number}", "model": "m", "answer": "x", "images": [chance.choice(names)]}
            fifo = self._folder / "fifo"
            if not fifo.exists():
                os.mkfifo(fifo)
            path.write_text(json.dumps(line) + "\n")
        return ("submit", str(path), "--to", self._gateway)

    def _score(self, path: Path) -> tuple[str, ...]:
        chance = self._random
        path.write_bytes(texts.lines(chance, 800_000 + self._number))
        protocol = chance.choice(("faithscore", "pope", "valor", "tri-he", "genception", texts.NAMES[4]))
        return ("score", protocol, str(path))

    def _tally(self, path: Path) -> tuple[str, ...]:
        chance = self._random
        made = json.dumps(texts.tree(chance)).encode()
        path.write_bytes(chance.choice((made, texts.lines(chance, 1), texts.spoiled(chance, made))))
        return (
            "score",
            chance.choice(("faithscore", "pope", "valor", "tri-he", "genception")),
            str(path),
            "--recorded",
        )

    def _replay(self, path: Path) -> tuple[str, ...]:
        chance = self._random
        magic = b"GWEXPORT\x01"
        section = b"EVTS" + chance.randbytes(16) + chance.randbytes(32) + chance.randbytes(200)
        huge = b"EVTS" + (2**62).to_bytes(8, "big") * 2 + bytes(32)
        path.write_bytes(
            chance.choice((magic, magic + section, magic + huge, b"", texts.lines(chance, 5), magic * 50))
        )
        return ("replay", "start", "--run", f"file-{self._number}", "--file", str(path), "--dry-run")

    def _config(self, path: Path) -> tuple[str, ...]:
        chance = self._random
        odd = (
            "x = [" * 3_000,
            'nats.url = "nats://user:s3cret@[::1"',
            "gateway.port = nan",
            "gateway.port = 99999999999999999999",
            f'data_dir = "{"x" * 5_000}"',
            'gateway.host = "a\\u0000b"',
            f'"{chr(27)}]0;owned" = 1',
            "retention.responses = inf",
            "[gateway]\nport = 1\n[gateway]\nport = 2",
            "captioning.models = 5",
            'archive.options = {a = "\\u001b[2J"}',
            "gateway.sampling = [{rate = -1}]",
            'extraction.engine = "\\u001b]0;x\\u0007"',
            "\x00",
            "[[[[",
            f"{'a.' * 3_000}b = 1",
            '"[/x]" = 2',
        )
        path.write_bytes(texts.spoiled(chance, chance.choice(odd).encode()))
        return ("admin", "config", "check", str(path))

    def _query(self, _: Path) -> tuple[str, ...]:
        odd = (
            "select",
            "select * from nothing",
            "drop table outcomes",
            "select * from read_text('/etc/passwd')",
            "copy outcomes to '/tmp/groundwatch-hostile'",
            "attach '/tmp/x.db'",
            "install httpfs",
            "pragma database_list",
            "select 1; select 2",
            "select chr(27) || ']0;owned' || chr(7)",
            "select '\x1b[2J'",
            "(" * 3_000,
            "select " + "1+" * 3_000 + "1",
            "select repeat('x', 10000000)",
            "",
            "select * from range(100000000000)" if self._random.random() < 0.0 else "select 1/0",
        )
        return ("query", self._random.choice(odd).replace("\x00", ""))

    def _names(self, _: Path) -> tuple[str, ...]:
        chance = self._random
        name = texts.name(chance).replace("\x00", "").encode("utf-8", "replace").decode() or "x"
        return chance.choice(
            (
                ("replay", "show", "--", name),
                ("audit", "--run", name),
                ("compare", "--", "live", name),
                ("admin", "erase", "--response", name, "--tenant", name, "--yes", "--dry-run"),
                ("admin", "dead", "retry", "--", name),
                ("report", "--run", name),
                ("submit", "--", name),
                ("replay", "start", "--run", "x", "--dry-run", "--since", name),
                ("admin", "config", "check", "--", name),
            )
        )


def _read(terminal: int) -> bytes:
    said = b""
    while len(said) < 20_000_000:
        try:
            more = os.read(terminal, 65_536)
        except OSError:
            # What a terminal says when nobody writes to it any more.
            break
        if not more:
            break
        said += more
    return said
