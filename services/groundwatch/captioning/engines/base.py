"""What every captioning engine is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import Judge
from groundwatch.models.engines import Engine
from groundwatch.models.replies import Image, Text


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask a model under test: a text, with images in front of it or none."""

    model: str
    text: str
    images: tuple[Image, ...] = ()


class CaptioningEngine(Engine, Protocol):
    """Asks models under test."""

    def judge(self, model: str, prompt: str) -> Judge:
        """Who answers for the model under test of this name; `prompt` is a digest of how it is asked."""
        ...

    async def say(self, turns: Sequence[Turn]) -> Sequence[Text | GroundwatchError]:
        """One answer for each turn, in order.

        An error stands in the place of its turn's answer and leaves the others alone: `Unscorable` means
        that there will be none, `TransientError` is retried, `InputError` goes to the dead letters.
        """
        ...
