"""Generation engines: one that generates nothing, and one on served models, which asks one that draws and one
that turns images into vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import Judge, Usage
from groundwatch.models.engines import Engine, each, llm_of, own_engine, unknown_engine
from groundwatch.models.replies import Generated
from groundwatch.models.settings import ChatSettings, OnCall, TritonSettings
from groundwatch.runtime.settings import ImagesSettings, StageSettings

if TYPE_CHECKING:
    from groundwatch.models.openai import ImagesModel, ImageVectors
    from groundwatch.models.triton import TritonModels

Vector = tuple[float, ...]
"""An image as its encoder sees it; all vectors of one engine have the same length."""


class GenerationEngine(Engine, Protocol):
    """Makes images from descriptions, and vectors from images."""

    def judge(self, prompt: str) -> Judge:
        """Who generates and encodes; `prompt` is a digest of how the generator is asked."""
        ...

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        """One image for each prompt, in order; an error stands in the place of its prompt's image."""
        ...

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        """One vector for each image, in order; an error stands in the place of its image's vector."""
        ...


class NoGenerationEngine(GenerationEngine):
    """Generates nothing and says so: a chain ends unscored instead of waiting."""

    batch = 50

    def judge(self, prompt: str) -> Judge:
        return Judge(engine="none", prompt=prompt)

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        return [Unscorable("not_configured", "generation.engine names no image generator") for _ in prompts]

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        return [Unscorable("not_configured", "generation.engine names no image encoder") for _ in images]


def cosine(seed: Vector, made: Vector) -> float:
    """Cosine of the angle between two images' vectors, -1 to 1: how alike they are to their encoder.

    Raises `Unscorable` where there is none, for a vector that is zero or not finite: never a number in its
    place; `InputError` for vectors of different encoders.
    """
    if len(seed) != len(made):
        raise InputError(f"vectors of {len(seed)} and {len(made)} numbers")
    norms = math.hypot(*seed) * math.hypot(*made)
    if not math.isfinite(norms):
        raise Unscorable("no_similarity", "an image's vector is not finite")
    if not norms:
        raise Unscorable("no_similarity", "an embedding without length has no direction")
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(seed, made, strict=True)) / norms))


VERSION = "1"
"""Part of the judge's name: raised when the same models could be asked in another way."""


class TritonImages:
    """The generator or the encoder that Triton serves under `name`, asked as one behind an endpoint is."""

    variant = ""

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
        version = f"{VERSION}{self._generator.variant}"
        return Judge(engine=self._name, model=models, prompt=prompt, version=version)

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


DEFAULT = "none"

IMAGES = ImagesSettings()
TRITON = TritonSettings()


def build(
    settings: StageSettings,
    *,
    on_call: OnCall | None = None,
    images: ImagesSettings = IMAGES,
    triton: TritonSettings = TRITON,
) -> GenerationEngine:
    """The engine that settings name, or "module:attribute" for a class of one's own; `none`, which generates
    nothing and says so, when they name none.

    The engines `openai` and `triton` say who generates; who encodes is said by `images.encoder_url`, and is
    Triton's encoder when that is empty.

    Raises `SettingsError` listing the known names.
    """
    match settings.engine or DEFAULT:
        case "none":
            return NoGenerationEngine()
        case "openai":
            return _served("openai", llm_of("generation", "openai", settings.llm), images, triton, on_call)
        case "triton":
            return _served("triton", None, images, triton, on_call)
        case name if ":" in name:
            made: GenerationEngine = own_engine("generation", name)
            return made
    raise unknown_engine("generation", settings.engine, "none, openai, triton")


def _served(
    name: str,
    chat: ChatSettings | None,
    images: ImagesSettings,
    triton: TritonSettings,
    on_call: OnCall | None,
) -> GenerationEngine:
    """`chat` is the generator's endpoint, if it is not on Triton."""
    from groundwatch.models.openai import ImagesModel, ImageVectors
    from groundwatch.models.triton import TritonModels

    @cache
    def served() -> TritonModels:
        return TritonModels(triton, on_call=on_call)

    generator: ImagesModel | TritonImages
    encoder: ImageVectors | TritonImages
    if chat is not None:
        generator = ImagesModel(chat, size=images.size, on_call=on_call)
    else:
        generator = TritonImages(served(), triton.generator)
    if images.encoder_url:
        where = ChatSettings(
            base_url=images.encoder_url, model=images.encoder_model, api_key_env=images.encoder_key_env
        )
        encoder = ImageVectors(where, on_call=on_call)
    else:
        encoder = TritonImages(served(), triton.image_encoder)
    return ServedGenerationEngine(name, generator, encoder, at_once=(chat or triton).concurrency)
