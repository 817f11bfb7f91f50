"""Extraction engines, by name."""

from groundwatch.extraction.engines.base import ExtractionEngine, NoopExtractionEngine
from groundwatch.models.engines import llm_of, unknown_engine
from groundwatch.models.settings import OnCall
from groundwatch.runtime.settings import ExtractionSettings

DEFAULT = "reader"


def build(settings: ExtractionSettings, *, on_call: OnCall | None = None) -> ExtractionEngine:
    """The engine that settings name; `reader`, which needs no model elsewhere, when they name none.

    Raises `SettingsError` listing the known names. Engines are imported only when they are chosen, so
    that a light service stays light. `on_call` is told of every request to a model.
    """
    match settings.engine or DEFAULT:
        case "reader":
            from groundwatch.extraction.engines.reader import ReaderEngine

            return ReaderEngine(most_optional=settings.most_optional)
        case "llm":
            from groundwatch.extraction.engines.base import LlmExtractionEngine
            from groundwatch.models.openai import ChatModel

            chat = ChatModel(llm_of("extraction", "llm", settings.llm), on_call=on_call)
            return LlmExtractionEngine(chat, in_english=settings.facts_in == "english")
        case "noop":
            return NoopExtractionEngine()
    raise unknown_engine("extraction", settings.engine, "reader, llm, noop")
