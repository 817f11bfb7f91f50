"""Exchanges with OpenAI's API, and with what speaks as it does, or as another provider does.

Whole or as a stream of events. Besides this package it needs msgspec only, so that a client can use it.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import msgspec

from groundwatch.conversations.conversation import (
    NAMES,
    NOT_JSON,
    Conversation,
    Unreadable,
    content_digest,
    finish_tag,
    first_text,
    json_of,
    logprob_tag,
    number_of,
    stable_id,
    text_of,
)
from groundwatch.conversations.messages import read_content, read_messages, with_side
from groundwatch.counting import has_more_values

_LIBRARY = "openai"
_DONE = b"[DONE]"

_MOST_LINES = 400_000
_MOST_VALUES = 1_000_000
_FINAL = ("response.completed", "response.incomplete", "response.failed")
_OF_A_MESSAGE = ("message_start", "content_block_start", "content_block_delta", "message_delta")
_FAILED = ("errored", "expired", "canceled")
"""What Anthropic calls a request of a batch that has no answer."""

_TEXT = ("response.output_text", "response.refusal")


def read_exchange(request: Any, response: Any, *, id: str = "", at: float = 0.0) -> Conversation | Unreadable:
    """The call that a request and its response are, each decoded or as the bytes or the text of its body.

    A body may be JSON or a stream of events; a list is taken for the decoded events of one. `id` is how the
    caller names the call; else it is the response's own. A stream that ends too early keeps what came, with
    the tag `finish_reason` saying `incomplete`.
    """
    request, response = decoded(request), decoded(response)
    if not isinstance(request, dict) or not isinstance(response, dict):
        what = "response" if isinstance(request, dict) else "request"
        return Unreadable("unreadable", f"the {what} is neither JSON of OpenAI's API nor a stream of it", id)
    if isinstance(inner := response.get("response"), dict):
        response = inner
    response_id = first_text(response, NAMES.bodies.id)
    if error := _error(response):
        return Unreadable("failed", f"the call failed: {error[:200]}", (id or response_id)[:256])
    read = read_messages(request, "user"), read_messages(response, "assistant")
    inputs, outputs = (one.messages for one in read)
    refusal = read[0].refusal("input") or read[1].refusal("output")
    if refusal or not (any(inputs) and outputs):
        refusal = refusal or "its input or its output is missing"
        message = f"neither a chat completion nor a response: {refusal}"
        return Unreadable("unreadable", message, (id or response_id)[:256])
    conversation = Conversation(
        model=first_text(response, NAMES.bodies.model) or first_text(request, NAMES.bodies.model),
        tags=response_tags(response),
        library=_LIBRARY,
        at=number_of(at) or number_of(response.get("created")) or number_of(response.get("created_at")),
        response_id=response_id,
    )
    conversation = with_side(with_side(conversation, "input", inputs), "output", outputs)
    if response.get("output"):
        # All messages of the responses API are one answer.
        answer = "\n".join(message.text for message in outputs if message.text)
        conversation = msgspec.structs.replace(conversation, answer=answer, others=())
    name = id or stable_id(response_id, "", "", content_digest(conversation))
    if not conversation.answer:
        if any(message.calls_tool for message in outputs):
            return Unreadable("tool_call", "the answer is a call of a tool", name[:256])
        return Unreadable("no_answer", "the answer is empty", name[:256])
    if not conversation.model:
        return Unreadable("no_model", "a call that names no model", name[:256])
    return msgspec.structs.replace(conversation, id=name)


def assembled(chunks: Iterable[Any]) -> dict[str, Any]:
    """The response that chunks of a stream make, in the form of one that came whole.

    A chunk is decoded, or an object of OpenAI's own client. What is none is passed over. Without the chunk
    that ends it, the response's `finish_reason`, or its `status`, is `incomplete`.
    """
    chat = _Chat()
    responses = _Responses()
    message = _Message()
    for given in chunks:
        chunk = given if isinstance(given, dict) else _dumped(given)
        if text_of(chunk.get("type")).startswith("response."):
            responses.add(chunk)
        elif chunk.get("type") in _OF_A_MESSAGE:
            message.add(chunk)
        elif chunk.get("error"):
            return {"error": chunk["error"]}
        else:
            chat.add(chunk)
    if message.begun:
        return message.whole()
    return responses.whole() if responses.begun else chat.whole()


def of_stream(value: Any) -> Any:
    """What the pieces of a stream make, where a log has them in the answer's place; else the value itself.

    Events in a form that nobody knows stay pieces: they are not what was said.
    """
    pieces, is_text = value, isinstance(value, str)
    if is_text and value.startswith(("data:", "event:", "id:", ":")):
        pieces = value = _events(value.encode("utf-8", "replace")) or value
    elif is_text and value.startswith("["):
        pieces = json_of(value)
    elif is_text and value.startswith("{") and "\n{" in value and not has_more_values(value, _MOST_VALUES):
        # Lines, as Ollama's server sends them.
        lines = map(json_of, value.split("\n"))
        pieces = [*takewhile(lambda line: isinstance(line, dict), lines)]
    if isinstance(pieces, list) and any(isinstance(one, dict) and _is_piece(one) for one in pieces):
        return assembled(pieces)
    return value


def _is_piece(chunk: dict[str, Any]) -> bool:
    if "candidates" in chunk or text_of(chunk.get("type")).startswith(("response.", *_OF_A_MESSAGE)):
        return True
    return any(isinstance(one, dict) and ("delta" in one or "text" in one) for one in _choices(chunk))


def _choices(chunk: dict[str, Any]) -> list[Any]:
    """Those of a chunk; in their form also what Ollama, Cohere and Bedrock have, which know but one."""
    several = chunk.get("choices") or chunk.get("candidates")
    if isinstance(several, list):
        return several
    if "done" in chunk and ("message" in chunk or "response" in chunk):
        ended = chunk.get("done_reason") or (chunk["done"] and "stop")
        return [{"delta": chunk.get("message"), "text": chunk.get("response"), "finish_reason": ended}]
    delta = chunk.get("delta")
    if isinstance(delta, dict) and ("message" in delta or "finish_reason" in delta):
        return [{"delta": delta.get("message"), "finish_reason": delta.get("finish_reason")}]
    block, stop = chunk.get("contentBlockDelta"), chunk.get("messageStop")
    if isinstance(block, dict) and isinstance(said := block.get("delta"), dict):
        return [{"delta": {"content": said, "tool_calls": said.get("toolUse")}}]
    return [{"finish_reason": stop.get("stopReason")}] if isinstance(stop, dict) else []


class _Chat:
    """A chat completion, or a completion of text, of which some chunks are there."""

    def __init__(self) -> None:
        self._about: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    def add(self, chunk: dict[str, Any]) -> None:
        named = {"id": first_text(chunk, NAMES.bodies.id), "model": first_text(chunk, NAMES.bodies.model)}
        chunk = {**chunk, **named}
        for key in ("id", "created"):
            if chunk.get(key):
                self._about.setdefault(key, chunk[key])
        for key in ("model", "usage"):
            if chunk.get(key):
                self._about[key] = chunk[key]
        for choice in _choices(chunk):
            if isinstance(choice, dict):
                self._choices.setdefault(_index(choice), _Choice()).add(choice)

    def whole(self) -> dict[str, Any]:
        choices = [choice.whole(index) for index, choice in sorted(self._choices.items())]
        return {"object": "chat.completion", **self._about, "choices": choices}


class _Choice:
    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {"content": [], "refusal": []}
        self._role = "assistant"
        self._finish = ""
        self._calls_tool = False

    def add(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or choice.get("content")
        delta = delta if isinstance(delta, dict) else {"content": choice.get("text")}
        if isinstance(parts := delta.get("parts"), list):
            # Gemini's.
            read = read_content(parts)
            delta = {"role": delta.get("role"), "content": read.text, "tool_calls": read.calls_tool}
        self._role = text_of(delta.get("role")) or self._role
        self._finish = text_of(choice.get("finish_reason") or choice.get("finishReason")) or self._finish
        self._calls_tool |= bool(delta.get("tool_calls"))
        for key, said in self._said.items():
            value = delta.get(key)
            pieces = value if isinstance(value, list) else [value]
            said += [text_of(one.get("text") if isinstance(one, dict) else one) for one in pieces]

    def whole(self, index: int) -> dict[str, Any]:
        content, refusal = ("".join(self._said[key]) or None for key in ("content", "refusal"))
        message: dict[str, Any] = {"role": self._role, "content": content, "refusal": refusal}
        if self._calls_tool:
            message["calls_tool"] = True
        return {"index": index, "message": message, "finish_reason": self._finish or "incomplete"}


class _Responses:
    """A response of the responses API, of which some events are there."""

    def __init__(self) -> None:
        self.begun = False
        self._response: dict[str, Any] = {}
        self._ended = False
        self._items: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, dict[int, list[str]]] = {}

    def add(self, event: dict[str, Any]) -> None:
        self.begun = True
        kind = text_of(event.get("type"))
        response = event.get("response")
        if isinstance(response, dict):
            self._response = response
            self._ended |= kind in _FINAL
        number = _index(event, "output_index")
        if kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            self._items[number] = event["item"]
        elif kind.startswith(_TEXT):
            texts = self._texts.setdefault(number, {}).setdefault(_index(event, "content_index"), [])
            if kind.endswith(".delta"):
                texts.append(text_of(event.get("delta")))
            elif whole := text_of(event.get("text")) or text_of(event.get("refusal")):
                texts[:] = [whole]

    def whole(self) -> dict[str, Any]:
        if self._ended and self._response.get("output"):
            return self._response
        items = {
            number: {
                "type": "message",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "".join(texts)} for _, texts in sorted(parts.items())
                ],
            }
            for number, parts in self._texts.items()
        }
        output = [item for _, item in sorted((items | self._items).items())]
        status = self._response.get("status") if self._ended else "incomplete"
        return {**self._response, "object": "response", "status": status, "output": output}


class _Message:
    """A message of Anthropic's API, of which some events are there."""

    def __init__(self) -> None:
        self.begun = False
        self._about: dict[str, Any] = {}
        self._ended = "incomplete"
        self._blocks: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        self.begun = True
        if isinstance(started := event.get("message"), dict):
            self._about = started
        if isinstance(begun := event.get("content_block"), dict):
            self._blocks[_index(event)] = dict(begun)
        delta = event.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        self._ended = text_of(delta.get("stop_reason")) or self._ended
        if text := text_of(delta.get("text")):
            block = self._blocks.setdefault(_index(event), {"type": "text"})
            block["text"] = text_of(block.get("text")) + text

    def whole(self) -> dict[str, Any]:
        content = [block for _, block in sorted(self._blocks.items())]
        return {"role": "assistant", **self._about, "content": content, "stop_reason": self._ended}


def _index(held: dict[str, Any], key: str = "index") -> int:
    number = held.get(key)
    return number if type(number) is int else 0


def _dumped(chunk: Any) -> dict[str, Any]:
    """A chunk as the client's own object has it; an empty one where it is none."""
    dump = getattr(chunk, "model_dump", None)
    dumped = dump() if callable(dump) else None
    return dumped if isinstance(dumped, dict) else {}


def decoded(body: Any) -> Any:
    """A body as the object that it is, also where it is a stream of events; `NOT_JSON` for any other text."""
    if isinstance(body, str):
        body = body.encode("utf-8", "replace")
    if isinstance(body, bytearray | memoryview):
        body = bytes(body)
    if isinstance(body, bytes):
        body = body.removeprefix(b"\xef\xbb\xbf")
        is_json = body[:64].lstrip().startswith((b"{", b"["))
        body = json_of(body) if is_json else _events(body) or NOT_JSON
    return assembled(body) if isinstance(body, list | tuple) else body


def _events(stream: bytes) -> list[Any]:
    """The data of server-sent events. One that was cut off, or is no JSON, is passed over.

    None where there are more of them than any answer has, or more in them.
    """
    if has_more_values(stream, _MOST_VALUES):
        return []
    if b"\n" not in stream:
        stream = stream.replace(b"\r", b"\n")
    events: list[Any] = []
    data: list[bytes] = []
    start = 0
    for _ in range(_MOST_LINES):
        end = stream.find(b"\n", start)
        line = stream[start : end if end >= 0 else None].rstrip(b"\r")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            text, data = b"\n".join(data), []
            if text.strip() != _DONE and isinstance(event := json_of(text), dict):
                events.append(event)
        if end < 0:
            return events
        start = end + 1
    return []


def _error(response: dict[str, Any]) -> str:
    error = response.get("error")
    if error is None and (response.get("object") == "error" or response.get("type") in _FAILED):
        error = response
    if isinstance(error, dict):
        return text_of(error.get("message")) or text_of(error.get("type")) or "error"
    return text_of(error)


def response_tags(response: dict[str, Any]) -> dict[str, str]:
    """How it ended, unless as it should, and how likely its words were, where that is told."""
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    first = first if isinstance(first, dict) else {}
    ended = first.get("finish_reason") or response.get("stop_reason") or response.get("status")
    return finish_tag(ended) | logprob_tag(first.get("logprobs"))
