"""Tri-HE's published files: the benchmark (image → triplets, objects, questions) and results with judgements.

Triplets are texts such as "(man, riding, horse)", in results also lists of three. Some of the benchmark's
have more commas or two triplets in one text; they are cut as far as they can be, and never dropped silently.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.errors import UNDECODED, FileFormatError
from groundwatch.protocols.published import Piece, Place, json_members
from groundwatch.protocols.trihe.scoring import JudgedQuestion, JudgedTriplet
from groundwatch.protocols.triplets import Part, Triplet

JUDGEMENTS = "_triplets_judgements"
"""What the key of a question's judgements ends in; before it stands the name of the model."""

_BETWEEN = re.compile(r"\)?\s*[;,]\s*\(")
_VERDICT = re.compile(r"\bmy answer is\W{1,4}(yes|no)\b|^\W{0,4}(yes|no|null)\b")
_NAMES = r"(object[ _]?1|object[ _]?2|relation|object|subject)\b"
_PART = re.compile(rf"\b{_NAMES}")
_BLAMED = re.compile(rf"\brelated to\W{{1,4}}{_NAMES}")
_PARTS: dict[str, Part] = {
    "object1": "object1",
    "subject": "object1",
    "object2": "object2",
    "object": "object2",
    "relation": "relation",
}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the benchmark with its reference answer and the triplets that explain it."""

    question: str
    answer: str
    triplets: tuple[Triplet, ...] = ()


class AnnotatedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the benchmark. `objects` are all that are named, each once."""

    image: str
    triplets: tuple[Triplet, ...]
    objects: tuple[str, ...]
    questions: tuple[Asked, ...] = ()


def read_benchmark(path: Path) -> list[AnnotatedImage]:
    """Read the benchmark; raises `FileFormatError` naming file, line and key."""
    return [_annotated(path, piece) for piece in json_members(path)]


_BEGINNING = 1024 * 1024


def is_benchmark(path: Path) -> bool:
    """Whether a file begins as one JSON object of images with instances, on one line or several."""
    try:
        with path.open("rb") as stream:
            first = next((line for line in stream if line.strip()), b"")
            begins = first + stream.read(_BEGINNING)
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    try:
        record = msgspec.json.decode(first)
    except UNDECODED:
        return first.lstrip().startswith(b"{") and b'"instance"' in begins
    values = list(record.values()) if isinstance(record, dict) else []
    return bool(values) and all(isinstance(value, dict) and "instance" in value for value in values)


def read_triplets(texts: Iterable[str]) -> tuple[Triplet, ...]:
    """The triplets of such texts, each once and in order."""
    found: dict[Triplet, None] = {}
    for text in texts:
        for one in _BETWEEN.split(text):
            parts = [part.strip(" ()'\"") for part in one.split(",")]
            parts = [part for part in parts if part]
            if len(parts) > 1:
                found[parts[0], parts[1], ", ".join(parts[2:])] = None
    return tuple(found)


def read_judgements(path: Path) -> tuple[str, list[JudgedQuestion]]:
    """The judged model's key and the judged questions of a result file.

    Raises `FileFormatError` naming file, line and key; also where a file has judgements of several models,
    whose rates are not to be mixed.
    """
    pieces = json_members(path)
    instances = [(piece, at, one) for piece in pieces for at, one in enumerate(_instances(path, piece))]
    keys = sorted({key for _, _, one in instances for key in one if key.endswith(JUDGEMENTS)})
    if len(keys) != 1:
        line = pieces[0].line if pieces else 1
        several = f"judgements of several models ({', '.join(keys)}): keep one" if keys else "none there"
        raise Place(path, line).wrong(f"key '…{JUDGEMENTS}': {several}")
    return keys[0], [_judged(path, piece, at, one, keys[0]) for piece, at, one in instances]


def _annotated(path: Path, piece: Piece) -> AnnotatedImage:
    place = _image(path, piece)
    instances = _instances(path, piece)
    objects = [*_texts(place, piece.value, "all_object"), *_texts(place, piece.value, "object")]
    return AnnotatedImage(
        image=piece.key,
        triplets=read_triplets(_texts(place, piece.value, "triplets")),
        objects=tuple(dict.fromkeys(objects)),
        questions=tuple(
            Asked(
                question=inside.take(one, "question", str, "a string"),
                answer=inside.take(one, "answer", str, "a string"),
                triplets=read_triplets(_texts(inside, one, "triplet")),
            )
            for at, one in enumerate(instances)
            for inside in [place._replace(what=f"{place.what}, instance {at}")]
        ),
    )


def _instances(path: Path, piece: Piece) -> list[dict[str, Any]]:
    place = _image(path, piece)
    if not isinstance(piece.value, dict):
        raise place.wrong("expected an object with a list 'instance'")
    found = place.take(piece.value, "instance", list, "a list of objects")
    for at, one in enumerate(found):
        if not isinstance(one, dict):
            raise place.wrong(f"key 'instance', item {at}: expected an object")
    return found


def _judged(path: Path, piece: Piece, at: int, one: dict[str, Any], key: str) -> JudgedQuestion:
    place = _image(path, piece)
    place = place._replace(what=f"{place.what}, instance {at}")
    judgements = place.take(one, key, list, "a list of judgements")
    said = one.get(key.removesuffix("_judgements"))
    triplets: Sequence[Triplet | None] = [_triplet(each) for each in said] if isinstance(said, list) else ()
    if len(triplets) != len(judgements):
        triplets = [None] * len(judgements)
    return JudgedQuestion(
        image=piece.key,
        triplets=tuple(
            _judgement(place, key, each, triplet) for each, triplet in zip(judgements, triplets, strict=True)
        ),
    )


def _judgement(place: Place, key: str, judged: object, triplet: Triplet | None) -> JudgedTriplet:
    """A judgement is yes, no or null, a judge's whole reply, or either with the part that is wrong.

    The part stands in the same text ("no, relation"), beside it in a list, or in an object's other value.
    """
    if isinstance(judged, bool):
        judged = "yes" if judged else "no"
    values = judged if isinstance(judged, list) else judged.values() if isinstance(judged, dict) else [judged]
    texts = ["null" if value is None else str(value).casefold() for value in values]
    verdicts = [(at, found) for at, text in enumerate(texts) if (found := _VERDICT.search(text))]
    if not verdicts:
        if any(" " in text.strip() for text in texts):
            return JudgedTriplet(hallucinated=None, triplet=triplet)
        raise place.wrong(f"key '{key}': expected yes, no or null, not {judged!r}")
    at, verdict = verdicts[0]
    answer = verdict[1] or verdict[2]
    if answer != "no":
        return JudgedTriplet(hallucinated=None if answer == "null" else False, triplet=triplet)
    rest = " ".join([texts[at][verdict.end() :], *texts[:at], *texts[at + 1 :]])
    part = _BLAMED.search(rest) or _PART.search(rest)
    return JudgedTriplet(
        hallucinated=True, part=_PARTS[re.sub("[ _]", "", part[1])] if part else None, triplet=triplet
    )


def _triplet(value: object) -> Triplet | None:
    if isinstance(value, str):
        found = read_triplets([value])
        return found[0] if len(found) == 1 else None
    if isinstance(value, list) and len(value) > 1 and all(isinstance(part, str) for part in value):
        return value[0], value[1], ", ".join(value[2:])
    return None


def _texts(place: Place, record: dict[str, Any], key: str) -> list[str]:
    found = place.take(record, key, list, "a list of strings")
    for one in found:
        if not isinstance(one, str):
            raise place.wrong(f"key '{key}': expected strings, not {one!r}")
    return found


def _image(path: Path, piece: Piece) -> Place:
    return Place(path, piece.line, f"image '{piece.key}'")
