"""A breakdown outcome by outcome: what one from sums must be the same as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.reporting.breakdown import CATEGORY, Breakdown, BreakdownKey
from groundwatch.reporting.sums import Sums, facts_of, fingerprint
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.sampling import weight
from groundwatch.times import moment_of


def break_down_events(by: Sequence[str], events: Iterable[ResponseScored]) -> Breakdown:
    """The sums of these outcomes by what `by` names."""
    found = Breakdown(tuple(by))
    for event in events:
        facts = facts_of(event)
        if CATEGORY not in by:
            sums = Sums()
            sums.add(event, facts[ALL])
            group = group_of(event, by, "")
            found.merge(group, sums)
            found.headline(group).add(event)
        elif event.outcome is OutcomeKind.SCORED:
            for category in facts.keys() - {ALL}:
                sums = Sums()
                score = event.values.get(f"{event.protocol}.{category}")
                sums.add_facts(score, facts[category], weight(event.drawn))
                found.merge(group_of(event, by, category), sums)
    return found


def group_of(event: ResponseScored, by: Sequence[str], category: str) -> BreakdownKey:
    return BreakdownKey(
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
