"""A breakdown from the archive's rows: the same sums as outcome by outcome, by one query.

Only the table of outcomes is read: each row has the sums of its claims by category.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from groundwatch.archive.query import Session
from groundwatch.protocols.statistics import Moments, RatioSums
from groundwatch.reporting.breakdown import CATEGORY, DIMENSIONS, Breakdown, Group, Sums

_WHOLE = """
    count(*), count(*) FILTER (outcome = 'scored'), count(*) FILTER (outcome = 'unscored'),
    count(*) FILTER (outcome = 'declined'),
    coalesce(sum(eligible) FILTER (outcome <> 'declined'), 0),
    coalesce(sum(decided) FILTER (outcome <> 'declined'), 0),
    count(*) FILTER (known > 0), sum(wrong), sum(known), sum(wrong * wrong), sum(wrong * known),
    sum(known * known), count(score), avg(score), var_pop(score) * count(score)
"""


def break_down(
    session: Session,
    by: Sequence[str],
    *,
    since: float | None = None,
    until: float | None = None,
    run: str = "",
) -> Breakdown:
    """Sums over outcomes recorded from `since` to before `until`, seconds since the epoch."""
    found = Breakdown(by)
    conditions = [f"run = {_text(run)}"] if run else []
    if since is not None:
        conditions += [f"recorded_at >= {_moment(since)}", f"day >= {_moment(since)}::DATE"]
    if until is not None:
        conditions += [f"recorded_at < {_moment(until)}", f"day <= {_moment(until)}::DATE"]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    # Only what is asked for may pass the unnesting: each of its columns is repeated for every category.
    names = [f"{_expression(name)} AS by_{at}" for at, name in enumerate(by) if name != CATEGORY]
    kept = [f"by_{at}" if name != CATEGORY else "category" for at, name in enumerate(by)]
    kept += ["run", "protocol", "fingerprint"]
    scoped = ", ".join([*names, "run", "protocol", "fingerprint"])
    passed = ", ".join(one for one in kept if one != CATEGORY)
    if CATEGORY in by:
        source = f"""
            SELECT {passed}, 'scored' AS outcome, one.category AS category, one.score AS score,
                one.refuted AS wrong, one.supported + one.refuted AS known, 0 AS eligible, 0 AS decided
            FROM (SELECT {scoped}, unnest(categories) AS one FROM outcomes {where})
        """
    else:
        source = f"""
            SELECT {scoped}, outcome, score, eligible, decided,
                CASE WHEN outcome = 'scored' THEN refuted ELSE 0 END AS wrong,
                CASE WHEN outcome = 'scored' THEN supported + refuted ELSE 0 END AS known
            FROM outcomes {where}
        """
    answer = session.ask(f"SELECT {', '.join(kept)}, {_WHOLE} FROM ({source}) GROUP BY ALL")
    for row in answer.rows:
        values, rest = row[: len(by)], row[len(by) :]
        run_name, protocol, fingerprint = rest[:3]
        counts = rest[3:]
        facts = RatioSums(*(int(count or 0) for count in counts[6:12]))
        score = Moments(int(counts[12]), counts[13] or 0.0, counts[14] or 0.0)
        group = Group(tuple(str(value or "") for value in values), run_name, protocol, fingerprint)
        found.merge(group, _sums(counts, facts, score))
    return found


def _sums(counts: Sequence[Any], facts: RatioSums, score: Moments) -> Sums:
    responses, scored, unscored, declined, eligible, decided = map(int, counts[:6])
    return Sums(responses, scored, unscored, declined, eligible, decided, facts, score)


def _expression(name: str) -> str:
    if name == "day":
        return "strftime(day, '%Y-%m-%d')"
    return f'"{name}"' if name in DIMENSIONS else f"tags[{_text(name)}]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _moment(seconds: float) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(sep=' ')}'"
