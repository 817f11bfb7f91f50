"""Which outcomes belong to a queue, and with which probability each is drawn into it. Pure.

Whether one is drawn depends on the queue's salt and the response's key alone, beside the probability: any
replica, and any repeat, draws the same.
"""

import heapq
from collections.abc import Iterable
from math import sqrt
from typing import Generic, NamedTuple, TypeVar

from groundwatch.events import Decision, OutcomeKind, ResponseScored
from groundwatch.reviews.queues import QueueSpec
from groundwatch.statistics.sampling import uniform

FLOOR = 0.2
"""Of an answer of which the judge is sure, this part of the share is drawn all the same."""

DISAGREED = 4.0
"""So many times as likely is an answer drawn on which judges disagree."""

UNKNOWN = 0.25
"""p(1 - p) of a claim that was not decided and has no probability."""

T = TypeVar("T")


def matches(spec: QueueSpec, event: ResponseScored, version: str) -> bool:
    """Whether the queue is drawn from this outcome among others."""
    if event.outcome is not OutcomeKind.SCORED or not event.claims or event.protocol != spec.protocol:
        return False
    if spec.model not in ("", event.model) or spec.tenant not in ("", event.tenant):
        return False
    if spec.version not in ("", version):
        return False
    if event.recorded_at < spec.since or (spec.until and event.recorded_at > spec.until):
        return False
    if spec.tag:
        name, _, value = spec.tag.partition("=")
        if event.tags.get(name) != value:
            return False
    if not spec.category and spec.verdict is None:
        return True
    return any(
        spec.category in ("", claim.category) and spec.verdict in (None, claim.decision)
        for claim in event.claims
    )


def uncertainty(event: ResponseScored) -> float:
    """The standard deviation of how many claims do not hold, if each does with the judge's probability and
    on its own: √Σ p(1 - p). Of claims that were decided without a probability nothing is added."""
    total = 0.0
    for claim in event.claims:
        p = claim.probability
        if p is not None:
            total += p * (1 - p)
        elif claim.decision is Decision.UNDECIDED:
            total += UNKNOWN
    return sqrt(total)


def measure(spec: QueueSpec, event: ResponseScored, disagreed: bool = False) -> float:
    """How many times as likely as others the answer is to be drawn."""
    match spec.rule:
        case "uncertain" if spec.mean_uncertainty > 0:
            return max(FLOOR, uncertainty(event) / spec.mean_uncertainty)
        case "disagreement" if disagreed:
            return DISAGREED
    return 1.0


def probability(spec: QueueSpec, measured: float) -> float:
    """With which an answer of this measure is drawn as it comes; never 0."""
    return min(1.0, spec.share * measured)


def position(spec: QueueSpec, key: str) -> float:
    """The number in [0, 1) below whose probability an answer is drawn."""
    return uniform(spec.salt, key)


def order(spec: QueueSpec, key: str) -> float:
    """Where an item stands in its queue; says nothing of why it was drawn."""
    return uniform(spec.salt, "order", key)


class _Ranked(NamedTuple, Generic[T]):
    rank: float
    name: str
    measure: float
    item: T


class SequentialPoisson(Generic[T]):
    """Draws a fixed number of many, each with a probability in proportion to its measure (Ohlsson 1998).

    Those with the smallest ratio of a uniform number to the measure are drawn; where a measure would need a
    probability above 1, it is drawn for sure, and the others share what is left. With equal measures that is
    a simple random sample, and the probabilities are exact. Holds no more than twice what it draws.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.number = 0
        self._total = 0.0
        # heapq keeps the smallest first: both are of what is worst to have.
        self._smallest: list[_Ranked[T]] = []
        self._largest: list[_Ranked[T]] = []

    def add(self, name: str, measured: float, uniform: float, item: T) -> None:
        """`name` tells items apart, and decides between equal ones."""
        self.number += 1
        self._total += measured
        self._keep(self._smallest, _Ranked(-uniform / measured, name, measured, item))
        self._keep(self._largest, _Ranked(measured, name, measured, item))

    def drawn(self) -> list[tuple[T, float]]:
        """What is drawn, with its probability."""
        if self.number <= self._size:
            return [(one.item, 1.0) for one in self._smallest]
        left, total = self._size, self._total
        sure: dict[str, _Ranked[T]] = {}
        for one in sorted(self._largest, key=lambda one: (-one.measure, one.name)):
            if left <= 0 or left * one.measure < total * (1 - 1e-12):
                break
            sure[one.name] = one
            left, total = left - 1, total - one.measure
        rest = sorted((one for one in self._smallest if one.name not in sure), key=lambda one: -one.rank)
        found = [(one.item, 1.0) for one in sure.values()]
        return found + [(one.item, left * one.measure / total) for one in rest[:left]]

    def _keep(self, heap: list[_Ranked[T]], one: _Ranked[T]) -> None:
        ranked = _Ranked(one.rank, one.name, one.measure, one.item)
        if len(heap) < self._size:
            heapq.heappush(heap, ranked)
        elif ranked[:2] > heap[0][:2]:
            heapq.heapreplace(heap, ranked)


def disagree(event: ResponseScored, others: Iterable[ResponseScored]) -> bool:
    """Whether another judge of the same answer decided otherwise: on a claim of the same text, or, for
    another protocol, on whether anything does not hold."""
    mine = {claim.text: claim.decision for claim in event.claims}
    wrong = _any_refuted(event)
    for other in others:
        if other.outcome is not OutcomeKind.SCORED:
            continue
        if other.protocol == event.protocol:
            for claim in other.claims:
                said = mine.get(claim.text, Decision.UNDECIDED)
                if Decision.UNDECIDED not in (said, claim.decision) and said is not claim.decision:
                    return True
        elif None not in (wrong, there := _any_refuted(other)) and wrong is not there:
            return True
    return False


def _any_refuted(event: ResponseScored) -> bool | None:
    decided = {claim.decision for claim in event.claims} - {Decision.UNDECIDED}
    return Decision.REFUTED in decided if decided else None
