"""Captioning engines, by name: models under test where they are served, each asked as its users ask it."""

from __future__ import annotations

from groundwatch.captioning.engines.base import CaptioningEngine
from groundwatch.captioning.engines.served import OpenAiCaptioningEngine, TritonCaptioningEngine
from groundwatch.models.engines import own_engine, unknown_engine
from groundwatch.models.settings import OnCall, TritonSettings
from groundwatch.runtime.settings import CaptioningSettings

DEFAULT = "openai"

TRITON = TritonSettings()


def build(
    settings: CaptioningSettings, *, on_call: OnCall | None = None, triton: TritonSettings = TRITON
) -> CaptioningEngine:
    """The engine that settings name, or "module:attribute" for a class of one's own; `openai` when they name
    none. Raises `SettingsError` listing the known names."""
    match settings.engine or DEFAULT:
        case "openai":
            return OpenAiCaptioningEngine(settings.models, on_call=on_call)
        case "triton":
            from groundwatch.models.triton.client import TritonModels

            models = TritonModels(triton, on_call=on_call)
            return TritonCaptioningEngine(models, settings.served, max_tokens=settings.max_tokens)
        case name if ":" in name:
            made: CaptioningEngine = own_engine("captioning", name)
            return made
    raise unknown_engine("captioning", settings.engine, "openai, triton")
