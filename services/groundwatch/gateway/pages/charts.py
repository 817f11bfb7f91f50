"""Small charts, drawn by the server as SVG: coloured by the style sheet alone, and told in words to who
cannot see them."""

from collections.abc import Sequence

from markupsafe import Markup

from groundwatch.gateway.pages import showing
from groundwatch.reporting.trends import Point
from groundwatch.statistics.intervals import Interval

WIDTH = 150.0
HEIGHT = 30.0


def scale_top(rates: Sequence[Interval | None]) -> float:
    """Where a scale that these share ends, a multiple of 5 %.

    One that rests on little has an interval as wide as the scale: it must not flatten the others.
    """
    ends = [one.value if one.n < 50 else one.high for one in rates if one is not None]
    return min(1.0, max(0.1, -(-max(ends, default=0.0) // 0.05) * 0.05))


def interval_chart(rate: Interval | None, top: float, corrected: Interval | None = None) -> Markup:
    """A rate with its interval on a scale from 0 to `top`, and below it the corrected one."""
    if rate is None:
        return Markup("")
    label = f"{showing.percent(rate.value)}, 95 % interval {showing.bounds(rate)}"
    if corrected is not None:
        label += f"; corrected {showing.percent(corrected.value)}, {showing.bounds(corrected)}"
    height = 12 if corrected is None else 24
    rows = _interval(rate, top, 2, "judged")
    if corrected is not None:
        rows += _interval(corrected, top, 14, "corrected")
    return Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {:g} {}" width="{:g}" height="{}">'
        "<title>{}, on a scale to {}</title>{}</svg>"
    ).format(label, WIDTH, height, WIDTH, height, label, showing.percent(top, 0), rows)


def _interval(rate: Interval, top: float, y: int, name: str) -> Markup:
    low, value, high = (WIDTH * min(1.0, one / top) for one in (rate.low, rate.value, rate.high))
    return Markup(
        '<g class="{}"><rect class="track" x="0" y="{}" width="{:g}" height="8" rx="4"/>'
        '<rect class="band" x="{:.1f}" y="{}" width="{:.1f}" height="8" rx="4"/>'
        '<rect class="point" x="{:.1f}" y="{}" width="3" height="12" rx="1.5"/></g>'
    ).format(name, y, WIDTH, low, y, max(2.0, high - low), min(WIDTH - 3, max(0.0, value - 1.5)), y - 2)


def trend_chart(
    points: Sequence[Point],
    top: float,
    marks: Sequence[float] = (),
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Markup:
    """Rates over time; `marks` are moments that stand as upright rules."""
    if len(points) < 2:
        return Markup("")
    first, last = points[0].start, points[-1].start + points[-1].seconds
    span = last - first

    def x(moment: float) -> float:
        return (width - 4) * (moment - first) / span + 2

    def y(rate: float) -> float:
        return height - 2 - (height - 4) * min(1.0, rate / top)

    middles = [(x(one.start + one.seconds / 2), one.rate) for one in points]
    line = " ".join(f"{at:.1f},{y(rate.value):.1f}" for at, rate in middles)
    upper = [f"{at:.1f},{y(rate.high):.1f}" for at, rate in middles]
    lower = [f"{at:.1f},{y(rate.low):.1f}" for at, rate in reversed(middles)]
    end = middles[-1]
    rules = Markup("").join(
        Markup('<line class="rule" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1:g}"/>').format(x(one), height)
        for one in marks
        if first <= one <= last
    )
    label = (
        f"from {showing.percent(points[0].rate.value)} at {showing.stamp(first)} "
        f"to {showing.percent(end[1].value)} at {showing.stamp(last)}, "
        f"{showing.duration(points[0].seconds)} to a point"
    )
    return Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}" width="{:g}" height="{:g}">'
        '<title>{}</title>{}<polygon class="area" points="{}"/><polyline class="line" points="{}"/>'
        '<circle class="point" cx="{:.1f}" cy="{:.1f}" r="2.2"/></svg>'
    ).format(
        label,
        width,
        height,
        width,
        height,
        label,
        rules,
        " ".join(upper + lower),
        line,
        end[0],
        y(end[1].value),
    )
