"""An engine that needs no model: deterministic answers for tests and dry runs."""

from collections.abc import Sequence

from groundwatch.captioning.engines.base import Said, Turn
from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Judge, Usage
from groundwatch.models.fake import describe


class StandInCaptioningEngine:
    """Describes each image as `models.stand_in` does; without one, it counts the words it was given."""

    batch = 50

    def judge(self, model: str, prompt: str) -> Judge:
        """Named so that nobody takes its answers for those of a model."""
        return Judge(engine="stand-in", prompt=prompt)

    async def say(self, turns: Sequence[Turn]) -> Sequence[Said | GroundwatchError]:
        """One answer for each turn; `Unscorable` for an image that cannot be read."""
        return [_say(turn) for turn in turns]

    async def close(self) -> None:
        """Nothing to let go of."""


def _say(turn: Turn) -> Said | GroundwatchError:
    try:
        seen = [describe(data) for data, _ in turn.images]
    except ValueError as error:
        return Unscorable("unreadable_image", str(error))
    text = " ".join(seen) or f"I was given {len(turn.text.split())} words and no image."
    return Said(text=text, usage=Usage(calls=1))
