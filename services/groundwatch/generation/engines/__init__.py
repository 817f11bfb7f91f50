"""Generation engines, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundwatch.errors import SettingsError
from groundwatch.generation.engines.base import GenerationEngine
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.triton.settings import TritonSettings
from groundwatch.runtime.settings import ImagesSettings, StageSettings

if TYPE_CHECKING:
    from groundwatch.generation.engines.parts import Eye
    from groundwatch.models.triton.served import Served

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
    """The engine that settings name; `none`, which generates nothing and says so, when they name none.

    The engines `openai` and `triton` say who generates; who encodes is said by `images.encoder_url`, and is
    Triton's encoder when that is empty.

    Raises `SettingsError` listing the known names. Never a stand-in unless it is asked for by name: what it
    draws would be scored as if a model had made it.
    """
    match settings.engine or DEFAULT:
        case "none":
            from groundwatch.generation.engines.none import NoGenerationEngine

            return NoGenerationEngine()
        case "openai":
            if settings.llm is None:
                raise SettingsError("setting 'generation.llm': engine openai needs base_url and model here")
            return _on_openai(settings.llm, images, triton, on_call)
        case "triton":
            return _on_triton(images, triton, on_call)
        case "stand-in":
            from groundwatch.generation.engines.stand_in import StandInGenerationEngine

            return StandInGenerationEngine()
    raise SettingsError(
        f"setting 'generation.engine': no engine '{settings.engine}'; "
        "known are none, openai, triton, stand-in"
    )


def _on_openai(
    chat: ChatSettings, images: ImagesSettings, triton: TritonSettings, on_call: OnCall | None
) -> GenerationEngine:
    from groundwatch.generation.engines.parts import OpenAiPainter
    from groundwatch.generation.engines.served import ServedGenerationEngine
    from groundwatch.models.openai.images import ImagesModel

    served = None if images.encoder_url else _served(triton, [triton.image_encoder], on_call)
    painter = OpenAiPainter(ImagesModel(chat, size=images.size, on_call=on_call))
    eye = _eye(images, served, on_call)
    return ServedGenerationEngine("openai", painter, eye, served=served, at_once=chat.concurrency)


def _on_triton(images: ImagesSettings, triton: TritonSettings, on_call: OnCall | None) -> GenerationEngine:
    from groundwatch.generation.engines.parts import TritonPainter
    from groundwatch.generation.engines.served import ServedGenerationEngine

    names = [triton.generator] if images.encoder_url else [triton.generator, triton.image_encoder]
    served = _served(triton, names, on_call)
    eye = _eye(images, served, on_call)
    return ServedGenerationEngine(
        "triton", TritonPainter(served), eye, served=served, at_once=triton.concurrency
    )


def _served(triton: TritonSettings, names: list[str], on_call: OnCall | None) -> Served:
    from groundwatch.models.triton.client import TritonModels
    from groundwatch.models.triton.served import Served

    return Served(TritonModels(triton, on_call=on_call), names)


def _eye(images: ImagesSettings, served: Served | None, on_call: OnCall | None) -> Eye:
    from groundwatch.generation.engines.parts import OpenAiEye, TritonEye
    from groundwatch.models.openai.images import ImageVectors

    if images.encoder_url:
        chat = ChatSettings(
            base_url=images.encoder_url, model=images.encoder_model, api_key_env=images.encoder_key_env
        )
        return OpenAiEye(ImageVectors(chat, on_call=on_call))
    assert served is not None
    return TritonEye(served)
