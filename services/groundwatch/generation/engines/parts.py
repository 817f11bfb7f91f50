"""What a generation engine on served models is put together from: a generator and an encoder."""

from typing import Protocol

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.generation.engines.base import Generated, Vector
from groundwatch.models.openai.images import ImagesModel, ImageVectors
from groundwatch.models.triton.served import Served


class Painter(Protocol):
    """Makes images from prompts."""

    @property
    def label(self) -> str:
        """Who paints."""
        ...

    async def paint(self, prompt: str) -> Generated:
        """One image. Raises `Unscorable` when there will be none, `TransientError` when there may yet be."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Eye(Protocol):
    """Makes vectors from images."""

    @property
    def label(self) -> str:
        """Who looks."""
        ...

    async def see(self, image: bytes) -> Vector:
        """One vector. Raises as `Painter.paint` does."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class OpenAiPainter:
    """A generator behind an OpenAI-compatible images endpoint."""

    def __init__(self, model: ImagesModel) -> None:
        self._model = model

    @property
    def label(self) -> str:
        return self._model.model

    async def paint(self, prompt: str) -> Generated:
        drawn = await self._model.draw(prompt)
        return Generated(image=drawn.data, usage=drawn.usage)

    async def close(self) -> None:
        await self._model.close()


class OpenAiEye:
    """An encoder behind an OpenAI-compatible embeddings endpoint."""

    def __init__(self, model: ImageVectors) -> None:
        self._model = model

    @property
    def label(self) -> str:
        return self._model.model

    async def see(self, image: bytes) -> Vector:
        return tuple(await self._model.encode((image, media_type(image))))

    async def close(self) -> None:
        await self._model.close()


class TritonPainter:
    """The generator that Triton serves; the same prompt gives the same image."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._name = served.models.settings.generator

    @property
    def label(self) -> str:
        return self._served.label(self._name)

    async def paint(self, prompt: str) -> Generated:
        await self._served.confirm(self._name)
        return Generated(image=await self._served.models.generate_image(prompt), usage=Usage(calls=1))

    async def close(self) -> None:
        await self._served.close()


class TritonEye:
    """The image encoder that Triton serves."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._name = served.models.settings.image_encoder

    @property
    def label(self) -> str:
        return self._served.label(self._name)

    async def see(self, image: bytes) -> Vector:
        await self._served.confirm(self._name)
        return tuple(await self._served.models.encode_image(image))

    async def close(self) -> None:
        await self._served.close()


def media_type(image: bytes) -> str:
    """Of a JPEG, PNG or WebP. Raises `Unscorable` for anything else."""
    if image[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    if image[:4] == b"\x89PNG":
        return "image/png"
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    raise Unscorable("unreadable_image", "not a JPEG, PNG or WebP image")
