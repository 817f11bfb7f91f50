"""What logged calls lack: counted by reason, and told once with the setting that would keep it."""

from collections.abc import Iterable

from groundwatch.conversations.reasons import REASONS
from groundwatch.records import ANSWER_TOO_LONG, PROMPT_TOO_LONG
from groundwatch.runtime.settings.gateway import LoggedCallsSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

ALWAYS = frozenset((PROMPT_TOO_LONG, ANSWER_TOO_LONG))
"""Reasons for which nothing is judged, whatever is set: half of what was said is something else."""


class LeftOut:
    """`notes` are what somebody should change in the settings of what logs the calls."""

    def __init__(self, settings: LoggedCallsSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._notes: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        return list(self._notes.values())

    def declined(self, left_out: Iterable[str]) -> str:
        """The reason for which no protocol judges a call that lacks this; empty where it is judged."""
        reasons = list(left_out)
        if self._settings.without_image == "decline" and reasons:
            return reasons[0]
        return next((reason for reason in reasons if reason in ALWAYS), "")

    def count(self, left_out: Iterable[str]) -> None:
        for reason in left_out:
            self._metrics.images_left_out.labels(reason).inc()
            self.note(reason)

    def note(self, reason: str) -> None:
        if reason not in self._notes:
            self._notes[reason] = note = note_on(reason)
            logger.warning("gateway.images_left_out", reason=reason, note=note)


def note_on(reason: str) -> str:
    if known := REASONS.get(reason):
        return f"{reason}: {known.library} {known.did}; what keeps it: {known.setting}"
    return f"{reason}: part of what was asked is missing in logged calls"
