"""A file or a folder of recorded responses, told by its content, one record after the other.

Lines, a JSON array or document, CSV and Parquet are read, with responses of ours or with calls that others
logged. What is neither is told so.
"""

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import msgspec

from groundwatch.client.files import tables
from groundwatch.client.files.tables import ParquetTable
from groundwatch.conversations import exports
from groundwatch.conversations.conversation import (
    REASONS,
    Conversation,
    Image,
    ImageDigest,
    ImageText,
    ImageUrl,
    Unreadable,
)
from groundwatch.conversations.exports import Export, read_export
from groundwatch.errors import UNDECODED, FileFormatError, InputError, check_regular, told_to_user
from groundwatch.events import ResponseRecorded
from groundwatch.image_files import from_base64
from groundwatch.records import Record as Fields
from groundwatch.records import Refusal, split_lines, too_long

_OTHERS = {"failed": "calls that failed", "tool_call": "answers that are calls of a tool"}
"""By the reason for which such a record is no response, which is nobody's mistake."""

WithoutImage = Literal["decline", "record"]


class Told(msgspec.Struct):
    """What an export does not have: images, by the reason why they were left out; and other records."""

    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    others: Counter[str] = msgspec.field(default_factory=Counter)

    def lines(self) -> list[str]:
        """A line for each, with the setting of the library that keeps what is missing."""
        found = [
            f"{number} images are missing: {why_left_out(name)}"
            for name, number in self.left_out.most_common()
        ]
        return found + [
            f"{number} records are left out: {what}" for what, number in self.others.most_common()
        ]


def why_left_out(name: str) -> str:
    reason = REASONS[name]
    return f"{reason.library} {reason.did}; what keeps it: {reason.setting}"


def record_of(
    export: Export, values: dict[str, Any], told: Told, without_image: WithoutImage, model: str
) -> dict[str, Any] | Refusal | None:
    """None where it is no call of a model, or one without an answer to judge."""
    call = read_export(export, values, model)
    if call is None or (isinstance(call, Unreadable) and call.reason in _OTHERS):
        told.others[_OTHERS[call.reason] if call is not None else "no calls of a model"] += 1
        return None
    if isinstance(call, Unreadable):
        return Refusal(message=call.message, id=call.id[:256])
    told.left_out.update(call.left_out)
    if call.references:
        where = ", ".join(f"{side} at {url[:200]}" for side, url in call.references.items())
        return Refusal(message=f"its messages lie elsewhere: {where}", id=call.id[:256])
    if not call.answer:
        why = f": {why_left_out(call.left_out[0])}" if call.left_out else ""
        return Refusal(field="answer", message=f"is missing in what was logged{why}", id=call.id[:256])
    if call.left_out and without_image == "decline":
        message = (
            f"is missing: {why_left_out(call.left_out[0])}. With gateway.logged_calls.without_image = "
            '"record" it is taken without'
        )
        return Refusal(field="images", message=message, id=call.id[:256])
    return _record(call)


def _record(call: Conversation) -> dict[str, Any] | Refusal:
    record: dict[str, Any] = {"id": call.id, "answer": call.answer, "tags": call.tags, "recorded_at": call.at}
    for name in ("model", "prompt"):
        if value := getattr(call, name):
            record[name] = value
    images: list[dict[str, str] | bytes | str] = []
    for index, image in enumerate(call.images):
        try:
            images.append(_image(image))
        except InputError as error:
            return Refusal(field=f"images[{index}]", message=str(error), id=call.id[:256])
    if images:
        record["images"] = images
    return record


def _image(image: Image) -> dict[str, str] | bytes | str:
    if isinstance(image, ImageText):
        return from_base64(image.base64)
    if isinstance(image, ImageDigest):
        return image.sha256
    return {"url": image.url} if isinstance(image, ImageUrl) else image


Record = bytes | dict[str, Any] | Refusal
"""A response as it stands on a line, or its fields, with images by name, by address or as bytes; or why it is
none."""

MAX_LINE = 64 * 1024 * 1024

_ENCODER = msgspec.json.Encoder()


class AnswerFile:
    """The records of a file with their numbers, from 1: of a line, an item or a row. Read anew each time.

    `model` and `tenant` are of records that name none. `without_image` says what becomes of a call that was
    logged without its image: refused, or taken as it is. Raises `FileFormatError` for what is not read.
    """

    def __init__(
        self,
        path: Path,
        *,
        model: str = "",
        tenant: str = "",
        published: Sequence[ResponseRecorded] | None = None,
        without_image: WithoutImage = "decline",
        max_line: int = MAX_LINE,
    ) -> None:
        """`published` are the file's answers where it is in the format of a work that published them."""
        self.path = _answers_in(path) if path.is_dir() else path
        check_regular(self.path)
        self._model = model
        self._given = {name: value for name, value in (("model", model), ("tenant", tenant)) if value}
        self._published = published
        self._without_image = without_image
        self._max_line = max_line
        self.told = Told()
        """What was not there, as far as the file was read."""

    def count(self) -> int:
        """How many records there are. Of Parquet with responses of ours only its footer is read."""
        if self._published is None and self._begins().startswith(tables.MAGIC):
            with ParquetTable(self.path) as table:
                if exports.export_of(dict.fromkeys(table.names, "")) is None:
                    return len(table)
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        self.told = Told()
        found = False
        for number, record in self._records():
            found = True
            yield number, self._complete(record)
        if self.told.others and not found:
            number = self.told.others.total()
            raise FileFormatError(self.path, f"has no answer of a model among its {number} records")

    def _begins(self) -> bytes:
        with self._told(), self.path.open("rb") as stream:
            return stream.read(len(tables.MAGIC))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise FileFormatError(self.path, f"cannot be read ({why})") from error

    def _complete(self, record: Record) -> Record:
        """Give a record what the command line knows of it."""
        if not self._given or isinstance(record, Refusal):
            return record
        values = decoded(record) if isinstance(record, bytes) else record
        return self._given | values if values else record

    def _records(self) -> Iterator[tuple[int, Record]]:
        if self._published is not None:
            return enumerate(map(self._of_published, self._published), start=1)
        with self._told(), self.path.open("rb") as stream:
            begins = stream.readline(self._max_line).removeprefix(BOM)
            for magic, advice in _BINARY.items():
                if begins.startswith(magic):
                    raise FileFormatError(self.path, advice.format(quote(str(self.path))))
            first = next((line for line in chain([begins], stream) if line.strip()), b"").strip()
        if begins.startswith(tables.MAGIC):
            return self._of_parquet()
        if first.startswith(b"["):
            items = _array(self.path)
            return self._of_json(items)
        if first.startswith(b"{"):
            record = decoded(first)
            if not record or any(isinstance(record.get(name), list) for name in ("data", "observations")):
                document = _document(self.path)
                if document is not None:
                    return self._of_json(document)
            return self._of_json(_lines(self.path, self._max_line))
        return self._of_text(first)

    def _of_published(self, response: ResponseRecorded) -> bytes:
        if self._model:
            response = msgspec.structs.replace(response, id=f"{self._model}-{response.id}", model=self._model)
        if tenant := self._given.get("tenant"):
            response = msgspec.structs.replace(response, tenant=tenant)
        return _ENCODER.encode(response)

    def _of_json(self, records: Iterator[tuple[int, bytes | Refusal]]) -> Iterator[tuple[int, Record]]:
        """The first record says whose they are."""
        first = next(records, None)
        if first is None:
            return
        begin = decoded(first[1]) if isinstance(first[1], bytes) else {}
        export = None if {"model", "answer"} <= begin.keys() else exports.export_of(begin)
        if export is None and not {"model", "answer"} & begin.keys() and begin.keys() - _READ:
            names = " ".join(", ".join(begin).split())[:200]
            raise FileFormatError(
                self.path, f"holds records with the keys {names}: a response has id, model and answer"
            )
        records = chain([first], records)
        if export is not None:
            yield from self._of_calls(export, ((number, _values(line)) for number, line in records))
            return
        captions = {"image_id", "text"} <= begin.keys()
        names_files = not captions and bool(_FILE_NAMES & begin.keys()) and "images" not in begin
        for number, line in records:
            if isinstance(line, bytes) and (captions or names_files):
                values = decoded(line)
                if captions and {"image_id", "text"} <= values.keys() and "answer" not in values:
                    yield number, self._of_caption(number, values)
                    continue
                if names_files and values:
                    yield number, _with_images(values)
                    continue
            yield number, line

    def _of_caption(self, number: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """A caption as POPE publishes them."""
        model = self._model or self.path.stem
        return {
            "id": f"{model}-{values['image_id']}-{number}",
            "model": model,
            "prompt": values.get("prompt", ""),
            "answer": values["text"],
            "tags": {"image": str(values["image_id"])},
        }

    def _of_text(self, first: bytes) -> Iterator[tuple[int, Record]]:
        delimiter, names = tables.delimited(first)
        export = exports.export_of(dict.fromkeys(names, ""))
        if export is None and not {"id", "answer"} <= set(names) and self.path.suffix.lower() not in _TABLES:
            return iter(_lines(self.path, self._max_line))
        rows = tables.rows(self.path, delimiter)
        return self._of_table(names, rows, export, line=1)

    def _of_parquet(self) -> Iterator[tuple[int, Record]]:
        with ParquetTable(self.path) as table:
            export = exports.export_of(dict.fromkeys(table.names, ""))
            if export is None:
                names = tables.Columns(self.path, table.names).names
            else:
                names = [name for name in table.names if export.reads(name)]
            yield from self._of_table(table.names, table.rows(names), export)

    def _of_table(
        self,
        names: Sequence[str],
        rows: Iterator[tuple[int, dict[str, Any] | Refusal]],
        export: exports.Export | None,
        line: int | None = None,
    ) -> Iterator[tuple[int, Record]]:
        if export is not None:
            yield from self._of_calls(export, rows)
            return
        columns = tables.Columns(self.path, names, line)
        for number, cells in rows:
            yield number, cells if isinstance(cells, Refusal) else columns.record(cells)

    def _of_calls(
        self, export: exports.Export, rows: Iterator[tuple[int, dict[str, Any] | Refusal]]
    ) -> Iterator[tuple[int, Record]]:
        for number, values in rows:
            record = (
                values
                if isinstance(values, Refusal)
                else record_of(export, values, self.told, self._without_image, self._model)
            )
            if record is not None:
                yield number, record


_FILE_NAMES = frozenset({"file_name", "file_names"})
_READ = {*Fields.__struct_encode_fields__, *_FILE_NAMES, "image_id", "text"}
_TABLES = {".csv", ".tsv"}
_BINARY = {
    b"\x1f\x8b": "is compressed: run gunzip -k {}",
    b"PK\x03\x04": "is an Excel workbook or another zip archive, which is not read: save {} as CSV",
}


def _with_images(values: dict[str, Any]) -> Record:
    """A line of an imagefolder's metadata."""
    images: list[str | bytes | dict[str, str]] = []
    for name in _FILE_NAMES & values.keys():
        try:
            images += tables.images_of(values.pop(name))
        except InputError as error:
            return Refusal(field=name, message=str(error), id=str(values.get("id", ""))[:256])
    return values | {"images": images}


def _values(line: bytes | Refusal) -> dict[str, Any] | Refusal:
    if isinstance(line, Refusal):
        return line
    try:
        found = msgspec.json.decode(line)
    except UNDECODED as error:
        return Refusal(message=f"not JSON ({error})")
    return found if isinstance(found, dict) else Refusal(message="expected a JSON object")


def decoded(line: bytes) -> dict[str, Any]:
    """The object on a line; empty for what is none."""
    try:
        found = msgspec.json.decode(line)
    except UNDECODED:
        return {}
    return found if isinstance(found, dict) else {}


MAX_ARRAY = 512 * 1024 * 1024
"""Bytes of a JSON array or document, which is read as a whole."""

BOM = b"\xef\xbb\xbf"


class _Document(msgspec.Struct):
    """Langfuse's and Phoenix's APIs answer with `data`; one trace of Langfuse has its `observations`."""

    data: list[msgspec.Raw] = []
    observations: list[msgspec.Raw] = []


_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_DOCUMENT = msgspec.json.Decoder(_Document)


def _lines(path: Path, most: int) -> Iterator[tuple[int, bytes | Refusal]]:
    """Every line with its number, as it is there."""
    with told_to_user(f"{path}: cannot be read"), path.open("rb") as stream:
        for number, line in split_lines(stream, most):
            yield number, too_long(most) if len(line) > most else line


def _array(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every item with its number from 1."""
    if path.stat().st_size > MAX_ARRAY:
        raise FileFormatError(path, f"is a JSON array of more than {MAX_ARRAY} bytes: write a record a line")
    try:
        items = _ARRAY.decode(path.read_bytes().removeprefix(BOM))
    except UNDECODED as error:
        raise FileFormatError(path, f"begins as a JSON array and is none ({error})") from error
    return _numbered(items)


def _document(path: Path) -> Iterator[tuple[int, bytes]] | None:
    """The records of a document of an API, each with its number from 1; None for a file that is none."""
    if not 0 < path.stat().st_size <= MAX_ARRAY:
        return None
    # Lines may come to as much, and are told from a document by their beginning: nothing is read into memory.
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        start = len(BOM) if mapped[: len(BOM)] == BOM else 0
        view = memoryview(mapped)
        try:
            found = _DOCUMENT.decode(view[start:])
            items = [msgspec.Raw(bytes(item)) for item in found.data or found.observations]
            del found
        except UNDECODED:
            return None
        finally:
            view.release()
    return _numbered(items) if items else None


def _numbered(items: list[msgspec.Raw]) -> Iterator[tuple[int, bytes]]:
    return ((number, msgspec.json.format(bytes(item), indent=-1)) for number, item in enumerate(items, 1))


_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def _answers_in(folder: Path) -> Path:
    """The file of answers in a folder of images."""
    with told_to_user(f"{folder}: cannot be read"):
        found = [name for name in _METADATA if (folder / name).is_file()]
        below = sorted({path.parent.name for name in _METADATA for path in folder.glob(f"*/{name}")})
    if len(found) == 1:
        return folder / found[0]
    if found:
        raise FileFormatError(folder, f"holds {' and '.join(found)}: name the one that is meant")
    message = f"is a folder without {', '.join(_METADATA[:-1])} or {_METADATA[-1]}"
    if below:
        message += f"; they are in its folders {', '.join(below)[:200]}: name one of these"
    raise FileFormatError(folder, message)
