"""What comparing two runs found, to be read or written as JSON. Pure."""

import msgspec

from groundwatch.reporting.compare.numbers import RESAMPLES, Difference, Verdicts
from groundwatch.reporting.compare.pairs import ChangedClaim
from groundwatch.statistics.intervals import Interval


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
    """Outcomes of a protocol that only one run has; None where a filter kept them from being counted."""

    first: int | None
    second: int | None


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
