"""VALOR's published files: benchmark annotations, features before matching, and matched features.

Features are read into one form: texts, each with every wording that is right. Depending on the subset a
feature is a word, a numbered "(attribute, object)" with alternatives, a person with several of those, a
relation with its inverse, or a rank's object with alternatives such as "ground / court". All files are JSON
or JSON lines; what is wrong raises `FileFormatError` naming file, line and key.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from groundwatch.errors import UsageError
from groundwatch.protocols.features import (
    Features,
    alternatives,
    alternatives_of_pair,
    attribute_pairs,
    pair_text,
)
from groundwatch.protocols.valor.scoring import NUMBERED, Matched, Pairs, Subset
from groundwatch_benchmarks.json_files import Place, json_images, json_lines

T = TypeVar("T")

SUBSETS = ", ".join(Subset)

_KEYS = {
    "reference": ("gt_words", "gt_obj_atts"),
    "generated": ("generated_words", "generated_obj_atts"),
    "matched": ("matched_objects", "matched_att_obj"),
    "broader": ("broader_concept",),
}
_MISSING = ("", "none", "null", "n/a")


def reference_features(value: object, subset: Subset) -> Features:
    """F_G of one image as the benchmark and the matched files write it."""
    match subset:
        case Subset.OBJECT_EXISTENCE:
            return tuple((text,) for text in _texts(value))
        case Subset.ATTRIBUTE_OBJECT:
            return tuple(alternatives_of_pair(text) for text in _texts(value))
        case Subset.ATTRIBUTE_PEOPLE:
            return tuple((pair,) for pair in _worn(value))
        case Subset.RELATION_POSITIONAL:
            return tuple(_wordings(one) for one in _items(value))
        case Subset.RELATION_COMPARATIVE:
            return tuple(alternatives(text) for text in _ranked(value))


def generated_features(value: object, subset: Subset) -> tuple[str, ...]:
    """F_R of one response, in its order. An empty text in place of a list means that nothing was found."""
    if value is None or value == "":
        return ()
    match subset:
        case Subset.ATTRIBUTE_OBJECT:
            return tuple(text for text in _texts(value) if text.strip())
        case Subset.ATTRIBUTE_PEOPLE:
            return tuple(_worn(value))
        case Subset.RELATION_COMPARATIVE:
            return tuple(_ranked(value))
        case Subset.RELATION_POSITIONAL if isinstance(value, dict):
            lists = [inner for inner in value.values() if isinstance(inner, list)]
            return tuple(_texts(lists[0] if len(value) == 1 and lists else value))
        case _:
            return tuple(_texts(value))


def matched_pairs(value: object) -> Pairs:
    """D_M or D_B: from generated features to wordings of the reference, however deep the file nests them.

    Attributes are nested under their number, and once more under "object" for people; what is said of the
    person is no feature. A value that is a list stands for one pair each.
    """
    if value is None or value == "":
        return ()
    if not isinstance(value, dict):
        raise ValueError("expected an object of texts to texts")
    return tuple(_pairs(value))


def _worn(value: object) -> Iterator[str]:
    for one in _items(value):
        worn = one.get("object", "") if isinstance(one, dict) else one
        if not isinstance(worn, str):
            raise ValueError("key 'object': expected a text such as '(red, jacket), (black, shoes)'")
        pairs = attribute_pairs(worn)
        if not pairs and worn.strip().casefold() not in _MISSING:
            raise ValueError(f"key 'object': expected '(attribute, object)', not '{worn}'")
        yield from (pair_text(*pair) for pair in pairs)


def _wordings(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("expected a relation or a list of its wordings")
    return tuple(text.strip() for text in texts)


def _ranked(value: object) -> Iterator[str]:
    """Objects from large to small: by the numbers that are their keys, else as they stand."""
    if isinstance(value, dict):
        if not all(isinstance(rank, str) and rank.strip().isdecimal() for rank in value):
            raise ValueError("expected ranks as keys: '1', '2' and so on")
        value = [value[rank] for rank in sorted(value, key=int)]
    return _texts(value)


def _texts(value: object) -> Iterator[str]:
    for text in _items(value):
        if not isinstance(text, str):
            raise ValueError(f"expected texts, not {_kind(text)}")
        yield text


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    raise ValueError(f"expected a list or an object, not {_kind(value)}")


def _pairs(value: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for left, right in value.items():
        if isinstance(right, str):
            yield left, right
        elif isinstance(right, list):
            for one in right:
                if not isinstance(one, str):
                    raise ValueError(f"'{left}': expected texts, not {_kind(one)}")
                yield left, one
        elif isinstance(right, dict):
            inner = right.get("object", {}) if "object" in right or "person" in right else right
            yield from matched_pairs(inner)
        elif right is not None:
            raise ValueError(f"'{left}': expected a text, not {_kind(right)}")


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


class _Named(msgspec.Struct):
    image_id: str | int


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
    try:
        return Subset(name)
    except ValueError as error:
        raise UsageError(f"no subset '{name}' in VALOR-Bench; known are {SUBSETS}") from error


def read_matched(path: Path, subset: Subset) -> Iterator[Matched]:
    for place, record in json_lines(path):
        yield Matched(
            **_before_matching(place, record, subset),
            matched=_read(place, record, "matched", subset, matched_pairs),
            broader=_read(place, record, "broader", subset, matched_pairs),
        )


def read_unmatched(path: Path, subset: Subset) -> Iterator[Unmatched]:
    """The records of a file before matching (JSON lines): its features are extracted already."""
    for place, record in json_lines(path):
        yield Unmatched(**_before_matching(place, record, subset), raw=record)


def _before_matching(place: Place, record: dict[str, Any], subset: Subset) -> dict[str, Any]:
    return {
        "image_id": str(place.read(record, _Named).image_id),
        "generated": _read(place, record, "generated", subset, partial(generated_features, subset=subset)),
        "reference": _read(place, record, "reference", subset, partial(reference_features, subset=subset)),
    }


def extracted_record(
    annotation: Annotation, generated: tuple[str, ...], answer: str, subset: Subset
) -> Unmatched:
    """What the published files would hold before matching, for features that were just extracted."""
    written: object = list(generated)
    if subset is Subset.ATTRIBUTE_PEOPLE:
        written = {str(at): {"object": text} for at, text in enumerate(generated, start=1)}
    elif subset in NUMBERED or subset is Subset.RELATION_COMPARATIVE:
        written = {str(at): text for at, text in enumerate(generated, start=1)}
    names = [_KEYS[what][subset in NUMBERED] for what in ("reference", "generated")]
    return Unmatched(
        image_id=annotation.image_id,
        generated=generated,
        reference=annotation.reference,
        raw={
            "image_id": annotation.image_id,
            names[0]: annotation.raw,
            names[1]: written,
            "generated_caption": answer,
        },
    )


def after_matching(record: Unmatched, matched: Pairs, broader: Pairs, subset: Subset) -> dict[str, object]:
    """The record as the published files have it after matching, its other keys kept.

    Attributes go under numbers, as their generated features stand; a dictionary could hold only one of two
    equal ones.
    """
    found = dict(record.raw)
    if "generated_caption" in found:
        found.setdefault("caption", found["generated_caption"])
    for what, pairs in (("matched", matched), ("broader", broader)):
        found[_KEYS[what][subset in NUMBERED and what == "matched"]] = (
            _by_number(pairs, subset) if subset in NUMBERED else dict(pairs)
        )
    return found


def read_annotations(path: Path, subset: Subset) -> list[Annotation]:
    """The benchmark's annotation: JSON lines for objects, one JSON object by image for the others."""
    if subset is Subset.OBJECT_EXISTENCE:
        found = [
            (place, "gt_objects", str(place.read(record, _Named).image_id), record.get("gt_objects"))
            for place, record in json_lines(path)
        ]
    else:
        found = [
            (place._replace(what=""), image_id, image_id, value)
            for place, image_id, value in json_images(path)
        ]
    read = partial(reference_features, subset=subset)
    return [
        Annotation(image_id=image_id, reference=_told(place, key, value, read), raw=value)
        for place, key, image_id, value in found
    ]


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
