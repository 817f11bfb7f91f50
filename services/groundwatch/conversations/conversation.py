"""One call of a model, as a library or a serving system logged it, whatever dialect that speaks."""

import base64
import hashlib
from typing import Any

import msgspec


class ImageText(msgspec.Struct, frozen=True, tag=True):
    """The bytes of an image as base64, as they came; decoded by whoever stores them."""

    base64: str


class ImageUrl(msgspec.Struct, frozen=True, tag=True):
    """Where an image is: http(s), `s3://`, `gs://` or `file://`. Naming it is no permission to fetch it."""

    url: str


class ImageDigest(msgspec.Struct, frozen=True, tag=True):
    """An image that is stored, named by the SHA-256 of its bytes."""

    sha256: str


Image = bytes | ImageText | ImageUrl | ImageDigest


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked and what was answered.

    `id` is stable: the same call logged again has it again; empty where the log has none. `prompt` is the
    text of the last message of the user, `images` are those of all messages in their order. `left_out` has
    for each image that the logging library cut out the name of its reason, a key of `reasons.REASONS`.
    `references` are addresses of messages that lie elsewhere (`input`, `output`). `library` is who logged
    it, as far as that shows. `at` is when the answer was there, in seconds since the epoch; 0: unknown.
    `response_id` is the model server's own id of the answer, `trace_id` and `span_id` are in hexadecimal;
    each is empty where it is not known.
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
    response_id: str = ""
    trace_id: str = ""
    span_id: str = ""


class Unreadable(msgspec.Struct, frozen=True):
    """Why what was logged is no conversation: a value, because one of a batch must not stop the others.

    `reason` is bounded, since it is a metric's label: `failed` (the call failed), `tool_call` (its answer is
    a call of a tool), `no_answer` (it was not logged, or is empty), `no_span` (message logs without their
    span), `no_request` and `no_response` (a half of an exchange without the other), `no_ids` (a message log
    that names no span), `no_model`, `unreadable` (not what it claims to be).
    """

    reason: str
    message: str
    id: str = ""
    model: str = ""


Attributes = dict[str, Any]
"""Attributes of a span or a log, their values as Python's own: text, numbers, bytes, lists, dicts."""

TRACE_TAG, SPAN_TAG, RESPONSE_TAG = "trace_id", "span_id", "response_id"
"""Tags of a response: the span that it came as, and the id that the model's server gave the answer."""

ID_LENGTH = 256
"""Characters that the id of a response may have."""

TELLING = 20
"""Characters from which on a response id is taken for unique: OpenAI's and vLLM's have more. Ollama numbers
its responses from 0 to 998, so that shorter ones come again."""

_SAMPLE = 96


def stable_id(response_id: str, trace_id: str, span_id: str, content: str) -> str:
    """The id under which a call is recorded, however often and by however many spans it is logged.

    That is the response id where it is telling; a short one stands beside the trace, or beside `content`, a
    digest of what was said. Without one it is trace and span. Empty where there is nothing to go by.
    """
    if len(response_id) > ID_LENGTH:
        return hashlib.sha256(response_id.encode("utf-8", "replace")).hexdigest()
    if len(response_id) >= TELLING:
        return response_id
    if response_id:
        return f"{trace_id or content[:32]}:{response_id}"
    return f"{trace_id}:{span_id}" if trace_id and span_id else ""


def content_digest(conversation: Conversation) -> str:
    """A digest of prompt, answer and images, the same whatever dialect they were logged in.

    Of an image its length in base64 and its beginning count, so that no image is decoded for it.
    """
    digest = hashlib.sha256()
    for text in (conversation.prompt, conversation.answer):
        digest.update(text.strip().encode("utf-8", "replace") + b"\0")
    for image in conversation.images:
        digest.update(_sample(image) + b"\0")
    return digest.hexdigest()


def repeat_key(conversation: Conversation) -> str:
    """What two spans of one trace have in common that log the same call, and two calls have not.

    A receiver takes two conversations for one call when their `id` is the same; or when this key is the same
    and not empty, their spans differ, and at most one of them has a `response_id`. It is empty where nobody
    can tell: without a trace, without an answer, or when an image was left out, since "Is there a dog?" with
    "Yes." is asked of many images in one trace.
    """
    if not conversation.trace_id or not conversation.answer or conversation.left_out:
        return ""
    return f"{conversation.trace_id}:{content_digest(conversation)}"


def _sample(image: Image) -> bytes:
    if isinstance(image, ImageUrl):
        return image.url.encode("utf-8", "replace")
    if isinstance(image, ImageDigest):
        return image.sha256.encode()
    if isinstance(image, ImageText):
        text = image.base64
        length, start = len(text) - text[-2:].count("="), text[:_SAMPLE].encode("utf-8", "replace")
    else:
        length, start = -(-len(image) * 4 // 3), base64.b64encode(image[: _SAMPLE * 3 // 4])
    return b"%d %s" % (length, start.rstrip(b"="))
