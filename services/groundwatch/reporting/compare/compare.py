"""Two runs side by side, response by response: what differs, and whether chance could have done it. Pure.

Runs are paired by response and protocol; only responses that both runs scored enter a rate, and beside every
rate stands how much of each side that is. Where several sets of judges judged a run, each pair of sets has a
section of its own: scores of different judges are never pooled.

numpy is imported only when a number is asked for, so that a light installation need not have it, and scipy
not at all: its import would take longer than the comparison.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from groundwatch.errors import MissingExtraError
from groundwatch.events import Decision, Drawn, Judge, OutcomeKind, ResponseScored
from groundwatch.reporting.sums import fingerprint
from groundwatch.statistics.intervals import LEVEL, Interval, RunningSums, wilson
from groundwatch.statistics.sampling import weight

RESAMPLES = 2_000
AT_ONCE = 32
"""Resamples that are multiplied at once; bounds what is held."""

DIRECT = 10_000_000
"""Products up to which distributions are convolved directly, exact to the last digits; beyond that by FFT."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The second run's number less the first's, with a 95 % interval; no interval of fewer than two units."""

    value: float
    low: float | None = None
    high: float | None = None


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Claims that both runs decided, found by response, category and text.

    `refuted_first` were refuted in the first run only, `refuted_second` in the second only. `p_value` is
    McNemar's exact one (1947), which takes claims for independent. `p_units` takes whole units, responses or
    images, for independent: see `sign_flip`. It is the one to go by.
    """

    claims: int
    refuted_first: int
    refuted_second: int
    p_value: float
    p_units: float


def bootstrap_ratios(
    units: Sequence[Mapping[int, Sequence[float]]], groups: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> list[tuple[float | None, float | None, Difference | None]]:
    """Two ratios and their paired difference for each group, by percentiles over resampled units.

    A unit maps a group's number to what it adds to numerator and denominator of the first ratio, then of
    the second. Units are drawn with replacement, all groups by the same draws (Efron 1979); the result
    depends on the units' order and the seed alone, and mirrors when the sides do. Resamples without a
    denominator are left out. Raises `MissingExtraError` without numpy.
    """
    np = _numpy()
    rows: list[list[int]] = [[] for _ in range(groups)]
    fours: list[list[Sequence[float]]] = [[] for _ in range(groups)]
    for row, unit in enumerate(units):
        for group, four in unit.items():
            rows[group].append(row)
            fours[group].append(four)
    # A group's own units only: most groups are a small part of all.
    at = [np.array(one, dtype=np.intp) for one in rows]
    across = [np.ascontiguousarray(np.array(one, dtype=float).reshape(-1, 4).T) for one in fours]
    drawn = np.zeros((groups, resamples if len(units) > 1 else 0, 4))
    if len(units) > 1:
        random = np.random.Generator(np.random.PCG64(seed))
        for start in range(0, resamples, AT_ONCE):
            counts = np.stack(
                [
                    np.bincount(random.integers(0, len(units), len(units)), minlength=len(units))
                    for _ in range(min(AT_ONCE, resamples - start))
                ]
            ).astype(float)
            for group in range(groups):
                if not len(at[group]):
                    continue
                mine = counts if len(at[group]) == len(units) else np.take(counts, at[group], axis=1)
                # Not by BLAS: its threads spin while they wait, and here others want the cores.
                found = np.einsum("ru,gu->rg", mine, across[group])
                drawn[group, start : start + len(found)] = found
    return [_ratios(np, across[group].sum(axis=1), drawn[group], len(rows[group])) for group in range(groups)]


def _ratios(
    np: Any, sums: Any, drawn: Any, present: int
) -> tuple[float | None, float | None, Difference | None]:
    first = float(sums[0] / sums[1]) if sums[1] else None
    second = float(sums[2] / sums[3]) if sums[3] else None
    if first is None or second is None:
        return first, second, None
    value = second - first
    kept = drawn[(drawn[:, 1] > 0) & (drawn[:, 3] > 0)]
    if present < 2 or not len(kept):
        return first, second, Difference(value=value)
    found = np.sort(kept[:, 2] / kept[:, 3] - kept[:, 0] / kept[:, 1])
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    # A value beyond all resamples comes of rounding alone, where nothing varies.
    return first, second, Difference(value=value, low=min(float(low), value), high=max(float(high), value))


def mcnemar(refuted_first: int, refuted_second: int) -> float:
    """McNemar's exact two-sided p-value (1947) of two discordant counts; 1 where there are none."""
    return sign_flip([-1] * refuted_first + [1] * refuted_second)


def sign_flip(changes: Sequence[int]) -> float:
    """The two-sided p-value of a sum of changes, one a unit, if each could as well have had the other sign.

    This is what "the runs are exchangeable within a unit" says, so it stays right however much the claims of
    one unit resemble each other (Fisher's randomisation test, 1935). Exact, not sampled: the distribution of
    the sum is convolved. Where every change is 1 or -1 it is McNemar's exact test. Raises
    `MissingExtraError` without numpy.
    """
    observed = abs(sum(changes))
    if not observed:
        return 1.0
    np = _numpy()
    distribution = np.ones(1)
    for size, number in sorted(Counter(abs(change) for change in changes if change).items()):
        # The sum of `number` changes of this size is size · (2 · heads - number): steps of 2 · size.
        one = np.zeros(size * number + 1)
        one[::size] = _fair_heads(np, number)
        distribution = _convolved(np, distribution, one)
    # At place k the sum is 2k - total. It is symmetric, so the far end is the near one again.
    total = len(distribution) - 1
    return min(1.0, 2 * float(distribution[: (total - observed) // 2 + 1].sum()))


def _fair_heads(np: Any, tosses: int) -> Any:
    """Chances of 0 to `tosses` heads of a fair coin."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, tosses + 1)))])
    return np.exp(factorials[-1] - factorials - factorials[::-1] - tosses * math.log(2))


def _convolved(np: Any, one: Any, other: Any) -> Any:
    if len(one) * len(other) <= DIRECT:
        return np.convolve(one, other)
    length = len(one) + len(other) - 1
    size = 1 << (length - 1).bit_length()
    spectrum = np.fft.rfft(one, size) * np.fft.rfft(other, size)
    return np.clip(np.fft.irfft(spectrum, size)[:length], 0.0, None)


def verdicts(units: Sequence[Sequence[int]]) -> Verdicts:
    """The tests over units of (claims decided in both, refuted in the first only, in the second only)."""
    first, second = sum(unit[1] for unit in units), sum(unit[2] for unit in units)
    return Verdicts(
        claims=sum(unit[0] for unit in units),
        refuted_first=first,
        refuted_second=second,
        p_value=mcnemar(first, second),
        p_units=sign_flip([unit[2] - unit[1] for unit in units]),
    )


def share_bins(values: Sequence[float]) -> list[int]:
    """How many values lie in each tenth of 1 below and above 0, and in the middle exactly 0 by itself."""
    found = [0] * 21
    for value in values:
        step = min(10, max(1, math.ceil(round(abs(value) * 10, 9)))) if value else 0
        found[10 + step if value > 0 else 10 - step] += 1
    return found


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise MissingExtraError("numpy", "embedded") from error
    return numpy


_CODES = {Decision.UNDECIDED: 0, Decision.SUPPORTED: 1, Decision.REFUTED: 2}
_REFUTED = _CODES[Decision.REFUTED]


class SaidClaim(msgspec.Struct, frozen=True, gc=False):
    text: str
    category: str
    decision: Decision = Decision.UNDECIDED


class SaidOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of an outcome on the wire, what is compared: decoding the rest would take as long again."""

    id: str
    model: str
    protocol: str
    outcome: OutcomeKind
    tenant: str = "default"
    score: float | None = None
    reason: str = ""
    judges: dict[str, Judge] = {}
    claims: tuple[SaidClaim, ...] = ()
    eligible: int = 0
    decided: int = 0
    drawn: Drawn = Drawn()
    images: tuple[str, ...] = ()


class RunOutcome(msgspec.Struct, frozen=True, gc=False):
    """What a comparison needs of one outcome; claims as hashes with their decisions, ten bytes each."""

    key: str
    id: str
    tenant: str
    model: str
    protocol: str
    outcome: OutcomeKind
    reason: str
    score: float | None
    weight: float
    judges: str
    eligible: int
    decided: int
    claims: array[int]
    categories: array[int]

    @property
    def scored(self) -> bool:
        return self.outcome is OutcomeKind.SCORED


class OutcomeTable:
    """Makes outcomes small. The same names are kept once, however many outcomes carry them."""

    def __init__(self) -> None:
        self.judges: dict[str, dict[str, Judge]] = {}
        self.categories: list[str] = []
        self._numbers: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._fingerprints: dict[tuple[tuple[str, Judge], ...], str] = {}

    def of(self, event: ResponseScored | SaidOutcome, key: str) -> RunOutcome:
        """The side of one outcome of the response that is named `key` inside subjects."""
        several = tuple(event.judges.items())
        if (name := self._fingerprints.get(several)) is None:
            name = self._fingerprints[several] = fingerprint(event.judges)
            self.judges.setdefault(name, dict(event.judges))
        claims, categories = array("Q"), array("H")
        seen: Counter[str] = Counter()
        if event.outcome is OutcomeKind.SCORED:
            for claim in event.claims:
                text = f"{claim.category}\0{claim.text}"
                seen[text] += 1
                hashed = blake2b(f"{text}\0{seen[text]}".encode("utf-8", "surrogatepass"), digest_size=8)
                claims.append(int.from_bytes(hashed.digest(), "big") & ~3 | _CODES[claim.decision])
                categories.append(self._number(claim.category))
        return RunOutcome(
            key,
            event.id,
            self._one(event.tenant),
            self._one(event.model),
            self._one(event.protocol),
            event.outcome,
            self._one(event.reason),
            event.score,
            weight(event.drawn),
            self._one(name),
            event.eligible,
            event.decided,
            claims,
            categories,
        )

    def within(self, name: str, other: str) -> bool:
        mine, others = self.judges.get(name, {}), self.judges.get(other, {})
        return all(others.get(stage) == judge for stage, judge in mine.items())

    def _one(self, name: str) -> str:
        return self._names.setdefault(name, name)

    def _number(self, category: str) -> int:
        if category not in self._numbers:
            self._numbers[category] = len(self.categories)
            self.categories.append(category)
        return self._numbers[category]


class Facts(RunningSums, gc=False):
    """Facts of a pair: refuted and decided on each side; decided on both, and then refuted on one only."""

    refuted_first: int = 0
    decided_first: int = 0
    refuted_second: int = 0
    decided_second: int = 0
    both: int = 0
    only_first: int = 0
    only_second: int = 0


def facts(first: RunOutcome, second: RunOutcome, categories: Sequence[str]) -> tuple[dict[str, Facts], int]:
    """The facts of a pair by category, and how many claims stand in both."""
    found: dict[str, Facts] = {}
    codes: dict[int, int] = {}
    matched = 0
    for claim, number in zip(first.claims, first.categories, strict=True):
        code = claim & 3
        codes[claim >> 2] = code
        if code:
            one = found.setdefault(categories[number], Facts())
            one.decided_first += 1
            one.refuted_first += code == _REFUTED
    for claim, number in zip(second.claims, second.categories, strict=True):
        code, before = claim & 3, codes.get(claim >> 2)
        matched += before is not None
        if code:
            one = found.setdefault(categories[number], Facts())
            one.decided_second += 1
            one.refuted_second += code == _REFUTED
            if before:
                one.both += 1
                one.only_first += before == _REFUTED != code
                one.only_second += code == _REFUTED != before
    return found, matched


def total_of(found: Mapping[str, Facts]) -> Facts:
    sums = Facts()
    for one in found.values():
        sums.merge(one)
    return sums


class Pair(msgspec.Struct, frozen=True, gc=False):
    """A response scored by both runs; `total` is that of `facts`."""

    first: RunOutcome
    second: RunOutcome
    weight: float
    facts: dict[str, Facts]
    total: Facts
    matched: int
    unit: str


def change_of(pair: Pair) -> float:
    """How much of a response's facts changed; of its score, where facts do not tell."""
    total = pair.total
    if total.decided_first and total.decided_second:
        before = total.refuted_first / total.decided_first
        return total.refuted_second / total.decided_second - before
    if pair.first.score is not None and pair.second.score is not None:
        return pair.first.score - pair.second.score
    return 0.0


def differs(pair: Pair) -> bool:
    return pair.first.score != pair.second.score or sorted(pair.first.claims) != sorted(pair.second.claims)


class ChangedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with what each run said of it; empty where a run has no such claim."""

    text: str
    category: str
    first: str
    second: str


def changed_claims(first: ResponseScored, second: ResponseScored) -> tuple[ChangedClaim, ...]:
    """Claims of which the runs say something else, and those that one run alone has."""
    sides: list[dict[tuple[str, str, int], str]] = []
    for event in (first, second):
        seen: Counter[tuple[str, str]] = Counter()
        found: dict[tuple[str, str, int], str] = {}
        for claim in event.claims:
            seen[claim.category, claim.text] += 1
            found[claim.category, claim.text, seen[claim.category, claim.text]] = claim.decision.value
        sides.append(found)
    return tuple(
        ChangedClaim(
            text=name[1], category=name[0], first=sides[0].get(name, ""), second=sides[1].get(name, "")
        )
        for name in dict.fromkeys([*sides[0], *sides[1]])
        if sides[0].get(name) != sides[1].get(name)
    )


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run's side of the paired responses.

    `scored_share` is scored by scored and unscored responses, `coverage` decided by eligible claims; None
    of nothing.
    """

    responses: int
    scored: int
    unscored: dict[str, int]
    declined: dict[str, int]
    eligible: int
    decided: int
    scored_share: float | None
    coverage: float | None


class GroupComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All paired responses, or those of one `category`, `model` or `tenant`.

    Rates are refuted by decided facts, pooled over responses that both runs scored; `score` is the
    protocol's own, averaged. `responses` have a part in the rates. By category there is no coverage and no
    score: only decided facts are counted by category.
    """

    dimension: str
    name: str
    responses: int
    rate_first: float | None
    rate_second: float | None
    rate: Difference | None
    score_first: float | None
    score_second: float | None
    score: Difference | None
    verdicts: Verdicts | None
    first: Coverage | None = None
    second: Coverage | None = None


class ChangedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response whose judgement changed. `change` is of its refuted by decided facts, or, where a side has
    none decided, of its score."""

    id: str
    tenant: str
    model: str
    key: str
    change: float
    score_first: float | None
    score_second: float | None
    refuted_first: int
    decided_first: int
    refuted_second: int
    decided_second: int
    claims: tuple[ChangedClaim, ...] = ()


class SectionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs under one protocol, each by one set of judges.

    `paired` responses have an outcome in both, of which `scored` in both, `scored_first` and
    `scored_second` in one only. `changed` is the share of those scored in both whose judgement is another
    (Wilson's interval). `claims_first`, `claims_second` are all claims of theirs, `claims_matched` stand in
    both. `unit` says what was drawn in the bootstrap, `units` how many. `histogram` counts responses by
    change of their refuted share, in 21 steps from -1 to 1, unchanged ones in the middle.
    """

    protocol: str
    judges_first: dict[str, str]
    judges_second: dict[str, str]
    same_judges: bool
    paired: int
    scored: int
    scored_first: int
    scored_second: int
    changed: Interval | None
    claims_first: int
    claims_second: int
    claims_matched: int
    unit: str
    units: int
    groups: tuple[GroupComparison, ...]
    most_changed: tuple[ChangedResponse, ...]
    histogram: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def whole(self) -> GroupComparison:
        return self.groups[0]


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes of a protocol that only one run has; None where a filter kept them from being counted.

    The number of the run that is `estimated` is one of two digits: it has too many outcomes to be counted.
    """

    first: int | None
    second: int | None
    estimated: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`second` beside `first`; differences are the second's number less the first's."""

    first: str
    second: str
    model: str
    tenant: str
    sections: tuple[SectionComparison, ...]
    alone: dict[str, Alone]
    notes: tuple[str, ...] = ()
    resamples: int = RESAMPLES


K = TypeVar("K")
N = TypeVar("N", int, float)

Pairs = Sequence[tuple[RunOutcome, RunOutcome]]
CHANGED = 20
"""Responses that are told as the most changed, when nothing else is asked for."""

GROUPS = 30
"""Groups of one dimension that are told, the largest; how many more there are is told too."""

FEW = 20
"""Units below which a percentile interval is too narrow to be believed."""


def compare_section(
    pairs: Pairs,
    sides: OutcomeTable,
    judges: tuple[str, str],
    *,
    units: Mapping[str, str] | None = None,
    top: int = CHANGED,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> SectionComparison:
    """One section of the pairs of one protocol and one set of judges on each side.

    `units` maps a response's key to what it was drawn with, such as its image; a response without is drawn
    by itself. The most changed responses carry no texts of claims: whoever has the outcomes adds them.
    """
    pairs = sorted(pairs, key=lambda pair: pair[0].key)
    units = units or {}
    both = [_pair(a, b, sides, units) for a, b in pairs if a.scored and b.scored]
    first, second = (sides.judges.get(name, {}) for name in judges)
    claims_first = sum(len(pair.first.claims) for pair in both)
    claims_second = sum(len(pair.second.claims) for pair in both)
    matched = sum(pair.matched for pair in both)
    same_claims = matched == claims_first == claims_second
    extraction = first.get("extraction") == second.get("extraction")
    groups, left_out = _groups(both, pairs, testing=extraction or same_claims, seed=seed, resamples=resamples)
    changed = sum(map(differs, both))
    drawn = len({pair.unit for pair in both})
    notes = list(_notes(both, judges, extraction, same_claims, (claims_first, claims_second, matched), drawn))
    notes += [f"{number} more by {name} are not told one by one." for name, number in left_out.items()]
    return SectionComparison(
        protocol=pairs[0][0].protocol if pairs else "",
        judges_first={stage: _judge(one) for stage, one in sorted(first.items())},
        judges_second={stage: _judge(one) for stage, one in sorted(second.items())},
        same_judges=judges[0] == judges[1],
        paired=len(pairs),
        scored=len(both),
        scored_first=sum(a.scored and not b.scored for a, b in pairs),
        scored_second=sum(b.scored and not a.scored for a, b in pairs),
        changed=wilson(changed, len(both)) if both else None,
        claims_first=claims_first,
        claims_second=claims_second,
        claims_matched=matched,
        unit="image" if drawn < len(both) else "response",
        units=drawn,
        groups=groups,
        most_changed=tuple(_most_changed(both, top)),
        histogram=tuple(share_bins([change_of(pair) for pair in both])),
        notes=tuple(notes),
    )


def _pair(first: RunOutcome, second: RunOutcome, sides: OutcomeTable, units: Mapping[str, str]) -> Pair:
    found, matched = facts(first, second, sides.categories)
    unit = units.get(first.key, first.key)
    # With different chances, a pair stands for as many responses as by the smaller one.
    each = max(first.weight, second.weight)
    return Pair(first, second, each, found, total_of(found), matched, unit)


def _groups(
    both: Sequence[Pair], pairs: Pairs, *, testing: bool, seed: int, resamples: int
) -> tuple[tuple[GroupComparison, ...], dict[str, int]]:
    """Every group's numbers, the whole first, and how many groups of a dimension are left out."""
    names, left_out = _names(both, pairs)
    index = {name: number for number, name in enumerate(names)}
    rates: dict[str, dict[int, list[float]]] = {}
    scores: dict[str, dict[int, list[float]]] = {}
    flips: list[dict[str, list[int]]] = [{} for _ in names]
    parts = [0] * len(names)
    for pair in both:
        rated, averaged = rates.setdefault(pair.unit, {}), scores.setdefault(pair.unit, {})
        named = [(("all", ""), pair.total), (("model", pair.first.model), pair.total)]
        named += [(("tenant", pair.first.tenant), pair.total)]
        named += [(("category", category), one) for category, one in pair.facts.items()]
        for name, one in named:
            if (at := index.get(name)) is None:
                continue
            parts[at] += 1
            w = pair.weight
            counts = (one.refuted_first, one.decided_first, one.refuted_second, one.decided_second)
            _add(rated, at, [w * count for count in counts])
            if name[0] != "category" and pair.first.score is not None and pair.second.score is not None:
                _add(averaged, at, [w * pair.first.score, w, w * pair.second.score, w])
            _add(flips[at], pair.unit, [one.both, one.only_first, one.only_second])
    rate = bootstrap_ratios(list(rates.values()), len(names), seed=seed, resamples=resamples)
    score = bootstrap_ratios(list(scores.values()), len(names), seed=seed, resamples=resamples)
    covered: dict[tuple[str, str, int], list[RunOutcome]] = {}
    for sides in pairs:
        for number, side in enumerate(sides):
            for name in (("all", ""), ("model", side.model), ("tenant", side.tenant)):
                covered.setdefault((*name, number), []).append(side)
    return tuple(
        GroupComparison(
            dimension=name[0],
            name=name[1],
            responses=parts[at],
            rate_first=rate[at][0],
            rate_second=rate[at][1],
            rate=rate[at][2],
            score_first=score[at][0],
            score_second=score[at][1],
            score=score[at][2],
            verdicts=verdicts(list(flips[at].values())) if testing else None,
            first=_coverage(covered.get((*name, 0))),
            second=_coverage(covered.get((*name, 1))),
        )
        for at, name in enumerate(names)
    ), left_out


def _names(both: Sequence[Pair], pairs: Pairs) -> tuple[list[tuple[str, str]], dict[str, int]]:
    found: list[tuple[str, str]] = [("all", "")]
    left_out: dict[str, int] = {}
    for dimension, counted in (
        ("category", Counter(name for pair in both for name in pair.facts)),
        ("model", Counter(a.model for a, _ in pairs)),
        ("tenant", Counter(a.tenant for a, _ in pairs)),
    ):
        ordered = sorted(counted, key=lambda name: (-counted[name], name))
        if len(ordered) > GROUPS:
            left_out[dimension] = len(ordered) - GROUPS
        found += [(dimension, name) for name in sorted(ordered[:GROUPS])]
    return found, left_out


def _add(to: dict[K, list[N]], at: K, more: list[N]) -> None:
    if (before := to.setdefault(at, more)) is not more:
        for place, number in enumerate(more):
            before[place] += number


def _coverage(found: Sequence[RunOutcome] | None) -> Coverage | None:
    if found is None:
        return None
    judged = [side for side in found if side.outcome is not OutcomeKind.DECLINED]
    declined = Counter(side.reason for side in found if side.outcome is OutcomeKind.DECLINED)
    scored = sum(side.scored for side in found)
    eligible, decided = sum(side.eligible for side in judged), sum(side.decided for side in judged)
    return Coverage(
        responses=len(found),
        scored=scored,
        unscored=dict(sorted(Counter(side.reason for side in judged if not side.scored).items())),
        declined=dict(sorted(declined.items())),
        eligible=eligible,
        decided=decided,
        scored_share=scored / len(judged) if judged else None,
        coverage=decided / eligible if eligible else None,
    )


def _most_changed(both: Sequence[Pair], top: int) -> Iterator[ChangedResponse]:
    ranked = [
        (abs(change), pair.total.only_first + pair.total.only_second, pair.first.key, pair, change)
        for pair in both
        if (change := change_of(pair)) or differs(pair)
    ]
    for *_, pair, change in heapq.nsmallest(top, ranked, key=lambda one: (-one[0], -one[1], one[2])):
        counts = ("refuted_first", "decided_first", "refuted_second", "decided_second")
        yield ChangedResponse(
            **{name: getattr(pair.first, name) for name in ("id", "tenant", "model", "key")},
            **{name: getattr(pair.total, name) for name in counts},
            change=change,
            score_first=pair.first.score,
            score_second=pair.second.score,
        )


def _notes(
    both: Sequence[Pair],
    judges: tuple[str, str],
    extraction: bool,
    same_claims: bool,
    claims: tuple[int, int, int],
    drawn: int,
) -> Iterator[str]:
    if judges[0] == judges[1]:
        yield "The judges are the same: whatever differs is their non-determinism, not a change of judge."
    if not both:
        yield "No response was scored in both runs: there is coverage to compare, and no rate."
        return
    if not same_claims:
        told = f"{claims[2]:,} claims stand in both runs, of {claims[0]:,} in the first and {claims[1]:,}"
        yield f"{told} in the second." + (
            "" if extraction else " Extraction differs, so verdicts are not tested; rates are by response."
        )
    if drawn < FEW:
        yield f"Only {drawn} units to draw from: intervals are too narrow to be relied upon."
    if len({pair.weight for pair in both}) > 1:
        yield (
            "Responses were judged with different probabilities: in rates each weighs 1 / probability; the "
            "tests of verdicts weigh all alike."
        )


def _judge(judge: Judge) -> str:
    return " ".join(filter(None, (judge.engine, judge.model, f"({judge.fingerprint})")))


def sections(
    pairs: Mapping[str, Pairs],
    sides: OutcomeTable,
    *,
    units: Mapping[str, str] | None = None,
    top: int = CHANGED,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[SectionComparison, ...]:
    """A section for each protocol and pair of sets of judges, the largest of a protocol first.

    A response that one run did not score may have met only some judges there, or none: it counts in the
    largest section whose judges say nothing else, and where there is none in one of its own.
    """
    found = []
    for _, several in sorted(pairs.items()):
        for judges, part in _by_judges(several, sides):
            found.append(
                compare_section(part, sides, judges, units=units, top=top, seed=seed, resamples=resamples)
            )
    return tuple(found)


def _by_judges(
    pairs: Pairs, sides: OutcomeTable
) -> list[tuple[tuple[str, str], list[tuple[RunOutcome, RunOutcome]]]]:
    scored: dict[tuple[str, str], list[tuple[RunOutcome, RunOutcome]]] = {}
    others: dict[tuple[str, str], list[tuple[RunOutcome, RunOutcome]]] = {}
    for a, b in pairs:
        (scored if a.scored and b.scored else others).setdefault((a.judges, b.judges), []).append((a, b))
    hosts = sorted(scored, key=lambda name: (-len(scored[name]), name))
    for name, part in others.items():
        host = next((one for one in hosts if all(map(sides.within, name, one))), name)
        scored.setdefault(host, []).extend(part)
    return sorted(scored.items(), key=lambda item: (-len(item[1]), item[0]))
