"""A comparison as one HTML file with plots: nothing in it is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from groundwatch.reporting.compare_numbers import Difference
from groundwatch.reporting.compare_render import MARKS, name_of, p_value, percent, summary
from groundwatch.reporting.compare_result import (
    ChangedResponse,
    Comparison,
    Coverage,
    GroupComparison,
    SectionComparison,
)

ROW, LEFT, WIDTH, RIGHT = 30, 190, 760, 180

NAME = 24
"""Letters of a group's name that fit beside the axis."""


def html_report(found: Comparison) -> str:
    """The report as a page that stands by itself."""
    style = resources.files(__package__).joinpath("compare.css").read_text(encoding="utf-8")
    of = ", ".join(
        f"{name} {value}" for name, value in (("model", found.model), ("tenant", found.tenant)) if value
    )
    title = f"{found.second} beside {found.first}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>',
            f"<style>{style}</style></head><body><main>",
            f"<h1>{escape(found.second)} <small>beside {escape(found.first)}"
            f"{escape(' · ' + of if of else '')}</small></h1>",
            '<p class="soft">Responses judged by both runs, paired. A difference is '
            f"{escape(found.second)} less {escape(found.first)}; above 0 means that more facts were found "
            "not to be in the image. Intervals are 95 %, by a bootstrap over "
            f"{found.resamples:,} resamples.</p>",
            *(part for section in found.sections for part in _section(found, section)),
            *_alone(found),
            "</main></body></html>",
            "",
        ]
    )


def _section(found: Comparison, section: SectionComparison) -> Iterator[str]:
    whole = section.whole
    yield f"<section><h2>{escape(section.protocol)}</h2>"
    yield '<div class="figures">'
    yield _figure("facts not in the image, " + found.first, percent(whole.rate_first))
    yield _figure("facts not in the image, " + found.second, percent(whole.rate_second))
    yield _figure("difference, points", *_told(whole.rate, 100.0, 1))
    yield _figure("difference of score", *_told(whole.score, 1.0, 3))
    paired = f"of {section.paired:,} in both runs"
    yield _figure("responses scored in both", f"{section.scored:,}", paired)
    yield "</div>"
    yield "".join(f"<p>{escape(line)}</p>" for line in summary(section))
    yield "".join(f'<p class="note">{escape(note)}</p>' for note in section.notes)
    yield "<h3>Difference of facts not in the image, percentage points</h3>"
    yield _forest(section.groups)
    yield "<h3>How far single responses changed</h3>"
    yield _histogram(section.histogram)
    yield "<h3>Coverage of each side</h3>"
    yield _coverage_table(found, section)
    yield "<h3>Judges</h3><table><tr><th>stage</th>"
    yield f"<th>{escape(found.first)}</th><th>{escape(found.second)}</th></tr>"
    for stage in sorted({*section.judges_first, *section.judges_second}):
        a, b = section.judges_first.get(stage, "–"), section.judges_second.get(stage, "–")
        mark = "" if a == b else ' class="other"'
        yield f"<tr{mark}><td>{escape(stage)}</td><td>{escape(a)}</td><td>{escape(b)}</td></tr>"
    yield "</table>"
    if section.most_changed:
        yield "<h3>Responses that changed most</h3>"
        yield from (_response(one) for one in section.most_changed)
    yield "</section>"


def _figure(label: str, value: str, note: str = "") -> str:
    return (
        f'<div><div class="label">{escape(label)}</div><div class="number">{escape(value)}</div>'
        f'<div class="soft">{escape(note)}</div></div>'
    )


def _told(one: Difference | None, scale: float, digits: int) -> tuple[str, str]:
    if one is None:
        return "–", ""
    interval = ""
    if one.low is not None and one.high is not None:
        interval = f"{scale * one.low:+.{digits}f} to {scale * one.high:+.{digits}f}"
    return f"{scale * one.value:+.{digits}f}", interval


def _forest(groups: Sequence[GroupComparison]) -> str:
    """Each group's difference with its interval, on one axis with 0 in sight."""
    rows = [group for group in groups if group.rate is not None]
    if not rows:
        return '<p class="soft">No facts were decided in both runs.</p>'
    ends = [
        abs(100 * end)
        for group in rows
        if group.rate is not None
        for end in (group.rate.value, group.rate.low, group.rate.high)
        if end is not None
    ]
    reach = _reach(max(ends))
    span = WIDTH - LEFT - RIGHT
    height = ROW * len(rows) + 34

    def x(points: float) -> float:
        return LEFT + span * (points + reach) / (2 * reach)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Differences with intervals">']
    for step in range(-2, 3):
        at = x(reach * step / 2)
        kind = "zero" if step == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="6" y2="{height - 26}"/>')
        label = f"{reach * step / 2:+g}" if step else "0"
        parts.append(f'<text class="tick" x="{at:.1f}" y="{height - 8}">{label}</text>')
    for number, group in enumerate(rows):
        one, y = group.rate, 6 + ROW * number + ROW / 2
        assert one is not None
        told, interval = _told(one, 100.0, 1)
        name = name_of(group)
        kind = "diff"
        if one.low is not None and one.high is not None:
            kind += " worse" if one.low > 0 else " better" if one.high < 0 else ""
            parts.append(
                f'<line class="{kind}" x1="{x(100 * one.low):.1f}" x2="{x(100 * one.high):.1f}" '
                f'y1="{y}" y2="{y}"/>'
            )
        parts.append(f'<circle class="{kind}" cx="{x(100 * one.value):.1f}" cy="{y}" r="4.5"/>')
        weight = " whole" if group.dimension == "all" else ""
        parts.append(f'<text class="name{weight}" x="{LEFT - 12}" y="{y + 4}">{_short(name)}</text>')
        aside = f"{told} ({interval})" if interval else told
        parts.append(f'<text class="aside" x="{WIDTH - RIGHT + 10}" y="{y + 4}">{escape(aside)}</text>')
    parts.append("</svg>")
    return "".join(parts)


def _short(name: str) -> str:
    """What fits beside the axis: both ends, since versions differ in the last letters; all of it on hover."""
    if len(name) <= NAME:
        return escape(name)
    half = NAME // 2
    return f"{escape(name[: half - 1])}…{escape(name[-half:])}<title>{escape(name)}</title>"


def _rounded(count: int) -> str:
    """A count that is no wider than its bar."""
    if count < 1_000:
        return f"{count}"
    unit, value = ("k", count / 1e3) if count < 999_500 else ("M", count / 1e6)
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def _reach(largest: float) -> float:
    """A round number of points that holds the largest."""
    return next((step for step in (1, 2, 4, 10, 20, 40, 60) if largest <= step), 100)


def _histogram(counts: Sequence[int]) -> str:
    """Responses by change of their share of facts not in the image; the unchanged are told, not drawn."""
    half, moved = len(counts) // 2, sum(counts) - counts[len(counts) // 2]
    told = (
        f'<p class="soft">{counts[half]:,} responses have the same share of facts not in the image; '
        f"{sum(counts[:half]):,} have a smaller one and {sum(counts[half + 1 :]):,} a larger one.</p>"
    )
    if not moved:
        return told
    most = max(count for place, count in enumerate(counts) if place != half)
    bar, height = (WIDTH - 40) / len(counts), 130
    parts = [told, f'<svg viewBox="0 0 {WIDTH} {height + 40}" role="img" aria-label="Responses by change">']
    for place, count in enumerate(counts):
        left = 20 + bar * place
        if place != half and count:
            tall = max(2.0, height * count / most)
            kind = "better" if place < half else "worse"
            parts.append(
                f'<rect class="{kind}" x="{left + 1.5:.1f}" y="{18 + height - tall:.1f}" '
                f'width="{bar - 3:.1f}" height="{tall:.1f}"/><text class="tick" x="{left + bar / 2:.1f}" '
                f'y="{13 + height - tall:.1f}">{_rounded(count)}<title>{count:,}</title></text>'
            )
    parts.append(f'<line class="zero" x1="20" x2="{WIDTH - 20}" y1="{18 + height}" y2="{18 + height}"/>')
    for share in (-1.0, -0.5, 0.0, 0.5, 1.0):
        at = 20 + bar * half + bar / 2 + share * (bar * half + bar / 2)
        label = "unchanged" if share == 0 else f"{100 * share:+.0f} points"
        anchor = (
            ' style="text-anchor:start"' if share == -1 else ' style="text-anchor:end"' if share == 1 else ""
        )
        parts.append(f'<text class="tick" x="{at:.1f}" y="{height + 35}"{anchor}>{label}</text>')
    return "".join([*parts, "</svg>"])


def _coverage_table(found: Comparison, section: SectionComparison) -> str:
    rows = [
        "<table><tr><th></th><th>run</th><th class=r>responses</th><th class=r>scored</th>"
        "<th>unscored</th><th>declined</th><th class=r>facts decided</th><th class=r>verdicts p</th></tr>"
    ]
    for group in section.groups:
        if group.first is None or group.second is None:
            continue
        p = p_value(group.verdicts.p_units) if group.verdicts else "–"
        rows.append(_coverage_row(name_of(group), found.first, group.first, p))
        rows.append(_coverage_row("", found.second, group.second, ""))
    return "".join([*rows, "</table>"])


def _coverage_row(name: str, run: str, side: Coverage, p: str) -> str:
    unscored, declined = (
        ", ".join(f"{reason} {number:,}" for reason, number in counts.items()) or "–"
        for counts in (side.unscored, side.declined)
    )
    kind = ' class="first"' if name else ""
    return (
        f"<tr{kind}><td>{escape(name)}</td><td>{escape(run)}</td><td class=r>{side.responses:,}</td>"
        f"<td class=r>{side.scored:,} ({percent(side.scored_share)})</td><td>{escape(unscored)}</td>"
        f"<td>{escape(declined)}</td><td class=r>{percent(side.coverage)}</td><td class=r>{p}</td></tr>"
    )


def _response(one: ChangedResponse) -> str:
    claims = "".join(
        f"<li><b class='{claim.first or 'none'}'>{MARKS[claim.first]}</b> → "
        f"<b class='{claim.second or 'none'}'>{MARKS[claim.second]}</b> {escape(claim.text)} "
        f'<span class="soft">{escape(claim.category)}</span></li>'
        for claim in one.claims
    )
    return (
        f'<div class="response"><b>{escape(one.id)}</b> <span class="soft">{escape(one.model)} · '
        f"{escape(one.tenant)}</span> {one.refuted_first} of {one.decided_first} → {one.refuted_second} of "
        f"{one.decided_second} facts not in the image<ul>{claims}</ul></div>"
    )


def _alone(found: Comparison) -> Iterator[str]:
    for protocol, alone in sorted(found.alone.items()):
        for run, number in ((found.first, alone.first), (found.second, alone.second)):
            if number:
                told = f"{protocol}: {number:,} outcomes are only in {run}, and in no number here."
                yield f'<p class="note">{escape(told)}</p>'
    for note in found.notes:
        yield f'<p class="note">{escape(note)}</p>'
