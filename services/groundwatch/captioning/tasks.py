"""What captioning does with an answer once it has one, or has none: for a question, and for a chain."""

import time
from typing import Protocol

import msgspec

from groundwatch.captioning.engines.base import Said
from groundwatch.captioning.strategies import STRATEGIES, TAG, Strategy
from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge, NoAnswer, QuestionAsked
from groundwatch.events import Strategy as Name
from groundwatch.protocols.base import ChainProtocol, Stage
from groundwatch.runtime.delivery.outcomes import MAX_DETAIL
from groundwatch.runtime.delivery.recording import recorded
from groundwatch.runtime.delivery.work import Publication, Result
from groundwatch.runtime.services.chains import ChainService
from groundwatch.runtime.services.service import next_stage

CUT_OFF_TAG = "cut_off"


class CaptionTask(Protocol):
    """One event's business with a model under test.

    `model` is its name, `images` are SHA-256 digests of what it is shown.
    """

    model: str
    prompt: str
    images: tuple[str, ...]
    strategy: Strategy

    def check(self, judge: Judge) -> None:
        """Before anybody is asked: raises `Unscorable` when this judge may not answer here."""
        ...

    def finish(self, said: Said, judge: Judge) -> Result:
        """What follows from the answer."""
        ...

    def fail(self, error: GroundwatchError, judge: Judge | None = None) -> Result:
        """What follows from there being none."""
        ...


class QuestionTask:
    """A question: its answer becomes a recorded response, and so does the reason for having none."""

    def __init__(self, question: QuestionAsked, service: ChainService) -> None:
        response = question.response
        self.model = response.model
        self.prompt = response.prompt
        self.images = response.images
        self.strategy = STRATEGIES[question.strategy]
        self._question = question
        self._service = service

    def check(self, judge: Judge) -> None:
        """Anybody may: nothing was answered before."""

    def finish(self, said: Said, judge: Judge) -> Result:
        cut_off = {CUT_OFF_TAG: "yes"} if said.cut_off else {}
        return self._recorded(said.text, None, cut_off)

    def fail(self, error: GroundwatchError, judge: Judge | None = None) -> Result:
        if not isinstance(error, Unscorable):
            return Result(failures={"": error})
        return self._recorded("", NoAnswer(reason=error.reason, detail=error.detail[:MAX_DETAIL]), {})

    def _recorded(self, answer: str, unanswered: NoAnswer | None, tags: dict[str, str]) -> Result:
        asked = self._question.response
        response = msgspec.structs.replace(
            asked,
            answer=answer,
            unanswered=unanswered,
            tags={**asked.tags, TAG: self._question.strategy.value, **tags},
            recorded_at=time.time(),
        )
        metrics = self._service.metrics
        return Result(publications=(Publication(recorded(response), lambda: metrics.response(response)),))


class ChainTask:
    """A chain: the image of its last round is described, which begins the next one."""

    def __init__(self, chain: ChainAdvanced, protocol: ChainProtocol, service: ChainService) -> None:
        self.model = chain.response.model
        self.prompt = protocol.description_prompt(chain.response)
        self.images = (chain.steps[-1].image,) if chain.steps else chain.response.images
        self.strategy = STRATEGIES[Name.DIRECT]
        if len(chain.steps) >= chain.length:
            raise InputError(f"the chain has its {chain.length} rounds already")
        self._chain = chain
        self._to = next_stage(protocol, Stage.CAPTIONING)
        self._service = service

    def check(self, judge: Judge) -> None:
        self._service.check_judge(self._chain, judge)

    def finish(self, said: Said, judge: Judge) -> Result:
        chain = self._chain
        longer = msgspec.structs.replace(
            chain,
            steps=(*chain.steps, ChainStep(description=said.text)),
            usage=chain.usage + said.usage,
        )
        return self._service.carried_on(longer, judge, self._to)

    def fail(self, error: GroundwatchError, judge: Judge | None = None) -> Result:
        return self._service.not_carried_on(self._chain, error, judge)
