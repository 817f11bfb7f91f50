"""A comparison for people: as tables, and as one HTML file with plots that fetches nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from groundwatch.reporting.compare.compare import Alone, Comparison, GroupComparison, SectionComparison
from groundwatch.reporting.corrected import VersionDifference
from groundwatch.reporting.render import grid, share, signed
from groundwatch.reporting.trends import VersionReport
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Console, Table, Text, lines, styled, visible

SHOWN = 5
CLAIMS = 4
MARKS = {"refuted": "✗", "supported": "✓", "undecided": "?", "": "–"}


def render_comparison(found: Comparison, console: Console) -> None:
    """Print it: for each protocol and pair of sets of judges the groups, and what changed most."""
    for section in found.sections:
        _section(found, section, console)
    for protocol, alone in sorted(found.alone.items()):
        told = [f"{number} only in {run}" for run, number in only_in(found, alone)]
        if told:
            console.print(f"{protocol}: {', '.join(told)}, in no number above.")
    for note in found.notes:
        console.print(note)


def only_in(found: Comparison, alone: Alone) -> list[tuple[str, str]]:
    """The runs that have outcomes alone, and how many."""
    return [
        (run, f"about {number:,}" if run == alone.estimated else f"{number:,}")
        for run, number in ((found.first, alone.first), (found.second, alone.second))
        if number
    ]


def _section(found: Comparison, section: SectionComparison, console: Console) -> None:
    told = (
        f": {found.second} beside {found.first}, "
        f"{section.scored:,} of {section.paired:,} responses in both were scored in both"
    )
    console.print(styled((section.protocol, "bold"), told))
    for name, judges in ((found.first, section.judges_first), (found.second, section.judges_second)):
        told = ", ".join(f"{stage} {judge}" for stage, judge in judges.items()) or "none"
        console.print(f"  judges of {name}: {told}", style="dim")
    console.print(_table(found, section))
    for line in summary(section):
        console.print(line)
    for note in section.notes:
        console.print(f"Note: {note}")
    if section.most_changed:
        console.print("Changed most", style="bold")
    for one in section.most_changed[:SHOWN]:
        console.print(
            f"  {one.id} · {one.model}: {one.refuted_first} of {one.decided_first} → "
            f"{one.refuted_second} of {one.decided_second} facts not in the image"
        )
        for claim in one.claims[:CLAIMS]:
            console.print(f"     {MARKS[claim.first]} → {MARKS[claim.second]}  {claim.text}")
        if len(one.claims) > CLAIMS:
            console.print(f"     … and {len(one.claims) - CLAIMS} more")
    console.print()


def summary(section: SectionComparison) -> Iterator[str]:
    """What was tested, and how many responses changed, in sentences."""
    whole = section.whole
    if section.changed is not None:
        one = section.changed
        yield (
            f"{one.value:.1%} of responses are judged otherwise ({100 * one.low:.1f}–{100 * one.high:.1f}), "
            f"by {section.units:,} {section.unit}s."
        )
    if whole.verdicts is not None and section.scored:
        tested = whole.verdicts
        yield (
            f"Verdicts on {tested.claims:,} claims in both: {tested.refuted_first:,} refuted in the first "
            f"only, {tested.refuted_second:,} in the second only; McNemar p {p_value(tested.p_value)}, "
            f"by {section.unit} p {p_value(tested.p_units)}."
        )


def _table(found: Comparison, section: SectionComparison) -> Table:
    title = f"Facts not in the image: {found.first} over {found.second}; differences with 95 % intervals"
    headings = ("answers", "facts", "difference", "score\ndiffers by", "scored", "facts\ndecided", "p")
    # A terminal of 80 columns holds it only without padding.
    table = grid(title, [""], *headings, padding=0, show_edge=False)
    table.columns[0].min_width = 12
    dimension = "all"
    for group in section.groups:
        if group.dimension != dimension:
            table.add_section()
            dimension = group.dimension
        table.add_row(
            name_of(group),
            f"{group.responses:,}",
            lines(percent(group.rate_first), percent(group.rate_second)),
            lines(*filter(None, signed(group.rate, 100.0, 1))),
            lines(*filter(None, signed(group.score, 1.0, 2))),
            _both(group, "scored_share"),
            _both(group, "coverage"),
            "–" if group.verdicts is None else p_value(group.verdicts.p_units),
        )
    return table


def name_of(group: GroupComparison) -> str:
    return "all" if group.dimension == "all" else f"{group.dimension} {group.name}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _both(group: GroupComparison, name: str) -> Text:
    sides = (group.first, group.second)
    return lines(*(share(getattr(side, name, None)) for side in sides)) if any(sides) else lines("–")


NAME = 24
"""Letters of a group's name that fit beside the axis."""


def html_report(found: Comparison) -> str:
    made = Environment(
        loader=PackageLoader("groundwatch.reporting.compare"),
        autoescape=True,
        # What nobody sees is written out in texts of the report; markup of a template's own stays.
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"percent": percent, "rounded": _rounded, "middle_cut": _middle_cut}
    made.globals |= {"marks": MARKS, "reach_of": _reach}
    made.globals |= {one.__name__: one for one in (name_of, only_in, p_value, signed, summary)}
    return made.get_template("compare.html").render(found=found)


def _middle_cut(name: str) -> str:
    """What fits beside the axis: both ends, since versions differ in the last letters."""
    half = NAME // 2
    return name if len(name) <= NAME else f"{name[: half - 1]}…{name[-half:]}"


def _rounded(count: int) -> str:
    if count < 1_000:
        return f"{count}"
    unit, value = ("k", count / 1e3) if count < 999_500 else ("M", count / 1e6)
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def _reach(rated: Sequence[GroupComparison]) -> int:
    """A round number of percentage points that holds every difference and its interval."""
    ones = [group.rate for group in rated if group.rate is not None]
    largest = max(abs(100 * end) for one in ones for end in (one.value, one.low, one.high) if end is not None)
    return next((step for step in (1, 2, 4, 10, 20, 40, 60) if largest <= step), 100)


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
    return lines(*filter(None, signed(interval, 100.0, 1)))
