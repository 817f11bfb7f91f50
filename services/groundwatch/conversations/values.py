"""Values that others wrote, taken for what they are. Nothing here raises, whatever it is given."""

import json
import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from groundwatch.conversations.conversation import Attributes
from groundwatch.counting import has_more_values


class _NotJson:
    """What `json_of` gives for a text that is no JSON."""


NOT_JSON: Final = _NotJson()

_TAG_LENGTH = 256
_LARGEST = 2**63


def text_of(value: object) -> str:
    """The text; empty where it is none. Halves of characters, which UTF-8 cannot write, become `?`."""
    if not isinstance(value, str):
        return ""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return value


def json_of(value: str | bytes) -> Any:
    """What a JSON text says; `NOT_JSON` where it is none, or has more values than any call."""
    if has_more_values(value):
        return NOT_JSON
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    # Python's own writer writes NaN and halves of characters, which msgspec refuses.
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return NOT_JSON


def structured(value: object) -> Any:
    """A list or dict as it is, or the one that a JSON text holds; any other text as it is.

    `NOT_JSON` for a text that begins as a list or dict and is none.
    """
    if isinstance(value, bytes | bytearray):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError:
            return NOT_JSON
    if isinstance(value, str):
        return json_of(value) if value[:64].lstrip().startswith(("[", "{")) else text_of(value)
    return value


def number_of(value: object) -> float:
    """A time; 0 where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0


def first_text(attributes: Attributes, keys: Sequence[str]) -> str:
    """The first of these attributes that is a text with something in it."""
    for key in keys:
        if text := text_of(attributes.get(key)).strip():
            return text
    return ""


def tag_value(value: object) -> str:
    """What a tag may hold; empty for what is neither text nor number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value}" if abs(value) < _LARGEST else ""
    return text_of(value).strip()[:_TAG_LENGTH]


def hex_id(value: object) -> str:
    """The id of a trace or span; empty where it is none, or zero, which means that there is none."""
    text = text_of(value)
    return text if len(text) <= 64 and text.strip("0") else ""
