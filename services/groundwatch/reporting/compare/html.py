"""A comparison as one HTML file with plots: nothing in it is fetched from anywhere."""

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from groundwatch.reporting.compare.numbers import Difference
from groundwatch.reporting.compare.render import MARKS, name_of, p_value, percent, summary
from groundwatch.reporting.compare.result import Comparison, GroupComparison
from groundwatch.terminal import visible

ROW, LEFT, WIDTH, RIGHT = 30, 190, 760, 180
BARS = 130

NAME = 24
"""Letters of a group's name that fit beside the axis."""


def html_report(found: Comparison) -> str:
    return _environment().get_template("compare.html").render(found=found)


def _shown(value: object) -> object:
    """A text of the report, with what nobody sees written out; markup of a template's own stays."""
    return visible(value) if type(value) is str else value


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("groundwatch.reporting.compare"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"percent": percent, "rounded": _rounded, "middle_cut": _middle_cut}
    made.globals |= {
        "forest": _forest,
        "histogram": _histogram,
        "marks": MARKS,
        "name_of": name_of,
        "p_value": p_value,
        "signed": _signed,
        "summary": summary,
    }
    return made


def _signed(one: Difference | None, scale: float, digits: int) -> tuple[str, str]:
    """A difference and its interval; empty without one."""
    if one is None:
        return "–", ""
    interval = ""
    if one.low is not None and one.high is not None:
        interval = f"{scale * one.low:+.{digits}f} to {scale * one.high:+.{digits}f}"
    return f"{scale * one.value:+.{digits}f}", interval


def _forest(groups: Sequence[GroupComparison]) -> dict[str, Any] | None:
    """Groups' differences on one axis with 0 in sight, in units of the plot; None when no group has one."""
    rated = [(group, group.rate) for group in groups if group.rate is not None]
    if not rated:
        return None
    ends = [abs(100 * end) for _, one in rated for end in (one.value, one.low, one.high) if end is not None]
    reach = _reach(max(ends))

    def x(points: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (points + reach) / (2 * reach), 1)

    rows = []
    for number, (group, one) in enumerate(rated):
        value, interval = _signed(one, 100.0, 1)
        kind, low, high = "diff", None, None
        if one.low is not None and one.high is not None:
            kind += " worse" if one.low > 0 else " better" if one.high < 0 else ""
            low, high = x(100 * one.low), x(100 * one.high)
        rows.append(
            {
                "name": name_of(group),
                "aside": f"{value} ({interval})" if interval else value,
                "kind": kind,
                "whole": group.dimension == "all",
                "x": x(100 * one.value),
                "y": 6 + ROW * number + ROW / 2,
                "low": low,
                "high": high,
            }
        )
    ticks = [
        {
            "x": x(reach * step / 2),
            "label": f"{reach * step / 2:+g}" if step else "0",
            "kind": "grid" if step else "zero",
        }
        for step in range(-2, 3)
    ]
    return {
        "height": ROW * len(rows) + 34,
        "width": WIDTH,
        "name_x": LEFT - 12,
        "aside_x": WIDTH - RIGHT + 10,
        "ticks": ticks,
        "rows": rows,
    }


def _middle_cut(name: str) -> str:
    """What fits beside the axis: both ends, since versions differ in the last letters."""
    half = NAME // 2
    return name if len(name) <= NAME else f"{name[: half - 1]}…{name[-half:]}"


def _rounded(count: int) -> str:
    if count < 1_000:
        return f"{count}"
    unit, value = ("k", count / 1e3) if count < 999_500 else ("M", count / 1e6)
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def _reach(largest: float) -> float:
    """A round number of points that holds the largest."""
    return next((step for step in (1, 2, 4, 10, 20, 40, 60) if largest <= step), 100)


def _histogram(counts: Sequence[int]) -> dict[str, Any]:
    """Responses by change of their share of facts not in the image; the unchanged are told, not drawn."""
    half = len(counts) // 2
    step = (WIDTH - 40) / len(counts)
    most = max((count for place, count in enumerate(counts) if place != half), default=0)
    bars = []
    for place, count in enumerate(counts):
        if place == half or not count:
            continue
        left, height = 20 + step * place, round(max(2.0, BARS * count / most), 1)
        bars.append(
            {
                "kind": "better" if place < half else "worse",
                "count": count,
                "x": round(left + 1.5, 1),
                "y": round(18 + BARS - height, 1),
                "width": round(step - 3, 1),
                "height": height,
                "middle": round(left + step / 2, 1),
            }
        )
    ticks = [
        {
            "x": round(20 + step * half + step / 2 + share * (step * half + step / 2), 1),
            "label": "unchanged" if share == 0 else f"{100 * share:+.0f} points",
            "kind": {-1.0: "first", 1.0: "last"}.get(share, ""),
        }
        for share in (-1.0, -0.5, 0.0, 0.5, 1.0)
    ]
    return {
        "unchanged": counts[half],
        "smaller": sum(counts[:half]),
        "larger": sum(counts[half + 1 :]),
        "width": WIDTH,
        "height": BARS + 40,
        "axis": BARS + 18,
        "bars": bars,
        "ticks": ticks,
    }
