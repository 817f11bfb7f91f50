"""LiteLLM's StandardLoggingPayload, which its proxy posts and its callbacks are given."""

from typing import Any

import msgspec

from groundwatch.conversations.conversation import (
    NAMES,
    Conversation,
    Unreadable,
    content_digest,
    number_of,
    stable_id,
    structured,
    tag_value,
    text_of,
)
from groundwatch.conversations.messages import read_messages, with_side
from groundwatch.conversations.openai import decoded, of_stream, read_exchange, response_tags
from groundwatch.conversations.spans import complete

_NAMES = NAMES.litellm
_LIBRARY = "litellm"
_MAX_TAGS = 16


def read_call(record: Any) -> Conversation | Unreadable | None:
    """The call that a record is of; None where it is of no language model, such as an embedding."""
    if not isinstance(record, dict):
        return Unreadable("unreadable", "not an object of LiteLLM's StandardLoggingPayload")
    if text_of(record.get("call_type")).lower() in _NAMES.others:
        return None
    response_id, call_id = text_of(record.get("id")).strip(), text_of(record.get("litellm_call_id")).strip()
    name = response_id or call_id
    if text_of(record.get("status")) == "failure":
        return Unreadable("failed", f"the call failed: {text_of(record.get('error_str'))[:200]}", name[:256])
    if record.get("response") is None and record.get("messages") is None:
        # Who writes a type of call writes of one.
        named = name[:256] if record.get("call_type") else ""
        return Unreadable("unreadable", "neither messages nor a response: no StandardLoggingPayload", named)
    if record.get("call_type") == _PASSED and (body := _passed_body(record.get("messages"))):
        response = record.get("response")
        if isinstance(response, dict) and "response" in response:
            response = response["response"]
        record = {**record, "messages": body, "model": text_of(body.get("model")) or _model(record)}
        record["response"] = response
        if isinstance(whole := decoded(response), dict):
            return _read_passed(record, whole, name, call_id)
    inputs = read_messages(record.get("messages"), "user", plain=True)
    outputs = read_messages(of_stream(record.get("response")), "assistant", plain=True)
    if refusal := inputs.refusal("input") or outputs.refusal("output"):
        return Unreadable("unreadable", f"the call: {refusal}", name[:256], _model(record))
    conversation = Conversation(
        model=_model(record),
        tags=_tags(record) | _ended(record.get("response")),
        library=_LIBRARY,
        at=number_of(record.get("endTime")),
        response_id=response_id,
    )
    conversation = with_side(conversation, "input", inputs.messages)
    conversation = with_side(conversation, "output", outputs.messages)
    if not conversation.answer and any(message.calls_tool for message in outputs.messages):
        return Unreadable("tool_call", "the answer is a call of a tool", name[:256])
    if not conversation.model:
        return Unreadable("no_model", "a call that names no model", name[:256])
    known = stable_id(name, call_id[:64], "", content_digest(conversation))
    conversation = msgspec.structs.replace(conversation, id=known)
    return complete(conversation, asked=any(inputs.messages))


_PASSED = "pass_through_endpoint"


def _passed_body(messages: Any) -> dict[str, Any] | None:
    """The body of a request that was passed on, which stands as JSON in the place of what was said."""
    first = messages[0] if isinstance(messages, list) and messages else None
    body = structured(first.get("content")) if isinstance(first, dict) else None
    return body if isinstance(body, dict) else None


def _read_passed(
    record: dict[str, Any], response: dict[str, Any], name: str, call_id: str
) -> Conversation | Unreadable:
    body = {**record["messages"], "model": _model(record)}
    call = read_exchange(body, response, id=name[:256], at=number_of(record.get("endTime")))
    if isinstance(call, Unreadable):
        return msgspec.structs.replace(call, model=body["model"])
    known = stable_id(name, call_id[:64], "", content_digest(call))
    tags = _tags(record) | call.tags
    return msgspec.structs.replace(call, id=known or call.id, tags=tags, library=_LIBRARY)


def _model(record: dict[str, Any]) -> str:
    """The model as its provider calls it, which is how LiteLLM's spans have it too."""
    model = (
        text_of(record.get("model")).strip().removeprefix(f"{text_of(record.get('custom_llm_provider'))}/")
    )
    return model or text_of(record.get("model_group")).strip()


def _ended(response: Any) -> dict[str, str]:
    return response_tags(response) if isinstance(response, dict) else {}


def _tags(record: dict[str, Any]) -> dict[str, str]:
    found = {}
    for path, tag in _NAMES.tags.items():
        value: Any = record
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if text := tag_value(value):
            found[tag] = text
    given = record.get("request_tags")
    if isinstance(given, list):
        texts = [text for one in given[:_MAX_TAGS] if (text := tag_value(one))]
        if texts:
            found["request_tags"] = ",".join(texts)[:256]
    return found
