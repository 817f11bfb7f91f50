"""A breakdown from the archive's rows: the same sums as outcome by outcome, by one query.

Only the table of outcomes is read: each row has the sums of its claims by category.
"""

from collections.abc import Sequence
from typing import Any

from groundwatch.archive.query import Session
from groundwatch.reporting.breakdown import CATEGORY, DIMENSIONS, Breakdown, Group, Sums
from groundwatch.statistics.intervals import Moments, RatioSums
from groundwatch.statistics.sampling import ROUNDING, Linear, WeightedMoments, WeightedSums
from groundwatch.times import moment_of

_OUTCOMES = """
    count(*) AS responses, count(*) FILTER (outcome = 'scored') AS scored,
    count(*) FILTER (outcome = 'unscored') AS unscored, count(*) FILTER (outcome = 'declined') AS declined,
    coalesce(sum(eligible) FILTER (outcome <> 'declined'), 0) AS eligible,
    coalesce(sum(decided) FILTER (outcome <> 'declined'), 0) AS decided,
"""
_CATEGORIES = """
    count(*) AS responses, count(*) AS scored, 0 AS unscored, 0 AS declined, 0 AS eligible, 0 AS decided,
"""
_BY_WEIGHT = """
    count(*) FILTER (known > 0) AS facts, sum(wrong) AS wrong, sum(known) AS known,
    sum(wrong * wrong) AS wrong_squares, sum(wrong * known) AS products, sum(known * known) AS known_squares,
    count(score) AS scores, coalesce(sum(score), 0) AS score,
    coalesce(sum(score * score), 0) AS score_squares
"""
_WHOLE = """
    sum(responses), sum(scored), sum(unscored), sum(declined), sum(eligible), sum(decided),
    sum(facts), sum(wrong), sum(known), sum(wrong_squares), sum(products), sum(known_squares),
    min(weight) FILTER (facts > 0), max(weight) FILTER (facts > 0),
    sum(weight * facts), sum(weight * weight * facts), sum(weight * wrong), sum(weight * known),
    sum(weight * weight * wrong_squares), sum(weight * weight * products),
    sum(weight * weight * known_squares),
    sum(scores), sum(score), sum(score_squares),
    min(weight) FILTER (scores > 0), max(weight) FILTER (scores > 0),
    sum(weight * scores), sum(weight * weight * scores), sum(weight * score),
    sum(weight * weight * score_squares), sum(weight * weight * score)
"""
"""Weights are few: each is multiplied with the sums of all rows that have it."""


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
    keys = ["run", "protocol", "fingerprint"]
    columns = [f"{_expression(name)} AS by_{at}" for at, name in enumerate(by) if name != CATEGORY] + keys
    kept = [f"by_{at}" for at, name in enumerate(by) if name != CATEGORY] + keys
    if CATEGORY in by:
        # Only what is asked for may pass the unnesting: each of its columns is repeated for every category.
        counts = _CATEGORIES
        source = f"""
            SELECT {", ".join(kept)}, each.category AS category, each.score AS score, each.refuted AS wrong,
                each.supported + each.refuted AS known, weight
            FROM (SELECT {", ".join(columns)}, weight, unnest(categories) AS each FROM outcomes {where})
        """
    else:
        counts = _OUTCOMES
        source = f"""
            SELECT {", ".join(columns)}, outcome, score, eligible, decided, weight,
                CASE WHEN outcome = 'scored' THEN refuted ELSE 0 END AS wrong,
                CASE WHEN outcome = 'scored' THEN supported + refuted ELSE 0 END AS known
            FROM outcomes {where}
        """
    group_by = ", ".join([f"by_{at}" if name != CATEGORY else name for at, name in enumerate(by)] + keys)
    by_weight = f"SELECT {group_by}, weight, {counts} {_BY_WEIGHT} FROM ({source}) GROUP BY ALL"
    answer = session.ask(f"SELECT {group_by}, {_WHOLE} FROM ({by_weight}) GROUP BY ALL")
    for row in answer.rows:
        values, rest = row[: len(by)], row[len(by) :]
        names, sums = rest[: len(keys)], rest[len(keys) :]
        facts = _facts(sums[6:12], sums[12:14], sums[14:21])
        score = _score(sums[21:24], sums[24:26], sums[26:])
        fields: list[Any] = [*map(int, sums[:6]), facts, score]
        found.merge(Group(tuple(str(value or "") for value in values), *names), Sums(*fields))
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
    number, total, squares = int(plain[0]), plain[1], plain[2]
    deviations = squares - total**2 / number
    # Where only rounding tells them apart they are equal.
    moments = Moments(number, total / number, deviations if deviations > ROUNDING * squares else 0.0)
    if least == most:
        return WeightedMoments(moments, least)
    total, squares, scores, score_squares, products = linear
    # Of a mean the denominator is the number of responses.
    return WeightedMoments(
        moments, least, Linear(total, squares, scores, total, score_squares, products, squares)
    )


def _expression(name: str) -> str:
    if name == "day":
        return "strftime(day, '%Y-%m-%d')"
    return f'"{name}"' if name in DIMENSIONS else f"tags[{_text(name)}]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _moment(seconds: float) -> str:
    return f"TIMESTAMP '{moment_of(seconds).replace(tzinfo=None).isoformat(sep=' ')}'"
