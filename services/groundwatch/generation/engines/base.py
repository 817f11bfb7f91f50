"""What every generation engine is."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import Judge, Usage

Vector = tuple[float, ...]
"""An image as its encoder sees it; all vectors of one engine have the same length."""


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a JPEG, PNG or WebP image."""

    image: bytes
    usage: Usage = Usage()


class GenerationEngine(Protocol):
    """Makes images from descriptions, and vectors from images. Chosen by name in settings.

    `batch` is how many descriptions the engine likes to see at once: 1 for engines that wait for somebody
    else (they are called concurrently instead), more for engines that compute.
    """

    batch: int

    def judge(self, prompt: str) -> Judge:
        """Who generates and encodes; `prompt` is a digest of how the generator is asked."""
        ...

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        """One image for each prompt, in order; an error stands in the place of its prompt's image."""
        ...

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        """One vector for each image, in order; an error stands in the place of its image's vector."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
