"""A sequential change alarm: raised while answers come in, with a rate of false alarms that is a theorem.

What is watched is, for each response, the share of its decided facts that do not hold: a number from 0 to 1
of which nothing else is assumed, neither independence nor a distribution.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

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


class Detector(msgspec.Struct):
    """Evidence that the mean of what comes is now above `base`, whatever has been before.

    An e-detector of the Shiryaev-Roberts kind (Shin, Ramdas and Rinaldo 2023, definition 2.2 and section
    4): for a bet b, M ← (M + 1) · (1 + b·(x - base)). While every x has a conditional mean of at most `base`
    given the past, each factor has a mean of at most 1, so M less the number of responses so far is a
    supermartingale, and of a mixture of bets with weights of sum 1 the same holds. Hence, when it begins
    anew after each crossing of `threshold`, at most n / threshold crossings are expected among n responses,
    for every n. Bets are fixed, at most 1 / base, so that no factor is negative.
    """

    base: float
    threshold: float
    values: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(ODDS))
    sums: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(ODDS))
    """Page's statistic of each bet: where it last left 0 is the likeliest beginning of the change."""
    starts: list[Point | None] = msgspec.field(default_factory=lambda: [None] * len(ODDS))

    def __post_init__(self) -> None:
        if not 0 < self.base < 1 or self.threshold < 1:
            raise ValueError(f"base {self.base} and threshold {self.threshold}")

    def add(self, x: float, here: Point) -> bool:
        """Take in a share from 0 to 1; whether the threshold is reached."""
        for index, bet in enumerate(bets(self.base)):
            factor = 1 + bet * (x - self.base)
            self.values[index] = (self.values[index] + 1) * factor
            if self.sums[index] <= 0:
                self.sums[index], self.starts[index] = 0.0, here
            self.sums[index] += math.log(factor)
        return self.value >= self.threshold

    @property
    def value(self) -> float:
        """The statistic; its mean after n good responses is at most n."""
        return math.fsum(self.values) / len(self.values)

    @property
    def since(self) -> Point | None:
        """The first response after the change, by the bet that has gained most (Page 1954)."""
        best = max(range(len(self.sums)), key=self.sums.__getitem__)
        return self.starts[best]


class Series(msgspec.Struct):
    """One category of one model's facts, from learning its base to alarm, recovery and the next alarm.

    An alarm is raised once. It stays raised, and says nothing more, until the rate is shown to be back at
    the base: only then is the series watched again, against the same base. A base that followed the bad
    rate would take it for normal, and the same fault would pass unnoticed the second time.
    """

    rule: Rule
    threshold: float
    shares: list[float] = []
    looks: int = 0
    refuted: int = 0
    decided: int = 0
    first: Point | None = None
    detector: Detector | None = None
    responses: int = 0
    state: State = State.LEARNING
    base: float | None = None

    def __post_init__(self) -> None:
        if self.base is None and self.rule.objective > 0:
            self._watch(self.rule.objective)

    def add(self, number: int, time: float, refuted: int, decided: int) -> Turn | None:
        """Take in a response with `decided` facts of the category, at least 1; what it turns, if anything.

        `number` counts all of the model's responses, those without such a fact among them.
        """
        share = refuted / decided
        here = Point(number=number, time=time, refuted=self.refuted, decided=self.decided)
        self.first = self.first or here
        self.refuted += refuted
        self.decided += decided
        self.responses += 1
        looked = self._learn(share)
        if self.detector is None or looked:
            return None
        good = self.state is State.RAISED
        if not self.detector.add(1 - share if good else share, here):
            return None
        return self._turn(self.detector.since or here, here)

    @property
    def progress(self) -> float:
        """How much of the evidence for the next turn is there, on a logarithmic scale from 0 to 1."""
        if self.detector is None:
            return 0.0
        return max(0.0, min(1.0, math.log(max(1.0, self.detector.value)) / math.log(self.detector.threshold)))

    def _learn(self, share: float) -> bool:
        """Keep the share, and look at all of them when they are `learn`, twice, 4 times … as many.

        The looks' probabilities of a bound below the true mean sum to at most 1 - `LEVEL`. A base is only
        ever lowered, so a stretch that turned bad before its look cannot pass for normal; after an alarm
        nothing is learnt any more. A narrower base begins with no evidence, which keeps the promise: no
        more than one crossing in `threshold` responses is expected of each stretch, hence of all together.
        Whether it looked: a share that has shaped the base is no evidence against it.
        """
        if self.rule.objective or self.looks > NARROWED or self.state is State.RAISED:
            return False
        self.shares.append(share)
        if len(self.shares) < self.rule.learn * 2**self.looks:
            return False
        self.looks += 1
        level = 1 - (1 - LEVEL) / 2**self.looks
        learnt = min(upper_bound(self.shares, level) * (1 + self.rule.margin), HIGHEST_BASE)
        if self.base is None or learnt < self.base:
            self._watch(learnt)
        if self.looks > NARROWED:
            self.shares = []
        return True

    def _watch(self, base: float) -> None:
        self.base = base
        self.state = State.WATCHING
        self.detector = Detector(base, self.threshold)

    def _turn(self, since: Point, here: Point) -> Turn:
        assert self.base is not None
        assert self.first is not None
        before = (since.refuted - self.first.refuted, since.decided - self.first.decided)
        turn = Turn(
            raised=self.state is State.WATCHING,
            base=self.base,
            learnt=not self.rule.objective,
            since=since,
            at=here,
            before=before[0] / before[1] if before[1] else None,
            after=(self.refuted - since.refuted) / (self.decided - since.decided),
        )
        self.first = since
        if turn.raised:
            self.state = State.RAISED
            self.looks, self.shares = NARROWED + 1, []
            self.detector = Detector(1 - self.base, RECOVERY)
        else:
            self._watch(self.base)
        return turn


class ModelAlarm(msgspec.Struct):
    """All series of one model under one protocol and one set of judges: every category, and all facts.

    The false alarms that the rule allows are shared out among the series: a half to all facts together,
    1 / (2k(k + 1)) to the category that was seen as the k-th. That sums to at most 1 however many
    categories come, so by Bonferroni the rule holds for the model as a whole.
    """

    rule: Rule
    series: dict[str, Series] = {}
    responses: int = 0

    def __post_init__(self) -> None:
        if not self.series:
            self._begin(ALL)

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

    def _begin(self, category: str) -> None:
        self.series[category] = Series(self.rule, self.rule.responses / share_of(len(self.series)))


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
