"""A file or a folder of recorded responses, told by its content, one record after the other.

Lines, a JSON array or document, CSV and Parquet are read, with responses of ours or with calls that others
logged. What is only alike is told how to convert.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.client.files import foreign, json_files, tables
from groundwatch.client.files.calls import Told, WithoutImage, record_of
from groundwatch.client.files.folders import answers_in
from groundwatch.client.files.parquet import MAGIC, ParquetTable
from groundwatch.conversations import exports
from groundwatch.errors import UNDECODED, FileFormatError, InputError, check_regular
from groundwatch.events import ResponseRecorded
from groundwatch.records import Refusal

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
        self.path = answers_in(path) if path.is_dir() else path
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
        if self._published is None and self._begins().startswith(MAGIC):
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
            return stream.read(len(MAGIC))

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
        if isinstance(record, bytes):
            try:
                values = msgspec.json.decode(record)
            except UNDECODED:
                return record
            if not isinstance(values, dict):
                return record
            record = values
        return self._given | record

    def _records(self) -> Iterator[tuple[int, Record]]:
        if self._published is not None:
            return enumerate(map(self._of_published, self._published), start=1)
        with self._told(), self.path.open("rb") as stream:
            begins = stream.readline(self._max_line).removeprefix(json_files.BOM)
            foreign.refuse_binary(self.path, begins)
            first = next((line for line in chain([begins], stream) if line.strip()), b"").strip()
        if begins.startswith(MAGIC):
            return self._of_parquet()
        if first.startswith(b"["):
            items = json_files.array(self.path)
            return self._of_json(items, array=True)
        if first.startswith(b"{"):
            record = _decoded(first)
            if not record or any(isinstance(record.get(name), list) for name in ("data", "observations")):
                document = json_files.document(self.path)
                if document is not None:
                    return self._of_json(document, array=True)
            return self._of_json(json_files.lines(self.path, self._max_line), array=False)
        return self._of_text(first)

    def _of_published(self, response: ResponseRecorded) -> bytes:
        if self._model:
            response = msgspec.structs.replace(response, id=f"{self._model}-{response.id}", model=self._model)
        if tenant := self._given.get("tenant"):
            response = msgspec.structs.replace(response, tenant=tenant)
        return _ENCODER.encode(response)

    def _of_json(
        self, records: Iterator[tuple[int, bytes | Refusal]], *, array: bool
    ) -> Iterator[tuple[int, Record]]:
        """The first record says whose they are."""
        first = next(records, None)
        if first is None:
            return
        begin = _decoded(first[1]) if isinstance(first[1], bytes) else {}
        foreign.refuse_record(self.path, begin, array=array)
        records = chain([first], records)
        export = None if {"model", "answer"} <= begin.keys() else exports.export_of(begin)
        if export is not None:
            yield from self._of_calls(export, ((number, _values(line)) for number, line in records))
            return
        captions = {"image_id", "text"} <= begin.keys()
        names_files = not captions and bool(_FILE_NAMES & begin.keys()) and "images" not in begin
        for number, line in records:
            if isinstance(line, bytes) and (captions or names_files):
                values = _decoded(line)
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
        if export is None:
            foreign.refuse_table(self.path, names, f"read_csv({{path!r}}, sep={delimiter!r})")
            if not {"id", "answer"} <= set(names) and self.path.suffix.lower() not in {".csv", ".tsv"}:
                return iter(json_files.lines(self.path, self._max_line))
        rows = tables.rows(self.path, delimiter)
        return self._of_table(names, rows, export, line=1)

    def _of_parquet(self) -> Iterator[tuple[int, Record]]:
        with ParquetTable(self.path) as table:
            export = exports.export_of(dict.fromkeys(table.names, ""))
            if export is None:
                foreign.refuse_table(self.path, table.names, "read_parquet({path!r})")
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


def _decoded(line: bytes) -> dict[str, Any]:
    """The object on a line; empty for what is none."""
    try:
        found = msgspec.json.decode(line)
    except UNDECODED:
        return {}
    return found if isinstance(found, dict) else {}
