"""Asks a model behind an endpoint once, to find what it can: see images, tell log-probabilities, think."""

import io
import random
import re
from collections.abc import Sequence

import msgspec
from PIL import Image as Pictures

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import LeftOutKind
from groundwatch.models.openai import Answer, Message, YesNoModel, alternatives, user_message
from groundwatch.models.settings import ChatSettings
from groundwatch.reading.document import read_document

COLORS = {"red": (230, 20, 20), "green": (20, 190, 40), "blue": (30, 40, 230), "yellow": (250, 230, 20)}
_CLAUSE = re.compile(r"[.,;\n]|\b(?:and|while|but)\b")
SECONDS = 20.0
"""Longest wait for the answer."""

QUESTION = (
    "The image has two colours, one in its left half and one in its right half. Which one is on the left, "
    "and which on the right? Answer with two words out of: red, green, blue, yellow."
)


class Ability(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can; `fault` says why nothing is known, `blind` why it does not see.

    `unsupported` are parameters that its server refuses, which are left out by themselves.
    """

    model: str
    sees: bool = False
    probabilities: bool = False
    thinks: bool = False
    unsupported: tuple[str, ...] = ()
    blind: str = ""
    fault: str = ""

    @property
    def told(self) -> str:
        """In a line."""
        if self.fault:
            return f"cannot be asked: {self.fault}"
        blind = f" ({self.blind})" if self.blind else ""
        parts = [
            "sees images" if self.sees else f"does not see images{blind}",
            "gives log-probabilities" if self.probabilities else "gives no log-probabilities: words alone",
            "thinks first: extra_body can turn that off" if self.thinks else "does not think first",
        ]
        if self.unsupported:
            parts.append(f"does not take {', '.join(self.unsupported)}")
        return "; ".join(parts)


class TrialModel(YesNoModel):
    """A model that is tried out, and waited for no longer than `SECONDS`."""

    def __init__(self, settings: ChatSettings) -> None:
        bounded = {"timeout": min(settings.timeout, SECONDS), "retries": 0, "patience": 0.0}
        super().__init__(settings.model_copy(update=bounded))

    async def try_out(self) -> Ability:
        colors = random.sample(list(COLORS), 2)
        picture = Pictures.new("RGB", (256, 128), COLORS[colors[0]])
        picture.paste(COLORS[colors[1]], (128, 0, 256, 128))
        out = io.BytesIO()
        picture.save(out, "PNG")
        blind = ""
        try:
            try:
                answer = await self._asked([user_message(QUESTION, [(out.getvalue(), "image/png")])])
            except Unscorable as error:
                blind = error.detail or error.reason
                answer = await self._asked([user_message("Say hello.", [])])
        except GroundwatchError as error:
            return Ability(model=self.model, fault=str(error), unsupported=tuple(sorted(self.unsupported)))
        document = read_document(answer.text)
        if not blind and _seen(document.text) != colors:
            blind = f"of an image in {' and '.join(colors)} it said: {' '.join(document.text.split())[:80]!r}"
        return Ability(
            model=self.model,
            sees=not blind,
            probabilities=bool(answer.tokens),
            thinks=answer.thought
            or document.cut
            or any(part.kind is LeftOutKind.REASONING for part in document.left_out),
            unsupported=tuple(sorted(self.unsupported)),
            blind=blind,
        )

    async def _asked(self, messages: Sequence[Message]) -> Answer:
        answer, _ = await self.learning(
            lambda top, _: ([*messages], alternatives(top)), lambda answer, _: answer, word=False
        )
        return answer


def _seen(text: str) -> list[str]:
    """The colours that are said of left and right, each in a clause of its own, else the first two."""
    sides: dict[str, str] = {}
    for clause in _CLAUSE.split(text.lower()):
        words = re.findall(r"[a-z]+", clause)
        side, colors = {*words} & {"left", "right"}, {*words} & {*COLORS}
        if len(side) == len(colors) == 1:
            sides.setdefault(side.pop(), colors.pop())
    if len(sides) == 2:
        return [sides["left"], sides["right"]]
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word in COLORS][:2]


async def try_out(settings: ChatSettings) -> Ability:
    model = TrialModel(settings)
    try:
        return await model.try_out()
    finally:
        await model.close()
