"""Verification by an open-vocabulary detector on Triton, without an LLM, as OVFact and UniHD let one check.

It decides what boxes show: whether things are there, how many, where, and of what color. All else stays
undecided, with the reason: that is for the next judge of a cascade. The boxes are the verdict's evidence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from groundwatch.errors import Unscorable
from groundwatch.events import Box, ClaimsExtracted, Judge, Usage, Verdict
from groundwatch.language.lexicon import lexicon
from groundwatch.language.nouns import nouns
from groundwatch.language.statements import statement
from groundwatch.models.engines import LoadImage
from groundwatch.models.replies import Detection, Image
from groundwatch.models.settings import DetectorSettings
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.detector.colors import Photograph, palette
from groundwatch.verification.engines.detector.rules import Boxes, Sight, names, places
from groundwatch.verification.engines.looking import ServedEngine

if TYPE_CHECKING:
    from groundwatch.models.triton.client import TritonModels

OF_SOME_NAMES = ("prompt_too_long", "judge_rejected_request")
"""Reasons that one name, or their number, may be to blame for: the others are then asked for without it."""


class DetectorVerificationEngine(ServedEngine):
    """Decides claims by what the served detector finds, with one request for each image of a response.

    Every thing that the response's claims name is asked for by its bare name: its color is read off the
    pixels, for detectors tell colors apart badly. Other properties are asked for ("small ball") where the
    settings say that this detector tells them apart. No reference is read.
    """

    def __init__(
        self, models: TritonModels, load_image: LoadImage, settings: DetectorSettings | None = None
    ) -> None:
        super().__init__(models, load_image, models.settings.detector)
        self._settings = settings or DetectorSettings()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        numbers = (f"{one:g}" for one in self._settings.model_dump(exclude={"attributes"}).values())
        data = (lexicon().digest, nouns().digest, palette().digest, places().digest)
        parts = (*numbers, *(one[:6] for one in data), *self._settings.attributes)
        version = "-".join([self.version, *parts])
        return Judge(engine="detector", model=self._models.label(self._served), version=version)

    async def _decide(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        texts = [protocol.statement(event.response, claim) for claim in event.claims]
        attributes = self._settings.attributes
        asked = sorted({name for text in texts for name in names(statement(text), attributes)})
        found = await asyncio.gather(*(self._detect(data, asked) for data, _ in images))
        seen: dict[str, list[Sight]] = {}
        for at, by_name in enumerate(found):
            for name, several in by_name.items():
                sights = (_sight(one, name, at, self._settings) for one in several)
                seen.setdefault(name, []).extend(filter(None, sights))
        pictures = [data for data, _ in images]
        verdicts = await asyncio.to_thread(_decided, texts, seen, pictures, self._settings)
        return Verification(verdicts=verdicts, usage=Usage(calls=len(images) if asked else 0))

    async def _detect(self, image: bytes, asked: Sequence[str]) -> Mapping[str, Sequence[Detection]]:
        """What was detected by name; a name that the detector does not take is absent."""
        try:
            found = await self._models.detect(image, asked)
        except Unscorable as error:
            if error.reason not in OF_SOME_NAMES:
                raise
            if len(asked) == 1:
                return {}
            halves = asked[: len(asked) // 2], asked[len(asked) // 2 :]
            first, second = [await self._detect(image, half) for half in halves]
            return {**first, **second}
        return {name: [one for one in found if one.text == at] for at, name in enumerate(asked)}


def _sight(found: Detection, name: str, image: int, settings: DetectorSettings) -> Sight | None:
    """As it is in the image; None for what is outside of it, or nowhere."""
    chance = settings.probability(found.score)
    x0, y0, x1, y1 = (min(1.0, max(0.0, edge)) for edge in found.box)
    try:
        return Sight(Box(x0=x0, y0=y0, x1=x1, y1=y1, score=chance, label=name, image=image), chance)
    except ValueError:
        return None


def _decided(
    texts: Sequence[str],
    seen: Mapping[str, Sequence[Sight]],
    images: Sequence[bytes],
    settings: DetectorSettings,
) -> tuple[Verdict, ...]:
    """Decodes an image once, and only where a color is asked for."""
    opened = cache(lambda at: Photograph(images[at]))

    @cache
    def color_of(box: Box) -> tuple[str, str]:
        photograph = opened(box.image)
        return ("", "") if photograph.gray else photograph.color(box)

    boxes = Boxes(seen, settings, color_of, images=len(images))
    return tuple(map(boxes.decide, texts))
