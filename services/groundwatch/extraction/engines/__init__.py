"""Extraction engines, by name."""

from __future__ import annotations

from groundwatch.errors import SettingsError
from groundwatch.extraction.engines.base import ExtractionEngine
from groundwatch.runtime.settings import StageSettings

DEFAULT = "linguistic"


def build(settings: StageSettings) -> ExtractionEngine:
    """The engine that settings name; `linguistic`, which needs nothing else, when they name none.

    Raises `SettingsError` listing the known names. Engines are imported only when they are chosen, so
    that a light service stays light.
    """
    match settings.engine or DEFAULT:
        case "linguistic":
            from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine

            return LinguisticEngine()
        case "llm":
            from groundwatch.extraction.engines.llm import LlmExtractionEngine

            return LlmExtractionEngine(settings.llm)
        case "noop":
            from groundwatch.extraction.engines.noop import NoopExtractionEngine

            return NoopExtractionEngine()
    raise SettingsError(
        f"setting 'extraction.engine': no engine '{settings.engine}'; known are linguistic, llm, noop"
    )
