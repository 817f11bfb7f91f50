"""How pages show numbers, times and texts: the filters of their templates.

Every text that others wrote goes through `text` or `cut`: isolated from the direction of what stands around
it, with control characters made visible, and no longer than a page can bear.
"""

import unicodedata
from collections.abc import Sequence

from markupsafe import Markup, escape

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
    "stamp": stamp,
    "clock": clock,
    "duration": duration,
    "size": size,
    "visible": visible,
    "text": isolated,
    "cut": cut,
    "in_words": in_words,
}


def scale_top(rates: Sequence[Interval | None]) -> float:
    """Where a scale that these share ends, a multiple of 5 %.

    One that rests on little has an interval as wide as the scale: it must not flatten the others.
    """
    ends = [one.value if one.n < 50 else one.high for one in rates if one is not None]
    return min(1.0, max(0.1, -(-max(ends, default=0.0) // 0.05) * 0.05))
