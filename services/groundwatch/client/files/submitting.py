"""Sending a file of recorded responses to a gateway, with its images, patiently."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.addresses import shown_address
from groundwatch.client import transport
from groundwatch.client.files.reading import AnswerFile, Record, Told, content_id
from groundwatch.client.files.sources import decoded
from groundwatch.client.lines import Line
from groundwatch.client.transport import BUSY_SECONDS, TOKEN_VARIABLE, Connection, Refused, Sender
from groundwatch.errors import UNDECODED, InputError, UsageError
from groundwatch.image_files import ImageFolders
from groundwatch.records import Record as _Record
from groundwatch.records import Refusal, misspelt

MAX_IMAGE_BYTES = 10 * 1024 * 1024
AWAY_SECONDS = 60.0
"""How long to keep trying while no gateway answers."""

FULL_SECONDS = 3_600.0
"""The same while one answers that it is full: its stages go on judging meanwhile."""

_BUSY = frozenset((200, 408, 429, 503))
"""Replies of a gateway that is there and takes something later."""

_REFUSED = frozenset((400, 404, 409, 410, 413, 415, 422))
"""Replies of which the image is the reason."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"data:|[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_NUMBERED_ALIKE = (
    ": where two models number their answers alike, send each under a --tenant of its own, or with ids that "
    "name the model (--column THEIRS=id)"
)
_ENCODER = msgspec.json.Encoder()


def ask_gateway(gateway: str, path: str) -> Any:
    """What a gateway says at this address, decoded. Raises `UsageError`."""
    import httpx

    shown = shown_address(gateway)
    connection = _connection(gateway)
    try:
        reply = connection.get(path, BUSY_SECONDS)
        if reply.status == 200:
            return msgspec.json.decode(reply.body)
    except (httpx.HTTPError, OSError, *UNDECODED) as error:
        raise UsageError(f"the gateway at {shown} does not answer: {error!r}") from error
    finally:
        connection.close()
    raise UsageError(f"the gateway at {shown}: {reply.error}")


def _connection(gateway: str) -> Connection:
    try:
        return Connection(gateway, os.environ.get(TOKEN_VARIABLE, "").strip())
    except ValueError as error:
        raise UsageError(str(error).replace(gateway, shown_address(gateway))) from error


class Sent(msgspec.Struct, kw_only=True):
    """`errors` are in the order of the file."""

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    errors: list[Refused] = []

    def told(self) -> list[str]:
        """Each sentence once, with the record that it is first said of, and how many others."""
        alike: dict[tuple[str, str], list[Refused]] = {}
        for error in self.errors:
            named = error.error.replace(error.id, "") if error.id else error.error
            alike.setdefault((error.field, _NUMBER.sub("0", named)), []).append(error)
        return [_sentence(errors) for errors in alike.values()]


def _sentence(errors: list[Refused]) -> str:
    first, *others = errors
    where = f"{first.line}" + (f" (id {first.id})" if first.id else "")
    told = f"{where}: {first.field + ': ' if first.field else ''}{first.error}"
    if not others:
        return told
    lines = ", ".join(str(one.line) for one in others[:5]) + (", …" if len(others) > 5 else "")
    return f"{told}; and the same of {len(others):,} more: {lines}"


class Submission:
    """Sends one file in batches. Lines go as they are; what is wrong with one, the gateway says."""

    def __init__(
        self,
        gateway: str,
        file: AnswerFile | Path,
        *,
        images: Sequence[Path] = (),
        max_image_bytes: int = MAX_IMAGE_BYTES,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`tell` gets what the user waits for. Raises `UsageError` for what is no address of a gateway."""
        self._file = file if isinstance(file, AnswerFile) else AnswerFile(file)
        self._images = ImageFolders([self._file.path.parent, *images], max_bytes=max_image_bytes)
        self._max_image_bytes = max_image_bytes
        self._shown = shown_address(gateway)
        self._tell = tell
        self._connection = _connection(gateway)
        self._sender = Sender(self._connection, self._ended)
        self.total = self._file.count()
        self.result = Sent(errors=[])
        self._uploaded: dict[Path, str] = {}
        self._stored: set[str] = set()
        self._met = False
        self._taken_at = time.monotonic()
        self._why = ""

    def close(self) -> None:
        self._connection.close()

    @property
    def told(self) -> Told:
        """What was not in the file, once it was sent."""
        return self._file.told

    def send(self) -> Iterator[int]:
        """How many records are done, again and again. Raises `UsageError` when the rest cannot be sent."""
        done = 0
        for number, record in self._file:
            ready = self._prepared(number, record)
            done += 1
            if isinstance(ready, Refused):
                self._refuse(ready)
                continue
            self._sender.lines.append(Line(id=str(number), head=ready))
            if self._sender.full:
                self._drain()
                yield done
        self._drain()
        # Those that the gateway refused came later than those that were not sent.
        self.result.errors.sort(key=lambda error: error.line)
        yield done

    def _prepared(self, number: int, record: Record) -> bytes | Refused:
        """The line of a record, once the images that it names by file or holds are uploaded."""
        if isinstance(record, Refusal):
            return Refused(line=number, id=record.id, field=record.field, error=record.message)
        line = b""
        if isinstance(record, bytes):
            line = record
            if not (record := decoded(line)):
                return line
        given = record.get("images")
        if not record.get("id", "") and not misspelt(record, _Record):
            record["id"] = content_id(number, line or _ENCODER.encode(record))
        elif line and not given:
            return line
        name = str(record.get("id", ""))[:256]
        images: list[Any] = given if isinstance(given, list) else []
        for index, image in enumerate(images):
            try:
                if isinstance(image, bytes):
                    images[index] = self._upload(image, f"the image of {len(image)} bytes")
                elif _names_file(image):
                    images[index] = self._upload_file(image)
            except InputError as error:
                return Refused(line=number, id=name, field=f"images[{index}]", error=str(error))
        return _ENCODER.encode(record)

    def _upload_file(self, name: str) -> str:
        """Raises `InputError` when it cannot be read or the gateway does not take it."""
        path = self._images.find(name)
        if path not in self._uploaded:
            try:
                data = self._images.read(name)
            except FileNotFoundError as error:
                raise InputError(f"{name[:300]} cannot be read ({error.strerror})") from error
            self._uploaded[path] = self._upload(data, name)
        return self._uploaded[path]

    def _upload(self, data: bytes, name: str) -> str:
        if len(data) > self._max_image_bytes:
            raise InputError(f"{name} is larger than {self._max_image_bytes} bytes")
        digest = hashlib.sha256(data).hexdigest()
        while digest not in self._stored:
            try:
                reply = self._connection.post(
                    "/v1/images", data, "application/octet-stream", transport.ANSWER_SECONDS
                )
            except Exception as error:
                self._connection.close()
                self._wait(0, repr(error), transport.FIRST_PAUSE)
                continue
            if reply.status < 300:
                self._stored.add(digest)
                self._took()
            elif reply.status in _REFUSED:
                raise InputError(f"{name}: {reply.error}")
            else:
                pause = BUSY_SECONDS if reply.retry_after is None else reply.retry_after
                self._wait(reply.status, reply.error, pause)
        return digest

    def _drain(self) -> None:
        """Send until every line has ended."""
        while self._sender.lines:
            waiting = len(self._sender.lines)
            verdict = self._sender.send(transport.ANSWER_SECONDS)
            self.result.accepted += verdict.accepted
            self.result.duplicates += verdict.duplicates
            if len(self._sender.lines) < waiting:
                self._took()
            if verdict.fault:
                self._wait(verdict.status, verdict.fault, self._sender.wait)

    def _ended(self, line: Line, refused: Refused | None) -> None:
        if refused is not None:
            told = refused.error + (_NUMBERED_ALIKE if refused.reason == "conflict" else "")
            self._refuse(msgspec.structs.replace(refused, line=int(line.id), error=told))

    def _refuse(self, error: Refused) -> None:
        self.result.refused += 1
        self.result.errors.append(error)

    def _took(self) -> None:
        self._met, self._taken_at, self._why = True, time.monotonic(), ""

    def _wait(self, status: int, why: str, seconds: float) -> None:
        """Pause after a fault. Raises `UsageError` where waiting does not help, or has not."""
        if not status and not self._met:
            raise UsageError(f"no gateway answers at {self._shown} ({why})")
        if status == 401:
            raise UsageError(
                f"the gateway at {self._shown} does not let this command in: {why}; "
                f"set {TOKEN_VARIABLE} to a token of its gateway.tokens_file"
            )
        if 0 < status < 500 and status not in _BUSY:
            raise UsageError(f"{self._shown} answered {status}: {why}")
        self._met = self._met or status in _BUSY
        waited = time.monotonic() - self._taken_at
        if waited > (FULL_SECONDS if status in _BUSY else AWAY_SECONDS):
            raise UsageError(
                f"the gateway at {self._shown} has taken nothing for {waited:.0f} s: {why[:300]}. Run the "
                "same command again: what is recorded counts once"
            )
        if why != self._why:
            self._why = why
            self._tell(f"waiting, nothing is lost: {why[:300]}")
        time.sleep(seconds)


def _names_file(image: object) -> bool:
    return isinstance(image, str) and not _DIGEST.match(image) and not _URL.match(image)
