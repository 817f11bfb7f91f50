"""Verification by models that look at the images: an LLM, yes or no by statement, and Triton's verifier."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, ResponseRecorded, Usage, Verdict
from groundwatch.models.engines import LlmEngine, LoadImage, each, load_images
from groundwatch.models.replies import Image
from groundwatch.protocols import prompts
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.verification.engines.base import NOT_JUDGED, Verification

if TYPE_CHECKING:
    from groundwatch.models.openai import ChatModel, YesNo, YesNoModel
    from groundwatch.models.triton import TritonModels

PACKAGE = "groundwatch.verification"

EVEN = 0.5
"""The threshold that a bare word keeps to: whoever says yes finds it likelier than no."""

OF_ONE_STATEMENT = ("prompt_too_long", "not_finite", "judge_rejected_request")
"""Reasons that one statement may be to blame for: the others are then asked for without it."""

_EVIDENCE = 300


class LookingEngine:
    """Base of engines that ask a model about each response by itself, all of a batch at once.

    `version` is part of the judge's name: raised when the same prompts could give other verdicts.
    """

    batch = 1
    version: ClassVar[str] = "2"

    def __init__(self, load_image: LoadImage) -> None:
        self._load_image = load_image

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order. No claims need no call.

        `Unscorable` is missing_image, nothing_to_look_at, or what the model made it.
        """
        return await each(partial(self._once, protocol), extracted)

    async def _once(self, protocol: EvaluationProtocol, event: ClaimsExtracted) -> Verification:
        """What an answer says twice counts twice, and is asked about once."""
        asked: dict[tuple[str, ...], Claim] = {}
        for claim in event.claims:
            asked.setdefault((claim.text, *claim.parts), claim)
        once = msgspec.structs.replace(event, claims=tuple(asked.values()))
        found = await self._verify(protocol, once)
        verdicts = dict(zip(asked, found.verdicts, strict=True))
        said = tuple(verdicts[claim.text, *claim.parts] for claim in event.claims)
        return msgspec.structs.replace(found, verdicts=said)

    async def _verify(self, protocol: EvaluationProtocol, event: ClaimsExtracted) -> Verification:
        if not event.claims:
            return Verification()
        return await self._decide(event, await self._look(event.response), protocol)

    async def _decide(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        raise NotImplementedError

    async def _look(self, response: ResponseRecorded) -> Sequence[Image]:
        """The response's images, which are all that is looked at: a reference is never read here."""
        if not response.images:
            raise Unscorable("nothing_to_look_at", "no image, and this judge reads no reference")
        return await load_images(self._load_image, response.images)


class LlmVerificationEngine(LookingEngine, LlmEngine):
    """Looks at the images, if the protocol's question asks that, or at the reference where there are none."""

    stage = Stage.VERIFICATION

    def __init__(self, chat: ChatModel, load_image: LoadImage) -> None:
        LookingEngine.__init__(self, load_image)
        LlmEngine.__init__(self, chat)

    async def _verify(self, protocol: EvaluationProtocol, event: ClaimsExtracted) -> Verification:
        if not event.claims:
            return Verification()
        step = protocol.verification_step(event.response, event.claims)
        images = await self._look(event.response) if step.images else ()
        read = partial(protocol.read_verification, claims=event.claims)
        completion = await self._chat.complete(step, images, check=read)
        return Verification(verdicts=read(completion.reply), usage=completion.usage)

    async def _look(self, response: ResponseRecorded) -> Sequence[Image]:
        if response.images:
            return await super()._look(response)
        known = response.reference
        if known is None or not (known.facts or known.objects or known.triplets or known.complete):
            raise Unscorable("nothing_to_look_at", "neither an image nor a reference")
        return ()


class VisualVerificationEngine(LookingEngine):
    """Decides on each claim by P(yes) of a model behind an OpenAI-compatible endpoint.

    Visual entailment as FaithScore asks it (section 3.4): a statement is supported when P(yes) is `threshold`
    or more. An endpoint without log-probabilities gives words, which stand for verdicts at the threshold 0.5
    alone; at any other it cannot judge (no_logprobs). One statement is asked first and then the others at
    once, so that the server has read the image when they come; one that could not be judged among others is
    undecided. `together`: all are asked in one request, which is cheaper, and lets one answer sway the next.
    What is judged is data: it is fenced, and only yes or no can come back.
    """

    version = "3"

    def __init__(
        self, model: YesNoModel, load_image: LoadImage, *, threshold: float = EVEN, together: bool = False
    ) -> None:
        super().__init__(load_image)
        self._model = model
        self.at_once = model.settings.concurrency
        self._threshold = threshold
        self._together = together
        self._prompt = prompts.load(PACKAGE, "visual_all" if together else "visual")

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        version = f"{self.version}-{self._threshold:g}{self._model.variant}"
        prompt = prompts.marked(self._prompt.digest, [self._prompt])
        return Judge(engine="visual", model=self._model.model, prompt=prompt, version=version)

    async def close(self) -> None:
        await self._model.close()

    async def _decide(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        statements = [protocol.statement(event.response, claim) for claim in event.claims]
        if self._together:
            question = self._prompt.fill(statements=prompts.numbered(enumerate(statements, 1)))
            said, usage = await self._model.ask_all(self._prompt.system, question, images, len(statements))
            return verification([self._read(one) for one in said], usage)

        async def ask(statement: str) -> YesNo:
            return await self._model.ask(self._prompt.system, self._prompt.fill(statement=statement), images)

        usage = Usage()
        verdicts: list[Verdict | Unscorable] = []
        for some in (statements[:1], statements[1:]):
            for one in await each(ask, some):
                if isinstance(one, GroundwatchError) and not isinstance(one, Unscorable):
                    raise one
                verdicts.append(self._read(one))
                usage += Usage() if isinstance(one, Unscorable) else one.usage
        return verification(verdicts, usage)

    def _read(self, said: YesNo | Unscorable) -> Verdict | Unscorable:
        return said if isinstance(said, Unscorable) else self._verdict(said)

    def _verdict(self, said: YesNo) -> Verdict | Unscorable:
        if said.probability is not None:
            return verdict(said.probability, self._threshold)
        if self._threshold != EVEN:
            why = f"the endpoint told none, and the threshold is {self._threshold:g}"
            return Unscorable("no_logprobs", why)
        decision = Decision.SUPPORTED if said.yes else Decision.REFUTED
        return Verdict(decision=decision, evidence="said in a word")


class ServedEngine(LookingEngine):
    """Base of engines that ask a model on Triton: who judges is the checkpoint behind the served name."""

    def __init__(self, models: TritonModels, load_image: LoadImage, served: str) -> None:
        super().__init__(load_image)
        self._models = models
        self._served = served
        self.at_once = models.settings.concurrency

    async def warm_up(self) -> None:
        await self._models.warm_up(self._served)

    def problems(self) -> list[str]:
        return self._models.problems()

    async def close(self) -> None:
        await self._models.close()

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order, by who answers under the model's name now."""
        try:
            await self._models.confirm(self._served)
        except GroundwatchError as error:
            return [error for _ in extracted]
        return await super().verify(extracted, protocol)


class TritonVerificationEngine(ServedEngine):
    """Decides on each claim by P(yes) of the verifier that Triton serves, in one request for each event.

    The image and the prompt around the statements are read once for all of them, which is what makes checking
    every fact affordable. A statement is supported when P(yes) is `threshold` or more; one that could not be
    judged among others is undecided. No reference is read, and no text of the prompt comes from here: the
    served model has its own, which its identity tells.
    """

    def __init__(self, models: TritonModels, load_image: LoadImage, *, threshold: float = 0.5) -> None:
        super().__init__(models, load_image, models.settings.verifier)
        self._threshold = threshold

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        version = f"{self.version}-{self._threshold:g}"
        return Judge(engine="triton", model=self._models.label(self._served), version=version)

    async def _decide(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        pictures = [data for data, _ in images]
        asked = [protocol.statement(event.response, claim) for claim in event.claims]
        try:
            found = await self._models.verify(pictures, asked)
        except Unscorable as error:
            if error.reason not in OF_ONE_STATEMENT or len(asked) == 1:
                raise
            return await self._one_by_one(pictures, asked)
        return verification([verdict(one, self._threshold) for one in found], Usage(calls=1))

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


def verdict(probability: float, threshold: float) -> Verdict:
    """Supported from the threshold up; the verdict carries the probability."""
    decision = Decision.SUPPORTED if probability >= threshold else Decision.REFUTED
    return Verdict(decision=decision, probability=probability)


def verification(verdicts: Sequence[Verdict | Unscorable], usage: Usage) -> Verification:
    """The verdicts of one response; a statement that could not be judged is undecided, with its reason.

    Raises the first `Unscorable` when none of them could be judged.
    """
    failed = [one for one in verdicts if isinstance(one, Unscorable)]
    if failed and len(failed) == len(verdicts):
        raise failed[0]
    found = tuple(
        Verdict(decision=Decision.UNDECIDED, evidence=f"{NOT_JUDGED}: {one}"[:_EVIDENCE])
        if isinstance(one, Unscorable)
        else one
        for one in verdicts
    )
    return Verification(verdicts=found, usage=usage)
