"""Sending a file of recorded responses to a gateway, with its images, patiently; and which format it has.

Lines, a JSON array and CSV are read; others are told how to convert. What other programs write says nothing
of a model or calls its fields otherwise; guessed, the figures would be of something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import hashlib
import os
import re
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import msgspec

from groundwatch.addresses import shown_address
from groundwatch.errors import UNDECODED, FileFormatError, InputError, UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.image_files import ImageFolders

BATCH = 250

MAX_IMAGE_BYTES = 10 * 1024 * 1024
TOKEN_VARIABLE = "GROUNDWATCH_TOKEN"
PATIENCE = 60.0
"""Seconds to keep trying while the gateway says that it is full."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_ENCODER = msgspec.json.Encoder()


class LineError(msgspec.Struct, kw_only=True):
    line: int
    id: str = ""
    field: str = ""
    error: str = ""


class Sent(msgspec.Struct, kw_only=True):
    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    errors: list[LineError] = []


class Sender:
    """Sends one file in batches. Lines go as they are; what is wrong with one, the gateway says."""

    def __init__(
        self,
        gateway: str,
        path: Path,
        *,
        model: str = "",
        tenant: str = "",
        images: Sequence[Path] = (),
        max_image_bytes: int = MAX_IMAGE_BYTES,
        published: Sequence[ResponseRecorded] | None = None,
    ) -> None:
        """`published` are the file's answers where it is in a format that gateways do not take."""
        self._path = path
        self._images = ImageFolders([path.parent, *images], max_bytes=max_image_bytes)
        self._model = model
        self._shown = shown_address(gateway)
        self._tenant = tenant
        self._published = published
        self.total = sum(1 for _ in self._lines())
        self.result = Sent(errors=[])
        try:
            self._http = httpx.AsyncClient(
                base_url=gateway, timeout=httpx.Timeout(120.0, connect=5.0), headers=_who_asks()
            )
        except httpx.InvalidURL as error:
            raise UsageError(f"{shown_address(gateway)} is not an address") from error
        self._uploaded: dict[Path, str] = {}
        self._met = False

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(self) -> AsyncIterator[int]:
        batch: list[tuple[int, bytes]] = []
        done = 0
        for number, line in self._lines():
            ready = await self._prepared(number, line)
            done += 1
            if isinstance(ready, LineError):
                self.result.refused += 1
                self.result.errors.append(ready)
            else:
                batch.append((number, ready))
            if len(batch) == BATCH:
                await self._post(batch)
                batch = []
                yield done
        if batch:
            await self._post(batch)
        yield done

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its number."""
        if self._published is not None:
            for number, response in enumerate(self._published, start=1):
                if self._model:
                    response = msgspec.structs.replace(
                        response, id=f"{self._model}-{response.id}", model=self._model
                    )
                if self._tenant:
                    response = msgspec.structs.replace(response, tenant=self._tenant)
                yield number, _ENCODER.encode(response)
            return
        lines = converted(self._path)
        if lines is not None:
            yield from lines
            return
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if stripped := line.strip():
                    yield number, stripped

    async def _prepared(self, number: int, line: bytes) -> bytes | LineError:
        """Give a line what the command line knows of it, and upload images that it names by file."""
        if not (self._model or self._tenant or b'"image_id"' in line or b'"images"' in line):
            return line
        try:
            record = msgspec.json.decode(line)
        except UNDECODED:
            return line
        if not isinstance(record, dict):
            return line
        if {"image_id", "text"} <= record.keys() and "answer" not in record:
            # Captions as POPE publishes them become responses.
            model = self._model or self._path.stem
            record = {
                "id": f"{model}-{record['image_id']}-{number}",
                "model": model,
                "prompt": record.get("prompt", ""),
                "answer": record["text"],
                "tags": {"image": str(record["image_id"])},
            }
        for name, value in (("model", self._model), ("tenant", self._tenant)):
            if value:
                record.setdefault(name, value)
        given = record.get("images")
        images: list[Any] = given if isinstance(given, list) else []
        for index, image in enumerate(images):
            try:
                if _names_file(image):
                    images[index] = await self._upload(image)
            except InputError as error:
                name = str(record.get("id", ""))
                return LineError(line=number, id=name, field=f"images[{index}]", error=str(error))
        return _ENCODER.encode(record)

    async def _upload(self, name: str) -> str:
        """Raises `InputError` when it cannot be read or the gateway does not take it."""
        path = self._images.find(name)
        if path in self._uploaded:
            return self._uploaded[path]
        try:
            data = await asyncio.to_thread(self._images.read, name)
        except FileNotFoundError as error:
            raise InputError(f"{name[:300]} cannot be read ({error.strerror})") from error
        reply = await self._request("/v1/images", data, "application/octet-stream")
        if reply.status_code >= 400:
            raise InputError(f"{name}: {_told(reply)}")
        digest = hashlib.sha256(data).hexdigest()
        self._uploaded[path] = digest
        return digest

    async def _post(self, batch: list[tuple[int, bytes]]) -> None:
        body = b"\n".join(line for _, line in batch) + b"\n"
        reply = await self._request("/v1/responses", body, "application/x-ndjson")
        if reply.status_code != 200:
            raise UsageError(f"{self._shown} answered {reply.status_code}: {reply.text[:300]}")
        told: dict[str, Any] = reply.json()
        self.result.accepted += told["accepted"]
        self.result.duplicates += told["duplicates"]
        self.result.refused += told["refused"]
        for problem in msgspec.convert(told["errors"], list[LineError]):
            problem.line = batch[problem.line - 1][0]
            self.result.errors.append(problem)

    async def _request(self, path: str, body: bytes, media_type: str) -> httpx.Response:
        """Post, waiting while the gateway is full or restarting. Sending twice is safe: ids are."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                reply = await self._http.post(path, content=body, headers={"content-type": media_type})
                self._met = True
                if reply.status_code == 401:
                    raise UsageError(
                        f"the gateway at {self._shown} does not let this command in: {_told(reply)}; "
                        f"set {TOKEN_VARIABLE} to a token of its gateway.tokens_file"
                    )
                if reply.status_code != 503:
                    return reply
                wait = float(reply.headers.get("retry-after", "1"))
                why = reply.text
            except httpx.TransportError as error:
                if not self._met:
                    raise UsageError(f"no gateway answers at {self._shown} ({error})") from error
                wait, why = 1.0, repr(error)
            if asyncio.get_running_loop().time() > deadline:
                raise UsageError(f"the gateway at {self._shown} does not take anything: {why[:300]}")
            await asyncio.sleep(wait)


def _who_asks() -> dict[str, str]:
    """The headers that say to a gateway who this is: the token of `GROUNDWATCH_TOKEN`, where there is one."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise UsageError(f"{TOKEN_VARIABLE} holds what no token can: letters, digits and signs of one line")
    return {"Authorization": f"Bearer {token}"}


def _told(reply: httpx.Response) -> str:
    """What an error reply says; a proxy in between may not speak JSON."""
    try:
        return str(reply.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"{reply.status_code}: {reply.text[:300]}"


def _names_file(image: object) -> bool:
    return (
        isinstance(image, str)
        and not _DIGEST.match(image)
        and not image.startswith(("data:", "http:", "https:"))
    )


MAX_ARRAY = 512 * 1024 * 1024
"""Bytes of a JSON array, which is read as a whole."""

_MAX_CELL = 64 * 1024 * 1024
_MAX_HEADER = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"PAR1": ("Parquet", "read_parquet({path!r})"),
    b"PK\x03\x04": ("an Excel workbook or another zip archive", "read_excel({path!r})"),
}
_COLUMNS = "['id', 'model', 'prompt', 'answer']"
_AS_JSON = frozenset({"reference", "tags", "protocols", "recorded_at"})
_CALLED = "{'index': 'id', 'question': 'prompt', 'prediction': 'answer'}"
"""VLMEvalKit's columns as ours."""


class _Foreign(msgspec.Struct, frozen=True):
    """Another program's records: keys that tell them, what they are, and one of them as ours, for jq."""

    keys: frozenset[str]
    what: str
    jq: str


_FOREIGN = msgspec.toml.decode(
    resources.files("groundwatch.client").joinpath("formats.toml").read_bytes(),
    type=dict[str, list[_Foreign]],
)["foreign"]


def converted(path: Path) -> Iterator[tuple[int, bytes]] | None:
    """The records of a JSON array or of CSV as JSON lines, each with its number; None for a file of lines.

    An array's are numbered by item, CSV's by line. Raises `FileFormatError` for what is known and not read,
    with the way to convert it.
    """
    try:
        with path.open("rb") as stream:
            start = stream.readline(_MAX_HEADER).removeprefix(_BOM)
            _refuse_binary(path, start)
            first = next((line for line in chain([start], stream) if line.strip()), b"").lstrip()
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    if first.startswith(b"["):
        return _array(path)
    if first.startswith(b"{"):
        with contextlib.suppress(*UNDECODED):
            _refuse_foreign(path, msgspec.json.decode(first), array=False)
        return None
    return _table(path, first)


def _refuse_binary(path: Path, start: bytes) -> None:
    if start.startswith(b"\x1f\x8b"):
        raise FileFormatError(path, f"is compressed: run gunzip {shlex.quote(str(path))}")
    for magic, (what, reading) in _MAGIC.items():
        if start.startswith(magic):
            raise FileFormatError(path, f"is {what}, which is not read. {_by_pandas(path, reading)}")


def _refuse_foreign(path: Path, record: object, *, array: bool) -> None:
    if not isinstance(record, Mapping) or {"model", "answer"} <= record.keys():
        return
    for one in _FOREIGN:
        if one.keys <= record.keys():
            command = f"jq -c {shlex.quote(('.[] | ' if array else '') + one.jq)} {shlex.quote(str(path))}"
            raise FileFormatError(path, f"holds {one.what}. To convert it: {command} > answers.jsonl")


def _by_pandas(path: Path, reading: str) -> str:
    code = (
        f"import pandas as p; p.{reading.format(path=str(path))}.rename(columns={_CALLED})"
        f".assign(model='MODEL')[{_COLUMNS}].to_csv('answers.csv', index=False)"
    )
    return f"To convert it, with its own names of columns: python -c {shlex.quote(code)}"


def _array(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.stat().st_size > MAX_ARRAY:
        raise FileFormatError(
            path,
            f"is a JSON array of more than {MAX_ARRAY} bytes. To convert it: "
            f"jq -c '.[]' {shlex.quote(str(path))} > answers.jsonl",
        )
    try:
        items = msgspec.json.decode(path.read_bytes().removeprefix(_BOM), type=list[msgspec.Raw])
        if items:
            _refuse_foreign(path, msgspec.json.decode(items[0]), array=True)
    except UNDECODED as error:
        raise FileFormatError(path, f"begins as a JSON array and is none ({error})") from error
    return ((number, msgspec.json.format(bytes(item), indent=-1)) for number, item in enumerate(items, 1))


def _table(path: Path, header: bytes) -> Iterator[tuple[int, bytes]] | None:
    text = header.decode("utf-8", "replace").strip()
    delimiter = next((one for one in "\t,;" if one in text), "")
    if not delimiter:
        return None
    try:
        columns = [one.strip() for one in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return None
    if {"id", "answer"} <= set(columns):
        return _rows(path, delimiter)
    if {"index", "question", "prediction"} <= set(columns):
        what = f"holds {_FOREIGN[-1].what}. "
        raise FileFormatError(path, what + _by_pandas(path, f"read_csv({{path!r}}, sep={delimiter!r})"))
    if path.suffix.lower() in {".csv", ".tsv"}:
        told = ", ".join(columns)[:200]
        message = f"its first line must name the columns, id and answer among them; it says: {told}"
        raise FileFormatError(path, message, line=1)
    return None


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, bytes]]:
    csv.field_size_limit(_MAX_CELL)
    # Not universal newlines: a cell may hold some.
    with path.open(encoding="utf-8-sig", newline="") as stream:
        number = 0
        try:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            columns = [one.strip() for one in next(row for row in reader if row)]
            number = reader.line_num
            for cells in reader:
                number += 1
                if len(cells) > len(columns):
                    message = f"has {len(cells)} cells; the first line names {len(columns)} columns"
                    raise FileFormatError(path, message, line=number)
                if cells:
                    yield number, msgspec.json.encode(_record(dict(zip(columns, cells, strict=False))))
                number = reader.line_num
        except UnicodeDecodeError as error:
            raise FileFormatError(path, "is not UTF-8 text") from error
        except csv.Error as error:
            raise FileFormatError(path, f"is not CSV ({error})", line=number) from error


def _record(cells: dict[str, str]) -> dict[str, Any]:
    """A row's values. An empty cell is an absent value, but for an answer, which may be empty."""
    record: dict[str, Any] = {}
    for column, cell in cells.items():
        if not cell and column != "answer":
            continue
        record[column] = cell
        if column == "images":
            record[column] = [cell]
        if column in _AS_JSON or (column == "images" and cell.startswith("[")):
            # What is no JSON stays text, and the reading of records says what is wrong with it.
            with contextlib.suppress(*UNDECODED):
                record[column] = msgspec.json.decode(cell)
    return record
