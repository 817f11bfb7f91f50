"""Verification engines, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundwatch.errors import MissingExtraError, SettingsError, UsageError
from groundwatch.models.openai.settings import OnCall
from groundwatch.models.triton.settings import TritonSettings
from groundwatch.runtime.settings import StageSettings, VisualSettings
from groundwatch.verification.engines.base import VerificationEngine
from groundwatch.verification.engines.looking import LoadImage

if TYPE_CHECKING:
    from groundwatch.verification.engines.similarity import SimilarityEngine

DEFAULT = "embedded"

VISUAL = VisualSettings()
TRITON = TritonSettings()


def build(
    settings: StageSettings,
    *,
    load_image: LoadImage,
    on_call: OnCall | None = None,
    visual: VisualSettings = VISUAL,
    triton: TritonSettings = TRITON,
) -> VerificationEngine:
    """The engine that settings name; `embedded`, which needs no server, when they name none.

    One engine judges all responses: whether they are held against their references or against their images
    is chosen here and never response by response, for the two are different judges.

    Raises `SettingsError` listing the known names.
    """
    match settings.engine or DEFAULT:
        case "embedded":
            from groundwatch.verification.engines.embedded import EmbeddedEngine

            return EmbeddedEngine(_similarity(settings))
        case "reference":
            from groundwatch.verification.engines.reference.engine import ReferenceEngine

            return ReferenceEngine()
        case "llm":
            from groundwatch.models.openai.judge import ChatModel
            from groundwatch.verification.engines.llm import LlmVerificationEngine

            if settings.llm is None:
                raise SettingsError("setting 'verification.llm': engine llm needs base_url and model here")
            return LlmVerificationEngine(ChatModel(settings.llm, on_call=on_call), load_image)
        case "visual":
            from groundwatch.models.openai.yes_no import YesNoModel
            from groundwatch.verification.engines.visual import VisualVerificationEngine

            if settings.llm is None:
                raise SettingsError("setting 'verification.llm': engine visual needs base_url and model here")
            model = YesNoModel(settings.llm, top_logprobs=visual.top_logprobs, on_call=on_call)
            return VisualVerificationEngine(model, load_image, threshold=visual.threshold)
        case "triton":
            from groundwatch.models.triton.client import TritonModels
            from groundwatch.verification.engines.triton import TritonVerificationEngine

            models = TritonModels(triton, on_call=on_call)
            return TritonVerificationEngine(models, load_image, threshold=visual.threshold)
        case "similarity":
            return _similarity(settings)
        case "noop":
            from groundwatch.verification.engines.noop import NoopVerificationEngine

            return NoopVerificationEngine()
    raise SettingsError(
        f"setting 'verification.engine': no engine '{settings.engine}'; "
        "known are embedded, reference, visual, triton, llm, similarity, noop"
    )


def _similarity(settings: StageSettings) -> SimilarityEngine:
    from groundwatch.models.embeddings import embedder
    from groundwatch.verification.engines.similarity import SimilarityEngine

    try:
        return SimilarityEngine(embedder(settings.embedding_model))
    except MissingExtraError:
        raise
    except UsageError as error:
        raise SettingsError(f"setting 'verification.embedding_model': {error}") from error
