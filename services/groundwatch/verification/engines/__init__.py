"""Verification engines, by name."""

from __future__ import annotations

from functools import partial

from groundwatch.models.engines import (
    LoadImage,
    embedder_of,
    llm_of,
    own_engine,
    unknown_engine,
    upright_images,
)
from groundwatch.models.settings import DetectorSettings, OnCall, TritonSettings
from groundwatch.runtime.settings import StageSettings, VisualSettings
from groundwatch.runtime.settings.judges import EngineSettings, JudgeSettings
from groundwatch.verification.engines.base import NoopVerificationEngine, VerificationEngine
from groundwatch.verification.engines.by_protocol import EngineByProtocol

VISUAL = VisualSettings()
TRITON = TritonSettings()
DETECTOR = DetectorSettings()


def build(
    settings: StageSettings,
    *,
    load_image: LoadImage,
    on_call: OnCall | None = None,
    visual: VisualSettings = VISUAL,
    triton: TritonSettings = TRITON,
    detector: DetectorSettings = DETECTOR,
) -> EngineByProtocol:
    """The engines that settings name, and where they name none, each protocol's own, which needs no server.

    One engine judges all responses of a protocol: whether they are held against their references or against
    their images is chosen here and never response by response, for the two are different judges.

    Raises `SettingsError` listing the known names.
    """
    make = partial(
        _made, load_image=load_image, on_call=on_call, visual=visual, triton=triton, detector=detector
    )
    return EngineByProtocol(settings, make)


def _made(
    settings: JudgeSettings,
    *,
    needed: bool,
    load_image: LoadImage,
    on_call: OnCall | None,
    visual: VisualSettings,
    triton: TritonSettings,
    detector: DetectorSettings,
) -> VerificationEngine:
    match settings.engine:
        case "reference":
            from groundwatch.verification.engines.reference import ReferenceEngine

            return ReferenceEngine()
        case "llm":
            from groundwatch.models.openai import ChatModel
            from groundwatch.verification.engines.looking import LlmVerificationEngine

            chat = llm_of("verification", "llm", settings.llm)
            return LlmVerificationEngine(ChatModel(chat, on_call=on_call), upright_images(load_image))
        case "visual":
            from groundwatch.models.openai import YesNoModel
            from groundwatch.verification.engines.looking import VisualVerificationEngine

            chat = llm_of("verification", "visual", settings.llm)
            model = YesNoModel(chat, top_logprobs=visual.top_logprobs, on_call=on_call)
            return VisualVerificationEngine(
                model, upright_images(load_image), threshold=visual.threshold, together=visual.together
            )
        case "triton":
            from groundwatch.models.triton import TritonModels
            from groundwatch.verification.engines.looking import TritonVerificationEngine

            models = TritonModels(triton, on_call=on_call)
            return TritonVerificationEngine(models, load_image, threshold=visual.threshold)
        case "detector":
            from groundwatch.models.triton import TritonModels
            from groundwatch.verification.engines.detector import DetectorVerificationEngine

            return DetectorVerificationEngine(TritonModels(triton, on_call=on_call), load_image, detector)
        case "similarity" | "calibrated" as name:
            from groundwatch.verification.engines.similarity import CalibratedEngine, SimilarityEngine

            kind = SimilarityEngine if name == "similarity" else CalibratedEngine
            folder = settings.embedding_model
            return kind(embedder_of("verification", folder) if needed or folder else None)
        case "cascade" if isinstance(settings, EngineSettings) and settings.cascade:
            from groundwatch.verification.engines.cascade import CascadeEngine, Step

            made = partial(
                _made, load_image=load_image, on_call=on_call, visual=visual, triton=triton, detector=detector
            )
            return CascadeEngine([Step(one, made(one, needed=needed)) for one in settings.cascade])
        case "noop":
            return NoopVerificationEngine()
        case name if ":" in name:
            found: VerificationEngine = own_engine("verification", name)
            return found
    known = "embedded, reference, visual, triton, detector, llm, calibrated, similarity, cascade, noop"
    raise unknown_engine("verification", settings.engine, known)
