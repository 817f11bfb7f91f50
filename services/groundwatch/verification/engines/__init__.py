"""Verification engines, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundwatch.models.engines import LoadImage, embedder_of, llm_of, unknown_engine
from groundwatch.models.openai.settings import OnCall
from groundwatch.models.triton.settings import TritonSettings
from groundwatch.runtime.settings import StageSettings, VisualSettings
from groundwatch.verification.engines.base import NoopVerificationEngine, VerificationEngine

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
            from groundwatch.verification.engines.similarity import EmbeddedEngine

            return EmbeddedEngine(_similarity(settings))
        case "reference":
            from groundwatch.verification.engines.reference.engine import ReferenceEngine

            return ReferenceEngine()
        case "llm":
            from groundwatch.models.openai.models import ChatModel
            from groundwatch.verification.engines.looking import LlmVerificationEngine

            chat = llm_of("verification", "llm", settings.llm)
            return LlmVerificationEngine(ChatModel(chat, on_call=on_call), load_image)
        case "visual":
            from groundwatch.models.openai.models import YesNoModel
            from groundwatch.verification.engines.looking import VisualVerificationEngine

            chat = llm_of("verification", "visual", settings.llm)
            model = YesNoModel(chat, top_logprobs=visual.top_logprobs, on_call=on_call)
            return VisualVerificationEngine(model, load_image, threshold=visual.threshold)
        case "triton":
            from groundwatch.models.triton.client import TritonModels
            from groundwatch.verification.engines.looking import TritonVerificationEngine

            models = TritonModels(triton, on_call=on_call)
            return TritonVerificationEngine(models, load_image, threshold=visual.threshold)
        case "similarity":
            return _similarity(settings)
        case "noop":
            return NoopVerificationEngine()
    known = "embedded, reference, visual, triton, llm, similarity, noop"
    raise unknown_engine("verification", settings.engine, known)


def _similarity(settings: StageSettings) -> SimilarityEngine:
    from groundwatch.verification.engines.similarity import SimilarityEngine

    return SimilarityEngine(embedder_of("verification", settings.embedding_model))
