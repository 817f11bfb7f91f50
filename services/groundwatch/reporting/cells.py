"""Numbers as tables show them: two-line cells, so that 80 columns hold an estimate and its interval."""

from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Text, lines


def number(interval: Interval | None) -> Text:
    """An estimate over its interval."""
    if interval is None:
        return lines("–")
    return lines(f"{interval.value:.3f}", f"{interval.low:.2f}–{interval.high:.2f}")


def rate(interval: Interval | None) -> Text:
    """The same in percent."""
    if interval is None:
        return lines("–")
    return lines(f"{interval.value:.1%}", f"{100 * interval.low:.1f}–{100 * interval.high:.1f}")


def rate_in_a_line(interval: Interval | None) -> str:
    """The same in one line."""
    return "–" if interval is None else "{} ({})".format(*rate(interval).plain.split("\n"))


def share(value: float | None) -> str:
    """A share of 1 in whole percent."""
    return "–" if value is None else f"{value:.0%}"
