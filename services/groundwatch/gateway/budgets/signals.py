"""Cheap signals that a response may say what is not in the image: no model is asked, nothing is waited for.

Each is a function from a response to a number from 0 (nothing speaks for it) to 1. They decide who is
likelier to be judged, never what a rate is: weights make up for it, so a signal may be as crude as it likes.
A further one is one function and one line in `SIGNALS`.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Callable

from groundwatch.events import ResponseRecorded
from groundwatch.statistics.intervals import Moments

HEDGES = frozenset(
    (
        *("apparently", "appear", "appears", "assume", "assumed", "could", "guess", "likely", "may", "maybe"),
        *("might", "perhaps", "possible", "possibly", "presumably", "probably", "seem", "seemingly", "seems"),
        *("suggest", "suggesting", "suggests", "unclear", "unsure"),
    )
)
"""Words with which an answer covers itself."""

FULL_OF_HEDGES = 0.1
"""The share of such words that counts as 1."""

FAR = 4.0
"""How many standard deviations from the usual count as 1."""

USUAL_FROM = 30
"""Answers of a model until its usual length is known."""

REMEMBERED = 1_000
"""Models whose usual length is known at once; the one unseen longest is forgotten."""

_WORD = re.compile(r"[^\W\d_]+")

Signal = Callable[["Signals", ResponseRecorded], float]


class Signals:
    """The signals of one gateway, which learns what is usual from what passes through it."""

    def __init__(self) -> None:
        self._lengths: OrderedDict[tuple[str, str], Moments] = OrderedDict()

    def largest(self, names: tuple[str, ...], response: ResponseRecorded) -> float:
        """What the most suspicious of the named signals says; names that are not known say 0."""
        return max((SIGNALS[name](self, response) for name in names if name in SIGNALS), default=0.0)

    def length(self, response: ResponseRecorded) -> float:
        """How far the answer's length is from the model's usual, on a logarithmic scale."""
        key = (response.tenant, response.model)
        usual = self._lengths.get(key)
        if usual is None:
            usual = self._lengths[key] = Moments()
            if len(self._lengths) > REMEMBERED:
                self._lengths.popitem(last=False)
        self._lengths.move_to_end(key)
        size = math.log1p(len(response.answer))
        known = usual.n >= USUAL_FROM
        spread = math.sqrt(usual.squares / (usual.n - 1)) if known else 0.0
        away = abs(size - usual.mean)
        usual.add(size)
        if not known:
            return 0.0
        return min(1.0, away / (FAR * spread)) if spread > 1e-9 else float(away > 1e-9)


def _number(response: ResponseRecorded, tag: str) -> float:
    try:
        return float(response.tags.get(tag) or "0")
    except ValueError:
        return 0.0


def _sent(signals: Signals, response: ResponseRecorded) -> float:
    found = _number(response, "suspicion")
    return found if 0 <= found <= 1 else 0.0


def _log_probability(signals: Signals, response: ResponseRecorded) -> float:
    mean = _number(response, "mean_logprob")
    return 1 - math.exp(mean) if -math.inf < mean <= 0 else 0.0


def _hedges(signals: Signals, response: ResponseRecorded) -> float:
    words = _WORD.findall(response.answer.lower())
    if not words:
        return 0.0
    return min(1.0, sum(word in HEDGES for word in words) / len(words) / FULL_OF_HEDGES)


SIGNALS: dict[str, Signal] = {
    "sent": _sent,
    "logprob": _log_probability,
    "hedges": _hedges,
    "length": Signals.length,
    "no-image": lambda signals, response: float(not response.images),
}
"""By name: the tag `suspicion`; 1 - exp of the tag `mean_logprob`; hedging words; length; no image."""
