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
_SILENT = _PARTS.silent
_OTHER = tuple((start, reason) for reason, starts in _PARTS.other.items() for start in starts)
_ITEMS = _PARTS.tool_call | _PARTS.tool_result | _SILENT
_KINDS = _PARTS.text | _PARTS.image | _ITEMS | {*dict(_OTHER)}
"""Of parts; one without a type is named by its key."""

_MARKS = {
    reason: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for reason, pattern in _PARTS.marks.items()
}
_ENDINGS = {
    reason: re.compile(rf"[^?#]*\.({'|'.join(endings)})([?#]|\Z)", re.IGNORECASE)
    for reason, endings in _PARTS.endings.items()
}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{1,20}:\S", re.IGNORECASE)
_BASE64 = re.compile(r"(?:b?['\"])?[A-Za-z0-9+/_-]{4}[A-Za-z0-9+/_=%\s-]*(?:['\"])?\s*\Z")
_WORD = re.compile(r"[A-Za-z_-]{1,24}\Z")
_MAX_URL = 8192
_PART_HEAD = 512
_DEEPEST_PART = 4
"""Results of tools in results of tools."""

_IMAGE_URL = "data:image/"

MOST = 10_000
"""Messages and parts of one call that are read. More of them take seconds, and nobody asks a model that."""

TOO_MANY, IMAGE_MARK = "too_many_parts", "image_mark"

_URL = r"data:image/[a-z0-9.+-]{1,20};base64,[a-z0-9+/=_%\s-]{16,}+"
_DATA = re.compile(_URL, re.IGNORECASE)
_INSIDE = re.compile(
    rf"""!?\[[^\[\]]{{0,1000}}\]\(\s*({_URL})(?:"[^"]{{0,200}}"\s*)?\)"""
    rf"""|<img\s[^<>]{{0,500}}?src\s?=\s?[\\"']{{0,2}}({_URL})(?:[\\"'][^<>]{{0,500}})?>""",
    re.IGNORECASE,
)
"""An image that stands in a text itself, as Markdown and as HTML have it, also within JSON."""

_OBJECT = re.compile(
    r"[a-z_]+=None (?:[a-z_]+=\S+ ){0,40}file_data=FileData\([^)]{0,200}?file_uri='([^']{1,8192})'"
)
"""What Python shows of a part of Gemini's that is a file at an address: OpenLLMetry has it for a text."""

_FILES = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""How PNG, JPEG, GIF and WebP begin in base64."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What one side said. `calls_tool`: it asked for a tool. `is_choice`: it says how it ended, as each of
    several choices does. `left_out` are names of reasons, `unread` the keys of a part that nobody knows."""

    role: str = ""
    text: str = ""
    images: tuple[Image, ...] = ()
    left_out: tuple[str, ...] = ()
    calls_tool: bool = False
    is_choice: bool = False
    unread: str = ""

    def __bool__(self) -> bool:
        """Whether anything of it was read."""
        return bool(self.text or self.images or self.left_out or self.calls_tool)


class Budget:
    """How many messages and parts of a call are still read."""

    def __init__(self) -> None:
        self._left = MOST

    def take(self) -> bool:
        """One more; False where there is none left."""
        self._left -= 1
        return self._left >= 0


class _Content:
    def __init__(self, budget: Budget, role: str) -> None:
        self.budget = budget
        self.role = role.lower()
        self.texts: list[str] = []
        self.images: list[Image] = []
        self.left_out: list[str] = []
        self.calls_tool = False
        self.answers_tool = False
        self.unread = ""

    def add(self, image: Image | str | None) -> None:
        """An image, or the reason for which it is none."""
        if isinstance(image, str):
            self.left_out.append(image)
        elif image is not None:
            self.images.append(image)

    def message(self, role: str) -> Message:
        text = "\n".join(text for text in self.texts if text)
        return Message(
            # Anthropic and Gemini have results of tools in the user's name.
            role="tool" if self.answers_tool and not text else role,
            text=text,
            images=tuple(self.images),
            left_out=tuple(self.left_out),
            calls_tool=self.calls_tool,
            unread=self.unread,
        )


def read_content(content: Any, role: str = "", budget: Budget | None = None) -> Message:
    """The message that this content makes. What is no content adds nothing."""
    found = _Content(budget or Budget(), role)
    _read(content, found, 0)
    return found.message(role)


def image_of(value: object, *, inline: bool = False) -> Image | str | None:
    """The image that a value is, or the name of the reason for which it is none; None: no value at all.

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
        return _kind_of_other(media) if media and not media.startswith("image/") else reason
    if head[:5].lower() == "data:":
        return _data_url(value, head)
    if _ADDRESS.match(head):
        if len(value) > _MAX_URL:
            return "unknown_placeholder"
        return _kind_of_file(value.strip()) or ImageUrl(text_of(value).strip())
    if value.isascii() and _BASE64.match(head) and not _WORD.match(head) and (inline or len(value) >= 64):
        return ImageText(value)
    return "unknown_placeholder"


def is_part(item: object) -> bool:
    """Whether this is a part of a message rather than a message."""
    if not isinstance(item, dict) or "role" in item:
        return False
    kind, held = _kind(item)
    if held is not item and any(text_of(item.get(key)) for key in _PARTS.texts):
        # What stands beside a text is a message with that.
        return False
    return kind in _PARTS.image or (kind in _PARTS.text and held is item)


def _kind(part: dict[str, Any]) -> tuple[str, Any]:
    """What a part is, and what it holds: itself where it has a type, else what is under its key."""
    # LlamaIndex calls it after its blocks.
    if kind := text_of(part.get("type") or part.get("block_type")).lower():
        return kind, part
    held = ((key, one) for key, one in part.items() if one and isinstance(key, str))
    return next(((key.lower(), one) for key, one in held if key.lower() in _KINDS), ("", None))


def _kind_of_other(*words: str) -> str:
    """The reason for which nobody looks at media that are called so."""
    return next((reason for word in words for start, reason in _OTHER if word.startswith(start)), "document")


def _kind_of_file(name: str) -> str:
    """The reason for which nobody looks at a file that is called so; empty where it may be an image."""
    return next((reason for reason, ends in _ENDINGS.items() if ends.match(name)), "")


def _octets(value: Any) -> bytes | None:
    """The bytes of a list of numbers, and of what JavaScript writes for a Buffer or an array of bytes."""
    if isinstance(value, dict):
        value = [*value.values()] if "0" in value else value.get("type") == "Buffer" and value.get("data")
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < 256 for one in value):
        return None
    return bytes(value)


def _read(content: Any, found: _Content, depth: int) -> None:
    if isinstance(content, str):
        # What a library wrote in the place of all it hid is not what was said.
        reason = placeholder(content, said=True)
        if reason:
            found.left_out.append(reason)
        else:
            _read_text(text_of(content), found)
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
    kind, held = _kind(part)
    if kind in _SILENT or part.get("thought") is True:
        return
    if kind in _PARTS.tool_call:
        found.calls_tool = True
    elif kind in _PARTS.tool_result:
        found.answers_tool = True
        if depth < _DEEPEST_PART and isinstance(held, dict):
            inner = _Content(found.budget, "tool")
            for key in _PARTS.inside:
                _read(held.get(key), inner, depth + 1)
            found.images += inner.images
            found.left_out += inner.left_out
    elif kind in _PARTS.text:
        _read_text(_text(part), found)
    elif kind in _PARTS.image:
        _read_image(part, kind, found)
    elif kind.startswith(tuple(dict(_OTHER))):
        found.left_out.append(_kind_of_other(kind))
    else:
        images = len(found.images)
        _read_inside(part, found, depth, typed=bool(kind))
        if part and len(found.images) == images:
            found.unread = found.unread or _keys(part)


def _read_text(text: str, found: _Content) -> None:
    """What was said, and images that stand in it themselves where a user or a tool says it; a tool's also as
    JSON."""
    if shown := _OBJECT.match(text):
        found.add(image_of(shown[1]))
        return
    held = structured(text) if found.role in _TOOLS else text
    if found.role in _USERS | _TOOLS and _IMAGE_URL in text.lower():
        for image in _INSIDE.finditer(text):
            if not found.budget.take():
                found.left_out.append(TOO_MANY)
                break
            found.add(image_of(image[1] or image[2]))
        text = _INSIDE.sub("", text).strip()
    if isinstance(held, dict | list):
        _read_inside(held, found, 0, typed=False)
        text = _DATA.sub("", text)
    found.texts.append(text)


def _read_inside(value: Any, found: _Content, depth: int, *, typed: bool) -> None:
    """The images in a part that nobody knows; base64 alone is one where the part has no type of its own."""
    if isinstance(value, str):
        shown = value[: len(_IMAGE_URL)].lower() == _IMAGE_URL
        bare = not typed and len(value) >= 64 and value.startswith(_FILES)
        if (shown or bare) and found.budget.take():
            found.add(image_of(value))
    elif isinstance(value, dict) and any(one.startswith("image/") for one in _media(value)):
        if found.budget.take():
            _read_image(value, "", found)
    elif isinstance(value, dict | list | tuple) and depth < _DEEPEST:
        for one in value.values() if isinstance(value, dict) else value[:MOST]:
            _read_inside(one, found, depth + 1, typed=typed)


def _keys(value: dict[str, Any]) -> str:
    """Of what is not read, as a message names them."""
    return ", ".join(text_of(key)[:30] for key in list(value)[:8])


def _text(part: dict[str, Any]) -> str:
    for key in ("text", "content", "refusal", "value"):
        value = part.get(key)
        if isinstance(value, dict):
            value = value.get("value")
        if text := text_of(value):
            return "" if placeholder(text) else text
    return ""


def _read_image(part: dict[str, Any], kind: str, found: _Content) -> None:
    if other := _kind_of_file(text_of(part.get("filename") or _at(part, ("file", "filename")))):
        found.left_out.append(other)
        return
    media = _media(part)
    if media and not any(one == "image" or one.startswith("image/") for one in media):
        found.left_out.append(_kind_of_other(*media))
        return
    for path in _PAYLOAD:
        value = _at(part, path)
        if isinstance(value, list | dict):
            value = _octets(value)
        if not isinstance(value, str | bytes | bytearray) or not value:
            continue
        found.add(image_of(value, inline=bool(media) or kind == "blob"))
        return
    named = next((name for path in _FILE if (name := text_of(_at(part, path)))), "")
    # LiteLLM has addresses in their place.
    found.add(image_of(named) if _ADDRESS.match(named) else "file_id" if named else "bare_image")


def _media(part: dict[str, Any]) -> list[str]:
    return [media for path in _MEDIA if (media := text_of(_at(part, path)).lower())]


def _data_url(value: str, head: str) -> Image | str | None:
    declared, comma, start = head[5:].partition(",")
    kind, _, options = declared.partition(";")
    if not comma:
        return "unknown_placeholder"
    if kind and not kind.strip().lower().startswith(("image/", "application/octet-stream")):
        return _kind_of_other(kind.strip().lower())
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

_MOST_EARLIER = 4_000
"""Characters of what was said in earlier turns that are kept, of its end."""

_DEEPEST = 8
"""Lists and wrappers around a message, of which LangChain's lists of lists are the deepest, and around an
image in a part that nobody knows."""

_HEAD = 200
_ENDED = frozenset(("finish_reason", "finishReason", "generation_info"))
_MESSAGE = frozenset(("role", "parts", "content", "tool_calls"))
_HOLDING, _SAYING = _PARTS.holding, _PARTS.saying
_TELLING = _HOLDING | _PARTS.telling
_ASKING = _SAYING.union(_PARTS.texts)
"""Keys that tell of messages or a text in an answer, and in a question, which is JSON itself more rarely."""
_AROUND, _DEEPEST_MESSAGE = ("message", "output", "response"), 4
"""Keys of what is around one message, of which Bedrock's has two."""

_CUT = re.compile(r'\s*(\[\s*)?\{\s*"')
_USERS = frozenset(("user", "human"))
_OWN = frozenset(("assistant", "ai", "model"))
_SET = frozenset(("system", "developer"))
_TOOLS = frozenset(("tool", "function"))
_ROLES_OF_TYPES = _USERS | _OWN | _SET | _TOOLS


class Read(msgspec.Struct, frozen=True):
    """Messages, or none where the text that should have held them is `cut`: it is no JSON. `unread` are keys
    of what is in a form that nobody knows, where nothing else is there."""

    messages: tuple[Message, ...] = ()
    cut: bool = False
    unread: str = ""

    def refusal(self, side: Side) -> str:
        return f"its {side} is in a form that is not read, with the keys {self.unread}" if self.unread else ""


def read_messages(value: Any, role: str, *, plain: bool = False) -> Read:
    """All messages of a value; `role` is whose they are where they do not say.

    `plain`: a text that is no JSON of messages is what was said itself, such as an answer in JSON.
    """
    if isinstance(value, str | bytes) and has_more_values(value):
        return Read((Message(role=role, left_out=(TOO_MANY,)),))
    held = structured(value)
    found = _Found()
    if plain and isinstance(value, str):
        asks = role == "user"
        if _told(held, _TELLING, _ASKING if asks else _SAYING) or (asks and _IMAGE_URL in value.lower()):
            found.collect(held, role, 0)
        if not any(found.messages) and not _told(held, _HOLDING):
            # A question that begins as messages do was cut; an answer may be JSON that the model did not end.
            cut = held is NOT_JSON and asks and _CUT.match(value[:_HEAD])
            return Read(cut=True) if cut else Read((read_content(value, role),))
    elif held is NOT_JSON:
        return Read(cut=True)
    else:
        found.collect(held, role, 0)
    return Read(tuple(found.messages), unread="" if any(found.messages) else found.unread)


def _told(held: Any, keys: frozenset[str], texts: frozenset[str] = frozenset()) -> bool:
    """Whether this says itself that it is messages: by what it holds under a key, or by a key alone."""
    for _ in range(_DEEPEST_MESSAGE):
        while isinstance(held, list) and held:
            held = held[0]
        if not isinstance(held, dict):
            return False
        content = held.get("content")
        if isinstance(content, dict) and "parts" in content:
            return True
        if "role" in held and ("content" in held or "parts" in held):
            return True
        if any(key in texts or (key in keys and isinstance(held[key], list | dict)) for key in held):
            return True
        # Around a message: no text of its own.
        held, texts = (
            next((one for key in _AROUND if isinstance(one := held.get(key), dict)), None),
            frozenset(),
        )
    return False


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
        choices = [one.text for one in messages if one.text and one.is_choice]
        return msgspec.structs.replace(conversation, answer=answered(messages), others=tuple(choices[1:]))
    prompt, start = asked(messages), _last_turn(messages)
    said = [one for one in messages[:start] if one.text and one.role.lower() not in _SET]
    if not any(one.images or one.left_out for one in messages[start:]):
        # Then it is about what was shown before.
        start = 0
    images = tuple(image for one in messages for image in one.images)
    before, left_out = (
        tuple(reason_by(reason, conversation.library) for one in several for reason in one.left_out)
        for several in (messages[:start], messages[start:])
    )
    left_out += _missing(prompt, len(images) + len(before) + len(left_out))
    return msgspec.structs.replace(
        conversation,
        prompt=prompt,
        images=images,
        left_out=left_out,
        earlier="\n".join(f"{one.role}: {one.text}" for one in said)[-_MOST_EARLIER:],
        earlier_images=sum(len(one.images) for one in messages[:start]),
        earlier_left_out=before,
    )


def _missing(prompt: str, there: int) -> tuple[str, ...]:
    """The reason for what marks in the prompt stand for that is not among the so many images that are."""
    for reason, mark in _MARKS.items():
        marks = list(mark.finditer(prompt))
        numbers = {number for one in marks for number in one.groups() if number and number.isdigit()}
        if marks and (not there or len(numbers) > there):
            return (reason,)
    return ()


def _last_turn(messages: Iterable[Message]) -> int:
    """Where the last turn of the user begins: all that the user says after an answer, or a call of a tool.

    What the model asks of tools from there on, and what they give, belongs to it.
    """
    turn = begins = 0
    for at, one in enumerate(messages):
        role = one.role.lower()
        if role in _USERS:
            turn = begins
        elif role in _OWN | _TOOLS:
            begins = at + 1
    return turn


def with_messages(conversation: Conversation, side: Side, messages: Any) -> Conversation:
    """The conversation with what was fetched from its reference: JSON, JSON lines, or already decoded."""
    references = {name: url for name, url in conversation.references.items() if name != side}
    conversation = msgspec.structs.replace(conversation, references=references)
    if isinstance(messages, bytes | str):
        messages = _fetched(messages)
    read = Read(cut=True) if messages is NOT_JSON else read_messages(messages, _ROLES[side])
    if read.cut or read.unread:
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
        self.unread = ""
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
                if isinstance(item, str | dict) or depth < _DEEPEST:
                    self.collect(item, role, depth + 1)
        elif isinstance(value, dict):
            before = len(self.messages)
            self._collect_dict(value, role, depth)
            if len(self.messages) == before + 1 and not _ENDED.isdisjoint(value):
                self.messages[before] = msgspec.structs.replace(self.messages[before], is_choice=True)

    def _collect_dict(self, value: dict[str, Any], role: str, depth: int) -> None:
        kind = text_of(value.get("type")).lower()
        holds = [one for key in _PARTS.wrappers if isinstance(one := value.get(key), list | dict)]
        said = "" if kind else next((key for key in _PARTS.texts if text_of(value.get(key))), "")
        inner = next(filter(None, holds), [])
        given, named = value.get("args"), value.get("kwargs")
        called = any(inner is one for one in (given, named))
        spoken = isinstance(named, dict) and any(map(named.get, (*_PARTS.wrappers, *_PARTS.texts)))
        if "lc" in value and isinstance(value.get("kwargs"), dict) and depth < _DEEPEST:
            # LangChain's own notation of an object: its class is in `id`.
            named = value.get("id")
            made = {"type": text_of(named[-1]) if isinstance(named, list) and named else ""}
            self._collect_dict(made | value["kwargs"], role, depth + 1)
        elif is_part(value) and not said and not any(holds):
            self.messages.append(read_content([value], role))
        elif not _MESSAGE.isdisjoint(value):
            content = value.get("content")
            if isinstance(content, dict) and "parts" in content:
                value = {**value, **content}
            self._add(_message(value, role, self._budget))
        elif holds and kind not in _ITEMS and not (said and (value.get("images") or (called and not spoken))):
            if called and named and not spoken and isinstance(given, list):
                # What a function was called with is in both, where those with a name say nothing.
                inner = [named, *given]
            if depth < _DEEPEST:
                self.collect(inner, role, depth + 1)
        elif said:
            # What stands beside it may be its image.
            beside = {key: one for key, one in value.items() if key not in (said, "images")}
            message = {"content": [value[said], beside], "images": value.get("images")}
            self._add(_message(message, role, self._budget))
        elif value:
            # Also an item of the responses API that is no message: a call of a tool, its result, reasoning.
            self._add(read_content([value], "tool" if kind else role, self._budget))

    def _add(self, message: Message) -> None:
        if message or not message.unread:
            self.messages.append(message)
        self.unread = self.unread or message.unread


def _message(value: dict[str, Any], role: str, budget: Budget) -> Message:
    kind = text_of(value.get("type")).lower().removesuffix("chunk").removesuffix("message")
    role = text_of(value.get("role"))[:64] or (kind if kind in _ROLES_OF_TYPES else role)
    parts = value.get("parts")
    if isinstance(parts, list | tuple):
        read = read_content(parts, role, budget)
        if not parts and not value.get("content") and role.lower() in _USERS:
            # A message of the user always has something, so what it had was not written.
            read = msgspec.structs.replace(read, left_out=("genai_empty_parts",))
    else:
        content = value.get("content") or value.get("blocks")
        if not content and isinstance(text := value.get("text"), str):
            # Dify's.
            files = value.get("files")
            content = [text, *(files if isinstance(files, list) else ())]
        read = read_content(content, role, budget)
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
