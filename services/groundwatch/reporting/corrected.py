"""Corrected rates beside those of the first judges, never mixed with them."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from groundwatch.reporting.render import grid, rate, signed
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Table

By: TypeAlias = Literal["people", "model"]

EVERY_VERSION = "*"


class CorrectedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model's rate in one category, of the answers that `queue` was drawn from.

    `judged` is the first judges' rate of these, `corrected` what those who gave `opinions`, people or a
    better model, would find in all of them, `labels_alone` what their opinions tell without the first judges.
    `version` is `*` where all are taken together. A queue is `whole` when it was drawn from all of the
    model's answers, or all after a time. `for_half` is how many more opinions would halve the interval, None
    where no number would. Without a number there is a `reason`.
    """

    queue: str
    model: str
    version: str
    protocol: str
    fingerprint: str
    category: str
    by: By
    judged: Interval | None
    corrected: Interval | None
    labels_alone: Interval | None
    opinions: int
    tuning: float = 0.0
    for_half: int | None = None
    reason: str = ""
    whole: bool = True


class VersionDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How much more does not hold of a second version's answers than of a first one's, in one category.

    `judged` are the first judges' rates of what the two queues were drawn from, the first version's first,
    and `corrected` those that second opinions tell. A difference is the second's rate less the first's;
    `labels_alone` is that of the opinions without the first judges. Without one, or with few opinions, there
    is a `reason`.
    """

    category: str
    by: By
    queues: tuple[str, str]
    opinions: tuple[int, int]
    judged: tuple[Interval | None, Interval | None]
    judged_difference: Interval | None
    corrected: tuple[Interval | None, Interval | None]
    difference: Interval | None
    labels_alone: Interval | None
    reason: str = ""


class CorrectedAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the corrected rate rose too where an alarm says that the first judges' one did.

    `before` and `after` are the corrected rates of answers that were recorded before the alarm's `since` and
    from then on; of None there is no opinion. `rose` only if the interval of the difference is above 0.
    """

    state: Literal["rose", "not_shown", "too_few"]
    by: By
    queues: tuple[str, str]
    opinions: tuple[int, int]
    before: Interval | None
    after: Interval | None
    difference: Interval | None


def tell_corrected(one: CorrectedAlarm) -> str:
    """In words, for the end of an alarm's line."""
    before, since = (f"{number:,}" for number in one.opinions)
    numbers = f"{before} opinions before, {since} since"
    if one.before is None or one.after is None or one.difference is None or one.state == "too_few":
        return f"too few second opinions to say whether the corrected rate rose too ({numbers})"
    said = "rose too" if one.state == "rose" else "is not shown to have risen"
    points = "{} points ({})".format(*signed(one.difference, 100.0, 1))
    rates = f"{one.before.value:.1%} → {one.after.value:.1%}"
    return f"the corrected rate {said}: {rates}, {points}, by {one.by}, {numbers}"


def corrected_table(rows: Sequence[CorrectedRow]) -> Table:
    """Those of all facts; the categories are in JSON."""
    table = grid(
        "Corrected by second opinions, with 95 % intervals",
        ["model"],
        *("by", "opinions", "first\njudges", "corrected", "opinions\nalone", "to halve"),
    )
    told = [row for row in rows if row.category == "all"]
    for row in told:
        named = (row.queue, row.model, row.protocol, row.fingerprint, row.by)
        versions = sum((one.queue, one.model, one.protocol, one.fingerprint, one.by) == named for one in told)
        # One version, and all of them.
        if versions == 2 and row.version != EVERY_VERSION:
            continue
        version = "" if row.version in ("", EVERY_VERSION) else f" · {row.version}"
        table.add_row(
            f"{row.model}{version} · {row.queue}",
            row.by,
            str(row.opinions),
            rate(row.judged),
            rate(row.corrected),
            rate(row.labels_alone),
            "–" if row.for_half is None else f"+{row.for_half}",
        )
    return table
