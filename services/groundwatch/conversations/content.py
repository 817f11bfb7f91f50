"""The content of one message: its text, its images, and what became of images that are not there.

A message is text, or a list of parts in the form of GenAI's conventions, of OpenAI, of OpenInference, of
Anthropic or of Gemini; emitters mix them, so one reader knows them all.
"""

import re
import urllib.parse
from typing import Any

import msgspec

from groundwatch.conversations.conversation import Image, ImageText, ImageUrl
from groundwatch.conversations.names import NAMES
from groundwatch.conversations.reasons import placeholder
from groundwatch.conversations.values import text_of

_PARTS = NAMES.parts
_PAYLOAD = tuple(tuple(path.split(".")) for path in _PARTS.payload)
_MEDIA = tuple(tuple(path.split(".")) for path in _PARTS.media)
_FILE = tuple(tuple(path.split(".")) for path in _PARTS.file)

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{1,20}:\S", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{4}[A-Za-z0-9+/_=\s-]*\Z")
_WORD = re.compile(r"[A-Za-z_-]{1,24}\Z")
_MAX_URL = 8192
_HEAD = 512
_DEEPEST = 4
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


class _Found:
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
    found = _Found(budget or Budget())
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
    head = value[:_HEAD].lstrip()
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


def _read(content: Any, found: _Found, depth: int) -> None:
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


def _read_part(part: dict[str, Any], found: _Found, depth: int) -> None:
    kind = text_of(part.get("type")).lower()
    if kind in _PARTS.tool_call:
        found.calls_tool = True
    elif kind in _PARTS.tool_result:
        if depth < _DEEPEST:
            inner = _Found(found.budget)
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


def _read_image(part: dict[str, Any], kind: str, found: _Found) -> None:
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
