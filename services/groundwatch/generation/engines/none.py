"""What stands where no image generator is set: it says so, and a chain ends unscored instead of waiting."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Judge
from groundwatch.generation.engines.base import Generated, Vector


class NoGenerationEngine:
    """Generates nothing."""

    batch = 50

    def judge(self, prompt: str) -> Judge:
        """Nobody."""
        return Judge(engine="none", prompt=prompt)

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        """`not_configured` for each prompt."""
        return [Unscorable("not_configured", "generation.engine names no image generator") for _ in prompts]

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        """`not_configured` for each image."""
        return [Unscorable("not_configured", "generation.engine names no image encoder") for _ in images]

    async def close(self) -> None:
        """Nothing to let go of."""
