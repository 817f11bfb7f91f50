"""How VALOR's files write features, read into one form: texts, each with every wording that is right.

Depending on the subset a feature is a word, a numbered "(attribute, object)" with alternatives, a person
with several of those, a relation with its inverse, or a rank's object with alternatives such as
"ground / court". Every function raises `ValueError` saying what it expected.
"""

from collections.abc import Iterable, Iterator, Mapping

from groundwatch.protocols.features import (
    ATTRIBUTE,
    OBJECT,
    RANK,
    RELATION,
    Features,
    alternatives,
    alternatives_of_pair,
    attribute_pairs,
    pair_text,
)
from groundwatch.protocols.valor.scoring import Pairs, Subset

CATEGORIES = {
    Subset.OBJECT_EXISTENCE: OBJECT,
    Subset.ATTRIBUTE_OBJECT: ATTRIBUTE,
    Subset.ATTRIBUTE_PEOPLE: ATTRIBUTE,
    Subset.RELATION_POSITIONAL: RELATION,
    Subset.RELATION_COMPARATIVE: RANK,
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
