"""Files that other programs write, as `formats.toml` tells them, and the calls of models in their records.

Records come from JSON, CSV and Parquet alike: a value may also be text that holds JSON or, where pandas wrote
a table of spans, Python's own notation.
"""

import ast
import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any, Literal

import msgspec

from groundwatch.conversations import litellm
from groundwatch.conversations.conversation import Attributes, Conversation, Unreadable
from groundwatch.conversations.openai import read_exchange
from groundwatch.conversations.spans import joined, read_span
from groundwatch.errors import UNDECODED

MOST_VALUES = 100_000
"""Values within one record."""

DEEPEST = 64

ASKED = "asked"
"""The key of a record under which its question stands, where a file of its own has that."""

_SPOKEN = ("llm.", "input.", "output.", "gen_ai.")
"""Attributes of a call; others hold documents and embeddings."""

_ROLES = {"human": "user", "gpt": "assistant"}
_CUT = "(litellm_truncated skipped"
_CUT_IMAGE = "[litellm_truncated"
_CUT_TEXT = (
    "its text was cut (litellm_truncated), as LiteLLM's spend logs cut what is long: set "
    "MAX_STRING_LENGTH_PROMPT_IN_DB in the environment of LiteLLM"
)
_NO_CONTENT = (
    "has no messages and no response: LiteLLM keeps them in its spend logs with "
    "general_settings.store_prompts_in_spend_logs: true"
)

_KEY = re.compile(r"\{([\w.]+)\}")

Record = dict[str, Any]
Places = tuple[str, ...]


class Format(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one program writes; `formats.toml` says what each means."""

    name: str
    keys: tuple[Places, ...]
    advice: str = ""
    columns: dict[str, Places] = {}
    request: Places = ()
    response: Places = ()
    messages: Places = ()
    answer: Places = ()
    images: Places = ()
    always: dict[str, str] = {}
    values: dict[str, Places] = {}
    texts: dict[str, Places] = {}
    attributes: str = ""
    flat: bool = False
    kind: Places = ()
    calls: frozenset[str] = frozenset()
    trace_id: Places = ()
    span_id: Places = ()
    at: Places = ()
    library: Literal["", "litellm", "litellm_spend_log"] = ""
    each: Places = ()
    id: str = ""
    stem: bool = False
    by: tuple[str, str] = ("", "")
    apart: str = ""
    required: bool = False

    def fits(self, names: Mapping[str, Any]) -> bool:
        return any(all(_is_there(key, names) for key in keys) for keys in self.keys)

    def reads(self, column: str) -> bool:
        """Whether a column of a table is needed."""
        begin = f"{self.attributes}."
        return not (self.flat and column.startswith(begin)) or column.removeprefix(begin).startswith(_SPOKEN)

    def instead(self, names: Mapping[str, Any]) -> str:
        """The options that read a file with these names without what stands apart."""
        own = tuple(one for one in re.findall(_KEY, self.id) if one not in ("model", "stem", "number"))
        options = [
            f"--column {place}={field}"
            for field, places in ({"id": own} | self.columns).items()
            if (place := next((one for one in places if one.split(".")[0] in names), field)) != field
            and "." not in field
        ]
        return " ".join(options + ([] if "model" in self.columns else ["--model NAME"]))


def _is_there(key: str, names: Mapping[str, Any]) -> bool:
    if key.startswith("!"):
        return key[1:] not in names
    if key.endswith("*"):
        return any(name.startswith(key[:-1]) for name in names)
    return any(one in names for one in key.split("|"))


class _Formats(msgspec.Struct, forbid_unknown_fields=True):
    format: tuple[Format, ...]


FORMATS = msgspec.toml.decode(
    resources.files(__package__ or "").joinpath("formats.toml").read_bytes(), type=_Formats
).format


class _Malformed(Exception):
    """A value that is not what its key says."""


def format_of(names: Mapping[str, Any]) -> Format | None:
    """Which format has a record, or a table, with these keys; None for what may be a response of ours."""
    if {"model", "answer"} <= names.keys() and "prediction" not in names:
        return None
    return next((one for one in FORMATS if one.fits(names)), None)


def records_in(format: Format, record: Record) -> list[Record]:
    """What a record holds of which each may be a call."""
    held = unpacked(first(record, format.each))
    if not isinstance(held, list):
        return [record]
    return [one for one in map(unpacked, held) if isinstance(one, dict)]


def read_call(format: Format, record: Record, model: str = "") -> Conversation | Unreadable | None:
    """The call in a record; None: it is of something else. `model` is of a call that names none."""
    try:
        kind = _text(record, *format.kind).lower().rpartition("/")[2]
        if format.calls and not any(fnmatchcase(kind, one) for one in format.calls):
            return None
        call = _READERS[_reader(format)](format, record, model)
        # No log will come that brings the answer.
        return joined(call, ()) if isinstance(call, Conversation) and not call.answer else call
    except _Malformed as error:
        return Unreadable("unreadable", f"as {format.name} has it: {error}", id=_id(record))


def _reader(format: Format) -> str:
    return format.library or next((one for one in ("messages", "request") if getattr(format, one)), "span")


def _id(record: Record) -> str:
    found = (record.get(name) for name in ("id", "request_id", "context.span_id", "custom_id"))
    return next((one for one in found if isinstance(one, str)), "")


def filled(template: str, known: Mapping[str, Any]) -> str:
    """The text with what is known in place of its keys; empty where one is not."""
    if any(is_absent(_at(known, key)) for key in re.findall(_KEY, template)):
        return ""
    return re.sub(_KEY, lambda match: str(whole(_at(known, match[1]))), template)[:256]


def whole(value: Any) -> Any:
    """A number as an integer where it is one: pandas writes 7.0 where a column has an empty cell."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _span(format: Format, record: Record, model: str) -> Conversation | Unreadable | None:
    attributes: Attributes = {**format.always}
    if format.attributes:
        attributes.update(_own_attributes(format, record))
    for name, places in format.values.items():
        value = unpacked(first(record, places))
        if value is not None:
            attributes[name] = value if isinstance(value, str) else _json(name, value)
    for name, places in format.texts.items():
        if text := _text(record, *places):
            attributes.setdefault(name, text)

    def read() -> Conversation | Unreadable | None:
        return read_span(
            _text(record, "name"),
            attributes,
            trace_id=_text(record, *format.trace_id),
            span_id=_text(record, *format.span_id),
            at=_moment(record, *format.at),
        )

    call = read()
    if model and call is not None and not (isinstance(call, Conversation) and call.model):
        attributes["gen_ai.request.model"] = model
        call = read()
    return call


def _own_attributes(format: Format, record: Record) -> Attributes:
    begin = f"{format.attributes}."
    given = unpacked(record.get(format.attributes))
    found: Attributes = {**given} if isinstance(given, dict) else {}
    found |= {
        column.removeprefix(begin): unpacked(value)
        for column, value in record.items()
        if column.startswith(begin) and format.reads(column)
    }
    if format.flat:
        return _flat(found)
    return {name: _json(name, one) if isinstance(one, dict | list) else one for name, one in found.items()}


def _exchange(format: Format, record: Record, model: str) -> Conversation | Unreadable:
    request, response = (unpacked(first(record, places)) for places in (format.request, format.response))
    if response is None and (error := first(record, ("error", "exception"))):
        response = {"error": error}
    if isinstance(request, dict) and model:
        request = {"model": model} | request
    return read_exchange(request, response, id=filled(format.id, record), at=_moment(record, *format.at))


def _chat(format: Format, record: Record, model: str) -> Conversation | Unreadable:
    messages = unpacked(first(record, format.messages))
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise _Malformed(f"key '{format.messages[0]}': expected a list of messages")
    said = [_message(one) for one in messages]
    last = said.pop() if said and said[-1].get("role") == "assistant" else {}
    answer = first(record, format.answer) or last.get("content")
    if not answer:
        return Unreadable("unreadable", "ends without an answer of the model", id=_id(record))
    return read_exchange(
        {"model": first(record, ("model",)) or model, "messages": said},
        {"choices": [{"message": {"role": "assistant", "content": answer}}]},
        id=filled(format.id, record),
    )


def _message(given: Record) -> Record:
    """Also as ShareGPT and LLaVA write them."""
    if "value" not in given or "from" not in given:
        return given
    role = given["from"]
    return {"role": _ROLES.get(role, role) if isinstance(role, str) else role, "content": given["value"]}


def _spend_log(format: Format, record: Record, model: str) -> Conversation | Unreadable | None:
    """A row of LiteLLM's table: what was asked is in the request, and `messages` is empty."""
    response, request = (unpacked(record.get(name)) for name in ("response", "proxy_server_request"))
    messages = unpacked(record.get("messages")) or (isinstance(request, dict) and request.get("messages"))
    if not messages and not response:
        return Unreadable("unreadable", _NO_CONTENT, id=_id(record))
    payload = {name: value for name, value in record.items() if value not in (None, "")}
    call = litellm.read_call(
        payload
        | {
            "id": _text(record, "request_id"),
            "model": _text(record, "model") or model,
            "messages": _without_cut_images(messages or [], 0),
            "response": response or {},
            "startTime": _moment(record, "startTime"),
            "endTime": _moment(record, "endTime", "startTime"),
            "metadata": unpacked(record.get("metadata")),
            "request_tags": unpacked(record.get("request_tags")),
        }
    )
    if isinstance(call, Conversation) and any(_CUT in text for text in (call.prompt, call.answer)):
        return Unreadable("unreadable", _CUT_TEXT, id=call.id)
    return call


def _without_cut_images(value: Any, depth: int) -> Any:
    """The same messages, with a note where an image was cut in the middle."""
    if depth > DEEPEST:
        raise _Malformed(f"is nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        return {name: _without_cut_images(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_cut_images(one, depth + 1) for one in value]
    return _CUT_IMAGE if isinstance(value, str) and value[:5].lower() == "data:" and _CUT in value else value


def _litellm(format: Format, record: Record, model: str) -> Conversation | Unreadable | None:
    values = {name: unpacked(value) for name, value in record.items()}
    return litellm.read_call(
        values
        | {"model": _text(record, "model") or model, "endTime": _moment(record, "endTime", "startTime")}
    )


_READERS: dict[str, Callable[[Format, Record, str], Conversation | Unreadable | None]] = {
    "span": _span,
    "request": _exchange,
    "messages": _chat,
    "litellm": _litellm,
    "litellm_spend_log": _spend_log,
}


def first(record: Mapping[str, Any], places: Places) -> Any:
    """What the first of these places has that has something; None where none has."""
    return next((value for place in places if not is_absent(value := _at(record, place))), None)


def is_absent(value: Any) -> bool:
    """Whether a cell or a value says nothing; pandas writes NaN for that."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _at(record: Mapping[str, Any], place: str) -> Any:
    if place in record:
        return record[place]
    value: Any = record
    for key in place.split("."):
        value = unpacked(value)
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _text(record: Record, *places: str) -> str:
    """The first of these that is there; empty where none is."""
    for place in places:
        value = _at(record, place)
        if is_absent(value):
            continue
        if not isinstance(value, str):
            raise _Malformed(f"key '{place}': expected text, not {type(value).__name__}")
        held = unpacked(value)
        return held if isinstance(held, str) else value
    return ""


_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From which on a moment is in nanoseconds, microseconds and milliseconds, and how many are a second."""


def _moment(record: Record, *places: str) -> float:
    """The first of these as seconds since the epoch; 0 where none is there. Without a zone it is UTC."""
    for place in places:
        value = _at(record, place)
        if not isinstance(value, int | float) or isinstance(value, bool):
            text = _text(record, place)
            if not text:
                continue
            try:
                value = float(text)
            except ValueError:
                try:
                    moment = datetime.fromisoformat(text)
                    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
                except (ValueError, OverflowError) as error:
                    raise _Malformed(f"key '{place}': {text[:40]!r} is no time") from error
        with contextlib.suppress(OverflowError):
            if math.isfinite(seconds := float(value)):
                return seconds / next((unit for least, unit in _UNITS if seconds >= least), 1.0)
    return 0.0


def unpacked(value: Any) -> Any:
    """What text holds that is JSON or Python's notation of a list, an object or text; all else as it is."""
    if not isinstance(value, str) or not value.startswith(("{", "[", '"')):
        return value
    try:
        found = msgspec.json.decode(value)
    except (*UNDECODED, UnicodeEncodeError):
        if value.startswith('"'):
            return value
        try:
            found = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return value
    return found if isinstance(found, dict | list | str) else value


def _flat(value: dict[str, Any]) -> Attributes:
    """Nested values under their path, as OpenInference names attributes; absent ones are left out."""
    found: Attributes = {}
    for path, leaf in _leaves("", value, 0):
        found[path] = leaf
        if len(found) > MOST_VALUES:
            raise _Malformed(f"has more than {MOST_VALUES} values")
    return found


def _leaves(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > DEEPEST:
        raise _Malformed(f"is nested more than {DEEPEST} deep")
    inside: Iterator[tuple[Any, Any]]
    if isinstance(value, dict):
        inside = iter(value.items())
    elif isinstance(value, list | tuple):
        inside = iter(enumerate(value))
    else:
        if value is not None:
            yield path, value
        return
    for name, one in inside:
        yield from _leaves(f"{path}.{name}" if path else str(name), one, depth + 1)


def _json(name: str, value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _Malformed(f"key '{name}': {error}") from error
