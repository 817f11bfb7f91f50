"""Running sums over the outcomes of one model under one set of judges, and which models have sums.

Memory does not grow with the number of responses.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Self

import msgspec

from groundwatch.events import Decision, Judge, Label, OutcomeKind, ResponseScored
from groundwatch.keys import digest
from groundwatch.protocols.base import Stage
from groundwatch.reading.document import ANOTHER_LANGUAGE
from groundwatch.reporting.figures import Headline, HeadlineState
from groundwatch.statistics.intervals import RunningSums
from groundwatch.statistics.sampling import Linear, WeightedMoments, WeightedSums, weight

OTHER = "other"
"""The name under which all are counted that are not told apart."""

KEPT_SHARE = 0.75
"""When there are too many, so many of the allowed ones stay: folding is then rare."""

KNOWN_FOLDED = 100_000
"""Folded names that are remembered, by a hash each; later ones are not counted any more."""


class NamesState(msgspec.Struct, frozen=True, array_like=True):
    counts: dict[str, int]
    folded: list[int]


class Names:
    """Which names are told apart: at most `most`, those that come most often, and always those in `kept`.

    A name that was folded is told apart again when it comes again, and is `partial` from then on: what was
    counted of it before stays with the others. So names that are invented once each never keep out one that
    is in use, whichever came first.
    """

    def __init__(self, most: int | None = None, kept: Callable[[], Container[str]] = tuple) -> None:
        self._most = most
        self._kept = kept
        self._counts: dict[str, int] = {}
        self._folded: set[int] = set()

    def add(self, name: str) -> Collection[str]:
        """Count a name; the names that must be folded now, never this one."""
        count = self._counts.pop(name, 0)
        # The last to come stands last: among equally frequent ones it stays.
        self._counts[name] = count + 1
        if self._most is None or count or len(self._counts) <= self._most:
            return ()
        return self._fold(self._most, name)

    def remove(self, name: str) -> None:
        if name in self._counts:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    @property
    def folded(self) -> int:
        """How many names were ever folded, as far as they are remembered."""
        return len(self._folded)

    def partial(self, name: str) -> bool:
        """Whether some of what was counted of a name that is told apart is with the others."""
        return bool(self._folded) and name != OTHER and _hash(name) in self._folded

    def state(self) -> NamesState:
        return NamesState(self._counts, list(self._folded))

    def restore(self, state: NamesState) -> None:
        self._counts, self._folded = state.counts, set(state.folded)

    def _fold(self, most: int, latest: str) -> Collection[str]:
        kept = self._kept()
        surplus = len(self._counts) - max(1, int(most * KEPT_SHARE))
        least = sorted(self._counts, key=self._counts.__getitem__)
        folded = [one for one in least if one not in (OTHER, latest) and one not in kept][:surplus]
        for name in folded:
            del self._counts[name]
            if len(self._folded) < KNOWN_FOLDED:
                self._folded.add(_hash(name))
        return folded


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())


LENGTH_STARTS = (0, 11, 26, 51, 76, 101, 151, 201, 301)
"""First word counts of the bins of answer length (FaithScore's figure 3)."""

ENTITY_STARTS = (0, 1, 2, 3, 4, 5, 6, 8, 11)
"""First numbers of entities of the bins of figure 4, which goes from 1 to 10."""

SHARE_STARTS = (0, 25, 50, 75, 100, 101)
"""First shares of the bins of descriptive sub-sentences, in percent; the last one is beyond all."""

HEDGED = "hedged"
"""The category under which guesses are told, beside those that they have themselves."""

CATEGORIES = 50


class Bin(RunningSums):
    responses: int = 0
    score: WeightedMoments = msgspec.field(default_factory=WeightedMoments)
    facts: WeightedSums = msgspec.field(default_factory=WeightedSums)

    def add(self, score: float | None, refuted: int, decided: int, weight: float = 1.0) -> None:
        """Count one response; one without a score is left out of the mean score only."""
        self.responses += 1
        self.facts.add(refuted, decided, weight)
        if score is not None:
            self.score.add(score, weight)


class TallyState(msgspec.Struct, frozen=True, kw_only=True):
    judges: dict[str, Judge]
    protocol: str
    scored: int
    unscored: dict[str, int]
    declined: dict[str, int]
    eligible: int
    decided: int
    whole: Bin
    without_chance: int
    headline: HeadlineState
    words: Linear
    cost: float
    categories: dict[str, Bin]
    lengths: dict[int, Bin]
    entities: dict[int, Bin]
    shares: dict[int, Bin]
    descriptive: WeightedSums
    stated: WeightedSums
    languages: dict[str, int] = {}


class Tally:
    """Everything that a report tells of one model, protocol, run and set of judges."""

    def __init__(self, judges: Mapping[str, Judge], protocol: str = "") -> None:
        self.judges = dict(judges)
        self.protocol = protocol
        self.scored = 0
        self.unscored: Counter[str] = Counter()
        self.declined: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()
        self.eligible = 0
        self.decided = 0
        self.whole = Bin()
        self.without_chance = 0
        self.headline = Headline(protocol)
        self.words = Linear()
        self.cost = 0.0
        self.categories: dict[str, Bin] = {}
        self.lengths: dict[int, Bin] = {}
        self.entities: dict[int, Bin] = {}
        self.shares: dict[int, Bin] = {}
        self.descriptive = WeightedSums()
        self.stated = WeightedSums()

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits over every stage and who judged there; empty when nobody did."""
        return fingerprint(self.judges)

    @property
    def responses(self) -> int:
        return self.scored + self.unscored.total() + self.declined.total()

    def add(self, event: ResponseScored) -> None:
        """Count one outcome. An unscored one counts towards coverage, never towards a rate of facts."""
        scored = event.outcome is OutcomeKind.SCORED
        decided, refuted = decisions(event) if scored else ({}, {})
        pair = (sum(refuted.values()), sum(decided.values()))
        if event.outcome is OutcomeKind.DECLINED:
            self.declined[event.reason] += 1
            self.without_chance += event.drawn.probability <= 0
            return
        each = weight(event.drawn)
        self.eligible += event.eligible
        self.decided += event.decided
        self.cost += event.usage.cost
        score = event.score if scored else None
        self.lengths.setdefault(_start(LENGTH_STARTS, event.answer_words), Bin()).add(score, *pair, each)
        self.words.add(event.answer_words, 1, each)
        self.headline.add(event)
        descriptive = sum(unit.label is Label.DESCRIPTIVE for unit in event.units)
        # Other protocols do not tell description from analysis: all their sub-sentences count as descriptive.
        if event.units and ("descriptive" in event.values or descriptive < len(event.units)):
            self.descriptive.add(descriptive, len(event.units), each)
            start = _start(SHARE_STARTS, 100 * descriptive / len(event.units))
            self.shares.setdefault(start, Bin()).add(score, *pair, each)
        if not scored:
            self.unscored[event.reason] += 1
            if event.reason == ANOTHER_LANGUAGE:
                self.languages[event.detail] += 1
            return
        self.scored += 1
        self.whole.add(score, *pair, each)
        if (entities := event.values.get("entities")) is not None:
            self.entities.setdefault(_start(ENTITY_STARTS, entities), Bin()).add(score, *pair, each)
        for category, number in decided.items():
            share = event.values.get(f"{event.protocol}.{category}")
            self._category(category).add(share, refuted[category], number, each)
        guessed, wrong = (one.total() for one in decisions(event, hedged=True))
        self.stated.add(pair[0] - wrong, pair[1] - guessed, each)
        if guessed:
            self._category(HEDGED).add(None, wrong, guessed, each)

    def may_hold(self, event: ResponseScored) -> bool:
        """Whether an unscored outcome like this was added."""
        return bool(self.unscored[event.reason]) and _start(LENGTH_STARTS, event.answer_words) in self.lengths

    def remove(self, event: ResponseScored) -> None:
        """Take back an unscored outcome, as it was added: another one takes its place."""
        each = weight(event.drawn)
        self.eligible -= event.eligible
        self.decided -= event.decided
        self.cost -= event.usage.cost
        self.words.add(event.answer_words, 1, -each)
        self.headline.remove()
        start = _start(LENGTH_STARTS, event.answer_words)
        self.lengths[start].responses -= 1
        if not self.lengths[start].responses:
            del self.lengths[start]
        self.unscored -= Counter([event.reason])
        if event.reason == ANOTHER_LANGUAGE:
            self.languages -= Counter([event.detail])

    def merge(self, other: Tally) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _SUMS:
            getattr(self, name).merge(getattr(other, name))
        for category, found in other.categories.items():
            self._category(category).merge(found)
        for name in ("lengths", "entities", "shares"):
            for start, found in getattr(other, name).items():
                getattr(self, name).setdefault(start, Bin()).merge(found)

    def _category(self, name: str) -> Bin:
        known = name in self.categories or len(self.categories) < CATEGORIES
        return self.categories.setdefault(name if known else OTHER, Bin())

    def state(self) -> TallyState:
        """What is needed to go on from here; to be encoded before anything is added."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return TallyState(**plain, headline=self.headline.state())

    @classmethod
    def restored(cls, state: TallyState) -> Self:
        tally = cls(state.judges, state.protocol)
        for name in _PLAIN:
            setattr(tally, name, getattr(state, name))
        tally.unscored, tally.declined = Counter(state.unscored), Counter(state.declined)
        tally.languages = Counter(state.languages)
        tally.headline.restore(state.headline)
        return tally


_PLAIN = tuple(name for name in TallyState.__struct_fields__ if name != "headline")
_COUNTS = ("scored", "unscored", "declined", "languages", "without_chance", "eligible", "decided", "cost")
_SUMS = ("whole", "headline", "words", "descriptive", "stated")


def fingerprint(judges: Mapping[str, Judge]) -> str:
    """Name a set of judges, one a stage; empty for none."""
    if not judges:
        return ""
    return digest(*(f"{stage}={judge.fingerprint}" for stage, judge in sorted(judges.items())))[:12]


def rivals(judges: Mapping[str, Judge]) -> str:
    """The same for models that are ranked: of who answers for the model under test only the prompt counts."""
    answering = Stage.CAPTIONING.value
    return fingerprint(
        {
            stage: Judge(engine="", prompt=judge.prompt) if stage == answering else judge
            for stage, judge in judges.items()
        }
    )


def _start(starts: Sequence[int], value: float) -> int:
    return starts[bisect_right(starts, value) - 1]


def decisions(event: ResponseScored, *, hedged: bool = False) -> tuple[Counter[str], Counter[str]]:
    """Decided and refuted claims of an outcome by category; of those `hedged` alone."""
    decided: Counter[str] = Counter()
    refuted: Counter[str] = Counter()
    for claim in event.claims:
        if claim.decision is not Decision.UNDECIDED and (claim.hedged or not hedged):
            decided[claim.category] += 1
            refuted[claim.category] += claim.decision is Decision.REFUTED
    return decided, refuted
