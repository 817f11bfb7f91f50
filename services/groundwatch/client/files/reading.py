"""A file or a folder of recorded responses, told by its content, one record after the other.

Lines, JSON, CSV and Parquet are read, also compressed and in UTF-16, with responses of ours, answers of other
programs, or calls that others logged. What is none of these is told so.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from groundwatch.client.files import tables
from groundwatch.client.files.formats import (
    ASKED,
    Format,
    filled,
    first,
    format_of,
    read_call,
    records_in,
    whole,
)
from groundwatch.client.files.sources import (
    MAX_LINE,
    Raw,
    Source,
    Values,
    begins_with,
    decoded,
    everything,
    read_questions,
    read_source,
    unpacked,
    values_of,
)
from groundwatch.client.files.tables import Columns, ParquetTable
from groundwatch.conversations.conversation import (
    REASONS,
    Image,
    ImageDigest,
    ImageText,
    ImageUrl,
    Unreadable,
)
from groundwatch.conversations.messages import IMAGE_MARK
from groundwatch.errors import FileFormatError, InputError, UsageError, told_to_user
from groundwatch.events import ResponseRecorded
from groundwatch.image_files import from_base64
from groundwatch.records import Record as Fields
from groundwatch.records import Refusal

_OTHERS = {"failed": "calls that failed", "tool_call": "answers that are calls of a tool"}
"""By the reason for which such a record is no response, which is nobody's mistake."""

WithoutImage = Literal["decline", "record"]


class Told(msgspec.Struct):
    """What was taken for what, and what a file does not have: images, by the reason why they were left out;
    and other records."""

    notes: list[str] = msgspec.field(default_factory=list)
    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    others: Counter[str] = msgspec.field(default_factory=Counter)

    def lines(self) -> list[str]:
        """A line for each, with the setting of the library that keeps what is missing."""
        found = [
            f"{number} images are missing: {why_left_out(name)}"
            for name, number in self.left_out.most_common()
        ]
        others = [f"{number} records are left out: {what}" for what, number in self.others.most_common()]
        return self.notes + found + others


def why_left_out(name: str) -> str:
    reason = REASONS[name]
    return f"{reason.library} {reason.did}; what keeps it: {reason.setting}"


def _image(image: Image) -> dict[str, str] | bytes | str:
    if isinstance(image, ImageText):
        return from_base64(image.base64)
    if isinstance(image, ImageDigest):
        return image.sha256
    return {"url": image.url} if isinstance(image, ImageUrl) else image


Record = Raw
"""A response as it stands on a line, or its fields, with images by name, by address or as bytes; or why it is
none."""

_ENCODER = msgspec.json.Encoder()


class AnswerFile:
    """The records of a file with their numbers, from 1: of a line, an item or a row. Read anew each time.

    `model` and `tenant` are of records that name none. `columns` are the options that name them, THEIRS=OURS;
    `questions` is the file with the questions and images of answers that have none. `published` reads the
    formats of works that published their answers. `without_image` says what becomes of a call that was logged
    without its image: refused, or taken as it is. Raises `FileFormatError` for what is not read.
    """

    def __init__(
        self,
        path: Path,
        *,
        model: str = "",
        tenant: str = "",
        columns: Sequence[str] = (),
        questions: Path | None = None,
        published: Callable[[Path], Sequence[ResponseRecorded] | None] | None = None,
        without_image: WithoutImage = "decline",
        max_line: int = MAX_LINE,
    ) -> None:
        folder = path.is_dir()
        self.path = _answers_in(path) if folder else path
        self._model = model
        self._given = {name: value for name, value in (("model", model), ("tenant", tenant)) if value}
        self._columns = tables.chosen(columns)
        self._without_image = without_image
        self._max_line = max_line
        self._text, self._held = unpacked(self.path)
        self._published = None if folder or columns or published is None else published(self._text)
        self._questions = questions
        self._as = ""
        self.told = Told()
        """What was taken for what, and what was not there, as far as the file was read."""

    def count(self) -> int:
        """How many records there are. Of Parquet with responses of ours only its footer is read."""
        if self._published is None and begins_with(self._text).startswith(tables.MAGIC):
            with ParquetTable(self._text) as table:
                if format_of(dict.fromkeys(table.names, "")) is None:
                    return len(table)
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        self.told = Told()
        found = False
        for number, record in self._records():
            found = True
            yield number, self._complete(record)
        if self._as and not found:
            number = self.told.others.total()
            raise self._wrong(f"has no answer of a model among its {number} records{self._as}")

    def _wrong(self, message: str) -> FileFormatError:
        return FileFormatError(self.path, message)

    def _complete(self, record: Record) -> Record:
        """Give a record what the command line knows of it."""
        if not self._given or isinstance(record, Refusal):
            return record
        values = decoded(record) if isinstance(record, bytes) else record
        return self._given | values if values else record

    def _records(self) -> Iterator[tuple[int, Record]]:
        if self._published is not None:
            return enumerate(map(self._of_published, self._published), start=1)
        source = read_source(self._text, self.path, self._max_line, table=bool(self._columns))
        names = source.names
        format = None if self._columns else format_of(names)
        if self._questions is not None and not (format and format.by[0]):
            raise UsageError(f"--questions {self._questions}: nothing in {self.path} is looked up there")
        if format is not None:
            return self._of_format(format, source)
        if not (source.columns or self._columns or tables.are_called_otherwise(names)):
            if names and not {"model", "answer"} & names.keys() and names.keys() - _READ:
                shown = " ".join(", ".join(names).split())[:200]
                message = "a response has id, model and answer; --column THEIRS=OURS and --model name them"
                raise self._wrong(f"holds records with the keys {shown}: {message}")
            return ((number, _tidy(line)) for number, line in source.rows(everything))
        if not names:
            return source.rows(everything)
        columns = Columns(self.path, source.columns or tuple(names), self._columns, source.line)
        self.told.notes += columns.told
        return self._of_columns(columns, source)

    def _of_published(self, response: ResponseRecorded) -> bytes:
        if self._model:
            response = msgspec.structs.replace(response, id=f"{self._model}-{response.id}", model=self._model)
        if tenant := self._given.get("tenant"):
            response = msgspec.structs.replace(response, tenant=tenant)
        return _ENCODER.encode(response)

    def _of_columns(self, columns: Columns, source: Source) -> Iterator[tuple[int, Record]]:
        for number, row in source.rows(columns.needs):
            values = values_of(row)
            record = values if isinstance(values, Refusal) else columns.record(values)
            yield number, self._named(number, record)

    def _named(self, number: int, record: Values | Refusal) -> Values | Refusal:
        """One that has no id gets one of its own, which it has again when it is read again."""
        if isinstance(record, Refusal) or record.get("id"):
            return record
        return record | {"id": content_id(number, _ENCODER.encode(self._given | record))}

    def _of_format(self, format: Format, source: Source) -> Iterator[tuple[int, Record]]:
        self._as = f", read as {format.name}"
        if format.advice:
            raise self._wrong(f"holds {format.name}: {format.advice}")
        questions: dict[str, Values] = {}
        if format.by[0]:
            if self._questions is None:
                instead = "" if format.required else f", or do without: {format.instead(source.names)}"
                names = " ".join(", ".join(source.names).split())[:200]
                message = f"{format.apart}. Name that with --questions FILE{instead}; it has: {names}"
                raise self._wrong(f"holds {format.name}: {message}")
            questions = read_questions(self._questions, format.by[1])
        columns = Columns.of(format.columns)
        if columns.places and not format.stem:
            places = (f"{place[-1]} as {field}" for field, place in columns.places.items())
            self.told.notes.append(f"is read as {format.name}: {', '.join(places)}")
        for number, row in source.rows(format.reads):
            values = values_of(row)
            if isinstance(values, Refusal):
                yield number, values
                continue
            if format.by[0]:
                key = str(whole(first(values, format.by[:1])))
                if key not in questions:
                    message = f"{key[:100]} is not in {self._questions}"
                    yield number, Refusal(field=format.by[0], message=message, id=key[:256])
                    continue
                values[ASKED] = questions[key]
            for one in records_in(format, values):
                record = (
                    self._of_answer(format, columns, one, number)
                    if columns.places
                    else self._of_call(format, one)
                )
                if record is not None:
                    yield number, self._named(number, record)

    def _of_answer(self, format: Format, columns: Columns, values: Values, number: int) -> Values | Refusal:
        record = columns.record(values)
        if isinstance(record, Refusal):
            return record
        model = record.get("model") or self._model or (self._text.stem if format.stem else "")
        known = values | {"model": model, "stem": self._text.stem, "number": number}
        added = {"id": filled(format.id, known), "model": model}
        return record | {name: value for name, value in added.items() if value}

    def _of_call(self, format: Format, values: Values) -> Values | Refusal | None:
        """None where it is no call of a model, or one without an answer to judge."""
        call, told = read_call(format, values, self._model), self.told
        if call is None or (isinstance(call, Unreadable) and call.reason in _OTHERS):
            told.others[_OTHERS[call.reason] if call is not None else "no calls of a model"] += 1
            return None
        name = call.id[:256]
        if isinstance(call, Unreadable):
            hint = ": say --model NAME" if call.reason == "no_model" else ""
            return Refusal(message=call.message + hint, id=name)
        images: list[dict[str, str] | bytes | str] = []
        for index, image in enumerate((*call.images, first(values, format.images))):
            try:
                images += tables.images_of(image) if index == len(call.images) else [_image(image)]
            except InputError as error:
                return Refusal(field=f"images[{index}]", message=str(error), id=name)
        # Marks of images that stand beside the messages.
        left_out = tuple(one for one in call.left_out if one != IMAGE_MARK or not images)
        told.left_out.update(left_out)
        if call.others:
            told.others["further choices of an answer"] += len(call.others)
        if call.references:
            where = ", ".join(f"{side} at {url[:200]}" for side, url in call.references.items())
            return Refusal(message=f"its messages lie elsewhere: {where}", id=name)
        if not call.answer:
            why = f": {why_left_out(left_out[0])}" if left_out else ""
            return Refusal(field="answer", message=f"is missing in what was logged{why}", id=name)
        if left_out and self._without_image == "decline":
            message = (
                f"is missing: {why_left_out(left_out[0])}. With gateway.logged_calls.without_image = "
                '"record" it is taken without'
            )
            return Refusal(field="images", message=message, id=name)
        record: Values = {"id": name, "answer": call.answer, "tags": call.tags, "recorded_at": call.at}
        for field in ("model", "prompt", "earlier", "earlier_images"):
            if value := getattr(call, field):
                record[field] = value
        return record | {"images": images} if images else record


_READ = {*Fields.__struct_encode_fields__, "image_id", "text"}


def content_id(number: int, content: bytes) -> str:
    """Of a record without one. Sent again it must be the same, and two alike are not the same response."""
    return hashlib.sha256(b"%d %b" % (number, content)).hexdigest()[:32]


_ODD = re.compile(rb'null|NaN|Infinity|"id"\s*:\s*-?[0-9]')


def _tidy(line: Raw) -> Raw:
    """A response of ours without what says nothing, and with its id as text; else as it is there."""
    if isinstance(line, Refusal) or (isinstance(line, bytes) and not _ODD.search(line)):
        return line
    values = values_of(line)
    if isinstance(values, Refusal):
        return line
    # NaN alone is not what it is.
    absent = {name for name, one in values.items() if one is None or one != one}
    if "answer" in absent and values["answer"] is not None:
        return Refusal(field="answer", message=tables.NOT_A_NUMBER, id=str(values.get("id", ""))[:256])
    found = {name: one for name, one in values.items() if name not in absent}
    if "id" in found:
        found["id"] = tables.numbered(found["id"])
    return line if found == values else found


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
