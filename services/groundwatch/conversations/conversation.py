"""One call of a model, as a library or a serving system logged it, whatever dialect that speaks."""

from typing import Any

import msgspec


class ImageText(msgspec.Struct, frozen=True):
    """The bytes of an image as base64, as they came; decoded by whoever stores them."""

    base64: str


class ImageUrl(msgspec.Struct, frozen=True):
    """Where an image is: http(s), `s3://`, `gs://` or `file://`. Naming it is no permission to fetch it."""

    url: str


Image = bytes | ImageText | ImageUrl


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked and what was answered.

    `id` is stable: the same call logged again has it again; empty where the log has none. `prompt` is the
    text of the last message of the user, `images` are those of all messages in their order. `left_out` has
    for each image that the logging library cut out the name of its reason, a key of `reasons.REASONS`.
    `references` are addresses of messages that lie elsewhere (`input`, `output`). `library` is who logged
    it, as far as that shows. `at` is when the answer was there, in seconds since the epoch; 0: unknown.
    """

    id: str = ""
    model: str = ""
    prompt: str = ""
    answer: str = ""
    images: tuple[Image, ...] = ()
    left_out: tuple[str, ...] = ()
    references: dict[str, str] = {}
    tags: dict[str, str] = {}
    library: str = ""
    at: float = 0.0


class Unreadable(msgspec.Struct, frozen=True):
    """Why what was logged is no conversation: a value, because one of a batch must not stop the others.

    `reason` is bounded, since it is a metric's label.
    """

    reason: str
    message: str
    id: str = ""


Attributes = dict[str, Any]
"""Attributes of a span or a log, their values as Python's own: text, numbers, bytes, lists, dicts."""
