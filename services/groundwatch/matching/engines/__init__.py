"""Matching engines, by name."""

from __future__ import annotations

from groundwatch.errors import SettingsError
from groundwatch.matching.engines.base import MatchingEngine
from groundwatch.runtime.settings import StageSettings

DEFAULT = "semantic"


def build(settings: StageSettings) -> MatchingEngine:
    """The engine that settings name; `semantic`, which needs no server, when they name none.

    Raises `SettingsError` listing the known names.
    """
    match settings.engine or DEFAULT:
        case "lexical":
            from groundwatch.matching.engines.lexical import LexicalEngine

            return LexicalEngine()
        case "semantic":
            from groundwatch.matching.engines.semantic import SemanticEngine

            return SemanticEngine()
    raise SettingsError(
        f"setting 'matching.engine': no engine '{settings.engine}'; known are lexical, semantic"
    )
