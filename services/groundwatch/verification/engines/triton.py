"""Verification by a visual entailment model on Triton: all statements of a response in one request.

The image and the prompt around the statements are read once for all of them, which is what makes checking
every fact affordable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge, Usage, Verdict
from groundwatch.models.triton.client import TritonModels
from groundwatch.models.triton.served import Served
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import LoadImage, look, statements, verdict, verification

VERSION = "1"
"""Part of the judge's name: raised when the same model could be asked in another way."""

OF_ONE_STATEMENT = ("prompt_too_long", "not_finite", "judge_rejected_request")
"""Reasons that one statement may be to blame for: the others are then asked for without it."""


class TritonVerificationEngine:
    """Decides on each claim by P(yes) of the verifier that Triton serves.

    A statement is supported when P(yes) is `threshold` or more. No reference is read, and no text of the
    prompt comes from here: the served model has its own, which its identity tells.
    """

    batch = 1

    def __init__(self, models: TritonModels, load_image: LoadImage, *, threshold: float = 0.5) -> None:
        self._models = models
        self._name = models.settings.verifier
        self._served = Served(models, [self._name])
        self._load_image = load_image
        self._threshold = threshold
        self.at_once = models.settings.concurrency

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The checkpoint and the threshold: another threshold is another judge."""
        return Judge(
            engine="triton",
            model=self._served.label(self._name),
            version=f"{VERSION}-{self._threshold:g}",
        )

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order; each event is one request.

        `Unscorable` is missing_image, nothing_to_look_at, unreadable_image, or, when no statement could be
        judged, what the model made it. One that could not be judged among others is undecided.
        """
        try:
            await self._served.confirm(self._name)
        except GroundwatchError as error:
            return [error for _ in extracted]
        return await asyncio.gather(*(self._verify(event, protocol) for event in extracted))

    async def warm_up(self) -> None:
        """Ask who answers, and begin to watch it."""
        await self._served.warm_up()

    def problems(self) -> list[str]:
        """Why the verifier cannot be asked; empty when it can."""
        return self._served.problems()

    async def close(self) -> None:
        """Close the connection."""
        await self._served.close()

    async def _verify(
        self, event: ClaimsExtracted, protocol: EvaluationProtocol
    ) -> Verification | GroundwatchError:
        if not event.claims:
            return Verification()
        try:
            images = [data for data, _ in await look(event.response, self._load_image)]
            asked = statements(event, protocol)
            try:
                found = await self._models.verify(images, asked)
            except Unscorable as error:
                if error.reason not in OF_ONE_STATEMENT or len(asked) == 1:
                    raise
                return await self._one_by_one(images, asked)
        except GroundwatchError as error:
            return error
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
