"""A breakdown outcome by outcome: what one from sums must be the same as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.reporting.breakdown import CATEGORY, Breakdown, Group, Sums
from groundwatch.reporting.tally import decisions, fingerprint
from groundwatch.statistics.sampling import weight
from groundwatch.times import moment_of


def break_down_events(by: Sequence[str], events: Iterable[ResponseScored]) -> Breakdown:
    """The sums of these outcomes by what `by` names."""
    found = Breakdown(tuple(by))
    for event in events:
        decided, refuted = decisions(event) if event.outcome is OutcomeKind.SCORED else ({}, {})
        each = weight(event.drawn)
        if CATEGORY not in by:
            sums = Sums(responses=1)
            setattr(sums, event.outcome.value, 1)
            if event.outcome is not OutcomeKind.DECLINED:
                sums.eligible, sums.decided = event.eligible, event.decided
            if event.score is not None:
                sums.score.add(event.score, each)
            sums.facts.add(sum(refuted.values()), sum(decided.values()), each)
            group = group_of(event, by, "")
            found.merge(group, sums)
            found.headline(group).add(event)
            continue
        for category, facts in decided.items():
            sums = Sums(responses=1, scored=1)
            if (score := event.values.get(f"{event.protocol}.{category}")) is not None:
                sums.score.add(score, each)
            sums.facts.add(refuted[category], facts, each)
            found.merge(group_of(event, by, category), sums)
    return found


def group_of(event: ResponseScored, by: Sequence[str], category: str) -> Group:
    return Group(
        values=tuple(value_of(event, name, category) for name in by),
        run=event.run,
        protocol=event.protocol,
        fingerprint=fingerprint(event.judges),
    )


def value_of(event: ResponseScored, name: str, category: str) -> str:
    match name:
        case "category":
            return category
        case "day":
            return moment_of(event.recorded_at).date().isoformat()
        case "model" | "tenant" | "protocol" | "run":
            return str(getattr(event, name))
    return event.tags.get(name, "")
