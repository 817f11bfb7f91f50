"""VALOR-Eval's arithmetic: faithfulness (equation 6) and coverage (equation 7). Pure.

Source: VALOR-EVAL, Holistic Coverage and Faithfulness Evaluation of Large Vision-Language Models, section
4.2. Where its published code counts differently, the paper is followed; `docs/valor.md` lists every
difference.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from groundwatch.protocols.features import plain

Pairs = tuple[tuple[str, str], ...]


class Subset(StrEnum):
    OBJECT_EXISTENCE = "object-existence"
    ATTRIBUTE_OBJECT = "attribute-object"
    ATTRIBUTE_PEOPLE = "attribute-people"
    RELATION_POSITIONAL = "relation-positional"
    RELATION_COMPARATIVE = "relation-comparative"


def protocol_name(subset: Subset) -> str:
    """What the subset's protocol is called: each subset is one, so that their numbers never mix."""
    return f"valor-{subset.value}"


NUMBERED = frozenset({Subset.ATTRIBUTE_OBJECT, Subset.ATTRIBUTE_PEOPLE})
"""Where features are numbered, so that two equal ones are two things: that is how these subsets count."""


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """One response after matching.

    `generated` is F_R in the response's order. `reference` is F_G: each feature with all wordings of it
    that are right, in the annotation's order, which is the ranking for comparative relations. `matched`
    (D_M) and `broader` (D_B) map a generated feature to a wording of a reference feature.
    """

    image_id: str
    generated: tuple[str, ...]
    reference: tuple[tuple[str, ...], ...]
    matched: Pairs = ()
    broader: Pairs = ()


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The four numbers of equations 6 and 7, and how many pairs were `stray`.

    A pair is stray when its left side was not generated or its right side is not in the reference: D_M and
    D_B map F_R into F_G, so such a pair counts nowhere. Where features are numbered, a pair is also stray
    when either side is already taken.
    """

    faithful: int = 0
    generated: int = 0
    covered: int = 0
    reference: int = 0
    stray: int = 0

    @property
    def faithfulness(self) -> float | None:
        return self.faithful / self.generated if self.generated else None

    @property
    def coverage(self) -> float | None:
        return self.covered / self.reference if self.reference else None

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


def count(response: Matched, subset: Subset, *, in_order: bool = False) -> Counts:
    """The numbers of one response. `in_order`: an attribute meets only the one of its own number, as tables
    14 and 15 ask of their judge ("ORDER1 should be the same as ORDER2"); section 4.1 asks for no order."""
    if subset in NUMBERED:
        return _count_numbered(response, in_order=in_order)
    if subset is Subset.RELATION_COMPARATIVE:
        return _count_ranked(response)
    return _count_named(response)


def ordered(ranks: Sequence[int]) -> int:
    """The length of the longest strictly rising subsequence: as many as stand in the right order.

    The rule is that of the published code; the paper names none.
    """
    ends: list[int] = []
    for rank in ranks:
        at = bisect_left(ends, rank)
        ends[at : at + 1] = [rank]
    return len(ends)


def _once(reference: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(tuple(map(plain, wordings)) for wordings in reference))


def _features(reference: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    """The features that each wording stands for, by their position."""
    found: dict[str, list[int]] = {}
    for at, wordings in enumerate(reference):
        for wording in dict.fromkeys(map(plain, wordings)):
            found.setdefault(wording, []).append(at)
    return found


def _count_named(response: Matched) -> Counts:
    """Features that are told apart by their words, above and below the line; several may mean the same."""
    reference = _once(response.reference)
    matched, broader, stray = _fitting(response, reference)
    return Counts(
        faithful=len({left for left, _ in (*matched, *broader)}),
        generated=len(set(map(plain, response.generated))),
        covered=len({feature for _, features in matched for feature in features}),
        reference=len(reference),
        stray=stray,
    )


Fitting = list[tuple[str, list[int]]]


def _fitting(response: Matched, reference: Iterable[Iterable[str]]) -> tuple[Fitting, Fitting, int]:
    """D_M and D_B as (generated feature, positions in the reference), and how many pairs are stray."""
    known = _features(reference)
    generated = set(map(plain, response.generated))
    matched, broader = (
        [
            (plain(left), known[plain(right)])
            for left, right in pairs
            if plain(left) in generated and plain(right) in known
        ]
        for pairs in (response.matched, response.broader)
    )
    stray = len(response.matched) + len(response.broader) - len(matched) - len(broader)
    return matched, broader, stray


def _count_numbered(response: Matched, *, in_order: bool) -> Counts:
    """Features that are told apart by their number: each generated one meets one of the reference at most."""
    known = _features(response.reference)
    said = _features((text,) for text in response.generated)
    free = {text: len(numbers) for text, numbers in said.items()}
    taken: dict[int, int] = {}
    wishes: list[list[int]] = []
    sizes = []
    stray = 0
    for pairs in (response.matched, response.broader):
        for left, right in pairs:
            numbers = said.get(plain(left), [])
            features = [at for at in known.get(plain(right), []) if not in_order or at in numbers]
            if not features or not free.get(plain(left)):
                stray += 1
                continue
            wishes.append(features)
            if _seat(len(wishes) - 1, wishes, taken, set()):
                free[plain(left)] -= 1
            else:
                stray += 1
        sizes.append(len(taken))
    return Counts(
        faithful=sizes[1],
        generated=len(response.generated),
        covered=sizes[0],
        reference=len(response.reference),
        stray=stray,
    )


def _seat(guest: int, wishes: list[list[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Give a pair a feature of its own, moving earlier ones where that helps (Kuhn 1955)."""
    for feature in wishes[guest]:
        if feature in tried:
            continue
        tried.add(feature)
        if feature not in taken or _seat(taken[feature], wishes, taken, tried):
            taken[feature] = guest
            return True
    return False


def _count_ranked(response: Matched) -> Counts:
    reference, order = _once(response.reference), list(map(plain, response.generated))
    matched, broader, stray = _fitting(response, reference)
    # The first pair of a feature counts: later ones are written first and overwritten.
    both = {left: features[0] for left, features in reversed([*matched, *broader])}
    direct = {left: features[0] for left, features in reversed(matched)}
    return Counts(
        faithful=ordered([both[key] for key in order if key in both]),
        generated=len(set(order)),
        covered=ordered([direct[key] for key in order if key in direct]),
        reference=len(reference),
        stray=stray,
    )
