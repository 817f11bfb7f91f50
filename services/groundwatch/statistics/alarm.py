"""A sequential change alarm: raised while answers come in, with a rate of false alarms that is a theorem.

What is watched is, for each response, the share of its decided facts that do not hold: a number from 0 to 1
of which nothing else is assumed, neither independence nor a distribution.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self

import msgspec

ALL = "all"
"""The category under which all facts of a response are watched together."""

LEVEL = 0.99
"""A learnt base lies above the true mean with at least this probability, however often it is narrowed."""

NARROWED = 5
"""How many times a learnt base is narrowed, each time after twice as many responses."""

RECOVERY = 1_000
"""An end of an alarm is told wrongly at most once in so many bad responses."""

ODDS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""What the bets are best against: odds of a fact that does not hold, so many times those of the base."""

BOLDEST = 0.75
"""The largest bet when a base is learnt: a whole capital must never be staked on one response."""

HIGHEST_BASE = 0.99


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """When to raise an alarm. `responses`: at most one false alarm in so many good ones, for each model.

    The base is the mean share that still counts as good: `objective` where it is above 0, else learnt from
    the first `learn` responses, and `margin` (0.2 is a fifth) above what they can have been. While all stays
    well it is narrowed after 2, 4, 8 … times as many.
    """

    responses: int = 10_000
    learn: int = 200
    margin: float = 0.2
    objective: float = 0.0


class State(StrEnum):
    LEARNING = "learning"
    WATCHING = "watching"
    RAISED = "raised"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A response: its `number` among the model's, from 1, its `time` of recording, what came before it."""

    number: int
    time: float
    refuted: int = 0
    decided: int = 0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A series that has turned bad (`raised`) or good again, seen at `at`, begun as it seems at `since`.

    `before` and `after` are pooled rates of facts that do not hold; `before` is None where nothing was.
    """

    raised: bool
    base: float
    learnt: bool
    since: Point
    at: Point
    before: float | None
    after: float


class DetectorState(msgspec.Struct, frozen=True, array_like=True):
    values: list[float]
    sums: list[float]
    starts: list[Point | None]


class Detector:
    """Evidence that the mean of what comes is now above `base`, whatever has been before.

    An e-detector of the Shiryaev-Roberts kind (Shin, Ramdas and Rinaldo 2023, definition 2.2 and section
    4): for a bet b, M ← (M + 1) · (1 + b·(x - base)). While every x has a conditional mean of at most `base`
    given the past, each factor has a mean of at most 1, so M less the number of responses so far is a
    supermartingale, and of a mixture of bets with weights of sum 1 the same holds. Hence, when it begins
    anew after each crossing of `threshold`, at most n / threshold crossings are expected among n responses,
    for every n. Bets are fixed, at most 1 / base, so that no factor is negative.
    """

    def __init__(self, base: float, threshold: float) -> None:
        if not 0 < base < 1 or threshold < 1:
            raise ValueError(f"base {base} and threshold {threshold}")
        self.base = base
        self.threshold = threshold
        self._bets = bets(base)
        self._values = [0.0] * len(self._bets)
        # Page's statistic of each bet: where it last left 0 is the likeliest beginning of the change.
        self._sums = [0.0] * len(self._bets)
        self._starts: list[Point | None] = [None] * len(self._bets)

    def add(self, x: float, here: Point) -> bool:
        """Take in a share from 0 to 1; whether the threshold is reached."""
        for index, bet in enumerate(self._bets):
            factor = 1 + bet * (x - self.base)
            self._values[index] = (self._values[index] + 1) * factor
            if self._sums[index] <= 0:
                self._sums[index], self._starts[index] = 0.0, here
            self._sums[index] += math.log(factor)
        return self.value >= self.threshold

    def state(self) -> DetectorState:
        return DetectorState(self._values, self._sums, self._starts)

    def restore(self, state: DetectorState) -> None:
        self._values, self._sums, self._starts = state.values, state.sums, state.starts

    @property
    def value(self) -> float:
        """The statistic; its mean after n good responses is at most n."""
        return math.fsum(self._values) / len(self._values)

    @property
    def since(self) -> Point | None:
        """The first response after the change, by the bet that has gained most (Page 1954)."""
        best = max(range(len(self._sums)), key=self._sums.__getitem__)
        return self._starts[best]


class SeriesState(msgspec.Struct, frozen=True, array_like=True):
    shares: list[float]
    looks: int
    refuted: int
    decided: int
    first: Point | None
    detector: DetectorState | None
    responses: int
    state: State
    base: float | None


class Series:
    """One category of one model's facts, from learning its base to alarm, recovery and the next alarm.

    An alarm is raised once. It stays raised, and says nothing more, until the rate is shown to be back at
    the base: only then is the series watched again, against the same base. A base that followed the bad
    rate would take it for normal, and the same fault would pass unnoticed the second time.
    """

    def __init__(self, rule: Rule, threshold: float) -> None:
        self._rule = rule
        self._threshold = threshold
        self._shares: list[float] = []
        self._looks = 0
        self._refuted = self._decided = 0
        self._first: Point | None = None
        self._detector: Detector | None = None
        self.responses = 0
        self.state = State.LEARNING
        self.base: float | None = None
        if rule.objective > 0:
            self._watch(rule.objective)

    def add(self, number: int, time: float, refuted: int, decided: int) -> Turn | None:
        """Take in a response with `decided` facts of the category, at least 1; what it turns, if anything.

        `number` counts all of the model's responses, those without such a fact among them.
        """
        share = refuted / decided
        here = Point(number=number, time=time, refuted=self._refuted, decided=self._decided)
        self._first = self._first or here
        self._refuted += refuted
        self._decided += decided
        self.responses += 1
        looked = self._learn(share)
        if self._detector is None or looked:
            return None
        good = self.state is State.RAISED
        if not self._detector.add(1 - share if good else share, here):
            return None
        return self._turn(self._detector.since or here, here)

    def saved(self) -> SeriesState:
        return SeriesState(
            self._shares,
            self._looks,
            self._refuted,
            self._decided,
            self._first,
            None if self._detector is None else self._detector.state(),
            self.responses,
            self.state,
            self.base,
        )

    def restore(self, saved: SeriesState) -> None:
        self._shares, self._looks, self._first = saved.shares, saved.looks, saved.first
        self._refuted, self._decided, self.responses = saved.refuted, saved.decided, saved.responses
        if saved.base is not None:
            self._watch(saved.base)
            if saved.state is State.RAISED:
                self._detector = Detector(1 - saved.base, RECOVERY)
        self.state = saved.state
        if self._detector is not None and saved.detector is not None:
            self._detector.restore(saved.detector)

    @property
    def progress(self) -> float:
        """How much of the evidence for the next turn is there, on a logarithmic scale from 0 to 1."""
        if self._detector is None:
            return 0.0
        return max(
            0.0, min(1.0, math.log(max(1.0, self._detector.value)) / math.log(self._detector.threshold))
        )

    def _learn(self, share: float) -> bool:
        """Keep the share, and look at all of them when they are `learn`, twice, 4 times … as many.

        The looks' probabilities of a bound below the true mean sum to at most 1 - `LEVEL`. A base is only
        ever lowered, so a stretch that turned bad before its look cannot pass for normal; after an alarm
        nothing is learnt any more. A narrower base begins with no evidence, which keeps the promise: no
        more than one crossing in `threshold` responses is expected of each stretch, hence of all together.
        Whether it looked: a share that has shaped the base is no evidence against it.
        """
        if self._rule.objective or self._looks > NARROWED or self.state is State.RAISED:
            return False
        self._shares.append(share)
        if len(self._shares) < self._rule.learn * 2**self._looks:
            return False
        self._looks += 1
        level = 1 - (1 - LEVEL) / 2**self._looks
        learnt = min(upper_bound(self._shares, level) * (1 + self._rule.margin), HIGHEST_BASE)
        if self.base is None or learnt < self.base:
            self._watch(learnt)
        if self._looks > NARROWED:
            self._shares = []
        return True

    def _watch(self, base: float) -> None:
        self.base = base
        self.state = State.WATCHING
        self._detector = Detector(base, self._threshold)

    def _turn(self, since: Point, here: Point) -> Turn:
        assert self.base is not None
        assert self._first is not None
        before = (since.refuted - self._first.refuted, since.decided - self._first.decided)
        turn = Turn(
            raised=self.state is State.WATCHING,
            base=self.base,
            learnt=not self._rule.objective,
            since=since,
            at=here,
            before=before[0] / before[1] if before[1] else None,
            after=(self._refuted - since.refuted) / (self._decided - since.decided),
        )
        self._first = since
        if turn.raised:
            self.state = State.RAISED
            self._looks, self._shares = NARROWED + 1, []
            self._detector = Detector(1 - self.base, RECOVERY)
        else:
            self._watch(self.base)
        return turn


class ModelAlarmState(msgspec.Struct, frozen=True, array_like=True):
    series: dict[str, SeriesState]
    responses: int


class ModelAlarm:
    """All series of one model under one protocol and one set of judges: every category, and all facts.

    The false alarms that the rule allows are shared out among the series: a half to all facts together,
    1 / (2k(k + 1)) to the category that was seen as the k-th. That sums to at most 1 however many
    categories come, so by Bonferroni the rule holds for the model as a whole.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.series: dict[str, Series] = {ALL: Series(rule, rule.responses / share_of(0))}
        self.responses = 0

    def add(self, time: float, facts: Mapping[str, tuple[int, int]]) -> list[tuple[str, Turn]]:
        """Take in a scored response: (refuted, decided) facts by category. What it turns, by category."""
        self.responses += 1
        found = []
        refuted, decided = (sum(pair[place] for pair in facts.values()) for place in (0, 1))
        for category, pair in {**facts, ALL: (refuted, decided)}.items():
            if not pair[1]:
                continue
            if category not in self.series:
                self._begin(category)
            if turn := self.series[category].add(self.responses, time, *pair):
                found.append((category, turn))
        return found

    def state(self) -> ModelAlarmState:
        return ModelAlarmState({name: one.saved() for name, one in self.series.items()}, self.responses)

    @classmethod
    def restored(cls, rule: Rule, state: ModelAlarmState) -> Self:
        alarm = cls(rule)
        alarm.responses = state.responses
        for category, saved in state.series.items():
            # In the order in which they were first seen, which their thresholds come from.
            if category not in alarm.series:
                alarm._begin(category)
            alarm.series[category].restore(saved)
        return alarm

    def _begin(self, category: str) -> None:
        self.series[category] = Series(self._rule, self._rule.responses / share_of(len(self.series)))


def bets(base: float) -> tuple[float, ...]:
    """For each of `ODDS` the bet that grows fastest against it: the likelihood ratio of a yes-or-no share."""
    return tuple((odds - 1) / (1 + (odds - 1) * base) for odds in ODDS)


def share_of(place: int) -> float:
    """The share of the allowed false alarms of all facts (0) or the category seen as number `place`."""
    return 0.5 if place == 0 else 0.5 / (place * (place + 1))


def upper_bound(shares: Sequence[float], level: float = LEVEL) -> float:
    """An upper confidence bound for the mean of shares from 0 to 1, by betting that it is lower.

    Waudby-Smith and Ramdas 2024, theorem 3 with the bets of section 4: the largest m under which the
    capital, the product of 1 + b·(m - x), stays below 1 / (1 - level). Each bet b is chosen from the shares
    before it, larger for a smaller variance, so facts that share a response narrow the bound where they are
    many. Exact for every distribution on [0, 1] with a constant conditional mean (Ville's inequality).
    """
    allowed = -math.log(1 - level)
    placed, mean, squares = [], 0.5, 0.25
    for seen, share in enumerate(shares, start=1):
        variance = squares / seen
        placed.append((min(BOLDEST, math.sqrt(2 * allowed / (len(shares) * variance))), share))
        mean += (share - mean) / (seen + 1)
        squares += (share - mean) ** 2
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        capital = math.fsum(math.log1p(bet * (middle - share)) for bet, share in placed)
        low, high = (middle, high) if capital < allowed else (low, middle)
    return high
