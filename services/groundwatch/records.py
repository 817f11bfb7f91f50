"""Recorded responses as the outside world writes them: one JSON object, or many on lines of a file.

The same reading serves `groundwatch score`, `groundwatch submit` and the HTTP intake, so a line that one
of them refuses is refused by all, in the same words. What only groundwatch may say of a response (its
run, what was declined) is not read from outside; unknown fields are ignored, unless they are nearly one of
ours that is missing.
"""

import contextlib
import difflib
import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec

from groundwatch.counting import MOST_VALUES, has_more_values
from groundwatch.errors import UNDECODED
from groundwatch.events import Earlier, Reference, ResponseRecorded
from groundwatch.times import LAST

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
"""Identifiers: they become parts of subjects' digests and metric labels."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one response may hold. `line` in bytes, `answer` and `prompt` in characters.

    `reference` counts facts, objects and triplets together; a tag's name and value together may have
    `tag` characters. `digests` demands that every image is named by the SHA-256 of its bytes, in hex.
    """

    line: int = 20 * 1024 * 1024
    answer: int = 200_000
    prompt: int = 50_000
    images: int = 16
    reference: int = 2_000
    tags: int = 64
    tag: int = 1_024
    digests: bool = False


DEFAULT_LIMITS = Limits()

MOST_KEYS = 1_000
"""Keys of one object that are looked at; whoever has more has put data where names belong."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a record was not taken: a value, because one bad line must not stop the others.

    `field` is the path of the wrong field, empty when the line as a whole is wrong; `id` is the record's
    own where it could be read.
    """

    message: str
    field: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"key '{self.field}': {self.message}" if self.field else self.message


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said of a response from outside, whatever way it comes; absent means the default.

    `earlier` is what was said before the turn that was answered. The first `earlier_images` of the images
    were shown there, and are not what the answer is about.
    """

    model: Name
    answer: str
    prompt: str = ""
    reference: Reference | None = None
    tags: dict[str, str] = {}
    tenant: Annotated[str, msgspec.Meta(max_length=256)] = ""
    protocols: tuple[str, ...] = ()
    recorded_at: float = 0.0
    earlier: str = ""
    earlier_images: Annotated[int, msgspec.Meta(ge=0)] = 0


class Record(Described, frozen=True, kw_only=True):
    """A line of a file: it names itself, and its images by path or digest."""

    id: Name
    images: tuple[str, ...] = ()


class _Named(msgspec.Struct):
    id: str = ""


R = TypeVar("R")

_RECORD = msgspec.json.Decoder(Record)
_NAMED = msgspec.json.Decoder(_Named)
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ALSO_CALLED = {
    "image_path": "images",
    "image_file": "images",
    "img": "images",
    "question": "prompt",
    "query": "prompt",
    "instruction": "prompt",
    "response": "answer",
    "output": "answer",
    "prediction": "answer",
    "caption": "answer",
    "model_id": "model",
    "model_name": "model",
    "ground_truth": "reference",
}
"""What other programs call a field of ours."""

PROMPT_TOO_LONG, ANSWER_TOO_LONG = "prompt_too_long", "answer_too_long"
TOO_MANY_IMAGES = "too_many_images"

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_WHERE = re.compile(r" - at `\$\.?(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z")


def read_record(line: bytes, limits: Limits = DEFAULT_LIMITS) -> ResponseRecorded | Refusal:
    """Read one record; a `Refusal` names the wrong field."""
    record = decode_record(line, _RECORD, limits)
    if isinstance(record, Refusal):
        return record
    return check_record(record, record.id, record.images, limits) or recorded(
        record, record.id, record.images
    )


def decode_record(line: bytes, decoder: msgspec.json.Decoder[R], limits: Limits) -> R | Refusal:
    """Decode with a reader of one's own, with refusals in the words that all readers share."""
    if len(line) > limits.line:
        return too_long(limits.line)
    if has_more_values(line):
        return Refusal(message=f"has more than {MOST_VALUES:,} values")
    try:
        found = decoder.decode(line)
        return misspelt(_KEYS.decode(line), type(found)) or found
    except msgspec.ValidationError as error:
        return _explain(error, line)
    except UnicodeDecodeError:
        return Refusal(message="is not UTF-8 text")
    except RecursionError:
        return Refusal(message="is nested too deeply to be read")
    except msgspec.DecodeError as error:
        hint = "; write each backslash twice, or a slash" if "escape" in str(error) else ""
        return _lone_surrogate(line) or Refusal(message=f"not JSON ({error}){hint}")


def too_long(most: int) -> Refusal:
    return Refusal(message=f"the record has more than {most} bytes")


def convert_record(values: dict[str, Any], kind: type[R]) -> R | Refusal:
    """The same for values that came in another way than JSON."""
    try:
        found = msgspec.convert(values, kind)
        return misspelt(values, kind) or found
    except msgspec.ValidationError as error:
        message, path = _where(error)
        return Refusal(field=path, message=message, id=str(values.get("id", ""))[:256])


def misspelt(values: Mapping[str, Any], kind: type) -> Refusal | None:
    """Why a record is not taken whose key is nearly one that it lacks: `image` for `images`.

    Taken as it is, what was meant would be missing, and nothing would say so. Other unknown keys are the
    sender's own and are ignored.
    """
    known: tuple[str, ...] = getattr(kind, "__struct_encode_fields__", ())
    if len(values) > MOST_KEYS:
        return Refusal(message=f"has {len(values):,} keys; at most {MOST_KEYS:,} are taken")
    found = _nearly(values, known)
    inside = values.get("reference")
    if isinstance(inside, msgspec.Raw):
        inside = _KEYS.decode(inside) if bytes(inside)[:1] == b"{" else None
    if found is None and "reference" in known and isinstance(inside, dict):
        if len(inside) > MOST_KEYS:
            message = f"has {len(inside):,} keys; at most {MOST_KEYS:,} are taken"
            return Refusal(field="reference", message=message)
        found = _nearly(inside, Reference.__struct_encode_fields__, "reference.")
    if found is None:
        return None
    name = values.get("id", b"")
    told = bytes(name).decode("utf-8", "replace").strip('"') if isinstance(name, msgspec.Raw) else name
    return Refusal(field=found[0], message=f"is not known; did you mean '{found[1]}'?", id=str(told)[:256])


def _nearly(values: Mapping[str, Any], known: tuple[str, ...], within: str = "") -> tuple[str, str] | None:
    """A key that is nearly a known one, which is not there."""
    for key in values.keys() - set(known):
        meant = _meant(key, known)
        if meant and meant not in values:
            return within + key, within + meant
    return None


def also_called(key: str) -> str:
    """The field of ours that other programs call so; empty where it is none."""
    return _ALSO_CALLED.get(_plain(key), "")


def _plain(key: str) -> str:
    return key.strip().lower().replace("-", "_").replace(" ", "_")


@functools.lru_cache(4096)
def _meant(key: str, known: tuple[str, ...]) -> str:
    if len(key) > 40:
        return ""
    if (meant := also_called(key)) in known:
        return meant
    plain = _plain(key)
    # Names of two letters are near to too much.
    near = difflib.get_close_matches(plain, [one for one in known if len(one) > 2], n=1, cutoff=0.8)
    return near[0] if near else ""


def recorded(record: Described, name: str, images: tuple[str, ...]) -> ResponseRecorded:
    """The event of a record, under this id and with these images."""
    earlier = Earlier(text=record.earlier, images=images[: record.earlier_images])
    return ResponseRecorded(
        id=name,
        model=record.model,
        answer=record.answer,
        prompt=record.prompt,
        images=images[record.earlier_images :],
        reference=record.reference,
        tags=record.tags,
        tenant=record.tenant or "default",
        protocols=record.protocols,
        recorded_at=record.recorded_at,
        earlier=earlier if earlier != Earlier() else None,
    )


def split_lines(stream: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1; empty ones are skipped.

    Never holds more than one line, and of one of more than `most` bytes only its start, which is longer too.
    """
    number = 0
    while line := stream.readline(most + 2):
        number += 1
        while not line.endswith(b"\n") and len(line) > most:
            rest = stream.readline(most + 2)
            if rest.endswith(b"\n") or not rest:
                break
        stripped = line.rstrip(b"\r\n")
        if number == 1:
            stripped = stripped.removeprefix(b"\xef\xbb\xbf")
        if stripped.strip():
            yield number, stripped


def check_record(record: Described, name: str, images: Sequence[object], limits: Limits) -> Refusal | None:
    """Bounds that depend on the limits; of images, only those that are given as text are looked at."""
    for field, text, limit in (
        ("id", name, 256),
        ("model", record.model, 256),
        ("answer", record.answer, limits.answer),
        ("prompt", record.prompt, limits.prompt),
        ("earlier", record.earlier, limits.prompt),
    ):
        if len(text) > limit:
            return _refuse(name, field, f"has {len(text)} characters; at most {limit} are taken")
    if len(images) > limits.images:
        return _refuse(name, "images", f"names {len(images)} images; at most {limits.images} are taken")
    if record.earlier_images > len(images):
        return _refuse(name, "earlier_images", f"is more than the {len(images)} images that there are")
    if limits.digests:
        for index, image in enumerate(images):
            if isinstance(image, str) and not _DIGEST.match(image):
                return _refuse(name, f"images[{index}]", "is not the SHA-256 of an image in lower-case hex")
    if record.reference is not None:
        reference = record.reference
        held = len(reference.facts) + len(reference.objects) + len(reference.triplets)
        if held > limits.reference:
            return _refuse(name, "reference", f"has {held} items; at most {limits.reference} are taken")
    if len(record.tags) > limits.tags:
        return _refuse(name, "tags", f"has {len(record.tags)} tags; at most {limits.tags} are taken")
    for tag, value in record.tags.items():
        if len(tag) + len(value) > limits.tag:
            return _refuse(name, f"tags.{tag[:40]}", f"is longer than {limits.tag} characters")
    if not 0 <= record.recorded_at <= LAST:
        return _refuse(name, "recorded_at", "is not a time in seconds since the epoch")
    return None


D = TypeVar("D", bound=Described)
Brought = TypeVar("Brought")


def shortened(
    record: D, images: Sequence[Brought], limits: Limits
) -> tuple[D, Sequence[Brought], tuple[str, ...], tuple[str, ...]]:
    """A logged call's record and images as far as they are taken, and the reasons for what is cut off, last
    for what is cut off of earlier turns, whose images go first.

    Nobody sends a logged call again in another form, so a bound cuts where it would refuse.
    """
    cut = []
    early = min(record.earlier_images, len(images))
    spare = max(0, min(early, len(images) - limits.images))
    images = images[spare:]
    if len(record.prompt) > limits.prompt:
        cut.append(PROMPT_TOO_LONG)
    if len(record.answer) > limits.answer:
        cut.append(ANSWER_TOO_LONG)
    if len(images) > limits.images:
        cut.append(TOO_MANY_IMAGES)
    tags = {
        name: value[: limits.tag - len(name)]
        for name, value in list(record.tags.items())[: limits.tags]
        if len(name) < limits.tag
    }
    changes: dict[str, Any] = {
        "prompt": record.prompt[: limits.prompt],
        "answer": record.answer[: limits.answer],
        "tags": tags,
        "earlier": record.earlier[-limits.prompt :],
        "earlier_images": early - spare,
    }
    before = (TOO_MANY_IMAGES,) if spare else ()
    return msgspec.structs.replace(record, **changes), images[: limits.images], tuple(cut), before


def _lone_surrogate(line: bytes) -> Refusal | None:
    """Name the field with half a character, which JSON can write and UTF-8 cannot."""
    if not _SURROGATE.search(line):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    for field, value in record.items() if isinstance(record, dict) else ():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except RecursionError:
            return None
        except UnicodeEncodeError:
            return Refusal(field=field, message="contains a lone surrogate, which is no character")
    return None


def _refuse(name: str, field: str, message: str) -> Refusal:
    return Refusal(field=field, message=message, id=name)


def _where(error: msgspec.ValidationError) -> tuple[str, str]:
    message = str(error)
    path = ""
    if where := _WHERE.search(message):
        message, path = message[: where.start()], where[1]
    if missing := _MISSING.match(message):
        path, message = f"{path}.{missing[1]}".lstrip("."), "is missing"
    return message, path


def _explain(error: msgspec.ValidationError, line: bytes) -> Refusal:
    message, path = _where(error)
    if message == "is missing":
        with contextlib.suppress(*UNDECODED):
            keys = itertools.islice(_KEYS.decode(line), MOST_KEYS)
            called = [key for key in keys if path and _meant(key, (path,)) == path]
            message += f"; is it '{called[0][:40]}'?" if called else ""
    try:
        name = _NAMED.decode(line).id
    except UNDECODED:
        name = ""
    return Refusal(field=path, message=message, id=name[:256])
