"""Messages that come as log records, apart from the span of their call, and the two joined."""

from collections.abc import Sequence
from typing import Any

import msgspec

from groundwatch.conversations.content import MOST, Message
from groundwatch.conversations.conversation import (
    Attributes,
    Conversation,
    Unreadable,
    content_digest,
    stable_id,
)
from groundwatch.conversations.dialects import library_of, read_attributes
from groundwatch.conversations.messages import answered, read_messages, with_side
from groundwatch.conversations.names import NAMES
from groundwatch.conversations.reasons import REASONS, reason_by
from groundwatch.conversations.values import first_text, hex_id, number_of, structured

_EVENTS = NAMES.events
_GENERAL = frozenset(("no_content", "no_input"))
_ABSENT = _GENERAL | {name for name, one in REASONS.items() if one.of & _GENERAL}


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one log record says of the call of the span `span_id`; `index` is of a choice."""

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
    content = structured(body)
    if role and isinstance(content, dict) and "role" not in content:
        content = {"content": None, **content, "role": role}
    messages = read_messages(content, role or "assistant").messages
    index = content.get("index") if isinstance(content, dict) else 0
    return LogPart(
        trace_id=trace_id,
        span_id=span_id,
        at=number_of(at),
        inputs=messages if role else (),
        outputs=() if role else messages,
        index=index if type(index) is int and abs(index) < MOST else 0,
        library=library,
    )


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
    conversation = complete(conversation, asked=bool(inputs))
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
