"""Matching engines, by name; a protocol that brings a list of its own is matched by that."""

from groundwatch.matching.engines.base import ListedFirst, LlmMatchingEngine, MatchingEngine
from groundwatch.matching.engines.lexical import LexicalEngine
from groundwatch.matching.engines.semantic import SemanticEngine
from groundwatch.models.engines import embedder_of, llm_of, unknown_engine
from groundwatch.models.settings import OnCall
from groundwatch.runtime.settings import StageSettings

DEFAULT = "semantic"


def build(settings: StageSettings, *, on_call: OnCall | None = None) -> ListedFirst:
    """The engine that settings name; `semantic`, which needs no server, when they name none.

    A protocol that brings a list of its own is matched by that, whichever engine is named. Raises
    `SettingsError` listing the known names. `on_call` is told of every request to a model.
    """
    return ListedFirst(_named(settings, on_call))


def _named(settings: StageSettings, on_call: OnCall | None) -> MatchingEngine:
    match settings.engine or DEFAULT:
        case "lexical":
            return LexicalEngine()
        case "semantic":
            return SemanticEngine(embedder_of("matching", settings.embedding_model))
        case "llm":
            from groundwatch.models.openai.models import ChatModel

            return LlmMatchingEngine(ChatModel(llm_of("matching", "llm", settings.llm), on_call=on_call))
    raise unknown_engine("matching", settings.engine, "lexical, llm, semantic")
