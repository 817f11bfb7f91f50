"""Asking a suite's questions, several at once, each until it has an answer or a reason for none."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import uuid4

import msgspec

from groundwatch.captioning.engines.base import CaptioningEngine, Image, Said, Turn
from groundwatch.captioning.strategies import STRATEGIES, TAG
from groundwatch.errors import (
    GroundwatchError,
    InputError,
    TransientError,
    Unavailable,
    Unscorable,
    UsageError,
)
from groundwatch.events import Judge, NoAnswer, ResponseRecorded, Strategy, Usage, digest
from groundwatch.models.asking.breaker import ASKED_FOR
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.probing.runfile import Answer, RunFile
from groundwatch.protocols.suite import Question
from groundwatch.runtime.settings import IntakeSettings
from groundwatch.runtime.stores.images import check_image

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3
"""How often a question is asked anew after a fault that outlasted the engine's own patience."""

LONGEST_PAUSE = 60.0
GIVEN_UP = 20
"""After so many faults in a row without a single answer nobody waits for the rest."""

_OF_THE_TARGET = (CallKind.UNREACHABLE, CallKind.MISCONFIGURED)
"""Faults that the first question's asker must mend: no other question would fare better."""


class Asker:
    """Asks one model by one strategy, and keeps every answer in the run's file."""

    def __init__(
        self,
        engine: CaptioningEngine,
        model: str,
        run: RunFile,
        limits: IntakeSettings,
        *,
        strategy: Strategy = Strategy.DIRECT,
        pause: float = 1.0,
    ) -> None:
        """`pause` in seconds before a question is asked anew, doubling."""
        self._engine = engine
        self._model = model
        self._run = run
        self._limits = limits
        self._name = strategy
        self._strategy = STRATEGIES[strategy]
        self._pause = pause

    def key(self, question: Question, images: Sequence[str]) -> str:
        """Names the question, who answers it and how it is put; `images` are digests."""
        return digest(question.id, self._model, self.judge(question.prompt).fingerprint, *images)[:32]

    def load(self, question: Question) -> list[Image]:
        """The question's images. Raises `Unscorable` for one that cannot be read."""
        found = []
        for picture in question.images:
            try:
                checked = check_image(picture.load(), self._limits)
            except (OSError, InputError) as error:
                raise Unscorable("unreadable_image", f"{picture.name}: {error}") from error
            found.append((checked.data, checked.media_type))
        return found

    async def answer(self, question: Question) -> Answer:
        """The answer that the run has, or a new one, kept there.

        Raises `UsageError` for a target that answers nobody.
        """
        response = question.response(self._model)
        response = msgspec.structs.replace(response, tags={**response.tags, TAG: self._name.value})
        try:
            images = await asyncio.to_thread(self.load, question)
        except Unscorable as error:
            return self._kept(question, [], response, self.judge(question.prompt), error)
        kept = [await asyncio.to_thread(self._run.keep_image, data) for data, _ in images]
        response = msgspec.structs.replace(response, images=tuple(kept))
        known = self._run.answers.get(self.key(question, kept))
        if known is not None and not known.again:
            return known
        judge, said = await self.say(question.prompt, images)
        if isinstance(said, Said):
            response = msgspec.structs.replace(response, answer=said.text, recorded_at=time.time())
        return self._kept(question, kept, response, judge, said)

    async def say(self, prompt: str, images: Sequence[Image]) -> tuple[Judge, Said | GroundwatchError]:
        """What the model says, after as many turns as the strategy has, and who it was."""
        pause = self._pause
        # All its attempts are one question: alone it never shows that the model is away.
        ASKED_FOR.set(uuid4().hex)
        for attempt in range(1, ATTEMPTS + 1):
            judge = self.judge(prompt)
            said = await self._turns(prompt, images)
            if not isinstance(said, TransientError) or attempt == ATTEMPTS or said.kind in _OF_THE_TARGET:
                break
            wait = said.retry_after if isinstance(said, Unavailable) else None
            await asyncio.sleep(min(wait if wait is not None else pause, LONGEST_PAUSE))
            pause *= 2
        return judge, said

    def judge(self, prompt: str) -> Judge:
        """Who answers a prompt, and how it is put."""
        return self._engine.judge(self._model, self._strategy.digest(prompt))

    async def _turns(self, prompt: str, images: Sequence[Image]) -> Said | GroundwatchError:
        first = await self._turn(
            Turn(model=self._model, text=self._strategy.first(prompt), images=tuple(images))
        )
        if not isinstance(first, Said):
            return first
        text = self._strategy.second(prompt, first.text)
        if text is None:
            return first
        second = await self._turn(Turn(model=self._model, text=text))
        if isinstance(second, Said):
            return msgspec.structs.replace(second, usage=first.usage + second.usage)
        return second

    async def _turn(self, turn: Turn) -> Said | GroundwatchError:
        (said,) = await self._engine.say([turn])
        longest = self._limits.max_answer
        if isinstance(said, Said) and len(said.text) > longest:
            return Unscorable("answer_too_long", f"{len(said.text)} characters; at most {longest}")
        return said

    def _kept(
        self,
        question: Question,
        images: Sequence[str],
        response: ResponseRecorded,
        judge: Judge,
        said: Said | GroundwatchError,
    ) -> Answer:
        usage = said.usage if isinstance(said, Said) else Usage()
        if not isinstance(said, Said):
            response = msgspec.structs.replace(response, unanswered=why(said))
        answer = Answer(
            key=digest(question.id, self._model, judge.fingerprint, *images)[:32],
            response=response,
            judge=judge,
            usage=usage,
            again=isinstance(said, TransientError),
        )
        self._run.add(answer)
        return answer


def why(error: GroundwatchError) -> NoAnswer:
    """The reason for no answer, as a response carries it."""
    if isinstance(error, Unscorable):
        return NoAnswer(reason=error.reason, detail=error.detail[:500])
    if isinstance(error, TransientError):
        return NoAnswer(reason=error.kind or "gave_up", detail=str(error)[:500])
    raise error


async def at_once(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], number: int
) -> AsyncGenerator[tuple[int, R], None]:
    """Each item's place with what `work` makes of it, as they come; at most `number` under way.

    Whoever stops listening stops the work. The first error ends all of it.
    """
    waiting = iter(enumerate(items))
    running: set[asyncio.Task[tuple[int, R]]] = set()

    async def one(place: int, item: T) -> tuple[int, R]:
        return place, await work(item)

    def start() -> bool:
        following = next(waiting, None)
        if following is not None:
            running.add(asyncio.create_task(one(*following)))
        return following is not None

    try:
        while len(running) < number and start():
            pass
        while running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                running.discard(task)
                found = task.result()
                start()
                yield found
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Hopeless:
    """Says when a target is not worth asking any more: nothing but faults, and never an answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._faults = 0
        self._answered = False

    def heard(self, unanswered: NoAnswer | None, *, again: bool) -> None:
        """Take in what became of a question. Raises `UsageError` on one line."""
        if not again:
            self._answered = True
        elif not self._answered:
            self._faults += 1
            assert unanswered is not None
            if unanswered.reason in _OF_THE_TARGET or self._faults >= GIVEN_UP:
                raise UsageError(
                    f"target {self._url}: {unanswered.detail or unanswered.reason}; "
                    "what was answered is kept, run again to go on"
                )
