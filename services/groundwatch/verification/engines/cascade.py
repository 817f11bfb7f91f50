"""A cascade: judges in a row, each believed where it is sure; the next is asked about the rest alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from groundwatch.errors import GroundwatchError, InputError, Unavailable, Unscorable
from groundwatch.events import OWN_PROMPTS, ClaimsExtracted, Decision, Judge, Usage, Verdict, own_prompts
from groundwatch.keys import digest
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.runtime.settings.judges import CASCADE, CascadeStep
from groundwatch.verification.engines.base import Verification, VerificationEngine, gathering, verify_with
from groundwatch.verification.engines.looking import verification

VERSION = "1"

DECIDED, PASSED, UNDECIDED = "decided", "passed", "undecided"
"""What became of a fact at a judge; at the last one what it leaves open is undecided."""

Results: TypeAlias = Sequence[Verification | GroundwatchError]


class Step(NamedTuple):
    """One of the judges, with where it is believed."""

    settings: CascadeStep
    engine: VerificationEngine


Ask: TypeAlias = Callable[[Step, Sequence[ClaimsExtracted], EvaluationProtocol], Awaitable[Results]]
"""How a judge is asked."""

OnStep: TypeAlias = Callable[[str, int, str, Mapping[str, int], Usage], None]
"""Told of a judge: the protocol, its number from 1, its engine, how many facts became what, what it used."""


def believed(verdict: Verdict, bounds: tuple[float, float] | None) -> bool:
    """Whether a verdict stands: it decides, and P(yes), where there is one, is outside of the bounds."""
    if verdict.decision is Decision.UNDECIDED:
        return False
    if bounds is None or verdict.probability is None:
        return True
    low, high = bounds
    supported = verdict.decision is Decision.SUPPORTED
    return verdict.probability > high if supported else verdict.probability < low


async def _directly(
    step: Step, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
) -> Results:
    return await verify_with(step.engine, extracted, protocol)


class CascadeEngine(VerificationEngine):
    """Asks its judges in order, each about the claims of which none before it is believed.

    What the last judge says stands. A judge that cannot judge a response, or a claim of it, passes it on; one
    that is away makes the response wait, and is never left out. Each verdict's evidence names its judge.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        engines, self.at_once = gathering([step.engine for step in steps])
        self.steps = tuple(Step(step.settings, one) for step, one in zip(steps, engines, strict=True))
        self.batch = 1 if self.at_once else max(one.batch for one in engines)
        self.judges = max(1, sum(one.batch == 1 for one in engines))

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """Its model names all judges in order, its version is made of all that they are."""
        judges = [step.engine.judge(protocol) for step in self.steps]
        model = " > ".join(
            step.settings.shown(f"{one.engine} {one.model}".rstrip())
            for step, one in zip(self.steps, judges, strict=True)
        )
        parts = [
            part
            for step, one in zip(self.steps, judges, strict=True)
            for part in (one.engine, one.model, one.prompt, one.version, repr(step.settings.bounds))
        ]
        own = [name for one in judges for name in own_prompts(one.prompt)]
        prompt = f"{OWN_PROMPTS}{' '.join(own)}" if own else ""
        version = f"{VERSION}-{digest(*parts)[:16]}"
        return Judge(engine=CASCADE, model=model, prompt=prompt, version=version)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        return await self.run(extracted, protocol)

    async def run(
        self,
        extracted: Sequence[ClaimsExtracted],
        protocol: EvaluationProtocol,
        ask: Ask = _directly,
        on_step: OnStep = lambda *_: None,
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order; each judge gets one request for each of them at most."""
        judge = self.judge(protocol)
        events = [_Event(event) for event in extracted]
        for number, step in enumerate(self.steps, 1):
            waiting = [event for event in events if event.left]
            answers = await ask(step, [event.question() for event in waiting], protocol) if waiting else ()
            for event, answer in zip(waiting, answers, strict=True):
                event.take(answer, step, number, len(self.steps))
                if isinstance(answer, Verification):
                    on_step(protocol.name, number, step.settings.engine, {}, answer.usage)
        if (now := self.judge(protocol)) != judge:
            why = f"{now.model} answer now, not {judge.model}"
            return [Unavailable(why, retry_after=0.0) for _ in extracted]
        for event in events:
            # Only now: a response that has to wait passes the first judges again.
            for (number, engine), facts in event.facts.items():
                on_step(protocol.name, number, engine, facts, Usage())
        return [event.result() for event in events]

    async def warm_up(self) -> None:
        for step in self.steps:
            if (warm_up := getattr(step.engine, "warm_up", None)) is not None:
                await warm_up()

    def problems(self) -> list[str]:
        several = (getattr(step.engine, "problems", list) for step in self.steps)
        return [problem for problems in several for problem in problems()]

    async def close(self) -> None:
        for step in self.steps:
            await step.engine.close()


class _Event:
    """A response on its way: the claims that are `left` to be judged, and what was said of the others."""

    def __init__(self, extracted: ClaimsExtracted) -> None:
        self._extracted = extracted
        self._said: dict[int, Verdict | Unscorable] = {}
        self._usage = Usage()
        self._error: GroundwatchError | None = None
        self.left = list(range(len(extracted.claims)))
        self.facts: dict[tuple[int, str], Counter[str]] = {}

    def question(self) -> ClaimsExtracted:
        claims = tuple(self._extracted.claims[at] for at in self.left)
        return msgspec.structs.replace(self._extracted, claims=claims)

    def take(self, answer: Verification | GroundwatchError, step: Step, number: int, last: int) -> None:
        asked, self.left = self.left, []
        said: Sequence[Verdict | Unscorable]
        if isinstance(answer, Verification):
            said, self._usage = answer.verdicts, self._usage + answer.usage
            if len(said) != len(asked):
                answer = InputError(f"{len(said)} verdicts for {len(asked)} claims")
        else:
            said = [answer] * len(asked) if isinstance(answer, Unscorable) else ()
        if isinstance(answer, GroundwatchError) and not isinstance(answer, Unscorable):
            self._error, self.facts = answer, {}
            return
        facts = self.facts[number, step.settings.engine] = Counter()
        mark = f" (judge {number} of {last}: {step.settings.engine})"
        for at, one in zip(asked, said, strict=True):
            sure = isinstance(one, Verdict) and believed(one, step.settings.bounds)
            facts[DECIDED if sure else UNDECIDED if number == last else PASSED] += 1
            if not sure and number < last:
                self.left.append(at)
            elif isinstance(one, Verdict):
                self._said[at] = msgspec.structs.replace(one, evidence=f"{one.evidence}{mark}".lstrip())
            else:
                self._said[at] = one

    def result(self) -> Verification | GroundwatchError:
        if self._error is not None:
            return self._error
        try:
            return verification([self._said[at] for at in sorted(self._said)], self._usage)
        except Unscorable as error:
            return error
