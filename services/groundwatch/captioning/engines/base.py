"""What every captioning engine is."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import Judge, Usage

Image = tuple[bytes, str]
"""An image's bytes and its media type."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask a model under test: a text, with images in front of it or none."""

    model: str
    text: str
    images: tuple[Image, ...] = ()


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What it said. `cut_off`: its answer ends where its limit of tokens did."""

    text: str
    usage: Usage = Usage()
    cut_off: bool = False


class CaptioningEngine(Protocol):
    """Asks models under test. Chosen by name in settings.

    `batch` is how many turns the engine likes to see at once: 1 for engines that wait for somebody else
    (they are called concurrently instead), more for engines that compute.
    """

    batch: int

    def judge(self, model: str, prompt: str) -> Judge:
        """Who answers for the model under test of this name; `prompt` is a digest of how it is asked."""
        ...

    async def say(self, turns: Sequence[Turn]) -> Sequence[Said | GroundwatchError]:
        """One answer for each turn, in order.

        An error stands in the place of its turn's answer and leaves the others alone: `Unscorable` means
        that there will be none, `TransientError` is retried, `InputError` goes to the dead letters.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
