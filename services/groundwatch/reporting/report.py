"""The report: built outcome by outcome, told per model and set of judges.

Scores of different judges are never pooled: they stand in rows of their own.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import Judge, ResponseScored, Strategy, own_prompts
from groundwatch.protocols.base import Stage
from groundwatch.reporting.figures import FigureReport, Headline, now_of, protocol_of, with_ranks
from groundwatch.reporting.sums import (
    ENTITY_STARTS,
    LENGTH_STARTS,
    OTHER,
    SHARE_STARTS,
    Names,
    NamesState,
    Sums,
    Tally,
    rivals,
)
from groundwatch.statistics.intervals import Interval, difference
from groundwatch.statistics.sampling import weighted_mean_interval, weighted_rate

OTHER_LANGUAGE = "other_language"
"""The style of answers that an engine for English is not to read; they are left out of its figures."""

ALL = "all"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Decided facts of faultless answers, and those of them that are refuted since they were read wrongly."""

    refuted: int
    decided: int


class Faultless(msgspec.Struct, frozen=True, kw_only=True):
    """The counts by style of answers, for a protocol's facts as this judge reads them."""

    protocol: str
    judge: Judge
    styles: dict[str, Counts]


@cache
def shipped() -> Faultless:
    file = resources.files(__package__).joinpath("faultless.json")
    return msgspec.json.decode(file.read_bytes(), type=Faultless)


def extraction_alone(protocol: str, judges: Mapping[str, Judge]) -> dict[str, float]:
    """The rate that a faultless model would have, of `all` answers and by style; empty where not measured.

    Other weights, or optional facts that are kept, read other facts: it is of the measured judge alone.
    """
    measured = shipped()
    extraction = judges.get(Stage.EXTRACTION.value)
    if (protocol, extraction) != (measured.protocol, measured.judge):
        return {}
    styles = measured.styles
    whole = sum(one.refuted for one in styles.values()) / sum(one.decided for one in styles.values())
    return {ALL: whole, **{style: one.refuted / one.decided for style, one in styles.items()}}


BASELINE = Strategy.DIRECT.value
"""The group that others are compared with, where there is one of this name."""


class Place(NamedTuple):
    """Whose outcomes stand together, in the order in which they are told, but for their judges."""

    run: str
    protocol: str
    model: str
    group: str


class BinReport(msgspec.Struct, frozen=True, kw_only=True):
    """Responses with `low` to `high` words, entities or percent (`high` None: and more), or of one category.

    `score` is the mean over responses, `hallucination_rate` refuted by decided facts, pooled.
    """

    name: str
    responses: int
    score: Interval | None
    hallucination_rate: Interval | None
    low: int | None = None
    high: int | None = None


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """One model under one protocol and one set of judges.

    `group` is the value of the tag by which the report is grouped, "" for responses without it.
    `coverage` is decided by eligible facts, `scored_share` scored by scored and unscored responses.
    `answer_words` is the mean length of judged answers, which FaithScore's section on limitations wants
    beside the score. `descriptive_share` is that of descriptive ones among all sub-sentences (FaithScore,
    figure 12), where the protocol tells them apart. `figures` are those of the protocol's paper; `groups`,
    where they are of several answers together, counts the complete ones, and the others by reason.
    Where responses were judged with different probabilities, rates and means are of all responses: each
    judged one weighs 1 / probability. `without_chance` of the declined had none, and are in no rate.
    Among the `categories` stands `hedged`, what answers only guess, which is in its own category too;
    `stated_rate` is the rate without it. `languages` counts answers that were not read by the language that
    they are in, an ISO 639-1 code, `partly_read` those that were judged without their parts in it.
    `extraction_alone` is the rate that a faultless model would have, since
    some facts are read wrongly: of `all` answers and by style, where that was measured.
    The model `other` stands for all that are not told apart; of one that is `partial`, what came earlier is
    counted there.
    """

    model: str
    protocol: str
    run: str
    fingerprint: str
    judges: dict[str, dict[str, str]]
    responses: int
    scored: int
    unscored: dict[str, int]
    declined: dict[str, int]
    score: Interval | None
    figures: tuple[FigureReport, ...]
    groups: dict[str, int]
    hallucination_rate: Interval | None
    stated_rate: Interval | None
    eligible: int
    decided: int
    coverage: float | None
    scored_share: float | None
    answer_words: float | None
    cost: float
    categories: tuple[BinReport, ...]
    by_answer_words: tuple[BinReport, ...]
    by_entities: tuple[BinReport, ...]
    by_descriptive_share: tuple[BinReport, ...]
    descriptive_share: Interval | None
    group: str = ""
    without_chance: int = 0
    partial: bool = False
    languages: dict[str, int] = {}
    partly_read: dict[str, int] = {}
    extraction_alone: dict[str, float] = {}


class GroupDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What one group of a model's answers has more than another, by the same judges; of None what has none.

    `first` and `second` are the groups' values; a difference is the second's number less the first's.
    `figures` are those of the protocol's paper that both have, by name.
    """

    model: str
    protocol: str
    run: str
    fingerprint: str
    first: str
    second: str
    score: Interval | None
    hallucination_rate: Interval | None
    figures: dict[str, Interval]


class ReportState(msgspec.Struct, frozen=True, array_like=True):
    """What a report has counted, without any text, id or tenant."""

    tallies: list[tuple[Place, Tally]]
    names: NamesState


class Report:
    """Takes in outcomes one by one; `models` and `to_dict` may be asked for at any time.

    `by` names a tag, such as `strategy`: responses with different values of it are told apart, and compared
    with those that have the value `baseline`. Of more than
    `most` models those with the fewest outcomes are counted together as `other`, never one of `kept`.
    """

    def __init__(
        self,
        *,
        by: str = "",
        baseline: str = BASELINE,
        most: int | None = None,
        kept: Callable[[], Container[str]] = tuple,
    ) -> None:
        if baseline != BASELINE and not by:
            raise UsageError("a baseline needs a tag by which answers are told apart", "baseline")
        self.by = by
        self.baseline = baseline
        self._tallies: dict[Place, dict[tuple[tuple[str, str], ...], Tally]] = {}
        self._names = Names(most, kept)

    def add(self, event: ResponseScored) -> None:
        if folded := self._names.add(event.model):
            self._fold(folded)
        self._tally(self._place(event, event.model), event.judges).add(event)

    def remove(self, event: ResponseScored) -> None:
        """Take back an unscored outcome, as it was added: another one takes its place.

        Nothing is left of it: what is told then is the same as if it had never been.
        """
        key = _key(event.judges)
        for model in (event.model, OTHER):
            place = self._place(event, model)
            tallies = self._tallies.get(place, {})
            tally = tallies.get(key)
            # Of a model that was folded meanwhile, it is among the others.
            if tally is None or not tally.may_hold(event):
                continue
            tally.remove(event)
            if not tally.sums.responses:
                del tallies[key]
            if not tallies:
                del self._tallies[place]
            self._names.remove(event.model)
            return

    def state(self) -> ReportState:
        """What is needed to go on from here; to be encoded before anything is added."""
        tallies = [(place, tally) for place, judged in self._tallies.items() for tally in judged.values()]
        return ReportState(tallies, self._names.state())

    def restore(self, state: ReportState) -> None:
        """Go on from there."""
        self._tallies = {}
        for place, tally in state.tallies:
            self._tallies.setdefault(place, {})[_key(tally.judges)] = tally
        self._names.restore(state.names)

    def models(self) -> tuple[ModelReport, ...]:
        """One row for each run, protocol, model, group and set of judges, in that order."""
        told = [
            (place, tally)
            for place in sorted(self._tallies)
            for tally in _folded(list(self._tallies[place].values()))
        ]
        rows = [self._summarise(place, tally) for place, tally in told]
        # Ranked against each other are models of the same; those that are not told apart are no model.
        keys = [
            (place.run, place.protocol, place.group, rivals(tally.judges), place.model == OTHER)
            for place, tally in told
        ]
        figures = with_ranks([(key, row.figures) for key, row in zip(keys, rows, strict=True)])
        return tuple(
            msgspec.structs.replace(row, figures=each) for row, each in zip(rows, figures, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """`models`, one row for each run, protocol, model, group and set of judges.

        `folded` is how many models were counted, wholly or in part, as `other`; `own_prompts` are those in
        the user's own words.
        Of a grouped report also `by` and the `differences` between groups.
        """
        models = self.models()
        told = {
            "models": msgspec.to_builtins(list(models)),
            "folded": self._names.folded,
            "own_prompts": prompts_in(models),
        }
        if self.by:
            compared = differences(models, self.baseline)
            told |= {"by": self.by, "differences": msgspec.to_builtins(list(compared))}
        return told

    def _place(self, event: ResponseScored, model: str) -> Place:
        group = event.tags.get(self.by, "") if self.by else ""
        return Place(event.run, event.protocol, model, group)

    def _tally(self, place: Place, judges: Mapping[str, Judge]) -> Tally:
        tallies = self._tallies.setdefault(place, {})
        key = _key(judges)
        if key not in tallies:
            tallies[key] = Tally(dict(judges), Headline(place.protocol))
        return tallies[key]

    def _fold(self, models: Container[str]) -> None:
        """Count these as `other`, each with the judges that it had."""
        for place in [place for place in self._tallies if place.model in models]:
            for tally in self._tallies.pop(place).values():
                self._tally(place._replace(model=OTHER), tally.judges).merge(tally)

    def _summarise(self, place: Place, tally: Tally) -> ModelReport:
        sums, judged = tally.sums, tally.sums.judged
        bounds, now = protocol_of(place.protocol).bounds, now_of(place.run)
        return ModelReport(
            **place._asdict(),
            fingerprint=tally.fingerprint,
            judges={
                stage: msgspec.structs.asdict(judge) | {"fingerprint": judge.fingerprint}
                for stage, judge in sorted(tally.judges.items())
            },
            responses=sums.responses,
            scored=sums.scored,
            unscored=dict(sorted(tally.unscored.items())),
            declined=dict(sorted(tally.declined.items())),
            languages=dict(sorted(tally.languages.items())),
            partly_read=dict(sorted(tally.partly_read.items())),
            score=weighted_mean_interval(sums.score, bounds=bounds),
            figures=tally.headline.figures(now),
            groups=tally.headline.groups(now),
            hallucination_rate=weighted_rate(sums.facts),
            stated_rate=weighted_rate(tally.stated),
            eligible=sums.eligible,
            decided=sums.decided,
            coverage=sums.coverage,
            scored_share=sums.scored / judged if judged else None,
            answer_words=tally.words.numerator / tally.words.denominator if judged else None,
            cost=sums.cost,
            categories=tuple(_bin(name, found, bounds) for name, found in sorted(tally.categories.items())),
            by_answer_words=_bins(tally.lengths, LENGTH_STARTS, bounds),
            by_entities=_bins(tally.entities, ENTITY_STARTS, bounds),
            by_descriptive_share=_bins(tally.shares, SHARE_STARTS, bounds),
            descriptive_share=weighted_rate(tally.descriptive),
            without_chance=tally.without_chance,
            partial=self._names.partial(place.model),
            extraction_alone=extraction_alone(place.protocol, tally.judges),
        )


def differences(models: Sequence[ModelReport], baseline: str = BASELINE) -> tuple[GroupDifference, ...]:
    """Each group of a model against its first one, where the same judges judged both.

    The first is the group `baseline`, by default `direct`, which is how models are asked without a strategy;
    where there is none, the first by name.
    """
    alike: dict[tuple[str, str, str, str], list[ModelReport]] = {}
    for one in models:
        if one.scored:
            alike.setdefault((one.run, one.protocol, one.model, one.fingerprint), []).append(one)
    found = []
    for several in alike.values():
        first, *others = sorted(several, key=lambda one: (one.group != baseline, one.group))
        found += [_difference(first, other) for other in others]
    return tuple(found)


def prompts_in(models: Sequence[ModelReport]) -> list[str]:
    """The prompts in the user's own words that their judges were asked with."""
    judges = (judge for model in models for judge in model.judges.values())
    return sorted({name for judge in judges for name in own_prompts(judge["prompt"])})


def _difference(first: ModelReport, second: ModelReport) -> GroupDifference:
    def between(one: Interval | None, other: Interval | None) -> Interval | None:
        return difference(one, other) if one is not None and other is not None else None

    return GroupDifference(
        **{name: getattr(first, name) for name in ("model", "protocol", "run", "fingerprint")},
        first=first.group,
        second=second.group,
        score=between(first.score, second.score),
        hallucination_rate=between(first.hallucination_rate, second.hallucination_rate),
        figures={
            one.name: found
            for one, other in zip(first.figures, second.figures, strict=True)
            if (found := between(one.value, other.value)) is not None
        },
    )


def _key(judges: Mapping[str, Judge]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((stage, judge.fingerprint) for stage, judge in judges.items()))


def _folded(tallies: list[Tally]) -> list[Tally]:
    """Put outcomes without a score where they belong.

    A response that was declined met no judge, and one that was unscorable early met only some of them. If
    the judges it met are part of exactly one set, it counts there; otherwise nobody can say, and it keeps
    a row of its own.
    """
    sets = [set(_key(tally.judges)) for tally in tallies]
    hosts = [
        index
        for index, tally in enumerate(tallies)
        if tally.sums.scored or not any(sets[index] < other for other in sets)
    ]
    folded = {index: Tally(tallies[index].judges, Headline(tallies[index].headline.name)) for index in hosts}
    for index, tally in enumerate(tallies):
        if index in folded:
            folded[index].merge(tally)
            continue
        possible = [host for host in hosts if sets[index] < sets[host]]
        if len(possible) == 1:
            folded[possible[0]].merge(tally)
        else:
            folded[index] = tally
    return sorted(folded.values(), key=lambda tally: (-tally.sums.scored, tally.fingerprint))


def _bins(
    found: Mapping[int, Sums], starts: Sequence[int], bounds: tuple[float, float]
) -> tuple[BinReport, ...]:
    rows = []
    for start in sorted(found):
        place = starts.index(start) + 1
        high = starts[place] - 1 if place < len(starts) else None
        name = f"{start}+" if high is None else str(start) if high == start else f"{start}–{high}"
        rows.append(_bin(name, found[start], bounds, low=start, high=high))
    return tuple(rows)


def _bin(
    name: str, found: Sums, bounds: tuple[float, float], *, low: int | None = None, high: int | None = None
) -> BinReport:
    return BinReport(
        name=name,
        responses=found.responses,
        score=weighted_mean_interval(found.score, bounds=bounds),
        hallucination_rate=weighted_rate(found.facts),
        low=low,
        high=high,
    )
