"""A breakdown from the archive's rows: the same sums as outcome by outcome, by one query.

Only the table of outcomes is read: each row has the sums of its claims by category.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groundwatch.archive.query import Session
from groundwatch.reporting.breakdown import CATEGORY, DIMENSIONS, Breakdown, Group, Sums
from groundwatch.statistics.intervals import Moments, RatioSums
from groundwatch.statistics.sampling import Linear, WeightedMoments, WeightedSums
from groundwatch.times import moment_of

_WHOLE = """
    count(*), count(*) FILTER (outcome = 'scored'), count(*) FILTER (outcome = 'unscored'),
    count(*) FILTER (outcome = 'declined'),
    coalesce(sum(eligible) FILTER (outcome <> 'declined'), 0),
    coalesce(sum(decided) FILTER (outcome <> 'declined'), 0),
    count(*) FILTER (known > 0), sum(wrong), sum(known), sum(wrong * wrong), sum(wrong * known),
    sum(known * known), min(weight) FILTER (known > 0), max(weight) FILTER (known > 0),
    sum(weight) FILTER (known > 0), sum(weight * weight) FILTER (known > 0), sum(weight * wrong),
    sum(weight * known), sum(weight * weight * wrong * wrong), sum(weight * weight * wrong * known),
    sum(weight * weight * known * known),
    count(score), avg(score), var_pop(score) * count(score), min(weight) FILTER (score IS NOT NULL),
    max(weight) FILTER (score IS NOT NULL), sum(weight) FILTER (score IS NOT NULL),
    sum(weight * weight) FILTER (score IS NOT NULL), sum(weight * score),
    sum(weight * weight * score * score), sum(weight * weight * score)
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
                one.refuted AS wrong, one.supported + one.refuted AS known, 0 AS eligible, 0 AS decided,
                weight
            FROM (SELECT {scoped}, weight, unnest(categories) AS one FROM outcomes {where})
        """
    else:
        source = f"""
            SELECT {scoped}, outcome, score, eligible, decided, weight,
                CASE WHEN outcome = 'scored' THEN refuted ELSE 0 END AS wrong,
                CASE WHEN outcome = 'scored' THEN supported + refuted ELSE 0 END AS known
            FROM outcomes {where}
        """
    answer = session.ask(f"SELECT {', '.join(kept)}, {_WHOLE} FROM ({source}) GROUP BY ALL")
    for row in answer.rows:
        values, rest = row[: len(by)], row[len(by) :]
        run_name, protocol, fingerprint = rest[:3]
        counts = rest[3:]
        facts = _facts(counts[6:12], counts[12:14], counts[14:21])
        score = _score(counts[21:24], counts[24:26], counts[26:])
        group = Group(tuple(str(value or "") for value in values), run_name, protocol, fingerprint)
        found.merge(group, _sums(counts, facts, score))
    return found


def _facts(plain: Sequence[Any], weights: Sequence[Any], linear: Sequence[Any]) -> WeightedSums:
    least, most = weights
    if least is None:
        return WeightedSums()
    sums = RatioSums(*(int(count or 0) for count in plain))
    return WeightedSums(sums, least, None if least == most else Linear(*linear))


def _score(plain: Sequence[Any], weights: Sequence[Any], linear: Sequence[Any]) -> WeightedMoments:
    least, most = weights
    if least is None:
        return WeightedMoments()
    moments = Moments(int(plain[0]), plain[1], plain[2])
    if least == most:
        return WeightedMoments(moments, least)
    total, squares, scores, score_squares, products = linear
    # Of a mean the denominator is the number of responses.
    return WeightedMoments(
        moments, least, Linear(total, squares, scores, total, score_squares, products, squares)
    )


def _sums(counts: Sequence[Any], facts: WeightedSums, score: WeightedMoments) -> Sums:
    responses, scored, unscored, declined, eligible, decided = map(int, counts[:6])
    return Sums(responses, scored, unscored, declined, eligible, decided, facts, score)


def _expression(name: str) -> str:
    if name == "day":
        return "strftime(day, '%Y-%m-%d')"
    return f'"{name}"' if name in DIMENSIONS else f"tags[{_text(name)}]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _moment(seconds: float) -> str:
    return f"TIMESTAMP '{moment_of(seconds).replace(tzinfo=None).isoformat(sep=' ')}'"
