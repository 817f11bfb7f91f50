"""Kinds of hallucinations that a benchmark plants into true captions, and what protocols say of them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum


class Kind(StrEnum):
    """What can be planted. An `OBJECT` is of a COCO class, a `THING` is not; `CLOTHING` is a color of it.

    A `COMPARISON` needs answers of its own, which compare sizes.
    """

    OBJECT = "object"
    THING = "other thing"
    COLOR = "color"
    CLOTHING = "color of clothing"
    COUNT = "count"
    POSITION = "position"
    ACTION = "action"
    COMPARISON = "comparison"


def by_kind(categories: Mapping[str, Sequence[Kind]]) -> Mapping[Kind, frozenset[str]]:
    """`EvaluationProtocol.sees` from the kinds that claims of each category speak of."""
    return {kind: frozenset({category}) for category, kinds in categories.items() for kind in kinds}
