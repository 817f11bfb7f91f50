"""Which files should become one."""

import time
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from groundwatch.archive.snapshot import File

SETTLED_SECONDS = 3_600.0
"""A day that is over and got nothing for so long has all its files merged."""

TIERS = 8
"""Each tier of file sizes is so many times the one below it; so a row is merged few times."""

SMALL = 1024 * 1024


def due(files: Iterable[File], merge_files: int, file_bytes: int) -> list[File]:
    """Enough files of a size, or all the small ones of a day that is over; none where nothing is due."""
    days: dict[date, list[File]] = {}
    for file in files:
        if file.bytes < file_bytes // 2:
            days.setdefault(file.day, []).append(file)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    for day, alike in days.items():
        tiers: dict[int, list[File]] = {}
        for file in alike:
            tiers.setdefault(_tier(file.bytes), []).append(file)
        for several in tiers.values():
            if len(several) >= merge_files:
                return several
        settled = time.time() - max(file.written for file in alike) > SETTLED_SECONDS
        if len(alike) > 1 and day < yesterday and settled:
            return alike
    return []


def _tier(size: int) -> int:
    tier, limit = 0, SMALL
    while size >= limit:
        tier, limit = tier + 1, limit * TIERS
    return tier
