"""Messages, however they are wrapped: as JSON or structured, alone or in a request or a response."""

import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from groundwatch.conversations.content import MOST, TOO_MANY, Budget, Message, is_part, read_content
from groundwatch.conversations.conversation import Conversation
from groundwatch.conversations.reasons import reason_by
from groundwatch.conversations.values import NOT_JSON, json_of, structured, text_of
from groundwatch.counting import has_more_values

Side = Literal["input", "output"]

_DEEPEST = 3
_HEAD = 200
_WRAPPERS = ("messages", "input", "contents", "choices", "output", "prompt", "completion", "message")
_MESSAGE = frozenset(("role", "parts", "content", "tool_calls"))
_TELLING = frozenset(("role", "parts", "type", "messages", "choices", "input", "output"))
_CUT = re.compile(r'\s*(\[\s*)?\{\s*"')
_USERS = frozenset(("user", "human"))
_OWN = frozenset(("assistant", "ai", "model"))
_SET = frozenset(("system", "developer"))
_TOOLS = frozenset(("tool", "function"))


class Read(msgspec.Struct, frozen=True):
    """Messages, or none where the text that should have held them is `cut`: it is no JSON."""

    messages: tuple[Message, ...] = ()
    cut: bool = False


def read_messages(value: Any, role: str, *, plain: bool = False) -> Read:
    """All messages of a value; `role` is whose they are where they do not say.

    `plain`: a text that is no JSON of messages is what was said itself, such as an answer in JSON.
    """
    if isinstance(value, str | bytes) and has_more_values(value):
        return Read((Message(role=role, left_out=(TOO_MANY,)),))
    held = structured(value)
    if plain and isinstance(value, str) and not _told(held):
        # A question that begins as messages do was cut; an answer may be JSON that the model did not end.
        cut = held is NOT_JSON and role == "user" and _CUT.match(value[:_HEAD])
        held = NOT_JSON if cut else [value]
    if held is NOT_JSON:
        return Read(cut=True)
    found = _Found()
    found.collect(held, role, 0)
    return Read(tuple(found.messages))


def _told(held: Any) -> bool:
    """Whether this says itself that it is messages."""
    first = held[0] if isinstance(held, list) and held else held
    return isinstance(first, dict) and not _TELLING.isdisjoint(first)


def asked(messages: Iterable[Message]) -> str:
    """The text of the last message of the user; else of the last that is nobody's in particular."""
    users = [one.text for one in messages if one.role.lower() in _USERS]
    if users:
        return next((text for text in reversed(users) if text), "")
    others = [one.text for one in messages if one.role.lower() not in _OWN | _SET | _TOOLS]
    return next((text for text in reversed(others) if text), "")


def answered(messages: Iterable[Message]) -> str:
    """The text of the first message that has one: of several choices the first."""
    return next((one.text for one in messages if one.text), "")


def with_side(conversation: Conversation, side: Side, messages: tuple[Message, ...]) -> Conversation:
    """The conversation with these messages as what was asked, or as what was answered."""
    if side == "output":
        return msgspec.structs.replace(conversation, answer=answered(messages))
    return msgspec.structs.replace(
        conversation,
        prompt=asked(messages),
        images=tuple(image for one in messages for image in one.images),
        left_out=tuple(
            reason_by(reason, conversation.library) for one in messages for reason in one.left_out
        ),
    )


def with_messages(conversation: Conversation, side: Side, messages: Any) -> Conversation:
    """The conversation with what was fetched from its reference: JSON, JSON lines, or already decoded."""
    references = {name: url for name, url in conversation.references.items() if name != side}
    conversation = msgspec.structs.replace(conversation, references=references)
    if isinstance(messages, bytes | str):
        messages = _fetched(messages)
    read = Read(cut=True) if messages is NOT_JSON else read_messages(messages, _ROLES[side])
    if read.cut:
        left_out = (*conversation.left_out, "reference_unreadable")
        return msgspec.structs.replace(conversation, left_out=left_out)
    return with_side(conversation, side, read.messages)


_ROLES = {"input": "user", "output": "assistant"}


def _fetched(text: bytes | str) -> Any:
    whole = json_of(text)
    if whole is not NOT_JSON:
        return whole
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if data.count(b"\n") > MOST:
        return NOT_JSON
    lines = [json_of(line) for line in data.split(b"\n") if line.strip()]
    return NOT_JSON if not lines or any(line is NOT_JSON for line in lines) else lines


class _Found:
    """Messages that are found in a value."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._budget = Budget()

    def collect(self, value: Any, role: str, depth: int) -> None:
        if isinstance(value, str):
            self.messages.append(read_content(value, role))
        elif isinstance(value, list | tuple):
            if any(is_part(item) for item in value):
                self.messages.append(read_content(value, role, self._budget))
                return
            for item in value:
                if not self._budget.take():
                    self.messages.append(Message(role=role, left_out=(TOO_MANY,)))
                    return
                if isinstance(item, str | dict):
                    self.collect(item, role, depth)
        elif isinstance(value, dict):
            self._collect_dict(value, role, depth)

    def _collect_dict(self, value: dict[str, Any], role: str, depth: int) -> None:
        if is_part(value):
            self.messages.append(read_content([value], role))
        elif not _MESSAGE.isdisjoint(value):
            self.messages.append(_message(value, role, self._budget))
        elif text_of(value.get("type")):
            # An item of the responses API that is no message: a call of a tool, its result, reasoning.
            self.messages.append(read_content([value], "tool", self._budget))
        elif isinstance(value.get("text"), str):
            self.messages.append(read_content(value["text"], role))
        elif depth < _DEEPEST:
            for key in _WRAPPERS:
                if (inner := value.get(key)) is not None:
                    self.collect(inner, role, depth + 1)
                    break


def _message(value: dict[str, Any], role: str, budget: Budget) -> Message:
    role = text_of(value.get("role"))[:64] or role
    parts = value.get("parts")
    if isinstance(parts, list | tuple):
        read = read_content(parts, role, budget)
        if not parts and not value.get("content") and role.lower() in _USERS:
            # A message of the user always has something, so what it had was not written.
            read = msgspec.structs.replace(read, left_out=("genai_empty_parts",))
    else:
        read = read_content(value.get("content"), role, budget)
    if not read.text and (refusal := text_of(value.get("refusal"))):
        read = msgspec.structs.replace(read, text=refusal)
    # Some keep them beside the content, with whole images as base64.
    if isinstance(given := value.get("images"), list) and given:
        beside = read_content([{"type": "image", "data": image} for image in given[:MOST]], "", budget)
        images, left_out = read.images + beside.images, read.left_out + beside.left_out
        read = msgspec.structs.replace(read, images=images, left_out=left_out)
    if value.get("tool_calls") or value.get("function_call") or value.get("calls_tool"):
        read = msgspec.structs.replace(read, calls_tool=True)
    return read
