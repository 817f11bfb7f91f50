"""What models are shown and what they reply; of a judge's reply, the one JSON value that counts.

Models wrap JSON in prose, think aloud in drafts or quote what they judge. So the last well-formed value that
has the form is the reply, and nothing else in the text is ever taken for a verdict.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import msgspec

from groundwatch.events import Usage
from groundwatch.protocols.prompts import Form, read_reply
from groundwatch.reading.document import read_document

MAX_REPLY = 1_000_000
"""Longest reply that is looked at, in characters."""

_MAX_FALSE_STARTS = 1_000
_START = re.compile(r"[\[{]")

Image: TypeAlias = tuple[bytes, str]
"""An image's bytes and its media type."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered. `cut_off`: it ran out of tokens."""

    text: str
    usage: Usage = Usage()
    cut_off: bool = False


class Detection(msgspec.Struct, frozen=True):
    """Where an image shows what a phrase names, with the detector's score from 0 to 1.

    `text` is the phrase's place among those that were asked for; `box` is x0, y0, x1, y1 from 0 to 1 of the
    width and height of the upright image.
    """

    text: int
    box: tuple[float, float, float, float]
    score: float


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of an image that a generator made, unchecked."""

    image: bytes
    usage: Usage = Usage()


def last_valid(
    text: str, form: type[Form], written: Callable[[str, Sequence[object]], object] | None = None
) -> Any:
    """The last JSON object or array in `text` that has this form, its strings made encodable.

    Without one, what `written` reads of the text and its JSON values. Raises `ValueError` saying what is
    wrong with the last one, or that there is none.
    """
    return last_placed(text, form, written)[0]


def last_placed(
    text: str, form: type[Form], written: Callable[[str, Sequence[object]], object] | None = None
) -> tuple[Any, int]:
    """`last_valid`, and where in the text it begins."""
    if len(text) > MAX_REPLY:
        raise ValueError(f"the reply is longer than {MAX_REPLY} characters")
    found: list[tuple[Any, int]] = []
    fault = "the reply holds no JSON object or array"
    values = _values(text)
    for value, start in values:
        try:
            read_reply(value, form)
        except ValueError as error:
            fault = str(error)
        else:
            found = [(value, start)]
    if not found and written is not None:
        found = [(written(read_document(text).text, [value for value, _ in values]), 0)]
        read_reply(found[0][0], form)
    if not found:
        raise ValueError(fault)
    return clean(found[0][0]), found[0][1]


def whole_values(text: str) -> list[Any]:
    """Every JSON object or array that stands whole in a text that was cut off."""
    try:
        return [clean(value) for value, _ in _values(text)]
    except ValueError:
        return []


def encodable(text: str) -> str:
    """`text` as UTF-8 can hold it: halves of a surrogate pair joined, a lone one replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean(value: Any) -> Any:
    """A decoded JSON value with every string made encodable, so that it can travel in an event."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {encodable(key): clean(item) for key, item in value.items()}
    return value


def _values(text: str) -> list[tuple[Any, int]]:
    """Every outermost well-formed JSON object or array, and where it begins, in order.

    Raises `ValueError` for a text with more stray brackets than prose has, which would cost time without end.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)
    values: list[tuple[Any, int]] = []
    at = 0
    false_starts = 0
    while start := _START.search(text, at):
        try:
            value, at = decoder.raw_decode(text, start.start())
            values.append((value, start.start()))
        except (ValueError, RecursionError):
            at = start.start() + 1
            false_starts += 1
            if false_starts > _MAX_FALSE_STARTS:
                raise ValueError("the reply holds too many stray brackets") from None
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key given twice says two things at once, so such an object is not well-formed."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
