"""VALOR's published files: benchmark annotations, features before matching, and matched features.

All are JSON or JSON lines; no pickle is ever read. A wrong format, a truncated line or a
missing key raises `FileFormatError` naming file, line and key.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from groundwatch.errors import UsageError
from groundwatch.protocols.features import Features
from groundwatch.protocols.published import Place, json_lines, json_members
from groundwatch.protocols.valor.features import generated_features, matched_pairs, reference_features
from groundwatch.protocols.valor.scoring import NUMBERED, Matched, Pairs, Subset

T = TypeVar("T")

SUBSETS = ", ".join(Subset)

_KEYS = {
    "reference": ("gt_words", "gt_obj_atts"),
    "generated": ("generated_words", "generated_obj_atts"),
    "matched": ("matched_objects", "matched_att_obj"),
    "broader": ("broader_concept",),
}


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """What people annotated of one image. `raw` is the annotation as its file writes it."""

    image_id: str
    reference: Features
    raw: object


class Unmatched(msgspec.Struct, frozen=True, kw_only=True):
    """One response before matching; `raw` is the whole record, kept for the file after matching."""

    image_id: str
    generated: tuple[str, ...]
    reference: Features
    raw: dict[str, object]


def subset_of(name: str) -> Subset:
    """The subset of this name; raises `UsageError` listing all five."""
    try:
        return Subset(name)
    except ValueError as error:
        raise UsageError(f"no subset '{name}' in VALOR-Bench; known are {SUBSETS}") from error


def read_matched(path: str | Path, subset: Subset) -> Iterator[Matched]:
    """The records of a file after matching (JSON lines)."""
    for place, record in json_lines(Path(path)):
        yield Matched(
            image_id=_image_id(place, record),
            generated=_read(place, record, "generated", subset, partial(generated_features, subset=subset)),
            reference=_read(place, record, "reference", subset, partial(reference_features, subset=subset)),
            matched=_read(place, record, "matched", subset, matched_pairs),
            broader=_read(place, record, "broader", subset, matched_pairs),
        )


def read_unmatched(path: str | Path, subset: Subset) -> Iterator[Unmatched]:
    """The records of a file before matching (JSON lines): its features are extracted already."""
    for place, record in json_lines(Path(path)):
        yield Unmatched(
            image_id=_image_id(place, record),
            generated=_read(place, record, "generated", subset, partial(generated_features, subset=subset)),
            reference=_read(place, record, "reference", subset, partial(reference_features, subset=subset)),
            raw=record,
        )


def extracted_record(
    image_id: str, annotation: Annotation, generated: tuple[str, ...], answer: str, subset: Subset
) -> Unmatched:
    """What the published files would hold before matching, for features that were just extracted."""
    numbered = subset in NUMBERED or subset is Subset.RELATION_COMPARATIVE
    written: object = list(generated)
    if subset is Subset.ATTRIBUTE_PEOPLE:
        written = {str(at): {"object": text} for at, text in enumerate(generated, start=1)}
    elif numbered:
        written = {str(at): text for at, text in enumerate(generated, start=1)}
    names = ("gt_obj_atts", "generated_obj_atts") if subset in NUMBERED else ("gt_words", "generated_words")
    raw = {
        "image_id": image_id,
        names[0]: annotation.raw,
        names[1]: written,
        "generated_caption": answer,
    }
    return Unmatched(image_id=image_id, generated=generated, reference=annotation.reference, raw=raw)


def after_matching(record: Unmatched, matched: Pairs, broader: Pairs, subset: Subset) -> dict[str, object]:
    """The record as the published files have it after matching, its other keys kept.

    Attributes go under numbers, as their generated features stand; a dictionary could hold only one of two
    equal ones.
    """
    found = dict(record.raw)
    if "generated_caption" in found:
        found.setdefault("caption", found["generated_caption"])
    if subset in NUMBERED:
        found["matched_att_obj"] = _by_number(matched, subset)
        found["broader_concept"] = _by_number(broader, subset)
    else:
        found["matched_objects"] = dict(matched)
        found["broader_concept"] = dict(broader)
    return found


def read_annotations(path: str | Path, subset: Subset) -> list[Annotation]:
    """The benchmark's annotation: JSON lines for objects, one JSON object by image for the others."""
    file = Path(path)
    read = partial(reference_features, subset=subset)
    if subset is Subset.OBJECT_EXISTENCE:
        return [
            Annotation(
                image_id=_image_id(place, record),
                reference=_told(place, "gt_objects", record.get("gt_objects"), read),
                raw=record["gt_objects"],
            )
            for place, record in json_lines(file)
        ]
    return [
        Annotation(
            image_id=image_id,
            reference=_told(Place(file, line), image_id, value, read),
            raw=value,
        )
        for line, image_id, value in json_members(file)
    ]


def _image_id(place: Place, record: dict[str, object]) -> str:
    return str(place.take(record, "image_id", (str, int), "a string or a number"))


def _read(
    place: Place, record: dict[str, object], what: str, subset: Subset, reader: Callable[[object], T]
) -> T:
    """The value under the subset's own name of the key, or under the name that the other subsets use."""
    names = _KEYS[what][::-1] if subset in NUMBERED else _KEYS[what]
    name = next((name for name in names if name in record), None)
    if name is None:
        raise place.wrong(f"key '{names[0]}': is missing")
    return _told(place, name, record[name], reader)


def _told(place: Place, key: str, value: object, reader: Callable[[object], T]) -> T:
    try:
        return reader(value)
    except ValueError as error:
        raise place.wrong(f"key '{key}': {error}") from error


def _by_number(pairs: Pairs, subset: Subset) -> dict[str, object]:
    people = subset is Subset.ATTRIBUTE_PEOPLE
    return {
        str(number): {"object": {left: right}} if people else {left: right}
        for number, (left, right) in enumerate(pairs, start=1)
    }
