"""Tri-HE's arithmetic over a benchmark (sections 3.1, 3.2, 5.3 and appendices A and D): pure functions.

Hallu_Q is the mean over questions of hallucinated by total triplets (equation 1), Hallu_I the mean over
images of that mean over the image's questions (equation 2); here in 0…1, in the paper in percent. A
question without triplets has no rate and is left out of both, an image without such questions out of Hallu_I.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import msgspec

from groundwatch.protocols.base import folded
from groundwatch.protocols.trihe.scoring import JudgedTriplet, Kind, question_rate

FREQUENT = 0.2
"""The share of object pairs that table 4 looks at."""


class JudgedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    image: str
    triplets: tuple[JudgedTriplet, ...] = ()


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Both rates, None without a question that has one; over how many questions and images they are."""

    hallu_q: float | None
    hallu_i: float | None
    questions: int
    images: int


def rates(
    questions: Iterable[JudgedQuestion], kind: Kind | None = None, *, undecided_count: bool = False
) -> Rates:
    """Hallu_Q (equation 1) and Hallu_I (equation 2) over questions in any order.

    Of a kind there are none while a hallucinated triplet names no part: the rest is no fair sample.
    """
    by_image: dict[str, list[float]] = {}
    for question in questions:
        if kind and any(one.hallucinated and one.part is None for one in question.triplets):
            return Rates(hallu_q=None, hallu_i=None, questions=0, images=0)
        rate = question_rate(question.triplets, kind, undecided_count=undecided_count)
        if rate is not None:
            by_image.setdefault(question.image, []).append(rate)
    found = [rate for several in by_image.values() for rate in several]
    return Rates(
        hallu_q=fmean(found) if found else None,
        hallu_i=fmean(fmean(several) for several in by_image.values()) if by_image else None,
        questions=len(found),
        images=len(by_image),
    )


def object_pairs(
    questions: Iterable[JudgedQuestion], synset: Callable[[str], str] = folded
) -> Counter[tuple[str, str]]:
    """How often each pair (object1, object2) is said, with objects replaced by their synsets (appendix D)."""
    return Counter(
        (synset(one.triplet[0]), synset(one.triplet[2]))
        for question in questions
        for one in question.triplets
        if one.triplet is not None
    )


def frequent_pairs(counts: Counter[tuple[str, str]], share: float = FREQUENT) -> frozenset[tuple[str, str]]:
    """The most frequent `share` of different pairs, at least one; equals in alphabetical order."""
    if not 0 < share <= 1:
        raise ValueError(f"a share of pairs lies above 0 and up to 1, not at {share}")
    ranked = sorted(counts, key=lambda pair: (-counts[pair], pair))
    return frozenset(ranked[: max(1, round(share * len(ranked)))])


def on_pairs(
    questions: Iterable[JudgedQuestion],
    pairs: frozenset[tuple[str, str]],
    synset: Callable[[str], str] = folded,
) -> list[JudgedQuestion]:
    """The questions with only their triplets on these pairs: `rates` of them give table 4."""
    return _keep(
        questions,
        lambda one: one.triplet is not None and (synset(one.triplet[0]), synset(one.triplet[2])) in pairs,
    )


def first_tokens(questions: Iterable[JudgedQuestion], k: int) -> list[JudgedQuestion]:
    """The questions with only what their responses' first `k` tokens say (appendix A)."""
    return _keep(questions, lambda one: one.tokens is not None and one.tokens <= k)


def trend(
    questions: Sequence[JudgedQuestion], ks: Iterable[int], *, undecided_count: bool = False
) -> list[tuple[int, Rates]]:
    """Both rates over the first K tokens, for each K (figure 4)."""
    return [(k, rates(first_tokens(questions, k), undecided_count=undecided_count)) for k in ks]


def _keep(questions: Iterable[JudgedQuestion], keep: Callable[[JudgedTriplet], bool]) -> list[JudgedQuestion]:
    return [
        msgspec.structs.replace(question, triplets=tuple(one for one in question.triplets if keep(one)))
        for question in questions
    ]
