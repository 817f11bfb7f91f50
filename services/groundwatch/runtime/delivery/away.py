"""Which judges a stage has found away, and whether anybody is left to ask."""

import time
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import msgspec

from groundwatch.errors import RateLimited, Unavailable
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

LAPSE = 180.0
"""Seconds after which a judge that nobody has found away again counts as back: who waited for it went
elsewhere. Twice the pause until the next trial where that is longer."""

MOST = 10_000


class Away(msgspec.Struct):
    """One judge that is away: since when and why, and who waits for it; `until` when (monotonic) unless it is
    seen again, and the `seconds` that it took to find the last event that tried without an answer."""

    since: float
    why: str
    until: float
    waiting: set[str]
    seconds: float = 0.0


class AwayJudges:
    """The judges of one stage, or its receivers. `number` is how many different ones its events ask for, each
    asking one."""

    def __init__(
        self, stage: str, metrics: Metrics, *, number: int = 1, what: Literal["judge", "receiver"] = "judge"
    ) -> None:
        self._stage = stage
        self._what = what
        self._gauge = (
            partial(metrics.judge_away_seconds.labels, stage)
            if what == "judge"
            else metrics.receiver_away_seconds.labels
        )
        self._number = number
        self._away: dict[str, Away] = {}

    @property
    def away(self) -> dict[str, Away]:
        """By name, those that are away now."""
        for judge, found in list(self._away.items()):
            if time.monotonic() > found.until:
                self._back(judge)
        return self._away

    @property
    def nobody_answers(self) -> bool:
        """Whether there is nothing to be had from any of them, so that fetching more is of no use."""
        return self._number == 1 or len(self.away) >= self._number

    def round(self, judge: str, pause: float) -> float:
        """Seconds until each event that waits for it has been let through once, and a new one too.

        `pause` is what lies between two trials at least; trying a judge that hangs takes its time as well.
        """
        found = self._away.get(judge)
        return (pause + found.seconds) * (len(found.waiting) + 1) if found else pause

    def found_away(self, event: str, error: Unavailable, seconds: float = 0.0) -> None:
        """An event's judge is away, which took so many seconds to find out.

        A rate limit is no absence, and NATS' own troubles are told elsewhere.
        """
        if not error.judge or isinstance(error, RateLimited):
            return
        now = time.monotonic()
        found = self._away.get(error.judge)
        if found is None:
            found = self._away[error.judge] = Away(since=time.time(), why="", until=now, waiting=set())
            named = {self._what: error.judge}
            logger.warning(f"{self._what}.away", stage=self._stage, error=str(error), **named)
            self._gauge(error.judge).set_function(partial(self._seconds, error.judge))
        found.why, found.until = str(error), now + max(LAPSE, 2 * (error.retry_after or 0.0))
        if len(found.waiting) < MOST:
            found.waiting.add(event)
        if error.trial:
            found.seconds = seconds

    def answered(self, event: str) -> None:
        """An event got another result: if it waited for a judge, that one is back."""
        for judge, found in list(self._away.items()):
            if event in found.waiting:
                self._back(judge)

    def problems(self) -> list[str]:
        return [
            f"{self._what} {judge} is away since {datetime.fromtimestamp(found.since, UTC):%Y-%m-%d %H:%M:%S}"
            f" UTC, events wait in the stream: {found.why}"
            for judge, found in self.away.items()
        ]

    def _back(self, judge: str) -> None:
        found = self._away.pop(judge)
        seconds = round(time.time() - found.since, 1)
        logger.info(f"{self._what}.back", stage=self._stage, seconds=seconds, **{self._what: judge})

    def _seconds(self, judge: str) -> float:
        found = self.away.get(judge)
        return time.time() - found.since if found else 0.0
