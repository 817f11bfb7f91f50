"""Generation by served models: one draws, one turns images into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from groundwatch.errors import GroundwatchError
from groundwatch.events import Judge, Usage
from groundwatch.generation.engines.base import GenerationEngine, Vector
from groundwatch.models.engines import each
from groundwatch.models.replies import Generated

if TYPE_CHECKING:
    from groundwatch.models.openai.models import ImagesModel, ImageVectors
    from groundwatch.models.triton.client import TritonModels

VERSION = "1"
"""Part of the judge's name: raised when the same models could be asked in another way."""


class TritonImages:
    """The generator or the encoder that Triton serves under `name`, asked as one behind an endpoint is."""

    def __init__(self, models: TritonModels, name: str) -> None:
        self.models = models
        self.name = name

    @property
    def model(self) -> str:
        return self.models.label(self.name)

    async def draw(self, prompt: str) -> Generated:
        """The same prompt gives the same image."""
        await self.models.confirm(self.name)
        return Generated(image=await self.models.generate_image(prompt), usage=Usage(calls=1))

    async def encode(self, image: bytes) -> Vector:
        await self.models.confirm(self.name)
        return tuple(await self.models.encode_image(image))

    async def close(self) -> None:
        await self.models.close()


class ServedGenerationEngine(GenerationEngine):
    """Asks a generator for images and an encoder for vectors, all at once, each wherever it is served."""

    batch = 1

    def __init__(
        self,
        name: str,
        generator: ImagesModel | TritonImages,
        encoder: ImageVectors | TritonImages,
        *,
        at_once: int,
    ) -> None:
        self._name = name
        self._generator = generator
        self._encoder = encoder
        self._on_triton = [one for one in (generator, encoder) if isinstance(one, TritonImages)]
        self.at_once = at_once

    def judge(self, prompt: str) -> Judge:
        models = f"{self._generator.model} + {self._encoder.model}"
        return Judge(engine=self._name, model=models, prompt=prompt, version=VERSION)

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        return await each(self._generator.draw, prompts)

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        return await each(self._encoder.encode, images)

    async def warm_up(self) -> None:
        for one in self._on_triton:
            await one.models.warm_up(one.name)

    def problems(self) -> list[str]:
        return self._on_triton[0].models.problems() if self._on_triton else []

    async def close(self) -> None:
        await self._generator.close()
        await self._encoder.close()
