"""Spans of calls of models, in the dialects of `conversations.toml`."""

from collections.abc import Sequence

import msgspec

from groundwatch.conversations.conversation import (
    Attributes,
    Conversation,
    Unreadable,
    content_digest,
    stable_id,
)
from groundwatch.conversations.dialects import library_of, read_attributes
from groundwatch.conversations.logs import LogPart, complete, joined, read_log
from groundwatch.conversations.messages import with_side
from groundwatch.conversations.reasons import reason_by
from groundwatch.conversations.values import first_text, hex_id, number_of

_ERRORS = ("error.type",)
_LEVELS = ("langfuse.observation.level",)
_MESSAGES = ("langfuse.observation.status_message",)


def read_span(
    name: str,
    attributes: Attributes,
    *,
    trace_id: str,
    span_id: str,
    at: float,
    events: Sequence[tuple[str, Attributes]] = (),
    scope: str = "",
) -> Conversation | Unreadable | None:
    """The call that a span is of; None where it is of something else: a tool, a chain, an embedding.

    `scope` is the name of the instrumentation scope; with it a reason names its library more surely. A call
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
    if not conversation.answer and not parts:
        if any(message.calls_tool for message in logged.outputs.messages):
            return Unreadable("tool_call", "the answer is a call of a tool", known)
        if error := _error(attributes):
            return Unreadable("failed", f"the call failed: {error[:200]}", known)
    if parts:
        return joined(conversation, parts)
    if not conversation.model and (conversation.answer or conversation.prompt or conversation.images):
        return Unreadable("no_model", f"the span {name[:80]} of a call names no model", known)
    return complete(conversation, asked=bool(logged.inputs.messages)) if conversation.answer else conversation


def _error(attributes: Attributes) -> str:
    if error := first_text(attributes, _ERRORS):
        return error
    level = first_text(attributes, _LEVELS)
    return (
        first_text(attributes, ("langfuse.observation.status_message",)) or level if level == "ERROR" else ""
    )
