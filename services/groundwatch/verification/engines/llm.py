"""Verification by a vision-language model that looks at the images, or at the reference without any."""

from collections.abc import Sequence

from groundwatch.errors import Unscorable
from groundwatch.events import ClaimsExtracted, Judge, ResponseRecorded
from groundwatch.models.openai.judge import ChatModel
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import Image, LoadImage, OneByOne

VERSION = "1"
"""Part of the judge's name: raised when the same prompts could give other verdicts."""


class LlmVerificationEngine(OneByOne):
    """Decides on claims with any model behind an OpenAI-compatible endpoint."""

    def __init__(self, chat: ChatModel, load_image: LoadImage) -> None:
        super().__init__(load_image)
        self._chat = chat

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The model, with the protocol's verification prompts."""
        return Judge(
            engine="llm",
            model=self._chat.model,
            prompt=protocol.prompt_digest(Stage.VERIFICATION),
            version=VERSION,
        )

    async def close(self) -> None:
        await self._chat.close()

    async def _judge(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        step = protocol.verification_step(event.response, event.claims)
        completion = await self._chat.complete(
            step, images, check=lambda reply: protocol.read_verification(reply, event.claims)
        )
        return Verification(
            verdicts=protocol.read_verification(completion.reply, event.claims), usage=completion.usage
        )

    async def _look(self, response: ResponseRecorded) -> Sequence[Image]:
        """The response's images; none when its reference has to do."""
        if response.images:
            return await super()._look(response)
        if not _says_something(response):
            raise Unscorable("nothing_to_look_at", "neither an image nor a reference")
        return ()


def _says_something(response: ResponseRecorded) -> bool:
    known = response.reference
    return known is not None and bool(known.facts or known.objects or known.triplets or known.complete)
