"""Files of other programs that are not read: what they are, and the command that converts them.

They say nothing of a model or call its fields otherwise; guessed, the figures would be of something else.
"""

import os
import shlex
from collections.abc import Collection, Mapping
from importlib import resources
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.errors import FileFormatError

_EXCEL = b"PK\x03\x04"
_GZIP = b"\x1f\x8b"
_COLUMNS = "['id', 'model', 'prompt', 'answer']"
_CALLED = "{'index': 'id', 'question': 'prompt', 'prediction': 'answer'}"
"""VLMEvalKit's columns as ours."""


class _Foreign(msgspec.Struct, frozen=True):
    """Another program's records: keys that tell them, what they are, and one of them as ours, for jq.

    `advice` stands where that is not to be had; `table`: it is a table whose columns pandas can rename.
    """

    keys: frozenset[str]
    what: str
    jq: str = ""
    advice: str = ""
    table: bool = False


_FOREIGN = msgspec.toml.decode(
    resources.files("groundwatch.client.files").joinpath("foreign.toml").read_bytes(),
    type=dict[str, list[_Foreign]],
)["foreign"]


def refuse_binary(path: Path, start: bytes) -> None:
    if start.startswith(_GZIP):
        raise FileFormatError(path, f"is compressed: run gunzip -k {shlex.quote(str(path))}")
    if start.startswith(_EXCEL):
        convert = _by_pandas(path, "read_excel({path!r})")
        raise FileFormatError(
            path, f"is an Excel workbook or another zip archive, which is not read. {convert}"
        )


def refuse_record(path: Path, record: Mapping[str, Any], *, array: bool) -> None:
    if {"model", "answer"} <= record.keys():
        return
    for one in _FOREIGN:
        if one.keys <= record.keys():
            if one.advice:
                raise FileFormatError(path, f"holds {one.what}: {one.advice}")
            command = f"jq -c {shlex.quote(('.[] | ' if array else '') + one.jq)} {shlex.quote(str(path))}"
            to = shlex.quote(str(converted(path, ".jsonl")))
            raise FileFormatError(path, f"holds {one.what}. To convert it: {command} > {to}")


def refuse_table(path: Path, columns: Collection[str], reading: str) -> None:
    """`reading` is how pandas reads it, such as `read_csv({path!r})`."""
    if {"id", "answer"} <= set(columns):
        return
    for one in _FOREIGN:
        if one.keys <= set(columns) and (one.advice or one.table):
            advice = f": {one.advice}" if one.advice else f". {_by_pandas(path, reading)}"
            raise FileFormatError(path, f"holds {one.what}{advice}")


def converted(path: Path, suffix: str) -> Path:
    """Where a file that is converted may be written: beside it, where there is nothing yet."""
    names = (f"{path.stem}-converted{number}{suffix}" for number in chain([""], count(2)))
    return next(to for name in names if not os.path.lexists(to := path.with_name(name)))


def _by_pandas(path: Path, reading: str) -> str:
    code = (
        f"import pandas as p; p.{reading.format(path=str(path))}.rename(columns={_CALLED})"
        f".assign(model='MODEL')[{_COLUMNS}].to_csv({str(converted(path, '.csv'))!r}, index=False)"
    )
    return f"To convert it, with its own names of columns: python -c {shlex.quote(code)}"
