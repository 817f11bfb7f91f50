"""The captioning service: what models under test are asked in, what they say out."""

from collections.abc import Sequence

import msgspec

from groundwatch.captioning.engines import build
from groundwatch.captioning.engines.base import CaptioningEngine, Turn
from groundwatch.captioning.tasks import CaptionTask, ChainTask, QuestionTask
from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge, QuestionAsked
from groundwatch.models.engines import load_images
from groundwatch.models.replies import Text
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.service import next_stage
from groundwatch.runtime.services.stages import ChainService
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import RESPONSES, recorded_subject

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
        self._store = ImageStore(bus.js)
        self._longest = settings.gateway.intake.max_answer
        asked_at_once = sum(one.concurrency for one in settings.captioning.models.values())
        self.consume(
            Asked,
            self.handle,
            StageSettings(
                concurrency=settings.captioning.concurrency or asked_at_once,
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
            subject = recorded_subject(event.response.run, event.response.key)
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
            if isinstance(said, Text):
                text = one.task.strategy.second(one.task.prompt, said.text)
                if text is not None:
                    again[place] = one.judge, Turn(model=one.task.model, text=text)
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
