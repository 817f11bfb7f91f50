"""CHAIR's arithmetic, and the comparison of VALOR's table 6. Pure.

Source: Object Hallucination in Image Captioning (Rohrbach et al. 2018), as VALOR's section 5.3 uses it.
"""

from collections.abc import Collection, Iterable

import msgspec


class Caption(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a caption mentions and those that are in the image, by class."""

    mentioned: frozenset[str]
    present: frozenset[str]

    @property
    def hallucinated(self) -> frozenset[str]:
        """What is mentioned and not there."""
        return self.mentioned - self.present


class Chair(msgspec.Struct, frozen=True, kw_only=True):
    """CHAIR over a corpus; a number that does not exist is None.

    `chair_s` is the share of captions with a hallucinated object, `chair_i` the share of mentioned objects
    that are hallucinated; `faithfulness` is 1 - chair_i, `coverage` the share of present objects that are
    mentioned (the columns F. and C. of VALOR's table 6). An object counts once in a caption.
    """

    chair_s: float | None
    chair_i: float | None
    faithfulness: float | None
    coverage: float | None
    captions: int
    mentioned: int
    hallucinated: int


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One caption for table 6: what a metric found beside what people found.

    `detected` and `flagged` are the objects that the metric saw in the caption and called hallucinated;
    `mentioned` and `hallucinated` are people's.
    """

    detected: frozenset[str]
    flagged: frozenset[str]
    mentioned: frozenset[str]
    hallucinated: frozenset[str]


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Table 6's two accuracies, in shares; None where people found nothing to detect."""

    faithfulness: float | None
    coverage: float | None


def chair(captions: Iterable[Caption]) -> Chair:
    """Sentence and instance level over a corpus, in any order."""
    each = list(captions)
    mentioned = sum(len(one.mentioned) for one in each)
    hallucinated = sum(len(one.hallucinated) for one in each)
    instance = _share(hallucinated, mentioned)
    return Chair(
        chair_s=_share(sum(bool(one.hallucinated) for one in each), len(each)),
        chair_i=instance,
        faithfulness=None if instance is None else 1 - instance,
        coverage=_share(
            sum(len(one.mentioned & one.present) for one in each), sum(len(one.present) for one in each)
        ),
        captions=len(each),
        mentioned=mentioned,
        hallucinated=hallucinated,
    )


def accuracy(judged: Collection[Judged]) -> Accuracy:
    """Acc (F) and Acc (C) of section 5.3.

    Acc (F): hallucinated objects that the metric flagged, less one for each object that it flagged wrongly,
    over all hallucinated ones; it may be negative. Acc (C): objects that the metric detected over the
    unique objects of the captions. Both are sums over the captions divided once, as the table's figures
    (11.11 of 9, 30.00 of 10, 5.88 of 17) show.
    """
    flagged = sum(len(one.flagged & one.hallucinated) - len(one.flagged - one.hallucinated) for one in judged)
    detected = sum(len(one.detected & one.mentioned) for one in judged)
    return Accuracy(
        faithfulness=_share(flagged, sum(len(one.hallucinated) for one in judged)),
        coverage=_share(detected, sum(len(one.mentioned) for one in judged)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
