"""Outcomes added up: `Sums`, and the `Tally` of one model under one set of judges.

Memory does not grow with the number of responses.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import TypeAlias

import msgspec

from groundwatch.events import Decision, Judge, Label, LeftOutKind, OutcomeKind, ResponseScored
from groundwatch.keys import digest
from groundwatch.protocols.base import Stage
from groundwatch.reading.document import ANOTHER_LANGUAGE
from groundwatch.reporting.figures import Headline
from groundwatch.statistics.alarm import ALL
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

Facts: TypeAlias = tuple[int, int]
"""How many were refuted, and decided."""


class Sums(RunningSums, omit_defaults=True):
    """Outcomes added up: the same in whatever order they come, and in however many parts.

    By category an outcome counts where it has decided facts of that category, and `score` is the protocol's
    for it. Unscored outcomes count towards coverage, never towards a rate; declined ones towards neither.
    """

    scored: int = 0
    unscored: int = 0
    declined: int = 0
    eligible: int = 0
    decided: int = 0
    cost: float = 0.0
    facts: WeightedSums = msgspec.field(default_factory=WeightedSums)
    score: WeightedMoments = msgspec.field(default_factory=WeightedMoments)

    def add(self, event: ResponseScored, facts: Facts) -> None:
        """Count one outcome with its (refuted, decided) facts."""
        if event.outcome is OutcomeKind.DECLINED:
            self.declined += 1
            return
        self._add(event, 1)
        if event.outcome is OutcomeKind.SCORED:
            self.add_facts(event.score, facts, weight(event.drawn))
        else:
            self.unscored += 1

    def add_facts(self, score: float | None, facts: Facts, weight: float = 1.0) -> None:
        """Count a scored outcome; one without a score is left out of the mean score only."""
        self.scored += 1
        self.facts.add(*facts, weight)
        if score is not None:
            self.score.add(score, weight)

    def remove(self, event: ResponseScored) -> None:
        """Take back an unscored outcome, as it was added."""
        self._add(event, -1)
        self.unscored -= 1

    def _add(self, event: ResponseScored, times: int) -> None:
        self.eligible += times * event.eligible
        self.decided += times * event.decided
        self.cost += times * event.usage.cost

    @property
    def judged(self) -> int:
        return self.scored + self.unscored

    @property
    def responses(self) -> int:
        return self.judged + self.declined

    @property
    def coverage(self) -> float | None:
        """Decided by eligible facts."""
        return self.decided / self.eligible if self.eligible else None


class Tally(msgspec.Struct, omit_defaults=True):
    """Everything that a report tells of one model, protocol, run and set of judges."""

    judges: dict[str, Judge]
    headline: Headline
    sums: Sums = msgspec.field(default_factory=Sums)
    unscored: dict[str, int] = {}
    declined: dict[str, int] = {}
    languages: dict[str, int] = {}
    partly_read: dict[str, int] = {}
    without_chance: int = 0
    words: Linear = msgspec.field(default_factory=Linear)
    categories: dict[str, Sums] = {}
    lengths: dict[int, Sums] = {}
    entities: dict[int, Sums] = {}
    shares: dict[int, Sums] = {}
    descriptive: WeightedSums = msgspec.field(default_factory=WeightedSums)
    stated: WeightedSums = msgspec.field(default_factory=WeightedSums)

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits over every stage and who judged there; empty when nobody did."""
        return fingerprint(self.judges)

    def add(self, event: ResponseScored) -> None:
        facts = facts_of(event)
        self.sums.add(event, facts[ALL])
        if event.outcome is OutcomeKind.DECLINED:
            _count(self.declined, event.reason)
            self.without_chance += event.drawn.probability <= 0
            return
        each = weight(event.drawn)
        _bin(self.lengths, LENGTH_STARTS, event.answer_words).add(event, facts[ALL])
        self.words.add(event.answer_words, 1, each)
        self.headline.add(event)
        descriptive = sum(unit.label is Label.DESCRIPTIVE for unit in event.units)
        # Other protocols do not tell description from analysis: all their sub-sentences count as descriptive.
        if event.units and ("descriptive" in event.values or descriptive < len(event.units)):
            self.descriptive.add(descriptive, len(event.units), each)
            share = 100 * descriptive / len(event.units)
            _bin(self.shares, SHARE_STARTS, share).add(event, facts[ALL])
        if event.outcome is OutcomeKind.UNSCORED:
            _count(self.unscored, event.reason)
            if event.reason == ANOTHER_LANGUAGE:
                _count(self.languages, event.detail)
            return
        for language in {part.detail for part in event.left_out if part.kind is LeftOutKind.LANGUAGE}:
            _count(self.partly_read, language)
        if (entities := event.values.get("entities")) is not None:
            _bin(self.entities, ENTITY_STARTS, entities).add(event, facts[ALL])
        for category, pair in facts.items():
            if category != ALL:
                score = event.values.get(f"{event.protocol}.{category}")
                self._category(category).add_facts(score, pair, each)
        (refuted, decided), (wrong, guessed) = facts[ALL], facts_of(event, hedged=True)[ALL]
        self.stated.add(refuted - wrong, decided - guessed, each)
        if guessed:
            self._category(HEDGED).add_facts(None, (wrong, guessed), each)

    def may_hold(self, event: ResponseScored) -> bool:
        """Whether an unscored outcome like this was added."""
        return event.reason in self.unscored and _start(LENGTH_STARTS, event.answer_words) in self.lengths

    def remove(self, event: ResponseScored) -> None:
        """Take back an unscored outcome, as it was added: another one takes its place."""
        self.sums.remove(event)
        self.words.add(event.answer_words, 1, -weight(event.drawn))
        self.headline.judged -= 1
        start = _start(LENGTH_STARTS, event.answer_words)
        self.lengths[start].remove(event)
        if not self.lengths[start].responses:
            del self.lengths[start]
        _count(self.unscored, event.reason, -1)
        if event.reason == ANOTHER_LANGUAGE:
            _count(self.languages, event.detail, -1)

    def merge(self, other: Tally) -> None:
        self.without_chance += other.without_chance
        for name in ("sums", "headline", "words", "descriptive", "stated"):
            getattr(self, name).merge(getattr(other, name))
        for name in ("unscored", "declined", "languages", "partly_read"):
            for reason, number in getattr(other, name).items():
                _count(getattr(self, name), reason, number)
        for category, sums in other.categories.items():
            self._category(category).merge(sums)
        for name in ("lengths", "entities", "shares"):
            for start, sums in getattr(other, name).items():
                getattr(self, name).setdefault(start, Sums()).merge(sums)

    def _category(self, name: str) -> Sums:
        known = name in self.categories or len(self.categories) < CATEGORIES
        return self.categories.setdefault(name if known else OTHER, Sums())


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


def facts_of(event: ResponseScored, *, hedged: bool = False) -> dict[str, Facts]:
    """(Refuted, decided) facts of an outcome by category, and of `all`; of those `hedged` alone."""
    found: dict[str, Facts] = {ALL: (0, 0)}
    for claim in event.claims:
        if claim.decision is not Decision.UNDECIDED and (claim.hedged or not hedged):
            for category in {ALL, claim.category}:
                refuted, decided = found.get(category, (0, 0))
                found[category] = (refuted + (claim.decision is Decision.REFUTED), decided + 1)
    return found


def _count(counts: dict[str, int], name: str, number: int = 1) -> None:
    counts[name] = counts.get(name, 0) + number
    if not counts[name]:
        del counts[name]


def _bin(bins: dict[int, Sums], starts: Sequence[int], value: float) -> Sums:
    return bins.setdefault(_start(starts, value), Sums())


def _start(starts: Sequence[int], value: float) -> int:
    return starts[bisect_right(starts, value) - 1]
