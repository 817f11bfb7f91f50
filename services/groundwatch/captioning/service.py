"""The captioning service: what models under test are asked in, what they say out."""

from collections.abc import Sequence

import msgspec

from groundwatch.captioning.engines import build
from groundwatch.captioning.engines.base import CaptioningEngine, Image, Said, Turn
from groundwatch.captioning.tasks import CaptionTask, ChainTask, QuestionTask
from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge, QuestionAsked
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.chains import ChainService
from groundwatch.runtime.services.service import next_stage
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import RESPONSES, recorded_subject

Asked = QuestionAsked | ChainAdvanced


class _Pending(msgspec.Struct, frozen=True):
    """A task that the engine is to be asked for, at its place in the batch."""

    index: int
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
        """The models' answers, or why there are none; all events' turns go to the engine together."""
        results: list[Result | GroundwatchError] = [Result() for _ in works]
        pending: list[_Pending] = []
        for index, work in enumerate(works):
            try:
                task = await self._task(work)
            except GroundwatchError as error:
                results[index] = error
                continue
            if task is None:
                continue
            judge = self.engine.judge(task.model, task.strategy.digest(task.prompt))
            try:
                task.check(judge)
                turn = await self._turn(task)
            except GroundwatchError as error:
                results[index] = task.fail(error, judge)
                continue
            pending.append(_Pending(index, task, judge, turn))
        for one, said in await self._ask(pending):
            results[one.index] = (
                one.task.finish(said, one.judge) if isinstance(said, Said) else one.task.fail(said, one.judge)
            )
        return results

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

    async def _turn(self, task: CaptionTask) -> Turn:
        images: list[Image] = []
        for name in task.images:
            try:
                images.append(await self._store.load(name))
            except LookupError as error:
                raise Unscorable("missing_image", name) from error
        return Turn(model=task.model, text=task.strategy.first(task.prompt), images=tuple(images))

    async def _ask(self, pending: Sequence[_Pending]) -> list[tuple[_Pending, Said | GroundwatchError]]:
        """Each task's last answer, after a second turn where its strategy has one."""
        answers = await self._say(pending)
        again: list[tuple[int, _Pending]] = []
        for place, (one, said) in enumerate(zip(pending, answers, strict=True)):
            if isinstance(said, Said):
                text = one.task.strategy.second(one.task.prompt, said.text)
                if text is not None:
                    unseen = Turn(model=one.task.model, text=text)
                    again.append((place, _Pending(one.index, one.task, one.judge, unseen)))
        for (place, _), said in zip(again, await self._say([one for _, one in again]), strict=True):
            answers[place] = said
        return list(zip(pending, answers, strict=True))

    async def _say(self, pending: Sequence[_Pending]) -> list[Said | GroundwatchError]:
        """One answer for each, asked judge by judge so that each is counted for its own."""
        groups: dict[Judge, list[int]] = {}
        for place, one in enumerate(pending):
            groups.setdefault(one.judge, []).append(place)
        answers: dict[int, Said | GroundwatchError] = {}
        for judge, places in groups.items():
            said = await self.counted(self.engine.say, [pending[place].turn for place in places], judge)
            answers.update(zip(places, map(self._bounded, said), strict=True))
        return [answers[place] for place in range(len(pending))]

    def _bounded(self, said: Said | GroundwatchError) -> Said | GroundwatchError:
        if isinstance(said, Said) and len(said.text) > self._longest:
            return Unscorable("answer_too_long", f"{len(said.text)} characters; at most {self._longest}")
        return said
