"""Verification by a vision-language model that answers yes or no to one statement at a time.

Visual entailment as FaithScore asks it (section 3.4), with the probability of yes where the endpoint tells
log-probabilities. What is judged is data: it is fenced, and only yes or no can come back.
"""

import asyncio
from collections.abc import Sequence

from groundwatch.errors import Unscorable
from groundwatch.events import ClaimsExtracted, Decision, Judge, Usage, Verdict
from groundwatch.models.openai.yes_no import YesNo, YesNoModel
from groundwatch.protocols import prompts
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import (
    Image,
    LoadImage,
    OneByOne,
    statements,
    verdict,
    verification,
)

PACKAGE = "groundwatch.verification"
VERSION = "1"
"""Part of the judge's name: raised when the same prompts could give other verdicts."""

EVEN = 0.5
"""The threshold that a bare word keeps to: whoever says yes finds it likelier than no."""


class VisualVerificationEngine(OneByOne):
    """Decides on each claim by P(yes) of a model behind an OpenAI-compatible endpoint.

    A statement is supported when P(yes) is `threshold` or more. An endpoint without log-probabilities gives
    words, which stand for verdicts at the threshold 0.5 alone; at any other it cannot judge (no_logprobs).
    All statements are asked at once; one that could not be judged among others is undecided.
    """

    def __init__(self, model: YesNoModel, load_image: LoadImage, *, threshold: float = EVEN) -> None:
        super().__init__(load_image)
        self._model = model
        self._threshold = threshold
        self._prompt = prompts.load(PACKAGE, "visual")

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The model with the prompt and the threshold: another threshold is another judge."""
        return Judge(
            engine="visual",
            model=self._model.model,
            prompt=self._prompt.digest[:16],
            version=f"{VERSION}-{self._threshold:g}",
        )

    async def close(self) -> None:
        await self._model.close()

    async def _judge(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        found = await asyncio.gather(
            *(self._decide(statement, images) for statement in statements(event, protocol)),
            return_exceptions=True,
        )
        verdicts: list[Verdict | Unscorable] = []
        usage = Usage()
        for one in found:
            if isinstance(one, Unscorable):
                verdicts.append(one)
            elif isinstance(one, BaseException):
                raise one
            else:
                verdicts.append(one[0])
                usage += one[1]
        return verification(verdicts, usage)

    async def _decide(self, statement: str, images: Sequence[Image]) -> tuple[Verdict, Usage]:
        said = await self._model.ask(self._prompt.system, self._prompt.fill(statement=statement), images)
        return self._verdict(said), said.usage

    def _verdict(self, said: YesNo) -> Verdict:
        if said.probability is not None:
            return verdict(said.probability, self._threshold)
        if self._threshold != EVEN:
            raise Unscorable(
                "no_logprobs", f"the endpoint told none, and the threshold is {self._threshold:g}"
            )
        return Verdict(
            decision=Decision.SUPPORTED if said.yes else Decision.REFUTED, evidence="said in a word"
        )
