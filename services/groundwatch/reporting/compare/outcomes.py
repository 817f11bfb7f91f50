"""What a comparison of two runs is made of: outcomes made small and paired, and what comes out. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from groundwatch.events import Decision, Drawn, Judge, OutcomeKind, ResponseScored
from groundwatch.reporting.compare.numbers import RESAMPLES, Difference, Verdicts
from groundwatch.reporting.sums import fingerprint
from groundwatch.statistics.intervals import Interval, RunningSums
from groundwatch.statistics.sampling import weight

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
