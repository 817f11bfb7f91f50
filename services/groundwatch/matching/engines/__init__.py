"""Matching engines, by name."""

from groundwatch.errors import MissingExtraError, SettingsError, UsageError
from groundwatch.matching.engines.base import MatchingEngine
from groundwatch.matching.engines.listed import ListedFirst
from groundwatch.models.openai.settings import OnCall
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
            from groundwatch.matching.engines.lexical import LexicalEngine

            return LexicalEngine()
        case "semantic":
            from groundwatch.matching.engines.semantic import SemanticEngine
            from groundwatch.models.embeddings import embedder

            try:
                return SemanticEngine(embedder(settings.embedding_model))
            except MissingExtraError:
                raise
            except UsageError as error:
                raise SettingsError(f"setting 'matching.embedding_model': {error}") from error
        case "llm":
            from groundwatch.matching.engines.llm import LlmMatchingEngine
            from groundwatch.models.openai.judge import ChatModel

            if settings.llm is None:
                raise SettingsError("setting 'matching.llm': engine llm needs base_url and model here")
            return LlmMatchingEngine(ChatModel(settings.llm, on_call=on_call))
    raise SettingsError(
        f"setting 'matching.engine': no engine '{settings.engine}'; known are lexical, llm, semantic"
    )
