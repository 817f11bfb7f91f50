"""Messages, however they are wrapped: as JSON or structured, alone or in a request or a response."""

import re
import urllib.parse
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from groundwatch.conversations.conversation import (
    NAMES,
    NOT_JSON,
    Conversation,
    Image,
    ImageText,
    ImageUrl,
    json_of,
    placeholder,
    reason_by,
    structured,
    text_of,
)
from groundwatch.counting import has_more_values

_PARTS = NAMES.parts
_PAYLOAD = tuple(tuple(path.split(".")) for path in _PARTS.payload)
_MEDIA = tuple(tuple(path.split(".")) for path in _PARTS.media)
_FILE = tuple(tuple(path.split(".")) for path in _PARTS.file)

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{1,20}:\S", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{4}[A-Za-z0-9+/_=\s-]*\Z")
_WORD = re.compile(r"[A-Za-z_-]{1,24}\Z")
_MAX_URL = 8192
_PART_HEAD = 512
_DEEPEST_PART = 4
"""Results of tools in results of tools."""

MOST = 10_000
"""Messages and parts of one call that are read. More of them take seconds, and nobody asks a model that."""

TOO_MANY = "too_many_parts"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What one side said. `calls_tool`: it asked for a tool. `left_out` are names of reasons."""

    role: str = ""
    text: str = ""
    images: tuple[Image, ...] = ()
    left_out: tuple[str, ...] = ()
    calls_tool: bool = False


class Budget:
    """How many messages and parts of a call are still read."""

    def __init__(self) -> None:
        self._left = MOST

    def take(self) -> bool:
        """One more; False where there is none left."""
        self._left -= 1
        return self._left >= 0


class _Content:
    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.texts: list[str] = []
        self.images: list[Image] = []
        self.left_out: list[str] = []
        self.calls_tool = False

    def message(self, role: str) -> Message:
        return Message(
            role=role,
            text="\n".join(text for text in self.texts if text),
            images=tuple(self.images),
            left_out=tuple(self.left_out),
            calls_tool=self.calls_tool,
        )


def read_content(content: Any, role: str = "", budget: Budget | None = None) -> Message:
    """The message that this content makes. What is no content adds nothing."""
    found = _Content(budget or Budget())
    _read(content, found, 0)
    return found.message(role)


def image_of(value: object, *, inline: bool = False) -> Image | str | None:
    """The image that a value is, or the name of the reason for which it is none; None: it is something else.

    `inline` says that it stands where an image's own bytes do, so that any base64 is one.
    """
    if isinstance(value, bytes | bytearray):
        return bytes(value) if value else "bare_image"
    if not isinstance(value, str) or not value:
        return None
    # Of a text that may have 100 MB only the head is looked at.
    head = value[:_PART_HEAD].lstrip()
    if reason := placeholder(head):
        media = head.partition("type=")[2].partition("|")[0] if reason == "langfuse_media" else ""
        return None if media and not media.startswith("image/") else reason
    if head[:5].lower() == "data:":
        return _data_url(value, head)
    if _ADDRESS.match(head):
        return ImageUrl(text_of(value).strip()) if len(value) <= _MAX_URL else "unknown_placeholder"
    if value.isascii() and _BASE64.match(head) and not _WORD.match(head) and (inline or len(value) >= 64):
        return ImageText(value)
    return "unknown_placeholder"


def is_part(item: object) -> bool:
    """Whether this is a part of a message rather than a message."""
    if not isinstance(item, dict) or "role" in item:
        return False
    kind = text_of(item.get("type")).lower()
    return kind in _PARTS.text or kind in _PARTS.image or any(key in item for key in _PARTS.image_keys)


def _read(content: Any, found: _Content, depth: int) -> None:
    if isinstance(content, str):
        # What a library wrote in the place of all it hid is not what was said.
        reason = placeholder(content, said=True)
        if reason:
            found.left_out.append(reason)
        else:
            found.texts.append(text_of(content))
    elif isinstance(content, dict):
        _read_part(content, found, depth)
    elif isinstance(content, list | tuple):
        for part in content:
            if not found.budget.take():
                found.left_out.append(TOO_MANY)
                return
            if isinstance(part, dict):
                _read_part(part, found, depth)
            elif isinstance(part, str):
                _read(part, found, depth)


def _read_part(part: dict[str, Any], found: _Content, depth: int) -> None:
    kind = text_of(part.get("type")).lower()
    if kind in _PARTS.tool_call:
        found.calls_tool = True
    elif kind in _PARTS.tool_result:
        if depth < _DEEPEST_PART:
            inner = _Content(found.budget)
            for key in _PARTS.inside:
                _read(part.get(key), inner, depth + 1)
            found.images += inner.images
            found.left_out += inner.left_out
    elif kind in _PARTS.text or (not kind and "text" in part):
        found.texts.append(_text(part))
    elif kind in _PARTS.image or any(key in part for key in _PARTS.image_keys):
        _read_image(part, kind, found)


def _text(part: dict[str, Any]) -> str:
    for key in ("text", "content", "refusal"):
        value = part.get(key)
        if isinstance(value, dict):
            value = value.get("value")
        if text := text_of(value):
            return "" if placeholder(text) else text
    return ""


def _read_image(part: dict[str, Any], kind: str, found: _Content) -> None:
    media = [text_of(value).lower() for path in _MEDIA if (value := _at(part, path))]
    if media and not any(one == "image" or one.startswith("image/") for one in media):
        return
    for path in _PAYLOAD:
        value = _at(part, path)
        if not isinstance(value, str | bytes | bytearray) or not value:
            continue
        image = image_of(value, inline=bool(media) or kind == "blob")
        if isinstance(image, str):
            found.left_out.append(image)
        elif image is not None:
            found.images.append(image)
        return
    found.left_out.append("file_id" if any(_at(part, path) for path in _FILE) else "bare_image")


def _data_url(value: str, head: str) -> Image | str | None:
    declared, comma, start = head[5:].partition(",")
    kind, _, options = declared.partition(";")
    if not comma:
        return "unknown_placeholder"
    if kind and not kind.strip().lower().startswith(("image/", "application/octet-stream")):
        return None
    if reason := placeholder(start.lstrip()):
        return reason
    payload = value[value.index(",") + 1 :]
    if not payload.strip():
        return "bare_image"
    if "base64" not in options.lower():
        return urllib.parse.unquote_to_bytes(payload.encode("utf-8", "replace"))
    return ImageText(payload) if payload.isascii() else "unknown_placeholder"


def _at(part: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = part
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


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
