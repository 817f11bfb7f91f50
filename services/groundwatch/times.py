"""Moments within the calendar: what is outside can be sent and stored, and never be written as a date."""

from __future__ import annotations

from datetime import UTC, datetime

LAST = 253_402_300_799.0
"""The last second of the year 9999."""


def moment_of(seconds: float) -> datetime:
    """Seconds since the epoch as a date in UTC; what lies beyond the calendar is its first or last second."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), LAST) if seconds == seconds else 0.0, UTC)
