"""One call of a model, as a library or a serving system logged it, whatever dialect that speaks."""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import msgspec

from groundwatch.counting import has_more_values


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


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who logged a call, as far as that shows: by which way it came, the application, the library as it calls
    itself, with its version, and the dialect that it speaks. Each is short, whatever a sender says."""

    source: str = ""
    service: str = ""
    library: str = ""
    version: str = ""
    dialect: str = ""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked and what was answered.

    `id` is stable: the same call logged again has it again; empty where the log has none. `prompt` is the
    text of the last message of the user, `images` are those of all messages in their order. `left_out` has
    for each image that the logging library cut out the name of its reason, a key of `reasons.REASONS`.
    `others` are the answers of further choices, where several were asked for. `earlier` is the end of what
    was said before the last turn of the user; where that shows images, or lacks some, the first
    `earlier_images` and all of `earlier_left_out` are of turns before it.
    `references` are addresses of messages that lie elsewhere (`input`, `output`). `library` is who logged
    it, by a name of ours, as far as that shows. `at` is when the answer was there, in seconds since the
    epoch; 0: unknown. `response_id` is the model server's own id of the answer, `trace_id`, `span_id` and
    `parent_id`, the span around it, are in hexadecimal, `scope` is the instrumentation; each is empty where
    it is not known.
    """

    id: str = ""
    model: str = ""
    prompt: str = ""
    answer: str = ""
    images: tuple[Image, ...] = ()
    left_out: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    earlier: str = ""
    earlier_images: int = 0
    earlier_left_out: tuple[str, ...] = ()
    references: dict[str, str] = {}
    tags: dict[str, str] = {}
    library: str = ""
    at: float = 0.0
    response_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    parent_id: str = ""
    scope: str = ""
    origin: Origin = Origin()


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
    origin: Origin = Origin()


Attributes = dict[str, Any]
"""Attributes of a span or a log, their values as Python's own: text, numbers, bytes, lists, dicts."""

TRACE_TAG, SPAN_TAG, RESPONSE_TAG = "trace_id", "span_id", "response_id"
SERVICE_TAG, LIBRARY_TAG = "service", "library"
"""Tags of a response: the span that it came as, the id that the model's server gave the answer, who asked,
and what logged it."""

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


def choices_of(conversation: Conversation, name: str) -> list[Conversation]:
    """Each further choice as a call of its own: that with the id `name` goes on with `name#1`."""
    return [
        msgspec.structs.replace(conversation, id=f"{name[: ID_LENGTH - 6]}#{at}", answer=answer, others=())
        for at, answer in enumerate(conversation.others, 1)
    ]


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
    and not empty, their spans differ, and one of them has a `response_id`, or neither has one and they are of
    two instrumentations, or one span is in the other. It is empty where nobody can tell: without a trace,
    without an answer, or when an image was left out, since "Is there a dog?" with "Yes." is asked of many
    images in one trace.
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


class Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What parts of a message are called, and where in them things are: paths with dots.

    A part without a type is named by its key. `other` has by their reasons how media begin that nobody looks
    at here, `silent` what is neither said nor shown.
    """

    text: frozenset[str]
    image: frozenset[str]
    tool_call: frozenset[str]
    tool_result: frozenset[str]
    silent: frozenset[str]
    other: dict[str, tuple[str, ...]]
    inside: tuple[str, ...]
    payload: tuple[str, ...]
    media: tuple[str, ...]
    file: tuple[str, ...]
    endings: dict[str, tuple[str, ...]]
    marks: dict[str, str]
    wrappers: tuple[str, ...]
    texts: tuple[str, ...]
    holding: frozenset[str]
    telling: frozenset[str]
    saying: frozenset[str]


class Placeholder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a text begins that stands where an image was, and the reason of that; another one for a text."""

    starts: str
    reason: str
    text_reason: str = ""


class Dialect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of a span. `kind` says what it is of, also as `type` within JSON: `calls` are of a model,
    `others` are not.

    `flat_input` and `flat_output` are prefixes; `tools` are calls of tools in an answer that has no text.
    `plain`: a text that holds no messages is one itself; `text` is always one. Only a call that has ended
    has one of `marks`. `fallback`: what it has makes no call of a span, and counts where no other dialect has
    as much.
    """

    kind: tuple[str, ...] = ()
    calls: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    model: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    fallback: bool = False
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    plain: bool = False
    text: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    flat_input: str = ""
    flat_output: str = ""
    input_reference: tuple[str, ...] = ()
    output_reference: tuple[str, ...] = ()


class Library(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    scopes: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an image is not there: `library` did `did`, and with `setting` it is there.

    It stands for the reasons `of` where one of the libraries `by` logged the call.
    """

    library: str
    did: str
    setting: str
    of: frozenset[str] = frozenset()
    by: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.library} {self.did}. What keeps it: {self.setting}"


class Events(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of log records and events: messages with their role, answers, and whole calls (`details`)."""

    inputs: dict[str, str]
    outputs: frozenset[str]
    details: frozenset[str]
    names: tuple[str, ...]
    bodies: tuple[str, ...]
    fields: tuple[str, ...]


class Bodies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where in a request or a response things are that no attribute says: paths with dots. `about` are
    attributes beside these that may say them too."""

    model: tuple[str, ...]
    about: tuple[str, ...]
    id: tuple[str, ...]


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes that say how an answer ended, and the `usual` ends, which say nothing."""

    attributes: tuple[str, ...]
    usual: frozenset[str]


class LiteLlm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`others` are calls of no language model; `tags` are paths of fields and the tags that they become."""

    others: frozenset[str]
    tags: dict[str, str]


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: Parts
    placeholder: tuple[Placeholder, ...]
    dialect: dict[str, Dialect]
    events: Events
    bodies: Bodies
    ended: Ended
    litellm: LiteLlm
    tags: dict[str, str]
    library: tuple[Library, ...]
    reason: dict[str, LeftOut]


NAMES = msgspec.toml.decode(
    resources.files("groundwatch.conversations").joinpath("conversations.toml").read_bytes(), type=_Names
)


__all__ = ["REASONS", "LeftOut", "placeholder", "reason_by"]

REASONS: dict[str, LeftOut] = NAMES.reason
"""By their names, which are those in `Conversation.left_out`."""

_BY = {
    (general, library): name
    for name, reason in REASONS.items()
    for general in reason.of
    for library in reason.by
}
_STARTS = tuple(one.starts for one in NAMES.placeholder)


def reason_by(reason: str, library: str) -> str:
    """The reason as exactly as it is known once it shows which library logged the call."""
    return _BY.get((reason, library), reason)


def placeholder(text: str, *, said: bool = False) -> str:
    """The reason that a text stands for where an image was, or what was `said`; empty where it is none."""
    if not text.startswith(_STARTS):
        return ""
    found = next(one for one in NAMES.placeholder if text.startswith(one.starts))
    return (found.text_reason if said else "") or found.reason


class _NotJson:
    """What `json_of` gives for a text that is no JSON."""


NOT_JSON: Final = _NotJson()

_TAG_LENGTH = 256
_LARGEST = 2**63


def text_of(value: object) -> str:
    """The text; empty where it is none. Halves of characters, which UTF-8 cannot write, become `?`."""
    if not isinstance(value, str):
        return ""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return value


def json_of(value: str | bytes) -> Any:
    """What a JSON text says; `NOT_JSON` where it is none, or has more values than any call."""
    if has_more_values(value):
        return NOT_JSON
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    # Python's own writer writes NaN and halves of characters, which msgspec refuses.
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return NOT_JSON


def structured(value: object) -> Any:
    """A list or dict as it is, or the one that a JSON text holds; any other text as it is.

    `NOT_JSON` for a text that begins as a list or dict and is none.
    """
    if isinstance(value, bytes | bytearray):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError:
            return NOT_JSON
    if isinstance(value, str):
        return json_of(value) if value[:64].lstrip().startswith(("[", "{")) else text_of(value)
    return value


def number_of(value: object) -> float:
    """A time; 0 where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0


def first_text(attributes: Attributes, keys: Sequence[str]) -> str:
    """The first of these attributes that is a text with something in it."""
    for key in keys:
        if text := text_of(attributes.get(key)).strip():
            return text
    return ""


def tag_value(value: object) -> str:
    """What a tag may hold; empty for what is neither text nor number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value}" if abs(value) < _LARGEST else ""
    return text_of(value).strip()[:_TAG_LENGTH]


def finish_tag(reason: object) -> dict[str, str]:
    """The tag of how an answer ended, unless as it should."""
    ended = tag_value(reason).strip('"')[:64]
    return {"finish_reason": ended} if ended and ended.lower() not in NAMES.ended.usual else {}


LOGPROB = "logprob"
"""The tag with the mean log-probability of an answer's tokens."""


def logprob_tag(told: object) -> dict[str, str]:
    """The tag of how likely the model found its own words, from `logprobs` as OpenAI's chat has them."""
    content = told.get("content") if isinstance(told, dict) else None
    each = (
        [one.get("logprob") for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    )
    found = [float(one) for one in each if isinstance(one, int | float) and -_LARGEST < one <= 0]
    return {LOGPROB: f"{sum(found) / len(found):.4f}"} if found else {}


def hex_id(value: object) -> str:
    """The id of a trace or span; empty where it is none, or zero, which means that there is none."""
    text = text_of(value)
    return text if len(text) <= 64 and text.strip("0") else ""
