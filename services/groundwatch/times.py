"""Moments within the calendar, and times as people write them: `2026-03-01`, `90m`, `7d`."""

import re
from datetime import UTC, datetime

from groundwatch.errors import UsageError

LAST = 253_402_300_799.0
"""The last second of the year 9999."""


def moment_of(seconds: float) -> datetime:
    """Seconds since the epoch as a date in UTC; what lies beyond the calendar is its first or last second."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), LAST) if seconds == seconds else 0.0, UTC)


_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def read_moment(text: str, option: str, now: float) -> float:
    """Seconds since the epoch of `2026-03-01`, `2026-03-01T14:00:00Z`, `90m` (so long before `now`) or a
    number of seconds. A time without a zone is UTC. Raises `UsageError` naming `option`.
    """
    text = text.strip()
    if ago := _AGO.fullmatch(text):
        return max(0.0, now - float(ago[1]) * _UNITS[ago[2]])
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if 0 <= seconds <= LAST:
            return seconds
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text}: write a time such as 2026-03-01, 2026-03-01T14:00:00Z, or how long ago: "
            "90m, 24h, 7d"
        ) from None
    seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds <= LAST:
        raise UsageError(f"{option} {text}: write a time from 1970 on")
    return seconds


def read_interval(text: str, option: str) -> float:
    """Seconds of "90s", "30m", "6h" or "1d". Raises `UsageError`, which names `option`, for anything else."""
    found = _AGO.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if seconds <= 0:
        raise UsageError(f"{option} {text}: must be a time such as 90s, 30m, 6h or 1d")
    return seconds


def shown_moment(moment: float) -> str:
    return moment_of(moment).strftime("%Y-%m-%dT%H:%M:%SZ")
