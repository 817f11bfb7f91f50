"""Verification engines, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from groundwatch.errors import SettingsError
from groundwatch.models.chat_settings import OnCall
from groundwatch.runtime.settings import StageSettings
from groundwatch.verification.engines.base import VerificationEngine

DEFAULT = "reference"

LoadImage = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Takes a SHA-256; gives the bytes and media type. Raises `LookupError` when no such image is stored."""


def build(
    settings: StageSettings, *, load_image: LoadImage, on_call: OnCall | None = None
) -> VerificationEngine:
    """The engine that settings name; `reference`, which needs no model, when they name none.

    Raises `SettingsError` listing the known names.
    """
    match settings.engine or DEFAULT:
        case "reference":
            from groundwatch.verification.engines.reference.engine import ReferenceEngine

            return ReferenceEngine()
        case "llm":
            from groundwatch.models.openai_compatible import ChatModel
            from groundwatch.verification.engines.llm import LlmVerificationEngine

            if settings.llm is None:
                raise SettingsError("setting 'verification.llm': engine llm needs base_url and model here")
            return LlmVerificationEngine(ChatModel(settings.llm, on_call=on_call), load_image)
        case "similarity":
            from groundwatch.verification.engines.similarity import SimilarityEngine

            return SimilarityEngine()
        case "noop":
            from groundwatch.verification.engines.noop import NoopVerificationEngine

            return NoopVerificationEngine()
    raise SettingsError(
        f"setting 'verification.engine': no engine '{settings.engine}'; "
        "known are reference, llm, similarity, noop"
    )
