"""Models under test behind OpenAI-compatible endpoints: each is asked as its users ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from groundwatch.captioning.engines.base import Said, Turn
from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Judge
from groundwatch.models.openai.settings import ChatSettings, OnCall

if TYPE_CHECKING:
    from groundwatch.models.openai.text import TextModel

VERSION = "1"
"""Part of the judge's name: raised when the same prompts could be sent in another way."""


class OpenAiCaptioningEngine:
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
        """The model as its endpoint calls it."""
        known = self._settings.get(model)
        return Judge(engine="openai", model=known.model if known else model, prompt=prompt, version=VERSION)

    async def say(self, turns: Sequence[Turn]) -> Sequence[Said | GroundwatchError]:
        """One answer for each turn, in order; all are asked at once.

        `Unscorable` is refused, empty_reply, judge_rejected_request or not_configured.
        """
        return await asyncio.gather(*(self._say(turn) for turn in turns))

    async def close(self) -> None:
        """Close the models' connections."""
        for model in self._models.values():
            await model.close()

    async def _say(self, turn: Turn) -> Said | GroundwatchError:
        try:
            said = await self._model(turn.model).say(turn.text, turn.images)
        except GroundwatchError as error:
            return error
        return Said(text=said.text, usage=said.usage, cut_off=said.cut_off)

    def _model(self, name: str) -> TextModel:
        from groundwatch.models.openai.text import TextModel

        if name not in self._models:
            if name not in self._settings:
                raise Unscorable("not_configured", f"captioning.models has no '{name}'")
            self._models[name] = TextModel(self._settings[name], on_call=self._on_call)
        return self._models[name]
