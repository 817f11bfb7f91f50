"""Generation engines, by name: one that generates nothing, and one on served models, which asks one that
draws and one that turns images into vectors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from groundwatch.generation.engines.base import GenerationEngine, NoGenerationEngine
from groundwatch.generation.engines.served import ServedGenerationEngine, TritonImages
from groundwatch.models.engines import llm_of, own_engine, unknown_engine
from groundwatch.models.settings import ChatSettings, OnCall, TritonSettings
from groundwatch.runtime.settings import ImagesSettings, StageSettings

if TYPE_CHECKING:
    from groundwatch.models.openai.models import ImagesModel, ImageVectors
    from groundwatch.models.triton.client import TritonModels

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
    from groundwatch.models.openai.models import ImagesModel, ImageVectors
    from groundwatch.models.triton.client import TritonModels

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
