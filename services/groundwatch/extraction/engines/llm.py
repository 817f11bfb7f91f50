"""Extraction by an LLM: asks what the protocol wants asked, in order, and lets it read the replies."""

import asyncio
from collections.abc import Sequence
from functools import partial

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, Judge, ResponseRecorded, SubSentence, Usage
from groundwatch.extraction.engines.base import Extraction
from groundwatch.models.openai.judge import ChatModel
from groundwatch.protocols.base import EvaluationProtocol, Stage

VERSION = "1"
"""Part of the judge's name: raised when the same prompts could give other claims."""


class LlmExtractionEngine:
    """Finds claims with any model behind an OpenAI-compatible endpoint."""

    batch = 1

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The model, with the protocol's extraction prompts."""
        return Judge(
            engine="llm",
            model=self._chat.model,
            prompt=protocol.prompt_digest(Stage.EXTRACTION),
            version=VERSION,
        )

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        """One result for each response, in order; all are asked at once."""
        return await asyncio.gather(*(self._extract(response, protocol) for response in responses))

    async def close(self) -> None:
        await self._chat.close()

    async def _extract(
        self, response: ResponseRecorded, protocol: EvaluationProtocol
    ) -> Extraction | GroundwatchError:
        try:
            return await self._ask(response, protocol)
        except GroundwatchError as error:
            return error

    async def _ask(self, response: ResponseRecorded, protocol: EvaluationProtocol) -> Extraction:
        units: tuple[SubSentence, ...] = ()
        claims: tuple[Claim, ...] = ()
        usage = Usage()
        for index in range(protocol.extraction_steps):
            step = protocol.extraction_step(index, response, units)
            if step is None:
                continue
            read = partial(protocol.read_extraction, index, response=response, units=units)
            completion = await self._chat.complete(step, check=read)
            units, claims = read(completion.reply)
            usage += completion.usage
        return Extraction(units=units, claims=claims, usage=usage)
