"""Spans of calls of models, in the dialects of `conversations.toml`."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from groundwatch.conversations.conversation import (
    NAMES,
    NOT_JSON,
    REASONS,
    Attributes,
    Conversation,
    Dialect,
    Unreadable,
    content_digest,
    finish_tag,
    first_text,
    hex_id,
    json_of,
    number_of,
    reason_by,
    stable_id,
    structured,
    tag_value,
    text_of,
)
from groundwatch.conversations.messages import (
    MOST,
    Message,
    Read,
    Side,
    answered,
    is_part,
    read_messages,
    with_side,
)
from groundwatch.conversations.openai import of_stream

_DIALECTS = tuple(NAMES.dialect.values())
_PREFIXES = tuple(f"{prefix}." for one in _DIALECTS for prefix in (one.flat_input, one.flat_output) if prefix)
_RESPONSES = NAMES.dialect["bodies"].output
_NAMING = _RESPONSES + NAMES.dialect["bodies"].input + NAMES.bodies.about
_MAX_INDEX_DIGITS = 9
_MAX_BODY = 4 * 1024 * 1024
_LONGEST_SCOPE = 100


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


def dialect_of(attributes: Attributes) -> str:
    """The name of the dialect that says of this that it is a call of a model; empty where none does."""
    kinds = ((name, one.calls, _kind(attributes, one)) for name, one in NAMES.dialect.items())
    return next((name for name, calls, kind in kinds if kind in calls), "")


def _kind(attributes: Attributes, dialect: Dialect) -> str:
    text = first_text(attributes, dialect.kind)
    told = json_of(text) if text.startswith("{") else text.strip('"')
    return text_of(told.get("type") if isinstance(told, dict) else told).lower()


def read_attributes(attributes: Attributes) -> Logged | None:
    """What the attributes say of a call; None where they are of something that is no call of a model."""
    kinds = [_kind(attributes, dialect) for dialect in _DIALECTS]
    if any(kind in dialect.others for kind, dialect in zip(kinds, _DIALECTS, strict=True)):
        return None
    model = next((model for one in _DIALECTS if (model := first_text(attributes, one.model).strip('"'))), "")
    called = any(kind in dialect.calls for kind, dialect in zip(kinds, _DIALECTS, strict=True))
    marked = any(first_text(attributes, dialect.marks) for dialect in _DIALECTS)
    called = called or (marked and not any(kinds))
    flat = _unflattened(attributes)
    logged = Logged(
        inputs=_side(attributes, "input", flat, called),
        outputs=_side(attributes, "output", flat, called),
        references=_references(attributes),
        model=model or _in_bodies(attributes, NAMES.bodies.model, _NAMING, called),
        response_id=_response_id(attributes) or _in_bodies(attributes, NAMES.bodies.id, _RESPONSES, called),
        tags=_tags(attributes),
        called=called,
    )
    said = logged.inputs, logged.outputs
    if logged.called or logged.references or any(read.messages or read.cut for read in said):
        return logged
    return None


def _first(attributes: Attributes, keys: Iterable[str]) -> Any:
    return next((value for key in keys if (value := attributes.get(key)) not in (None, "")), None)


def _said(
    attributes: Attributes,
    dialect: Dialect,
    side: Side,
    keys: Iterable[str],
    flat: dict[str, list[dict[str, Any]]],
) -> Read:
    """The messages of one side in one dialect, in the first of the attributes that is there."""
    if side == "input":
        prefix, role = dialect.flat_input, "user"
    else:
        prefix, role = dialect.flat_output, "assistant"
        if text := _first(attributes, dialect.text):
            return read_messages([text], role)
        calls = structured(_first(attributes, dialect.tools))
        if calls and isinstance(calls, list):
            return Read((Message(role=role, calls_tool=True),))
    value = _first(attributes, keys)
    if side == "output":
        value = of_stream(value)
    read = Read() if value is None else read_messages(value, role, plain=dialect.plain)
    return read if read.messages or prefix not in flat else read_messages(flat[prefix], role)


def _side(attributes: Attributes, side: Side, flat: dict[str, list[dict[str, Any]]], called: bool) -> Read:
    """What the first dialect has that has messages, or a fallback where that has more.

    Those are read only where something may be missing: an image, or all.
    """
    best = Read()
    for dialect in _DIALECTS:
        if not dialect.fallback and best.messages:
            continue
        keys = dialect.input if side == "input" else dialect.output
        for given in [(key,) for key in keys] if dialect.fallback else [keys]:
            if dialect.fallback and not (called and _may_lack(best, side)):
                break
            read = _said(attributes, dialect, side, given, flat)
            if read.messages and (not best.messages or _worth(read) > _worth(best)):
                best = read
            elif not best.messages:
                best = Read(cut=best.cut or read.cut, unread=best.unread or read.unread)
    return best


def _may_lack(read: Read, side: Side) -> bool:
    images, sent, said = _worth(read)
    return not said or sent > images or (side == "input" and not images)


def _worth(read: Read) -> tuple[int, int, bool]:
    """Images, those that are known to be lost among them, and a text: who has more of this tells more."""
    images = sum(len(one.images) for one in read.messages)
    lost = sum(len(one.left_out) for one in read.messages)
    said = any(one.text for one in read.messages)
    return images, images + lost, said


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
    return ""


def _in_bodies(attributes: Attributes, paths: Iterable[str], keys: Iterable[str], called: bool) -> str:
    """The first text that is under one of the paths in the requests or responses under these keys."""
    for key in keys if called else ():
        value = attributes.get(key)
        if isinstance(value, str) and len(value) <= _MAX_BODY and value.startswith("{"):
            body = json_of(value)
            for path in paths:
                if text := text_of(_under(body, path)).strip():
                    return text
    return ""


def _under(value: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(value, list) and key.isdigit():
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _tags(attributes: Attributes) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, tag in NAMES.tags.items():
        if value := tag_value(attributes.get(key)):
            found.setdefault(tag, value)
    ended = structured(_first(attributes, NAMES.ended.attributes))
    return found | finish_tag(ended[0] if isinstance(ended, list) and ended else ended)


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
    elif key.startswith(("contents.", "content.")):
        index, rest = _index(key.partition(".")[2])
        if index is not None:
            part = message["parts"].setdefault(index, {})
            rest = rest.removeprefix("message_content.")
            part["url" if rest in ("image.image.url", "image_url.url") else rest] = value


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    parts: dict[int, dict[str, Any]] = message.pop("parts")
    content = message.get("content")
    if isinstance(content, str) and content.startswith("[") and (read := _parts_in(content)):
        message["content"] = read
    elif parts:
        held = [part for _, part in sorted(parts.items())]
        repeats = any(part.get("text") == content for part in held)
        message["content"] = [content, *held] if isinstance(content, str) and not repeats else held
    return message


def _parts_in(text: str) -> list[Any]:
    """The parts that a text holds as JSON; none where it is a text that only begins so."""
    value = structured(text)
    if value is NOT_JSON or not isinstance(value, list) or not all(is_part(item) for item in value):
        return []
    return value


_EVENTS = NAMES.events
_GENERAL = frozenset(("no_content", "no_input"))
_ABSENT = _GENERAL | {name for name, one in REASONS.items() if one.of & _GENERAL}


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one log record says of the call of the span `span_id`; `index` is of a choice. `unread` says that
    it is in a form that nobody knows, and with which keys."""

    trace_id: str
    span_id: str
    at: float = 0.0
    inputs: tuple[Message, ...] = ()
    outputs: tuple[Message, ...] = ()
    index: int = 0
    model: str = ""
    response_id: str = ""
    references: dict[str, str] = {}
    tags: dict[str, str] = {}
    library: str = ""
    unread: str = ""


def read_log(
    event_name: str,
    attributes: Attributes,
    body: Any,
    *,
    trace_id: str,
    span_id: str,
    at: float,
    scope: str = "",
) -> LogPart | Unreadable | None:
    """What a log record says of a call; None where it is about something else.

    `scope` is the name of the instrumentation scope.
    """
    event_name = event_name or first_text(attributes, _EVENTS.names)
    trace_id, span_id = hex_id(trace_id), hex_id(span_id)
    library = library_of(scope, attributes)
    if event_name in _EVENTS.details:
        logged = read_attributes(attributes)
        if logged is None:
            return None
        if not logged.response_id and not (trace_id and span_id):
            return Unreadable("no_ids", "a log record of a call names neither a span nor a response")
        return LogPart(
            trace_id=trace_id,
            span_id=span_id,
            at=number_of(at),
            inputs=logged.inputs.messages,
            outputs=logged.outputs.messages,
            model=logged.model,
            response_id=logged.response_id,
            references=logged.references,
            tags=logged.tags,
            library=library,
        )
    role = _EVENTS.inputs.get(event_name)
    if role is None and event_name not in _EVENTS.outputs:
        return None
    if not trace_id or not span_id:
        return Unreadable("no_ids", f"the log record {event_name} names no span: it may be of any call")
    if body is None:
        body = next((attributes[key] for key in _EVENTS.bodies if key in attributes), None)
    if body is None:
        body = {key: _unless_no_json(attributes[key]) for key in _EVENTS.fields if key in attributes} or None
    content = structured(body)
    if role and isinstance(content, dict) and "role" not in content:
        content = {"content": None, **content, "role": role}
    read = read_messages(content, role or "assistant")
    unread = ""
    if read.unread and isinstance(content, dict) and (content.get("content") or content.get("message")):
        unread = f"the log record {event_name}: {read.refusal('input' if role else 'output')}"
    messages = read.messages
    index = content.get("index") if isinstance(content, dict) else 0
    return LogPart(
        trace_id=trace_id,
        span_id=span_id,
        at=number_of(at),
        inputs=messages if role else (),
        outputs=() if role else messages,
        index=index if type(index) is int and abs(index) < MOST else 0,
        library=library,
        unread=unread,
    )


def _unless_no_json(value: Any) -> Any:
    held = structured(value)
    return value if held is NOT_JSON else held


def joined(span: Conversation | None, parts: Sequence[LogPart]) -> Conversation | Unreadable:
    """The call that a span and its log records tell of together, once no more of them are waited for.

    What the span says itself stays, but for a side that it lacks or that the records have more completely.
    Without records the span is all there is: if it has no content, that is now said by a reason.
    """
    ordered = sorted(parts, key=lambda part: part.at)
    conversation = span or _bare(ordered)
    if not conversation.model:
        reason = "no_span" if span is None else "no_model"
        message = "message logs came without their span, which names the model: export traces as well"
        return Unreadable(reason, message if span is None else "a call that names no model", conversation.id)
    inputs = tuple(message for part in ordered for message in part.inputs)
    outputs = tuple(
        message for part in sorted(ordered, key=lambda part: part.index) for message in part.outputs
    )
    if inputs:
        conversation = _with_input(conversation, inputs)
    if outputs and not conversation.answer:
        conversation = with_side(conversation, "output", outputs)
        if not answered(outputs) and any(message.calls_tool for message in outputs):
            return Unreadable(
                "tool_call", "the answer is a call of a tool", conversation.id, conversation.model
            )
    references = {name: url for part in ordered for name, url in part.references.items()}
    references.update(conversation.references)
    conversation = msgspec.structs.replace(conversation, references=references)
    if not conversation.id:
        made = stable_id(conversation.response_id, "", "", content_digest(conversation))
        conversation = msgspec.structs.replace(conversation, id=made)
    unread = next((part.unread for part in ordered if part.unread), "")
    if unread and not (conversation.answer and (conversation.prompt or conversation.images)):
        return Unreadable("unreadable", unread, conversation.id, conversation.model)
    conversation = complete(conversation, asked=any(inputs))
    if not (conversation.answer or outputs or references or _ABSENT & {*conversation.left_out}):
        message = "the answer was not logged, or it is empty"
        return Unreadable("no_answer", message, conversation.id, conversation.model)
    return conversation


def complete(conversation: Conversation, *, asked: bool) -> Conversation:
    """The conversation, with the reason if its content was not logged. `asked`: messages to it were."""
    if asked or conversation.prompt or conversation.images or conversation.left_out:
        return conversation
    if "input" in conversation.references:
        return conversation
    reason = "no_input" if conversation.answer or "output" in conversation.references else "no_content"
    return msgspec.structs.replace(conversation, left_out=(reason_by(reason, conversation.library),))


def _bare(parts: Sequence[LogPart]) -> Conversation:
    """The call of records whose span did not come: what those say that name it themselves."""
    named = max(parts, key=lambda part: (bool(part.model), bool(part.response_id)), default=None)
    if named is None:
        return Conversation()
    return Conversation(
        id=stable_id(named.response_id, named.trace_id, named.span_id, ""),
        model=named.model,
        tags=named.tags,
        library=named.library,
        at=named.at,
        response_id=named.response_id,
        trace_id=named.trace_id,
        span_id=named.span_id,
    )


def _with_input(conversation: Conversation, inputs: tuple[Message, ...]) -> Conversation:
    read = with_side(conversation, "input", inputs)
    absent = not conversation.prompt and not conversation.images
    poorer = len(read.left_out) < len([one for one in conversation.left_out if one not in _ABSENT])
    return read if absent or poorer else conversation


_ERRORS = ("error.type",)
_LEVELS = ("langfuse.observation.level",)


def read_span(
    name: str,
    attributes: Attributes,
    *,
    trace_id: str,
    span_id: str,
    at: float,
    events: Sequence[tuple[str, Attributes]] = (),
    scope: str = "",
    parent_id: str = "",
) -> Conversation | Unreadable | None:
    """The call that a span is of; None where it is of something else: a tool, a chain, an embedding.

    `scope` is the name of the instrumentation scope; with it a reason names its library more surely.
    `parent_id` is of the span around it. A call
    without content has no answer: its log records may bring it, and `logs.joined` says the reason if none
    come. Several spans may log one call, and each is read: `conversation.repeat_key` says how to tell.
    """
    logged = read_attributes(attributes)
    if logged is None:
        return None
    trace_id, span_id = hex_id(trace_id), hex_id(span_id)
    library = library_of(scope, attributes)
    conversation = Conversation(
        model=logged.model,
        references=logged.references,
        tags=logged.tags,
        library=library,
        at=number_of(at),
        response_id=logged.response_id,
        trace_id=trace_id,
        span_id=span_id,
        parent_id=hex_id(parent_id),
        scope=text_of(scope)[:_LONGEST_SCOPE],
    )
    conversation = with_side(conversation, "input", logged.inputs.messages)
    conversation = with_side(conversation, "output", logged.outputs.messages)
    if logged.inputs.cut or logged.outputs.cut:
        left_out = (*conversation.left_out, reason_by("cut_attribute", library))
        conversation = msgspec.structs.replace(conversation, left_out=left_out)
    known = stable_id(logged.response_id, trace_id, span_id, content_digest(conversation))
    conversation = msgspec.structs.replace(conversation, id=known)
    read = [
        read_log(event, inside, None, trace_id=trace_id, span_id=span_id, at=at, scope=scope)
        for event, inside in events
    ]
    parts = [part for part in read if isinstance(part, LogPart)]
    refusal = "" if parts else logged.inputs.refusal("input") or logged.outputs.refusal("output")
    silent = not conversation.answer and not parts
    if silent and (error := _error(attributes)):
        return Unreadable("failed", f"the call failed: {error[:200]}", known)
    if refusal:
        message = f"the span {name[:80]} of a call: {refusal}"
        return Unreadable("unreadable", message, known, conversation.model)
    if silent and any(message.calls_tool for message in logged.outputs.messages):
        return Unreadable("tool_call", "the answer is a call of a tool", known)
    if parts:
        return joined(conversation, parts)
    if not conversation.model and (conversation.answer or conversation.prompt or conversation.images):
        return Unreadable("no_model", f"the span {name[:80]} of a call names no model", known)
    return complete(conversation, asked=any(logged.inputs.messages)) if conversation.answer else conversation


def _error(attributes: Attributes) -> str:
    if error := first_text(attributes, _ERRORS):
        return error
    level = first_text(attributes, _LEVELS)
    return (
        first_text(attributes, ("langfuse.observation.status_message",)) or level if level == "ERROR" else ""
    )
