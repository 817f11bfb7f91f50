"""An engine that needs no model: deterministic images and vectors for tests and dry runs."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Judge, Usage
from groundwatch.generation.engines.base import Generated, Vector
from groundwatch.models.fake import embed, paint


class StandInGenerationEngine:
    """Paints the cells that a description names and sees pixels, as `models.stand_in` does."""

    batch = 50

    def judge(self, prompt: str) -> Judge:
        """Named so that nobody takes its similarities for those of a model."""
        return Judge(engine="stand-in", prompt=prompt)

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        """One image for each prompt."""
        return [Generated(image=paint(prompt), usage=Usage(calls=1)) for prompt in prompts]

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        """One vector for each image; `Unscorable` for one that cannot be read."""
        return [_encode(image) for image in images]

    async def close(self) -> None:
        """Nothing to let go of."""


def _encode(image: bytes) -> Vector | GroundwatchError:
    try:
        return embed(image)
    except ValueError as error:
        return Unscorable("unreadable_image", str(error))
