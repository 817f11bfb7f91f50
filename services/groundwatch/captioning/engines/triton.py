"""Models under test on Triton: each under the name that settings give it there."""

import asyncio
from collections.abc import Mapping, Sequence

from groundwatch.captioning.engines.base import Said, Turn
from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Judge
from groundwatch.models.triton.client import TritonModels
from groundwatch.models.triton.served import Served

VERSION = "1"
"""Part of the judge's name: raised when the same prompts could be sent in another way."""


class TritonCaptioningEngine:
    """Finds a model under test by its name among those that Triton serves.

    `served` maps the names that responses carry to names on Triton; without any, the one LVLM of
    `triton.lvlm` goes by its name there. A model that is not among them gives no answer: `not_configured`.
    """

    batch = 1

    def __init__(self, models: TritonModels, served: Mapping[str, str], *, max_tokens: int) -> None:
        self._models = models
        self._names = dict(served) or {models.settings.lvlm: models.settings.lvlm}
        self._served = Served(models, self._names.values())
        self._max_tokens = max_tokens
        self.at_once = models.settings.concurrency
        self.judges = len(self._names)

    def judge(self, model: str, prompt: str) -> Judge:
        """The checkpoint that answers under the model's name."""
        name = self._names.get(model)
        return Judge(
            engine="triton",
            model=self._served.label(name) if name else model,
            prompt=prompt,
            version=f"{VERSION}-{self._max_tokens}",
        )

    async def say(self, turns: Sequence[Turn]) -> Sequence[Said | GroundwatchError]:
        """One answer for each turn, in order; all are asked at once.

        `Unscorable` is not_configured, empty_reply, unreadable_image, prompt_too_long, not_finite or
        judge_rejected_request.
        """
        return await asyncio.gather(*(self._say(turn) for turn in turns))

    async def warm_up(self) -> None:
        """Ask who answers, and begin to watch them."""
        await self._served.warm_up()

    def problems(self) -> list[str]:
        """Why models under test cannot be asked; empty when all can."""
        return self._served.problems()

    async def close(self) -> None:
        """Close the connection."""
        await self._served.close()

    async def _say(self, turn: Turn) -> Said | GroundwatchError:
        name = self._names.get(turn.model)
        if name is None:
            known = ", ".join(sorted(self._names))
            return Unscorable("not_configured", f"captioning.served has no '{turn.model}', only {known}")
        try:
            await self._served.confirm(name)
            said = await self._models.lvlm(
                [data for data, _ in turn.images], turn.text, max_tokens=self._max_tokens, model=name
            )
        except GroundwatchError as error:
            return error
        return Said(text=said.text, usage=said.usage, cut_off=said.cut_off)
