"""Finding the one JSON value in a judge's reply that counts.

Models wrap JSON in prose, think aloud in drafts or quote what they judge. So the last well-formed value that
meets the schema is the reply, and nothing else in the text is ever taken for a verdict.
"""

import json
import re
from typing import Any, NoReturn

import msgspec

from groundwatch.events import Usage

MAX_REPLY = 1_000_000
"""Longest reply that is looked at, in characters."""

_MAX_FALSE_STARTS = 1_000
_START = re.compile(r"[\[{]")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_UNDERSTOOD = frozenset({"type", "enum", "properties", "required", "additionalProperties", "items"})


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered. `cut_off`: it ran out of tokens."""

    text: str
    usage: Usage = Usage()
    cut_off: bool = False


def last_valid(text: str, schema: dict[str, object]) -> Any:
    """The last JSON object or array in `text` that meets `schema`, its strings made encodable.

    Raises `ValueError` saying what is wrong with the last one, or that there is none.
    """
    if len(text) > MAX_REPLY:
        raise ValueError(f"the reply is longer than {MAX_REPLY} characters")
    found: list[Any] = []
    fault = "the reply holds no JSON object or array"
    for value in _values(text):
        try:
            check(value, schema)
        except ValueError as error:
            fault = str(error)
        else:
            found = [value]
    if not found:
        raise ValueError(fault)
    return clean(found[0])


def check(value: object, schema: dict[str, Any], where: str = "$") -> None:
    """Raise `ValueError` where `value` does not meet `schema`.

    Understands what `groundwatch.protocols.prompts.reply_schema` writes, and raises `TypeError` for any
    other keyword: ignoring one would accept what the schema forbids.
    """
    if not schema.keys() <= _UNDERSTOOD:
        raise TypeError(f"schema keywords not understood: {sorted(schema.keys() - _UNDERSTOOD)}")
    if "type" in schema and not _is_a(value, schema["type"]):
        raise ValueError(f"{where}: expected {schema['type']}")
    if "enum" in schema and not any(
        value == choice and type(value) is type(choice) for choice in schema["enum"]
    ):
        raise ValueError(f"{where}: expected one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, dict):
        _check_object(value, schema, where)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            check(item, schema["items"], f"{where}[{index}]")


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


def _check_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise ValueError(f"{where}: '{name}' is missing")
    for name, item in value.items():
        if name in properties:
            check(item, properties[name], f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            raise ValueError(f"{where}: '{name[:40]}' does not belong here")


def _is_a(value: object, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, _TYPES[name])


def _values(text: str) -> list[Any]:
    """Every outermost well-formed JSON object or array, in order.

    Raises `ValueError` for a text with more stray brackets than prose has, which would cost time without end.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)
    values: list[Any] = []
    at = 0
    false_starts = 0
    while start := _START.search(text, at):
        try:
            value, at = decoder.raw_decode(text, start.start())
            values.append(value)
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
