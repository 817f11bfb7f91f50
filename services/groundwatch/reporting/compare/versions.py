"""Two versions of a model side by side, by the same judges, as judged and as second opinions correct it."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from groundwatch.reporting.compare.render import percent
from groundwatch.reporting.corrected import VersionDifference
from groundwatch.reporting.render import grid
from groundwatch.reporting.trends import VersionReport
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Console, Text, lines, styled


class VersionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """They answered different prompts: their rates are compared as independent samples.

    `difference` is the second's rate as judged less the first's; `corrected` has the same of rates that are
    corrected by second opinions, of all facts first, then by category.
    """

    model: str
    protocol: str
    fingerprint: str
    first: VersionReport
    second: VersionReport
    difference: Interval | None
    corrected: tuple[VersionDifference, ...]

    def to_dict(self) -> dict[str, Any]:
        """Without the rates over time."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        for side in ("first", "second"):
            del told[side]["trend"]
        return told


def render_versions(found: Sequence[VersionComparison], console: Console) -> None:
    """Print them: all facts, then categories; each cell has the first version over the second."""
    for one in found:
        first, second = one.first, one.second
        told = (
            f": {one.model}, {second.version} beside {first.version}, "
            f"{second.scored:,} and {first.scored:,} answers, judges {one.fingerprint}"
        )
        console.print(styled((one.protocol, "bold"), told))
        title = f"Facts not in the image: {first.version} over {second.version}; points with 95 % intervals"
        headings = ("opinions", "facts", "difference", "facts,\ncorrected", "difference,\ncorrected")
        table = grid(title, [""], *headings)
        (whole, *categories) = one.corrected
        rates = (first.hallucination_rate, second.hallucination_rate)
        table.add_row("all", *_cells(rates, one.difference, whole))
        for row in categories:
            table.add_row(row.category, *_cells(row.judged, row.judged_difference, row))
        console.print(table)
        for note in notes(one):
            console.print(note)


def notes(found: VersionComparison) -> Iterator[str]:
    """What is to be known of the corrected numbers, in sentences."""
    whole, *categories = found.corrected
    if whole.difference is not None:
        several = " and ".join(dict.fromkeys(whole.queues))
        yield f"Corrected by {whole.by}: queue {several}."
    if categories:
        yield "By category the judges' own rates are of what the queues were drawn from."
    if whole.reason:
        yield f"{whole.reason[:1].upper()}{whole.reason[1:]}."


def _cells(
    judged: tuple[Interval | None, Interval | None], difference: Interval | None, row: VersionDifference
) -> tuple[Text, ...]:
    return (
        lines(*(f"{number:,}" for number in row.opinions)),
        lines(*map(_rate, judged)),
        _points(difference),
        lines(*map(_rate, row.corrected)),
        _points(row.difference),
    )


def _rate(interval: Interval | None) -> str:
    return percent(interval.value if interval is not None else None)


def _points(interval: Interval | None) -> Text:
    """A difference over its interval."""
    if interval is None:
        return lines("–")
    low, high = 100 * interval.low, 100 * interval.high
    return lines(f"{100 * interval.value:+.1f}", f"{low:+.1f} to {high:+.1f}")
