"""Judging without a server, as the commands that read files use it."""

from __future__ import annotations

from groundwatch.replay.judging import MOST_ATTEMPTS, WINDOW, Judging, judging_stage

__all__ = ["MOST_ATTEMPTS", "WINDOW", "Judging", "judging_stage"]
