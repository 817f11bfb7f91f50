"""Generation engines, by name."""

from __future__ import annotations

from groundwatch.errors import SettingsError
from groundwatch.generation.engines.base import GenerationEngine
from groundwatch.runtime.settings import StageSettings

DEFAULT = "none"


def build(settings: StageSettings) -> GenerationEngine:
    """The engine that settings name; `none`, which generates nothing and says so, when they name none.

    Raises `SettingsError` listing the known names. Never a stand-in unless it is asked for by name: what it
    draws would be scored as if a model had made it.
    """
    match settings.engine or DEFAULT:
        case "none":
            from groundwatch.generation.engines.none import NoGenerationEngine

            return NoGenerationEngine()
        case "stand-in":
            from groundwatch.generation.engines.stand_in import StandInGenerationEngine

            return StandInGenerationEngine()
    raise SettingsError(
        f"setting 'generation.engine': no engine '{settings.engine}'; known are none, stand-in"
    )
