"""What every extraction engine is, the one that asks an LLM, and the one that measures all around engines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, Judge, Label, ResponseRecorded, SubSentence, Usage
from groundwatch.models.engines import Engine, LlmEngine, each
from groundwatch.protocols.base import EvaluationProtocol, Stage

if TYPE_CHECKING:
    from groundwatch.models.openai import ChatModel


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine found in one answer: its sub-sentences, labelled, and its claims in order."""

    units: tuple[SubSentence, ...] = ()
    claims: tuple[Claim, ...] = ()
    usage: Usage = Usage()


class ExtractionEngine(Engine, Protocol):
    """Finds the claims of answers.

    `languages` are those that it reads, by their ISO 639-1 codes; None for any.
    """

    languages: ClassVar[frozenset[str] | None] = None

    def judge(self, protocol: EvaluationProtocol) -> Judge: ...

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        """One result for each response, in order.

        An error stands in the place of its response's result and leaves the others alone: `Unscorable`
        becomes an unscored outcome, `TransientError` is retried, `InputError` goes to the dead letters.
        """
        ...


class NoopExtractionEngine(ExtractionEngine):
    """Calls the whole answer descriptive, and says that something is there."""

    batch = 200

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="noop")

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        claims = (Claim(text="There is something.", category="entity"),)
        answers = (response.answer for response in responses)
        whole = (SubSentence(start=0, end=len(it), text=it, label=Label.DESCRIPTIVE) for it in answers)
        return [Extraction(units=(unit,), claims=claims) for unit in whole]


IN_ENGLISH = """
Write what you report of the answer in English, whatever language the answer has. Only text that can be read
in the image stays as it is."""


class LlmExtractionEngine(LlmEngine):
    """Finds claims, in the answer's language or `in_english`."""

    stage = Stage.EXTRACTION
    version = "3"
    languages: ClassVar[frozenset[str] | None] = None

    def __init__(self, chat: ChatModel, *, in_english: bool = False) -> None:
        super().__init__(chat)
        self._in_english = in_english

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        judge = super().judge(protocol)
        return (
            msgspec.structs.replace(judge, version=f"{judge.version}-english") if self._in_english else judge
        )

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        return await each(partial(self._extract, protocol), responses)

    async def _extract(self, protocol: EvaluationProtocol, response: ResponseRecorded) -> Extraction:
        units: tuple[SubSentence, ...] = ()
        claims: tuple[Claim, ...] = ()
        usage = Usage()
        for index in range(protocol.extraction_steps):
            step = protocol.extraction_step(index, response, units)
            if step is None:
                continue
            if self._in_english:
                step = msgspec.structs.replace(step, system=step.system + IN_ENGLISH)
            read = partial(protocol.read_extraction, index, response=response, units=units)
            completion = await self._chat.complete(step, check=read)
            units, claims = read(completion.reply)
            usage += completion.usage
        return Extraction(units=units, claims=claims, usage=usage)
