"""What a process lost, told to the gateway; what cannot be told waits in a file for the next start."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections import Counter
from pathlib import Path

import msgspec

from groundwatch.client.buffer import Buffer
from groundwatch.client.lines import Line
from groundwatch.client.replies import Reply
from groundwatch.client.sending import Connection

LOSSES_SECONDS = 5.0
"""Between two reports of what was lost."""

JSON = "application/json"
MOST_UNCONFIRMED = 500
"""Responses that a report names; what is beyond them counts as lost."""

MOST_FILES = 1_000
MAX_FILE = 1024 * 1024
_GONE = frozenset((400, 404, 405, 413, 422))
"""A gateway of before has no such path, or does not read the report: nobody can be told."""


class Unconfirmed(msgspec.Struct, frozen=True, kw_only=True):
    """A response that was given up without an answer: the gateway knows whether it is recorded."""

    id: str
    tenant: str
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one process has lost in all: under its number the same report counts once."""

    sender: str
    process: str
    sequence: int
    lost: dict[str, int]
    unconfirmed: tuple[Unconfirmed, ...] = ()


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's reply: how many of those unconfirmed are recorded, by the reason for giving them up."""

    recorded: dict[str, int] | None = None


def folder() -> Path:
    """Where reports wait: the user's folder for what programs remember."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "groundwatch" / "losses"


def waiting(address: str, token: str) -> list[Path]:
    """The reports that earlier processes could not make to this gateway."""
    try:
        return sorted(folder().glob(f"{_scope(address, token)}-*.json"))
    except (OSError, RuntimeError):
        return []


def _scope(address: str, token: str) -> str:
    return hashlib.sha256(f"{address.rstrip('/')}\n{token}".encode()).hexdigest()[:16]


class Losses:
    """Of one process. Those unconfirmed count as lost until the gateway says that they are recorded."""

    def __init__(self, buffer: Buffer, connection: Connection, sender: str, token: str) -> None:
        self._buffer = buffer
        self._connection = connection
        self._sender = sender
        self._process = secrets.token_hex(8)
        self._scope = _scope(connection.address, token)
        self._earlier = waiting(connection.address, token)
        self._sequence = 0
        self._unconfirmed: list[Unconfirmed] = []
        self._reported: dict[str, int] = {}
        self._report_at = 0.0

    def lose(self, line: Line, reason: str) -> None:
        self._buffer.lose(reason)
        if line.unconfirmed and len(self._unconfirmed) < MOST_UNCONFIRMED:
            self._unconfirmed.append(Unconfirmed(id=line.id, tenant=line.tenant, reason=reason))

    @property
    def settled(self) -> bool:
        """Whether the gateway knows of everything that was lost."""
        return not self._unconfirmed and self._reported == self._buffer.lost()

    @property
    def unconfirmed(self) -> int:
        return len(self._unconfirmed)

    def hurry(self) -> None:
        self._report_at = 0.0

    def report(self, seconds: float) -> None:
        """Report what is new, and what earlier processes could not; `seconds` bound each wait."""
        if (self.settled and not self._earlier) or time.monotonic() < self._report_at:
            return
        self._report_at = time.monotonic() + LOSSES_SECONDS
        if not self.settled:
            lost, named = Counter(self._buffer.lost()), len(self._unconfirmed)
            reply = self._post(self._next(), seconds)
            if reply is None:
                return
            recorded = _recorded(reply)
            del self._unconfirmed[:named]
            if named and recorded is None:
                # It looks none up: they are reported once more, as lost.
                self.hurry()
                return
            for reason, number in (recorded or {}).items():
                self._buffer.lose(reason, -number)
            lost.subtract(recorded or {})
            self._reported = dict(+lost)
        while self._earlier:
            with contextlib.suppress(OSError):
                if self._post(self._earlier[-1].read_bytes()[:MAX_FILE], seconds) is None:
                    return
                self._earlier[-1].unlink(missing_ok=True)
            self._earlier.pop()

    def keep(self) -> str:
        """Write what is not reported where the next start finds it; where, or why that cannot be."""
        try:
            where = folder()
            where.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in where.iterdir()) >= MOST_FILES:
                return f"{where} holds {MOST_FILES} reports already"
            path = where / f"{self._scope}-{self._process}.json"
            # Another process must not read half of it.
            half = path.with_suffix(".part")
            half.write_bytes(self._next())
            half.replace(path)
        except (OSError, RuntimeError) as error:
            return f"no file can be written: {error}"
        return f"the next start will report them from {path}"

    def _next(self) -> bytes:
        self._sequence += 1
        lost = Counter(self._buffer.lost())
        lost.subtract(one.reason for one in self._unconfirmed)
        report = Report(
            sender=self._sender,
            process=self._process,
            sequence=self._sequence,
            lost=dict(+lost),
            unconfirmed=tuple(self._unconfirmed),
        )
        return msgspec.json.encode(report)

    def _post(self, report: bytes, seconds: float) -> Reply | None:
        """The reply of a gateway that is done with the report."""
        try:
            reply = self._connection.post("/v1/losses", report, JSON, seconds)
        except Exception:
            self._connection.close()
            return None
        return reply if reply.status < 300 or reply.status in _GONE else None


def _recorded(reply: Reply) -> dict[str, int] | None:
    try:
        return msgspec.json.decode(reply.body, type=_Counted).recorded
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
