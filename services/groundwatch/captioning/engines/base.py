"""What every captioning engine is, and one that needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import Judge, Usage
from groundwatch.models.engines import Engine, attempt
from groundwatch.models.fake import describe
from groundwatch.models.replies import Image, Text

if TYPE_CHECKING:
    pass


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


class StandInCaptioningEngine(CaptioningEngine):
    """Describes each image as `models.fake` does; without one, it counts the words: for dry runs.

    Named so that nobody takes its answers for those of a model.
    """

    batch = 50

    def judge(self, model: str, prompt: str) -> Judge:
        return Judge(engine="stand-in", prompt=prompt)

    async def say(self, turns: Sequence[Turn]) -> Sequence[Text | GroundwatchError]:
        return [attempt(_say, turn) for turn in turns]


def _say(turn: Turn) -> Text:
    seen = " ".join(describe(data) for data, _ in turn.images)
    text = seen or f"I was given {len(turn.text.split())} words and no image."
    return Text(text=text, usage=Usage(calls=1))
