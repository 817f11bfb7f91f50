"""Verification by a visual entailment model on Triton: all statements of a response in one request.

The image and the prompt around the statements are read once for all of them, which is what makes checking
every fact affordable.
"""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge, Usage, Verdict
from groundwatch.models.triton.client import TritonModels
from groundwatch.models.triton.served import Served
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

VERSION = "1"
"""Part of the judge's name: raised when the same model could be asked in another way."""

OF_ONE_STATEMENT = ("prompt_too_long", "not_finite", "judge_rejected_request")
"""Reasons that one statement may be to blame for: the others are then asked for without it."""


class TritonVerificationEngine(OneByOne):
    """Decides on each claim by P(yes) of the verifier that Triton serves, in one request for each event.

    A statement is supported when P(yes) is `threshold` or more; one that could not be judged among others is
    undecided. No reference is read, and no text of the prompt comes from here: the served model has its own,
    which its identity tells.
    """

    def __init__(self, models: TritonModels, load_image: LoadImage, *, threshold: float = 0.5) -> None:
        super().__init__(load_image)
        self._models = models
        self._name = models.settings.verifier
        self._served = Served(models, [self._name])
        self._threshold = threshold
        self.at_once = models.settings.concurrency

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The checkpoint and the threshold: another threshold is another judge."""
        return Judge(
            engine="triton",
            model=self._served.label(self._name),
            version=f"{VERSION}-{self._threshold:g}",
        )

    async def warm_up(self) -> None:
        await self._served.warm_up()

    def problems(self) -> list[str]:
        return self._models.problems()

    async def close(self) -> None:
        await self._models.close()

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order, by who answers under the model's name now."""
        try:
            await self._served.confirm(self._name)
        except GroundwatchError as error:
            return [error for _ in extracted]
        return await super().verify(extracted, protocol)

    async def _judge(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        pictures, asked = [data for data, _ in images], statements(event, protocol)
        try:
            found = await self._models.verify(pictures, asked)
        except Unscorable as error:
            if error.reason not in OF_ONE_STATEMENT or len(asked) == 1:
                raise
            return await self._one_by_one(pictures, asked)
        return Verification(
            verdicts=tuple(verdict(one, self._threshold) for one in found), usage=Usage(calls=1)
        )

    async def _one_by_one(self, images: Sequence[bytes], asked: Sequence[str]) -> Verification:
        verdicts: list[Verdict | Unscorable] = []
        for statement in asked:
            try:
                (found,) = await self._models.verify(images, [statement])
            except Unscorable as error:
                verdicts.append(error)
            else:
                verdicts.append(verdict(found, self._threshold))
        return verification(verdicts, Usage(calls=1 + len(asked)))
