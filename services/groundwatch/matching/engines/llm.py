"""Matching by an LLM: one question for each response, in the words of its protocol."""

import asyncio
from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge
from groundwatch.matching.engines.base import Matching
from groundwatch.models.openai.judge import ChatModel
from groundwatch.protocols.base import EvaluationProtocol, MatchingQuestions, Stage

VERSION = "1"
"""Part of the judge's name: raised when the same prompts could give other matches."""


class LlmMatchingEngine:
    """Matches claims with any model behind an OpenAI-compatible endpoint."""

    batch = 1

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The model, with the protocol's matching prompts."""
        return Judge(
            engine="llm",
            model=self._chat.model,
            prompt=protocol.prompt_digest(Stage.MATCHING),
            version=VERSION,
        )

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        """One result for each event, in order; all are asked at once.

        `Unscorable` is no_reference when there is nothing to match with, or what the model's replies made
        it. No claims need no call.
        """
        return await asyncio.gather(*(self._match(event, protocol) for event in extracted))

    async def close(self) -> None:
        """Close the model's connections."""
        await self._chat.close()

    async def _match(
        self, event: ClaimsExtracted, protocol: EvaluationProtocol
    ) -> Matching | GroundwatchError:
        if not isinstance(protocol, MatchingQuestions):
            return InputError(f"engine 'llm' cannot match for protocol '{protocol.name}'")
        reference = event.response.reference
        if reference is None or not reference.objects:
            return Unscorable("no_reference", "the response's reference names no features")
        if not event.claims:
            return Matching()
        try:
            completion = await self._chat.complete(
                protocol.matching_step(event), check=lambda reply: protocol.read_matching(reply, event)
            )
        except GroundwatchError as error:
            return error
        return Matching(matches=protocol.read_matching(completion.reply, event), usage=completion.usage)
