"""Records of tracing systems, told by their keys: Langfuse's observations, Phoenix's spans, LiteLLM's logs.

They come from JSON, CSV and Parquet alike: a value may also be text that holds JSON or, where pandas wrote a
table of spans, Python's own notation.
"""

import ast
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from groundwatch.conversations import litellm
from groundwatch.conversations.conversation import Attributes, Conversation, Unreadable
from groundwatch.conversations.spans import joined, read_span
from groundwatch.errors import UNDECODED

MOST_VALUES = 100_000
"""Values within one record."""

DEEPEST = 64

_ATTRIBUTES = "attributes."
_PHOENIX = frozenset(
    {
        "name",
        "span_kind",
        "start_time",
        "end_time",
        "context",
        "context.span_id",
        "context.trace_id",
        "attributes",
    }
)
_SPOKEN = ("llm.", "input.", "output.", "gen_ai.")
"""Attributes of a call; others hold documents and embeddings."""

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


class Export(msgspec.Struct, frozen=True):
    """What one system exports. `reads` says which columns of a table are needed."""

    name: str
    matches: Callable[[Mapping[str, Any]], bool]
    reads: Callable[[str], bool]
    read: Callable[[dict[str, Any], str], Conversation | Unreadable | None]


class _Malformed(Exception):
    """A value that is not what its key says."""


def export_of(record: Mapping[str, Any]) -> Export | None:
    """Which export has a record, or a table, with these keys."""
    return next((one for one in EXPORTS if one.matches(record)), None)


def read_export(export: Export, record: dict[str, Any], model: str = "") -> Conversation | Unreadable | None:
    """The call in a record; None: it is of something else. `model` is of a call that names none."""
    try:
        call = export.read(record, model)
        # No log will come that brings the answer.
        return joined(call, ()) if isinstance(call, Conversation) and not call.answer else call
    except _Malformed as error:
        return Unreadable("unreadable", f"as {export.name} exports it: {error}", id=_id(record))


def _id(record: Mapping[str, Any]) -> str:
    found = (record.get(name) for name in ("id", "request_id", "context.span_id"))
    return next((one for one in found if isinstance(one, str)), "")


def _is_langfuse(record: Mapping[str, Any]) -> bool:
    keys = record.keys()
    return (
        {"id", "type", "input", "output"} <= keys
        and bool({"traceId", "trace_id"} & keys)
        and bool({"startTime", "start_time"} & keys)
    )


def _langfuse(record: dict[str, Any], model: str) -> Conversation | Unreadable | None:
    """An observation as Langfuse's page, its public API (both versions) and its blob storage write it."""
    if _text(record, "type").upper() != "GENERATION":
        return None
    attributes: Attributes = {"langfuse.observation.type": "generation"}
    for side in ("input", "output"):
        value = _unpacked(record.get(side))
        if value is not None:
            attributes[f"langfuse.observation.{side}"] = (
                value if isinstance(value, str) else _json(side, value)
            )
    for attribute, value in (
        ("model.name", _text(record, "model", "providedModelName", "provided_model_name") or model),
        ("level", _text(record, "level")),
        ("status_message", _text(record, "statusMessage", "status_message")),
    ):
        if value:
            attributes[f"langfuse.observation.{attribute}"] = value
    return read_span(
        _text(record, "name"),
        attributes,
        trace_id=_text(record, "traceId", "trace_id"),
        span_id=_text(record, "id"),
        at=_moment(record, "endTime", "end_time", "startTime", "start_time"),
    )


def _is_phoenix(record: Mapping[str, Any]) -> bool:
    keys = record.keys()
    flat = {"context.span_id", "context.trace_id"} & keys and any(
        name.startswith(_ATTRIBUTES) for name in keys
    )
    return bool(flat) or {"context", "attributes", "span_kind"} <= keys


def _phoenix(record: dict[str, Any], model: str) -> Conversation | Unreadable | None:
    """A span of Phoenix: of its API, or a row of its table, with a column for each attribute."""
    context = record.get("context")
    if not isinstance(context, dict):
        context = {name: record.get(f"context.{name}") for name in ("trace_id", "span_id")}
    given = _unpacked(record.get("attributes"))
    attributes: Attributes = {}
    if isinstance(given, dict):
        attributes.update(_flat(given))
    for column, value in record.items():
        if column.startswith(_ATTRIBUTES) and _reads_phoenix(column):
            attributes.update(_flat({column.removeprefix(_ATTRIBUTES): _unpacked(value)}))
    if kind := _text(record, "span_kind"):
        attributes.setdefault("openinference.span.kind", kind)
    if model:
        attributes.setdefault("llm.model_name", model)
    return read_span(
        _text(record, "name"),
        attributes,
        trace_id=_text(context, "trace_id"),
        span_id=_text(context, "span_id"),
        at=_moment(record, "end_time", "start_time"),
    )


def _reads_phoenix(column: str) -> bool:
    return column in _PHOENIX or column.removeprefix(_ATTRIBUTES).startswith(_SPOKEN)


def _is_spend_log(record: Mapping[str, Any]) -> bool:
    return {"request_id", "call_type", "spend", "startTime", "response"} <= record.keys()


def _spend_log(record: dict[str, Any], model: str) -> Conversation | Unreadable | None:
    """A row of LiteLLM's table: what was asked is in the request, and `messages` is empty."""
    response, request = (_unpacked(record.get(name)) for name in ("response", "proxy_server_request"))
    messages = _unpacked(record.get("messages")) or (isinstance(request, dict) and request.get("messages"))
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
            "metadata": _unpacked(record.get("metadata")),
            "request_tags": _unpacked(record.get("request_tags")),
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


def _is_litellm(record: Mapping[str, Any]) -> bool:
    return {"id", "call_type", "messages", "response", "startTime"} <= record.keys()


def _litellm(record: dict[str, Any], model: str) -> Conversation | Unreadable | None:
    values = {name: _unpacked(value) for name, value in record.items()}
    return litellm.read_call(
        values
        | {"model": _text(record, "model") or model, "endTime": _moment(record, "endTime", "startTime")}
    )


def _everything(column: str) -> bool:
    return True


EXPORTS = (
    Export("Langfuse", _is_langfuse, _everything, _langfuse),
    Export("Phoenix", _is_phoenix, _reads_phoenix, _phoenix),
    Export("LiteLLM's spend log", _is_spend_log, _everything, _spend_log),
    Export("LiteLLM", _is_litellm, _everything, _litellm),
)


def _text(record: Mapping[str, Any], *names: str) -> str:
    """The first of these that is there; empty where none is."""
    for name in names:
        value = record.get(name)
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            continue
        if not isinstance(value, str):
            raise _Malformed(f"key '{name}': expected text, not {type(value).__name__}")
        unpacked = _unpacked(value)
        return unpacked if isinstance(unpacked, str) else value
    return ""


def _moment(record: Mapping[str, Any], *names: str) -> float:
    """The first of these as seconds since the epoch; 0 where none is there. Without a zone it is UTC."""
    for name in names:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if math.isfinite(value):
                return float(value)
            continue
        text = _text(record, name)
        if not text:
            continue
        with contextlib.suppress(ValueError):
            if math.isfinite(seconds := float(text)):
                return seconds
        try:
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError) as error:
            raise _Malformed(f"key '{name}': {text[:40]!r} is no time") from error
    return 0.0


def _unpacked(value: Any) -> Any:
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
