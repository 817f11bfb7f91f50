"""A probe's run on disk: what was answered, appended as it comes, so that a killed run goes on where it was.

`run.jsonl` begins with what the run is; then each line is an answer, a round of a chain or an outcome, under
a key that names the question, who was asked and how. The last line under a key counts. A line that a kill
tore off in the middle is cut away and asked again. Images lie in `images` under their SHA-256.
"""

import fcntl
import hashlib
import os
import threading
from pathlib import Path
from typing import IO

import msgspec

from groundwatch.errors import UNDECODED, FileFormatError, UsageError, told_to_user
from groundwatch.events import ChainStep, Judge, ResponseRecorded, ResponseScored, Usage

FILE = "run.jsonl"
IMAGES = "images"


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """What a run is. Another one of these must not go on in the same folder."""

    suite: str
    model: str
    source: str
    strategy: str = "direct"


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """A question with its answer or the reason for none, and who was asked.

    `again`: that reason passes, so the question is asked again when the run goes on.
    """

    key: str
    response: ResponseRecorded
    judge: Judge
    usage: Usage = Usage()
    again: bool = False


class Round(msgspec.Struct, frozen=True, kw_only=True, tag="round"):
    """One round of a chain, counted from 1."""

    key: str
    number: int
    step: ChainStep
    judges: dict[str, Judge]
    usage: Usage = Usage()


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """The outcome of an answer; `key` is that of the answer with its judges' fingerprints."""

    key: str
    outcome: ResponseScored


Line = Header | ProbeAnswer | Round | Judged

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Line)


class RunFile:
    """A run that is open for going on. Closes with `close`; one process at a time."""

    def __init__(self, folder: Path, header: Header) -> None:
        """Raises `UsageError` for a folder that another run uses or is in, `FileFormatError` for damage."""
        self.folder = folder
        self.answers: dict[str, ProbeAnswer] = {}
        self.rounds: dict[str, dict[int, Round]] = {}
        self.outcomes: dict[str, ResponseScored] = {}
        path = folder / FILE
        with told_to_user(f"{folder}: cannot be written"):
            (folder / IMAGES).mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise UsageError(f"{folder}: another probe is at work there") from error
        try:
            self._read(path, header)
        except BaseException:
            self._file.close()
            raise

    def add(self, line: ProbeAnswer | Round | Judged) -> None:
        """Append it; it is on the disk when this returns."""
        self._take(line)
        self._write(line)

    def keep_image(self, data: bytes) -> str:
        """Store an image under its SHA-256, which this returns. Whole or not at all."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / IMAGES / digest
        if not path.exists():
            # Several questions share an image and keep it at the same time: each writes a file of its own.
            beside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            beside.write_bytes(data)
            beside.replace(path)
        return digest

    def image(self, digest: str) -> bytes:
        return (self.folder / IMAGES / digest).read_bytes()

    def close(self) -> None:
        self._file.close()

    def _read(self, path: Path, header: Header) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                read = _DECODER.decode(line)
            except UNDECODED as error:
                raise FileFormatError(path, f"is no line of a probe's run ({error})", line=number) from error
            if isinstance(read, Header):
                for name in Header.__struct_fields__:
                    was, wanted = getattr(read, name), getattr(header, name)
                    if was != wanted:
                        told = f"is a run with {name} '{was}', not '{wanted}': name another folder"
                        raise UsageError(f"{self.folder}: {told}", "folder")
            else:
                self._take(read)
            whole += len(line)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)
        if not whole:
            self._write(header)

    def _take(self, line: ProbeAnswer | Round | Judged) -> None:
        match line:
            case ProbeAnswer():
                self.answers[line.key] = line
            case Round():
                self.rounds.setdefault(line.key, {})[line.number] = line
            case Judged():
                self.outcomes[line.key] = line.outcome

    def _write(self, line: Line) -> None:
        with told_to_user(f"{self.folder}: cannot be written"):
            self._file.write(_ENCODER.encode(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
