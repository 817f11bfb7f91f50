"""A call's arguments and result, copied as far as their caller may change them, and measured.

Lists and dicts are copied, objects of pydantic's become dicts. What is none of these becomes None and is
never iterated: a generator is the caller's to read.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from groundwatch.client.lines import CannotSend, Line
from groundwatch.client.recorder import Recorder
from groundwatch.client.worker import OVERHEAD, Read

if TYPE_CHECKING:
    from groundwatch.conversations.conversation import Conversation, Unreadable


MOST = 100_000
"""Values in one call; more of them are no conversation."""

CONTAINER = 64


class TooMuch(Exception):
    """The call holds more than a conversation does."""


def copied(value: Any) -> tuple[Any, int]:
    """The copy, which shares its texts, and about what it takes in memory, in bytes.

    Raises `TooMuch`, and what a hostile value does.
    """
    copy = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_fields)
    return copy, _size(copy)


def _fields(value: Any) -> Any:
    try:
        extra = value.__pydantic_extra__
    except AttributeError:
        return None
    fields: dict[str, Any] = value.__dict__
    return {**extra, **fields} if extra else fields


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_fields)


def _size(copy: Any) -> int:
    size = number = 0
    left = [copy]
    while left:
        value = left.pop()
        kind = type(value)
        if kind is str or kind is bytes:
            size += sys.getsizeof(value)
        elif kind is dict:
            size += CONTAINER
            number += len(value)
            left.extend(value.values())
        elif kind is list or kind is tuple:
            size += CONTAINER
            number += len(value)
            left.extend(value)
        if number > MOST:
            raise TooMuch
    return size + 16 * number


NO_ANSWER = frozenset({"tool_call", "no_answer", "failed"})
"""Calls that have nothing to judge: they are not lost."""


def exchange_line(
    recorder: Recorder, request: Any, response: Any, tags: Mapping[str, str], name: str, at: float
) -> Line | None:
    """None for a call without an answer. Raises `CannotSend` for what cannot be read.

    Request and response are decoded, or the bytes of their bodies; of a stream in pieces: one that was left
    early has the tag `finish_reason` for it.
    """
    from groundwatch.conversations.openai import read_exchange

    if isinstance(response, list):
        response = b"".join(response)
    return conversation_line(recorder, read_exchange(request, response, at=at), tags, name)


def parsed_line(
    recorder: Recorder, request: dict[str, Any], result: bytes, tags: Mapping[str, str], name: str, at: float
) -> Line | None:
    """The same for a result that was packed."""
    return exchange_line(recorder, request, msgspec.msgpack.decode(result), tags, name, at)


def call_line(recorder: Recorder, record: dict[str, Any], tags: Mapping[str, str], name: str) -> Line | None:
    """The same for what LiteLLM logs."""
    from groundwatch.conversations.litellm import read_call

    return conversation_line(recorder, read_call(record), tags, name)


def conversation_line(
    recorder: Recorder, conversation: Conversation | Unreadable | None, tags: Mapping[str, str], name: str
) -> Line | None:
    from groundwatch.conversations.conversation import (
        ImageDigest,
        ImageText,
        ImageUrl,
        Unreadable,
        choices_of,
    )

    if conversation is None:
        return None
    if isinstance(conversation, Unreadable):
        if conversation.reason in NO_ANSWER:
            return None
        raise CannotSend("unreadable", conversation.message)
    images: list[str | bytes] = []
    for image in conversation.images:
        match image:
            case ImageText():
                images.append(f"data:;base64,{image.base64}")
            case ImageUrl():
                images.append(image.url)
            case ImageDigest():
                images.append(image.sha256)
            case _:
                images.append(image)
    name = conversation.id if 0 < len(conversation.id) <= 256 else name
    size = sum(map(len, images)) + len(conversation.prompt)
    for other in choices_of(conversation, name):
        recorder.buffer.put(size + len(other.answer), conversation_line, (recorder, other, tags, other.id))
    return recorder.line(
        {
            "id": name,
            "model": conversation.model,
            "prompt": conversation.prompt,
            "answer": conversation.answer,
            "images": images,
            "tags": {**conversation.tags, **tags},
            "left_out": conversation.left_out,
            "earlier": conversation.earlier,
            "earlier_images": conversation.earlier_images,
            "earlier_left_out": conversation.earlier_left_out,
        }
    )


C = TypeVar("C")

ASKED = ("model", "messages", "input", "instructions", "stream")
"""What of a call is kept."""

MAX_STREAM = 8 * 1024 * 1024
"""Bytes of one stream that are kept."""

MARK = "_groundwatch_recorded"


def wrap_openai(client: C, recorder: Recorder, *, tags: Mapping[str, str] | None = None) -> C:
    """Record every chat completion and every response that is made by `client`, an `OpenAI`, `AsyncOpenAI` or
    one of Azure; also by what `client.with_options` makes of it. Returns the client.

    `tags` go with every response. Raises `TypeError` for what is no such client.
    """
    given = dict(tags or {})
    wrapped = False
    for resource in (
        getattr(getattr(client, "chat", None), "completions", None),
        getattr(client, "responses", None),
    ):
        for method in ("create", "parse"):
            if callable(getattr(resource, method, None)):
                _wrap(resource, method, recorder, given)
                wrapped = True
        # Made from the methods as they were.
        for made in ("with_raw_response", "with_streaming_response"):
            getattr(resource, "__dict__", {}).pop(made, None)
    if not wrapped:
        raise TypeError(f"{type(client).__name__} is no client of OpenAI's API")
    for copying in ("copy", "with_options"):
        _wrap_copies(client, copying, recorder, given)
    return client


def _wrap_copies(client: Any, method: str, recorder: Recorder, tags: dict[str, str]) -> None:
    original = getattr(client, method, None)
    if original is None or hasattr(original, MARK):
        return

    @functools.wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return wrap_openai(original(*arguments, **named), recorder, tags=tags)

    setattr(wrapped, MARK, True)
    setattr(client, method, wrapped)


def _wrap(resource: Any, method: str, recorder: Recorder, tags: dict[str, str]) -> None:
    original: Callable[..., Any] = getattr(resource, method)
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def recorded(*arguments: Any, **named: Any) -> Any:
        asked = _asked(recorder, named)
        result = original(*arguments, **named)
        _record(recorder, asked, result, tags)
        return result

    @functools.wraps(original)
    async def recorded_later(*arguments: Any, **named: Any) -> Any:
        asked = _asked(recorder, named)
        result = await original(*arguments, **named)
        _record(recorder, asked, result, tags)
        return result

    # OpenAI's own decorators hide that a method is a coroutine.
    later = inspect.iscoroutinefunction(inspect.unwrap(original)) or type(resource).__name__.startswith(
        "Async"
    )
    wrapper = recorded_later if later else recorded
    setattr(wrapper, MARK, True)
    setattr(resource, method, wrapper)


Asked = tuple[dict[str, Any], int]
"""What was asked, and its size in bytes."""


def _asked(recorder: Recorder, named: dict[str, Any]) -> Asked | None:
    """What is asked, before anybody can change it; None when it cannot be kept."""
    try:
        return copied({key: named[key] for key in ASKED if key in named})
    except Exception:
        recorder.lose("unreadable")
        return None


def _record(recorder: Recorder, asked: Asked | None, result: Any, tags: dict[str, str]) -> None:
    if asked is None:
        return
    try:
        request, size = asked
        response = _http_response(result)
        read: Read = exchange_line
        if response is None:
            # Small, so that it is copied in one step, texts and all.
            content, read = _ENCODER.encode(result), parsed_line
        elif (whole := _content(response)) is None:
            Capture(recorder, request, size, tags).hook(response)
            return
        else:
            content = whole
        arguments = (recorder, request, content, tags, recorder.new_id(), time.time())
        recorder.take(size + len(content), read, arguments)
    except Exception:
        recorder.lose("unreadable")


def _http_response(result: Any) -> Any:
    """The response that a stream, or a raw response, reads from; None for a parsed result."""
    if hasattr(result, "__pydantic_fields_set__"):
        return None
    for name in ("http_response", "response"):
        response = getattr(result, name, None)
        if hasattr(response, "iter_bytes"):
            return response
    raise TypeError(f"{type(result).__name__} is no result of a call")


def _content(response: Any) -> bytes | None:
    """What was read of it as a whole already; None while nothing was."""
    try:
        content = response.content
    except Exception:
        return None
    return content if isinstance(content, bytes) else None


class Capture:
    """The bytes of one stream, as its caller reads them: within the recorder's bound, and `MAX_STREAM`.

    It ends with the stream, with the response's being closed, or with nobody's holding the stream any more.
    """

    def __init__(self, recorder: Recorder, request: dict[str, Any], size: int, tags: dict[str, str]) -> None:
        self._recorder = recorder
        self._buffer = recorder.buffer
        self._request = request
        self._tags = tags
        self._chunks: list[bytes] = []
        self._held = 0
        self._response: Any = None
        self._over = not self._reserve(size + OVERHEAD)

    def hook(self, response: Any) -> None:
        """Read along. What the response was is what it is again when this is over."""
        if self._over:
            return
        self._response = response
        response.iter_bytes = self._reading(response.iter_bytes)
        response.aiter_bytes = self._reading_later(response.aiter_bytes)
        response.close = self._closing(response.close)
        response.aclose = self._closing_later(response.aclose)

    def add(self, chunk: bytes) -> None:
        if self._over:
            return
        if self._held + len(chunk) > MAX_STREAM:
            self._give_up("too_large")
        elif self._reserve(len(chunk)):
            self._chunks.append(chunk)

    def finish(self) -> None:
        """Hand over what was read; of a stream that nobody read there is nothing to record."""
        if self._over:
            return
        self._end()
        if not self._chunks:
            self._buffer.give_back(self._held)
            return
        name = self._recorder.new_id()
        arguments = (self._recorder, self._request, self._chunks, self._tags, name, time.time())
        self._recorder.take_reserved(self._buffer, self._held, exchange_line, arguments)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.finish()

    def _reserve(self, size: int) -> bool:
        if self._buffer.reserve(size):
            self._held += size
            return True
        self._give_up("full")
        return False

    def _give_up(self, reason: str) -> None:
        self._end()
        self._chunks = []
        self._buffer.give_back(self._held)
        self._recorder.lose(reason)

    def _end(self) -> None:
        self._over = True
        response, self._response = self._response, None
        if response is not None:
            for name in ("iter_bytes", "aiter_bytes", "close", "aclose"):
                response.__dict__.pop(name, None)

    def _reading(self, original: Callable[..., Iterator[bytes]]) -> Callable[..., Iterator[bytes]]:
        def reading(*arguments: Any, **named: Any) -> Iterator[bytes]:
            inner = original(*arguments, **named)
            try:
                for chunk in inner:
                    self.add(chunk)
                    yield chunk
            finally:
                self.finish()
                if (close := getattr(inner, "close", None)) is not None:
                    close()

        return reading

    def _reading_later(
        self, original: Callable[..., AsyncIterator[bytes]]
    ) -> Callable[..., AsyncIterator[bytes]]:
        async def reading(*arguments: Any, **named: Any) -> AsyncIterator[bytes]:
            inner = original(*arguments, **named)
            try:
                async for chunk in inner:
                    self.add(chunk)
                    yield chunk
            finally:
                self.finish()
                if (close := getattr(inner, "aclose", None)) is not None:
                    await close()

        return reading

    def _closing(self, original: Callable[[], None]) -> Callable[[], None]:
        def closing() -> None:
            try:
                original()
            finally:
                self.finish()

        return closing

    def _closing_later(self, original: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def closing() -> None:
            try:
                await original()
            finally:
                self.finish()

        return closing
