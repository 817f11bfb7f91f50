"""Verification by a vision-language model that looks at the images, or at the reference without any."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge, ResponseRecorded
from groundwatch.models.openai.judge import ChatModel, Image
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.verification.engines.base import Verification

VERSION = "1"
"""Part of the judge's name: raised when the same prompts could give other verdicts."""

LoadImage: TypeAlias = Callable[[str], Awaitable[Image]]
"""From an image's SHA-256 digest to its bytes and media type.

Raises `LookupError` or `FileNotFoundError` for an image that is not there.
"""


class LlmVerificationEngine:
    """Decides on claims with any model behind an OpenAI-compatible endpoint."""

    batch = 1

    def __init__(self, chat: ChatModel, load_image: LoadImage) -> None:
        self._chat = chat
        self._load_image = load_image

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The model, with the protocol's verification prompts."""
        return Judge(
            engine="llm",
            model=self._chat.model,
            prompt=protocol.prompt_digest(Stage.VERIFICATION),
            version=VERSION,
        )

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order; all are asked at once.

        `Unscorable` is missing_image when an image is gone, nothing_to_look_at when the response has neither
        image nor reference, or what the model's replies made it. No claims need no call.
        """
        return await asyncio.gather(*(self._verify(event, protocol) for event in extracted))

    async def close(self) -> None:
        """Close the model's connections."""
        await self._chat.close()

    async def _verify(
        self, event: ClaimsExtracted, protocol: EvaluationProtocol
    ) -> Verification | GroundwatchError:
        if not event.claims:
            return Verification()
        try:
            images = await self._look(event.response)
            step = protocol.verification_step(event.response, event.claims)
            completion = await self._chat.complete(
                step, images, check=lambda reply: protocol.read_verification(reply, event.claims)
            )
        except GroundwatchError as error:
            return error
        return Verification(
            verdicts=protocol.read_verification(completion.reply, event.claims), usage=completion.usage
        )

    async def _look(self, response: ResponseRecorded) -> list[Image]:
        """The response's images; none when its reference has to do."""
        if not response.images and not _says_something(response):
            raise Unscorable("nothing_to_look_at", "neither an image nor a reference")
        images = []
        for name in response.images:
            try:
                images.append(await self._load_image(name))
            except (LookupError, FileNotFoundError) as error:
                raise Unscorable("missing_image", name) from error
        return images


def _says_something(response: ResponseRecorded) -> bool:
    known = response.reference
    return known is not None and bool(known.facts or known.objects or known.triplets or known.complete)
