"""Extraction engines, by name."""

from groundwatch.errors import SettingsError
from groundwatch.extraction.engines.base import ExtractionEngine
from groundwatch.models.openai.settings import OnCall
from groundwatch.runtime.settings import StageSettings

DEFAULT = "linguistic"


def build(settings: StageSettings, *, on_call: OnCall | None = None) -> ExtractionEngine:
    """The engine that settings name; `linguistic`, which needs nothing else, when they name none.

    Raises `SettingsError` listing the known names. Engines are imported only when they are chosen, so
    that a light service stays light. `on_call` is told of every request to a model.
    """
    match settings.engine or DEFAULT:
        case "linguistic":
            from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine

            return LinguisticEngine()
        case "llm":
            from groundwatch.extraction.engines.llm import LlmExtractionEngine
            from groundwatch.models.openai.judge import ChatModel

            if settings.llm is None:
                raise SettingsError("setting 'extraction.llm': engine llm needs base_url and model here")
            return LlmExtractionEngine(ChatModel(settings.llm, on_call=on_call))
        case "noop":
            from groundwatch.extraction.engines.noop import NoopExtractionEngine

            return NoopExtractionEngine()
    raise SettingsError(
        f"setting 'extraction.engine': no engine '{settings.engine}'; known are linguistic, llm, noop"
    )
