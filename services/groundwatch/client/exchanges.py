"""A model's call, read into a line for the gateway; in the sending thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from groundwatch.client.copying import unpacked
from groundwatch.client.lines import CannotSend, Line

if TYPE_CHECKING:
    from groundwatch.client.recorder import Recorder
    from groundwatch.conversations.conversation import Conversation, Unreadable

NO_ANSWER = frozenset({"tool_call", "no_answer", "failed"})
"""Calls that have nothing to judge: they are not lost."""


def exchange_line(
    recorder: Recorder, request: Any, response: Any, tags: Mapping[str, str], name: str, at: float
) -> Line | None:
    """None for a call without an answer. Raises `CannotSend` for what cannot be read.

    Request and response are decoded, or the bytes of their bodies.
    """
    from groundwatch.conversations.openai import read_exchange

    return conversation_line(recorder, read_exchange(request, response, at=at), tags, name)


def parsed_line(
    recorder: Recorder, request: dict[str, Any], result: bytes, tags: Mapping[str, str], name: str, at: float
) -> Line | None:
    """The same for a result that was packed."""
    return exchange_line(recorder, request, unpacked(result), tags, name, at)


def stream_line(
    recorder: Recorder,
    request: dict[str, Any],
    chunks: Sequence[bytes],
    tags: Mapping[str, str],
    name: str,
    at: float,
) -> Line | None:
    """The same for the bytes of a stream; one that was left early has the tag `finish_reason` for it."""
    return exchange_line(recorder, request, b"".join(chunks), tags, name, at)


def call_line(recorder: Recorder, record: dict[str, Any], tags: Mapping[str, str], name: str) -> Line | None:
    """The same for what LiteLLM logs."""
    from groundwatch.conversations.litellm import read_call

    return conversation_line(recorder, read_call(record), tags, name)


def conversation_line(
    recorder: Recorder, conversation: Conversation | Unreadable | None, tags: Mapping[str, str], name: str
) -> Line | None:
    from groundwatch.conversations.conversation import ImageDigest, ImageText, ImageUrl, Unreadable

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
    return recorder.line(
        id=conversation.id if 0 < len(conversation.id) <= 256 else name,
        model=conversation.model,
        prompt=conversation.prompt,
        answer=conversation.answer,
        images=images,
        tags={**conversation.tags, **tags},
        left_out=conversation.left_out,
    )
