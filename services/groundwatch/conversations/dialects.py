"""The attributes of a span or of a log record, in whatever dialect they are, read into messages."""

from collections.abc import Iterable
from typing import Any

import msgspec

from groundwatch.conversations.content import is_part
from groundwatch.conversations.conversation import Attributes
from groundwatch.conversations.messages import Read, Side, read_messages
from groundwatch.conversations.names import NAMES, Dialect
from groundwatch.conversations.values import NOT_JSON, first_text, json_of, structured, tag_value, text_of

_DIALECTS = tuple(NAMES.dialect.values())
_PREFIXES = tuple(f"{prefix}." for one in _DIALECTS for prefix in (one.flat_input, one.flat_output) if prefix)
_MAX_INDEX_DIGITS = 9
_MAX_BODY = 4 * 1024 * 1024


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """What attributes say of a call. `called`: they say that it was one, with or without content."""

    inputs: Read = Read()
    outputs: Read = Read()
    references: dict[str, str] = {}
    model: str = ""
    response_id: str = ""
    tags: dict[str, str] = {}
    called: bool = False


def library_of(scope: str, attributes: Attributes) -> str:
    """Which library logged this; empty where that does not show."""
    for library in NAMES.library:
        if scope and scope.startswith(library.scopes):
            return library.name
    for library in NAMES.library:
        if any(key in attributes for key in library.attributes):
            return library.name
    return ""


def read_attributes(attributes: Attributes) -> Logged | None:
    """What the attributes say of a call; None where they are of something that is no call of a model."""
    kinds = [first_text(attributes, dialect.kind).lower() for dialect in _DIALECTS]
    if any(kind in dialect.others for kind, dialect in zip(kinds, _DIALECTS, strict=True)):
        return None
    model = next((model for one in _DIALECTS if (model := first_text(attributes, one.model))), "")
    called = any(kind in dialect.calls for kind, dialect in zip(kinds, _DIALECTS, strict=True))
    marked = any(first_text(attributes, dialect.marks) for dialect in _DIALECTS)
    flat = _unflattened(attributes)
    logged = Logged(
        inputs=_side(_said(attributes, one, "input", flat) for one in _DIALECTS),
        outputs=_side(_said(attributes, one, "output", flat) for one in _DIALECTS),
        references=_references(attributes),
        model=model,
        response_id=_response_id(attributes),
        tags=_tags(attributes),
        called=called or (marked and not any(kinds)),
    )
    said = logged.inputs, logged.outputs
    if logged.called or logged.references or any(read.messages or read.cut for read in said):
        return logged
    return None


def _first(attributes: Attributes, keys: Iterable[str]) -> Any:
    return next((value for key in keys if (value := attributes.get(key)) not in (None, "")), None)


def _said(
    attributes: Attributes, dialect: Dialect, side: Side, flat: dict[str, list[dict[str, Any]]]
) -> Read:
    """The messages of one side in one dialect."""
    if side == "input":
        keys, prefix, role = dialect.input, dialect.flat_input, "user"
    else:
        keys, prefix, role = dialect.output, dialect.flat_output, "assistant"
        if text := _first(attributes, dialect.text):
            return read_messages([text], role)
    value = _first(attributes, keys)
    read = Read() if value is None else read_messages(value, role, plain=dialect.plain)
    return read if read.messages or prefix not in flat else read_messages(flat[prefix], role)


def _side(reads: Iterable[Read]) -> Read:
    """What the first dialect has that has messages."""
    cut = False
    for read in reads:
        if read.messages:
            return read
        cut |= read.cut
    return Read(cut=cut)


def _references(attributes: Attributes) -> dict[str, str]:
    found: dict[str, str] = {}
    for dialect in _DIALECTS:
        for side, keys in (("input", dialect.input_reference), ("output", dialect.output_reference)):
            if url := first_text(attributes, keys):
                found.setdefault(side, url)
    return found


def _response_id(attributes: Attributes) -> str:
    for dialect in _DIALECTS:
        if name := first_text(attributes, dialect.id):
            return name
    for dialect in _DIALECTS:
        if name := _id_in_body(attributes, dialect):
            return name
    return ""


def _id_in_body(attributes: Attributes, dialect: Dialect) -> str:
    for key in dialect.body:
        value = attributes.get(key)
        if isinstance(value, str) and len(value) <= _MAX_BODY and value.startswith("{"):
            body = json_of(value)
            return text_of(body.get("id")).strip() if isinstance(body, dict) else ""
    return ""


def _tags(attributes: Attributes) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, tag in NAMES.tags.items():
        if value := tag_value(attributes.get(key)):
            found.setdefault(tag, value)
    return found


def _unflattened(attributes: Attributes) -> dict[str, list[dict[str, Any]]]:
    """Messages by the prefix of their attributes: `PREFIX.0.message.contents.1.message_content.text`.

    Only indexes that are there are held, whatever number they are.
    """
    held: dict[str, dict[int, dict[str, Any]]] = {}
    for key, value in attributes.items():
        if not key.startswith(_PREFIXES):
            continue
        prefix = next(one for one in _PREFIXES if key.startswith(one))
        index, rest = _index(key[len(prefix) :])
        if index is not None:
            message = held.setdefault(prefix[:-1], {}).setdefault(index, {"parts": {}})
            _set(message, rest.removeprefix("message."), value)
    return {
        prefix: [_joined(message) for _, message in sorted(messages.items())]
        for prefix, messages in held.items()
    }


def _index(key: str) -> tuple[int | None, str]:
    number, _, rest = key.partition(".")
    if rest and number.isascii() and number.isdigit() and len(number) <= _MAX_INDEX_DIGITS:
        return int(number), rest
    return None, ""


def _set(message: dict[str, Any], key: str, value: Any) -> None:
    if key in ("role", "content"):
        message[key] = value
    elif key.startswith(("tool_calls.", "function_call")):
        message["calls_tool"] = True
    elif key.startswith("contents."):
        index, rest = _index(key.removeprefix("contents."))
        if index is not None:
            part = message["parts"].setdefault(index, {})
            rest = rest.removeprefix("message_content.")
            part["url" if rest == "image.image.url" else rest] = value


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    parts: dict[int, dict[str, Any]] = message.pop("parts")
    content = message.get("content")
    if isinstance(content, str) and content.startswith("[") and (read := _parts_in(content)):
        message["content"] = read
    elif parts:
        first = [content] if isinstance(content, str) else []
        message["content"] = first + [part for _, part in sorted(parts.items())]
    return message


def _parts_in(text: str) -> list[Any]:
    """The parts that a text holds as JSON; none where it is a text that only begins so."""
    value = structured(text)
    if value is NOT_JSON or not isinstance(value, list) or not all(is_part(item) for item in value):
        return []
    return value
