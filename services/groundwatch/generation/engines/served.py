"""An engine on served models: one that paints, and one that turns images into vectors."""

import asyncio
from collections.abc import Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import Judge
from groundwatch.generation.engines.base import Generated, Vector
from groundwatch.generation.engines.parts import Eye, Painter
from groundwatch.models.triton.served import Served

VERSION = "1"
"""Part of the judge's name: raised when the same models could be asked in another way."""


class ServedGenerationEngine:
    """Asks a painter for images and an eye for vectors, each wherever it is served.

    `served` are the models on Triton among them, if any; `name` is the engine's in settings.
    """

    batch = 1

    def __init__(
        self, name: str, painter: Painter, eye: Eye, *, served: Served | None = None, at_once: int
    ) -> None:
        self._name = name
        self._painter = painter
        self._eye = eye
        self._served = served
        self.at_once = at_once

    def judge(self, prompt: str) -> Judge:
        """Both models: another encoder's similarities do not mix with this one's."""
        return Judge(
            engine=self._name,
            model=f"{self._painter.label} + {self._eye.label}",
            prompt=prompt,
            version=VERSION,
        )

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        """One image for each prompt, in order; all are asked for at once."""
        return await asyncio.gather(*(self._paint(prompt) for prompt in prompts))

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        """One vector for each image, in order; all are asked for at once."""
        return await asyncio.gather(*(self._see(image) for image in images))

    async def warm_up(self) -> None:
        """Ask who answers on Triton, and begin to watch it."""
        if self._served is not None:
            await self._served.warm_up()

    def problems(self) -> list[str]:
        """Why models on Triton cannot be asked; empty when all can."""
        return self._served.problems() if self._served is not None else []

    async def close(self) -> None:
        """Close the connections."""
        await self._painter.close()
        await self._eye.close()

    async def _paint(self, prompt: str) -> Generated | GroundwatchError:
        try:
            return await self._painter.paint(prompt)
        except GroundwatchError as error:
            return error

    async def _see(self, image: bytes) -> Vector | GroundwatchError:
        try:
            return await self._eye.see(image)
        except GroundwatchError as error:
            return error
