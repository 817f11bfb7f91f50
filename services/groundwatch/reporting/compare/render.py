"""A comparison as tables for people; what does not fit 80 columns is in `--json` and the HTML report."""

from collections.abc import Iterator

from groundwatch.reporting.compare.numbers import Difference
from groundwatch.reporting.compare.result import Comparison, Coverage, GroupComparison, SectionComparison
from groundwatch.terminal import Console, Table, Text, box, lines, styled

SHOWN = 5
CLAIMS = 4
"""Changed claims that are shown of a response."""

MARKS = {"refuted": "✗", "supported": "✓", "undecided": "?", "": "–"}


def render_comparison(found: Comparison, console: Console) -> None:
    """Print it: for each protocol and pair of sets of judges the groups, and what changed most."""
    for section in found.sections:
        _section(found, section, console)
    for protocol, alone in sorted(found.alone.items()):
        told = [
            f"{number:,} only in {run}"
            for run, number in ((found.first, alone.first), (found.second, alone.second))
            if number
        ]
        if told:
            console.print(f"{protocol}: {', '.join(told)}, in no number above.")
    for note in found.notes:
        console.print(note)


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
            f"{one.refuted_second} of {one.decided_second} facts not in the image",
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
    table = Table(
        title=f"Facts not in the image: {found.first} over {found.second}; differences with 95 % intervals",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        # A terminal of 80 columns holds it only so.
        padding=0,
        show_edge=False,
    )
    table.add_column("", overflow="fold", min_width=12)
    headings = (
        "answers",
        "facts",
        "difference",
        lines("score", "differs by"),
        "scored",
        lines("facts", "decided"),
        "p",
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    dimension = "all"
    for group in section.groups:
        if group.dimension != dimension:
            table.add_section()
            dimension = group.dimension
        table.add_row(
            name_of(group),
            f"{group.responses:,}",
            lines(percent(group.rate_first), percent(group.rate_second)),
            difference(group.rate, 100.0, 1),
            difference(group.score, 1.0, 2),
            _both(group, "scored_share"),
            _both(group, "coverage"),
            "–" if group.verdicts is None else p_value(group.verdicts.p_units),
        )
    return table


def name_of(group: GroupComparison) -> str:
    return "all" if group.dimension == "all" else f"{group.dimension} {group.name}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def difference(one: Difference | None, scale: float, digits: int) -> Text:
    if one is None:
        return lines("–")
    value = f"{scale * one.value:+.{digits}f}"
    if one.low is None or one.high is None:
        return lines(value)
    return lines(value, f"{scale * one.low:+.{digits}f} to {scale * one.high:+.{digits}f}")


def p_value(p: float) -> str:
    """A p-value with as many digits as mean something."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _both(group: GroupComparison, name: str) -> Text:
    def told(side: Coverage | None) -> str:
        share = getattr(side, name) if side is not None else None
        return "–" if share is None else f"{share:.0%}"

    if group.first is None and group.second is None:
        return lines("–")
    return lines(told(group.first), told(group.second))
