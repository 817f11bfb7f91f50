"""How pages show numbers, times, texts and charts: the filters of their templates.

Every text that others wrote goes through `text` or `cut`: isolated from the direction of what stands around
it, with control characters made visible, and no longer than a page can bear. Charts are SVG, coloured by the
style sheet alone, and told in words to who cannot see them.
"""

import unicodedata
from collections.abc import Sequence

from markupsafe import Markup, escape

from groundwatch.reporting.trends import Point
from groundwatch.statistics.intervals import Interval
from groundwatch.times import moment_of

LONGEST = 300
"""Characters of a text that are shown at once, unless a template says otherwise."""

MOST = 100_000
"""Characters of a text that are in a page at all."""

NONE = "–"
THIN = "\u202f"


def percent(share: float | None, digits: int = 1) -> str:
    """0.114 as `11.4 %`."""
    return NONE if share is None else f"{100 * share:.{digits}f}{THIN}%"


def whole(number: float | None) -> str:
    return NONE if number is None else f"{number:,.0f}"


def decimal(number: float | None, digits: int = 3) -> str:
    return NONE if number is None else f"{number:,.{digits}f}"


def dollars(number: float | None) -> str:
    """An amount of US dollars, with as many digits as tell small ones apart."""
    if number is None:
        return NONE
    return f"${number:,.2f}" if number >= 1 or number == 0 else f"${number:.2g}"


def signed(number: float | None, digits: int = 1) -> str:
    """A difference of shares in percentage points, with its sign: `+3.2`."""
    if number is None:
        return NONE
    shown = f"{100 * number:+.{digits}f}".replace("-", "−")
    return shown if shown.strip("+−0.") else shown[1:]


def bounds(interval: Interval | None, digits: int = 1) -> str:
    """The two ends of an interval of shares: `10.3–12.5 %`."""
    if interval is None:
        return NONE
    return f"{100 * interval.low:.{digits}f}–{100 * interval.high:.{digits}f}{THIN}%"


def limits(interval: Interval | None, digits: int = 2) -> str:
    """The two ends of an interval of what is no share and may be below 0: `−0.04 to 0.31`."""
    if interval is None:
        return NONE
    return f"{interval.low:.{digits}f} to {interval.high:.{digits}f}".replace("-", "−")


def moment(seconds: float | None, form: str = "%-d %b %Y, %H:%M") -> Markup | str:
    """A moment in UTC, as `<time>`."""
    if not seconds:
        return NONE
    when = moment_of(seconds)
    exact = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    return Markup('<time datetime="{}" title="{}">{} UTC</time>').format(exact, exact, when.strftime(form))


def stamp(seconds: float) -> str:
    """A moment in UTC as plain text."""
    return f"{moment_of(seconds):%-d %b %Y, %H:%M} UTC"


def clock(seconds: float | None) -> Markup | str:
    """The time of day in UTC; its `<time>` has the day too."""
    return moment(seconds, "%H:%M:%S")


def duration(seconds: float | None) -> str:
    """A number of seconds in its two largest units: `2 d 3 h`, `4 min 10 s`, `0.4 s`."""
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, seconds = divmod(int(seconds), size)
        if number:
            parts.append(f"{number}{THIN}{unit}")
    return " ".join(parts[:2])


def size(number: float | None) -> str:
    """Bytes as `1.2 GB`."""
    if number is None:
        return NONE
    units = ["B", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{number:.{0 if units[0] == 'B' else 1}f}{THIN}{units[0]}"


def visible(text: object) -> str:
    """The same with control characters as signs that one sees; line breaks and tabs stay."""
    return "".join(
        chr(0x2400 + ord(char))
        if char < " " and char not in "\n\t"
        else "\u2421"
        if "\x7f" <= char < "\xa0"
        else "\ufffd"
        if unicodedata.category(char) == "Cs"
        else char
        for char in str(text)
    )


def isolated(text: object, limit: int = LONGEST) -> Markup:
    """On one line, whatever its direction; of what is longer than `limit`, more stands in `title`."""
    shown = " ".join(visible(str(text)[: 4 * limit]).split())
    if len(shown) <= limit:
        return Markup("<bdi>{}</bdi>").format(shown)
    return Markup('<bdi title="{}">{}…</bdi>').format(shown[: 4 * limit], shown[: limit - 1])


def cut(text: object, limit: int = LONGEST) -> Markup:
    """With its own line breaks; what is longer than `limit` stands behind a button, up to `MOST`."""
    whole_text = str(text)
    shown = visible(whole_text[:MOST])
    if len(shown) <= limit:
        return Markup('<div class="words" dir="auto">{}</div>').format(shown)
    left = len(whole_text) - MOST
    end = Markup('<p class="note">{:,} more characters are not shown</p>').format(left) if left > 0 else ""
    return Markup(
        '<div class="words" dir="auto">{}…</div><details><summary>all {:,} characters</summary>'
        '<div class="words" dir="auto">{}</div>{}</details>'
    ).format(shown[:limit], len(whole_text), shown, end)


def in_words(name: object) -> Markup:
    """A reason or category with spaces in place of its underscores."""
    return escape(str(name).replace("_", " "))


FILTERS = {
    "percent": percent,
    "whole": whole,
    "decimal": decimal,
    "dollars": dollars,
    "signed": signed,
    "bounds": bounds,
    "limits": limits,
    "moment": moment,
    "clock": clock,
    "duration": duration,
    "size": size,
    "visible": visible,
    "text": isolated,
    "cut": cut,
    "in_words": in_words,
}


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
    label = f"{percent(rate.value)}, 95 % interval {bounds(rate)}"
    if corrected is not None:
        label += f"; corrected {percent(corrected.value)}, {bounds(corrected)}"
    height = 12 if corrected is None else 24
    rows = _interval(rate, top, 2, "judged")
    if corrected is not None:
        rows += _interval(corrected, top, 14, "corrected")
    return Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {:g} {}" width="{:g}" height="{}">'
        "<title>{}, on a scale to {}</title>{}</svg>"
    ).format(label, WIDTH, height, WIDTH, height, label, percent(top, 0), rows)


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
        f"from {percent(points[0].rate.value)} at {stamp(first)} "
        f"to {percent(end[1].value)} at {stamp(last)}, "
        f"{duration(points[0].seconds)} to a point"
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
