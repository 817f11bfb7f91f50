"""The captioning service: what models under test are asked in, what they say out.

A question is asked straight away, or after the model has made notes. `triplets-first` is the training-free
mitigation of Tri-HE, section 5.4: the model describes the image as triplets with the question in mind, then
answers from that description without seeing the image; the other two take one half of it away. Answers carry
the strategy's name in the tag `strategy`, so that reports can set them beside those of `direct`.
"""

import time
from collections.abc import Sequence

import msgspec

from groundwatch.captioning.engines import CaptioningEngine, Turn, build
from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge, NoAnswer, QuestionAsked
from groundwatch.events import Strategy as Name
from groundwatch.keys import digest
from groundwatch.models.engines import load_images
from groundwatch.models.replies import Text
from groundwatch.protocols import prompts
from groundwatch.protocols.base import ChainProtocol, Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import MAX_DETAIL, recorded
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.service import next_stage
from groundwatch.runtime.services.stages import ChainService
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import RESPONSES, subject_of

PACKAGE = "groundwatch.captioning"
TAG = "strategy"
CUT_OFF_TAG = "cut_off"


class Strategy(msgspec.Struct, frozen=True):
    """Asks with the images first: the prompt as it is, or for `notes`, by the prompt files of these names.

    After notes comes the `answer`, without the images unless it is `seen` with them.
    """

    notes: str = ""
    answer: str = ""
    seen: bool = False

    def first(self, prompt: str) -> str:
        return _asked(self.notes, question=prompt) if self.notes else prompt

    def second(self, before: Turn, prompt: str, said: str) -> Turn | None:
        """The turn after the first, to which the model has `said` something; None: that was all."""
        if not self.notes:
            return None
        text = _asked(self.answer, question=prompt, notes=said)
        return Turn(model=before.model, text=text, images=before.images if self.seen else ())

    def digest(self, prompt: str) -> str:
        """Digest of all that is asked but the images, as `prompts.combined_digest` writes one."""
        if not self.notes:
            return prompts.asked_digest(prompt)
        files = [prompts.load(PACKAGE, name) for name in (self.notes, self.answer)]
        whole = digest(prompts.combined_digest(files), prompt)
        return prompts.marked(whole, [*files, *prompts.spoken(prompt)])


def _asked(name: str, **data: str) -> str:
    asked = prompts.load(PACKAGE, name)
    return f"{asked.system}\n\n{asked.fill(**data)}"


STRATEGIES = {
    Name.DIRECT: Strategy(),
    Name.DESCRIPTION_FIRST: Strategy("describe", "answer_unseen"),
    Name.TRIPLETS_SEEN: Strategy("describe_triplets", "answer_seen", seen=True),
    Name.TRIPLETS_FIRST: Strategy("describe_triplets", "answer_unseen"),
}
"""The rows of table 6 in its order; `description-first` and `triplets-first` are those of tables 5 and 7."""


class QuestionTask:
    """A question: its answer becomes a recorded response, and so does the reason for having none.

    `model` is the name of the model under test, `images` are SHA-256 digests of what it is shown.
    """

    def __init__(self, question: QuestionAsked, service: ChainService) -> None:
        response = question.response
        self.model = response.model
        self.prompt = response.prompt
        self.images = response.images
        self.strategy = STRATEGIES[question.strategy]
        self._question = question
        self._service = service

    def check(self, judge: Judge) -> None:
        """Anybody may answer: nothing was answered before."""

    def finish(self, said: Text, judge: Judge) -> Result:
        return self._recorded(said.text, None, {CUT_OFF_TAG: "yes"} if said.cut_off else {})

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
        return Result(publications=(recorded(response, counted=lambda: metrics.response(response)),))


class ChainTask:
    """A chain: the image of its last round is described, which begins the next one."""

    strategy = STRATEGIES[Name.DIRECT]

    def __init__(self, chain: ChainAdvanced, protocol: ChainProtocol, service: ChainService) -> None:
        self.model = chain.response.model
        self.prompt = protocol.description_prompt(chain.response)
        self.images = (chain.steps[-1].image,) if chain.steps else chain.response.images
        if len(chain.steps) >= chain.length:
            raise InputError(f"the chain has its {chain.length} rounds already")
        self._chain = chain
        self._to = next_stage(protocol, Stage.CAPTIONING)
        self._service = service

    def check(self, judge: Judge) -> None:
        """Raises `Unscorable` when this judge may not answer here."""
        self._service.check_judge(self._chain, judge)

    def finish(self, said: Text, judge: Judge) -> Result:
        chain = self._chain
        steps = (*chain.steps, ChainStep(description=said.text))
        longer = msgspec.structs.replace(chain, steps=steps, usage=chain.usage + said.usage)
        return self._service.carried_on(longer, judge, self._to)

    def fail(self, error: GroundwatchError, judge: Judge | None = None) -> Result:
        return self._service.not_carried_on(self._chain, error, judge)


CaptionTask = QuestionTask | ChainTask
"""One event's business with a model under test."""


Asked = QuestionAsked | ChainAdvanced


class _Pending(msgspec.Struct, frozen=True):
    """A task that the engine is to be asked for."""

    task: CaptionTask
    judge: Judge
    turn: Turn


class CaptioningService(ChainService):
    """Asks the models under test, by the engine that settings name.

    A question's answer becomes a recorded response like any other; a chain goes on with one description
    more. Which strategy a question is asked with is said in the question.
    """

    engine: CaptioningEngine

    def __init__(
        self, settings: Settings, bus: Bus, metrics: Metrics, engine: CaptioningEngine | None = None
    ) -> None:
        super().__init__(Stage.CAPTIONING.value, settings, bus, metrics)
        engine = engine or build(settings.captioning, on_call=self.count_request, triton=settings.triton)
        self._store = ImageStore(bus.js, bus.cold_images)
        self._longest = settings.gateway.intake.max_answer
        self.consume(
            Asked,
            self.handle,
            StageSettings(
                concurrency=settings.captioning.at_once,
                timeout=settings.captioning.timeout,
            ),
            engine,
        )

    async def handle(self, works: Sequence[Work[Asked]]) -> Sequence[Result | GroundwatchError]:
        found = [await self._pending(work) for work in works]
        pending = [one for one in found if isinstance(one, _Pending)]
        answers = iter(await self._ask(pending))
        return [_end(one, next(answers)) if isinstance(one, _Pending) else one for one in found]

    async def _pending(self, work: Work[Asked]) -> _Pending | Result | GroundwatchError:
        try:
            task = await self._task(work)
        except GroundwatchError as error:
            return error
        if task is None:
            return Result()
        judge = self.engine.judge(task.model, task.strategy.digest(task.prompt))
        try:
            task.check(judge)
            images = tuple(await load_images(self._store.load, task.images))
        except GroundwatchError as error:
            return task.fail(error, judge)
        turn = Turn(model=task.model, text=task.strategy.first(task.prompt), images=images)
        return _Pending(task, judge, turn)

    async def _task(self, work: Work[Asked]) -> CaptionTask | None:
        """None when an earlier delivery has done it already."""
        event = work.event
        if isinstance(event, QuestionAsked):
            subject = subject_of("recorded", event.response.run, event.response.key)
            if not work.arrived.first and await self.bus.holds(RESPONSES, subject):
                return None
            return QuestionTask(event, self)
        protocol = self.chain_protocol(event)
        task = ChainTask(event, protocol, self)
        longer = msgspec.structs.replace(event, steps=(*event.steps, ChainStep(description="")))
        done = await self.already_done(work.arrived, longer, next_stage(protocol, Stage.CAPTIONING))
        return None if done else task

    async def _ask(self, pending: Sequence[_Pending]) -> list[Text | GroundwatchError]:
        """Each task's last answer, after a second turn where its strategy has one."""
        answers = await self._say([(one.judge, one.turn) for one in pending])
        again: dict[int, tuple[Judge, Turn]] = {}
        for place, (one, said) in enumerate(zip(pending, answers, strict=True)):
            turn = isinstance(said, Text) and one.task.strategy.second(one.turn, one.task.prompt, said.text)
            if turn:
                again[place] = one.judge, turn
        for place, said in zip(again, await self._say(list(again.values())), strict=True):
            answers[place] = said
        return answers

    async def _say(self, turns: Sequence[tuple[Judge, Turn]]) -> list[Text | GroundwatchError]:
        return [
            Unscorable("answer_too_long", f"{len(said.text)} characters; at most {self._longest}")
            if isinstance(said, Text) and len(said.text) > self._longest
            else said
            for said in await self.ask(self.engine.say, turns)
        ]


def _end(one: _Pending, said: Text | GroundwatchError) -> Result:
    return one.task.finish(said, one.judge) if isinstance(said, Text) else one.task.fail(said, one.judge)
