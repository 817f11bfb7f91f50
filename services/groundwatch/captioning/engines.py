"""Captioning engines: models under test where they are served, each asked as its users ask it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Judge
from groundwatch.models.engines import Engine, each, own_engine, unknown_engine
from groundwatch.models.replies import Image, Text
from groundwatch.models.settings import ChatSettings, OnCall, TritonSettings
from groundwatch.runtime.settings import CaptioningSettings

if TYPE_CHECKING:
    from groundwatch.models.openai import TextModel
    from groundwatch.models.triton import TritonModels


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask a model under test: a text, with images in front of it or none."""

    model: str
    text: str
    images: tuple[Image, ...] = ()


class CaptioningEngine(Engine, Protocol):
    """Asks models under test."""

    def judge(self, model: str, prompt: str) -> Judge:
        """Who answers for the model under test of this name; `prompt` is a digest of how it is asked."""
        ...

    async def say(self, turns: Sequence[Turn]) -> Sequence[Text | GroundwatchError]:
        """One answer for each turn, in order.

        An error stands in the place of its turn's answer and leaves the others alone: `Unscorable` means
        that there will be none, `TransientError` is retried, `InputError` goes to the dead letters.
        """
        ...


VERSION = "1"
"""Part of the judge's name: raised when the same prompts could be sent in another way."""


class OpenAiCaptioningEngine(CaptioningEngine):
    """Finds the endpoint of a model under test by the model's name, connecting when it is first wanted.

    A model that settings do not name gives no answer: `not_configured`.
    """

    batch = 1

    def __init__(self, models: Mapping[str, ChatSettings], *, on_call: OnCall | None = None) -> None:
        self._settings = models
        self._on_call = on_call
        self._models: dict[str, TextModel] = {}
        self.judges = max(1, len(models))

    def judge(self, model: str, prompt: str) -> Judge:
        known = self._settings.get(model)
        return Judge(engine="openai", model=known.model if known else model, prompt=prompt, version=VERSION)

    async def say(self, turns: Sequence[Turn]) -> Sequence[Text | GroundwatchError]:
        """`Unscorable` is refused, empty_reply, judge_rejected_request or not_configured."""
        return await each(self._say, turns)

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()

    async def _say(self, turn: Turn) -> Text:
        from groundwatch.models.openai import TextModel

        if turn.model not in self._models:
            if turn.model not in self._settings:
                raise Unscorable("not_configured", f"captioning.models has no '{turn.model}'")
            self._models[turn.model] = TextModel(self._settings[turn.model], on_call=self._on_call)
        return await self._models[turn.model].say(turn.text, turn.images)


class TritonCaptioningEngine(CaptioningEngine):
    """Finds a model under test by its name among those that Triton serves.

    `served` maps the names that responses carry to names on Triton; without any, the one LVLM of
    `triton.lvlm` goes by its name there. A model that is not among them gives no answer: `not_configured`.
    """

    batch = 1

    def __init__(self, models: TritonModels, served: Mapping[str, str], *, max_tokens: int) -> None:
        self._models = models
        self._names = dict(served) or {models.settings.lvlm: models.settings.lvlm}
        self._max_tokens = max_tokens
        self.at_once = models.settings.concurrency
        self.judges = len(self._names)

    def judge(self, model: str, prompt: str) -> Judge:
        name = self._names.get(model)
        checkpoint = self._models.label(name) if name else model
        version = f"{VERSION}-{self._max_tokens}"
        return Judge(engine="triton", model=checkpoint, prompt=prompt, version=version)

    async def say(self, turns: Sequence[Turn]) -> Sequence[Text | GroundwatchError]:
        """`Unscorable` is not_configured, empty_reply, unreadable_image, prompt_too_long, not_finite or
        judge_rejected_request."""
        return await each(self._say, turns)

    async def warm_up(self) -> None:
        await self._models.warm_up(*dict.fromkeys(self._names.values()))

    def problems(self) -> list[str]:
        return self._models.problems()

    async def close(self) -> None:
        await self._models.close()

    async def _say(self, turn: Turn) -> Text:
        name = self._names.get(turn.model)
        if name is None:
            known = ", ".join(sorted(self._names))
            raise Unscorable("not_configured", f"captioning.served has no '{turn.model}', only {known}")
        await self._models.confirm(name)
        images = [data for data, _ in turn.images]
        return await self._models.lvlm(images, turn.text, max_tokens=self._max_tokens, model=name)


DEFAULT = "openai"

TRITON = TritonSettings()


def build(
    settings: CaptioningSettings, *, on_call: OnCall | None = None, triton: TritonSettings = TRITON
) -> CaptioningEngine:
    """The engine that settings name, or "module:attribute" for a class of one's own; `openai` when they name
    none. Raises `SettingsError` listing the known names."""
    match settings.engine or DEFAULT:
        case "openai":
            return OpenAiCaptioningEngine(settings.models, on_call=on_call)
        case "triton":
            from groundwatch.models.triton import TritonModels

            models = TritonModels(triton, on_call=on_call)
            return TritonCaptioningEngine(models, settings.served, max_tokens=settings.max_tokens)
        case name if ":" in name:
            made: CaptioningEngine = own_engine("captioning", name)
            return made
    raise unknown_engine("captioning", settings.engine, "openai, triton")
