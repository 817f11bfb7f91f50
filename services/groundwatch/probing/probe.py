"""A probe from its questions to its figures: asked, kept, judged and counted."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.addresses import shown_address
from groundwatch.captioning.engines.base import CaptioningEngine
from groundwatch.errors import UsageError
from groundwatch.events import ChainAdvanced, OutcomeKind, ResponseScored, Strategy
from groundwatch.probing.asking import Asker, Hopeless, at_once
from groundwatch.probing.chains import ChainRun, Chains
from groundwatch.probing.runfile import Answer, Header, Judged, RunFile
from groundwatch.probing.target import Target
from groundwatch.protocols import registry
from groundwatch.protocols.base import ChainProtocol, Stage
from groundwatch.protocols.suite import Question, Suite, sample
from groundwatch.replay.pipeline import Pipeline, judging_stage
from groundwatch.reporting import Report
from groundwatch.runtime.delivery.outcomes import outcome_of, without_score
from groundwatch.runtime.settings import Settings

PAUSE = 1.0
"""Seconds before a question is asked anew after a fault."""

Tell = Callable[[str, int, int], None]
"""Told of progress: what is being done, how many are done, of how many."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask whom, and who judges. Empty engines mean those of settings."""

    target: Target
    folder: Path
    source: str
    strategy: Strategy = Strategy.DIRECT
    limit: int | None = None
    seed: int = 0
    length: int | None = None
    engine: str = ""
    judge: str = ""


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a probe. `answers` and `outcomes` are in the questions' order."""

    suite: str
    plan: Plan
    questions: tuple[Question, ...]
    left_out: dict[str, int]
    answers: tuple[Answer, ...]
    outcomes: tuple[ResponseScored, ...]
    figures: dict[str, Any]

    @property
    def unanswered(self) -> dict[str, int]:
        """Questions without an answer, by reason."""
        return _count(one.response.unanswered.reason for one in self.answers if one.response.unanswered)

    @property
    def unscored(self) -> dict[str, int]:
        """Outcomes without a score, by reason; an unanswered question is among them with its own."""
        return _count(one.reason for one in self.outcomes if one.outcome is not OutcomeKind.SCORED)

    def report(self) -> Report:
        """The outcomes as every report of the system has them."""
        report = Report()
        for outcome in self.outcomes:
            report.add(outcome)
        return report

    def to_dict(self) -> dict[str, Any]:
        """All of it that is a number or a name."""
        return {
            "suite": self.suite,
            "model": self.plan.target.model,
            "target": self.plan.target.url,
            "strategy": self.plan.strategy.value,
            "source": self.plan.source,
            "run": str(self.plan.folder),
            "questions": len(self.questions),
            "left_out": self.left_out,
            "answered": len(self.answers) - sum(self.unanswered.values()),
            "unanswered": self.unanswered,
            "scored": len(self.outcomes) - sum(self.unscored.values()),
            "unscored": self.unscored,
            "figures": msgspec.to_builtins(self.figures),
            "models": msgspec.to_builtins(list(self.report().models())),
        }


async def probe(suite: Suite, plan: Plan, settings: Settings, tell: Tell) -> Probed:
    """Ask what the run has no answer to yet, judge what is not judged yet, and count.

    Raises `UsageError` for a target that answers nobody; what was answered before is kept.
    """
    questions = sample(suite.questions(), plan.limit, plan.seed)
    header = Header(
        suite=suite.name,
        model=plan.target.model,
        source=plan.source,
        strategy=plan.strategy.value,
    )
    with contextlib.closing(RunFile(plan.folder, header)) as run:
        async with _ready(plan.target, settings) as engine:
            limits = settings.gateway.intake
            asker = Asker(engine, plan.target.model, run, limits, strategy=plan.strategy, pause=PAUSE)
            method = registry.method(suite.name)
            if method.chain is not None:
                return await _chains(method.chain, suite, questions, plan, settings, asker, run, tell)
            answers = await _ask(questions, asker.answer, plan, _of_answer, tell)
        outcomes = await _judge(questions, answers, plan, settings, run, tell)
    return Probed(
        suite=suite.name,
        plan=plan,
        questions=tuple(questions),
        left_out=dict(suite.left_out),
        answers=tuple(answers),
        outcomes=tuple(outcomes),
        figures=method.figures(list(zip(questions, outcomes, strict=True))),
    )


@contextlib.asynccontextmanager
async def _ready(target: Target, settings: Settings) -> AsyncIterator[CaptioningEngine]:
    """The engine, warm. Raises `UsageError` when it knows already that it cannot ask."""
    engine = target.engine(settings)
    try:
        await _warm_up(engine, f"target {shown_address(target.url)}")
        yield engine
    finally:
        await engine.close()


async def _warm_up(engine: Any, whose: str) -> None:
    """Ask who answers, where a server tells. Raises `UsageError` for models that are not there."""
    if not hasattr(engine, "problems"):
        return
    await engine.warm_up()
    if found := engine.problems():
        raise UsageError(f"{whose}: {'; '.join(found)}")


async def _ask(
    questions: Sequence[Question], ask: Any, plan: Plan, answer_of: Callable[[Any], Answer], tell: Tell
) -> list[Any]:
    """What became of each question, in their order. The first is asked alone: it may tell of a bad target."""
    found: dict[int, Any] = {}
    hope = Hopeless(plan.target.url)
    first = questions[:1]
    for start, part in ((0, first), (1, questions[1:])):
        async with contextlib.aclosing(at_once(part, ask, plan.target.at_once)) as coming:
            async for place, one in coming:
                found[start + place] = one
                answer = answer_of(one)
                hope.heard(answer.response.unanswered, again=answer.again)
                tell(f"asking {plan.target.model}", len(found), len(questions))
    return [found[place] for place in range(len(questions))]


def _of_answer(answer: Answer) -> Answer:
    return answer


async def _judge(
    questions: Sequence[Question],
    answers: Sequence[Answer],
    plan: Plan,
    settings: Settings,
    run: RunFile,
    tell: Tell,
) -> list[ResponseScored]:
    found: dict[int, ResponseScored] = {}
    places: dict[str, list[int]] = {}
    for place, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        why = answer.response.unanswered
        if why is not None:
            found[place] = without_score(
                answer.response, question.protocol, OutcomeKind.UNSCORED, why.reason, detail=why.detail
            )
        else:
            places.setdefault(question.protocol, []).append(place)
    for name, of_protocol in places.items():
        pipeline, suffix = await _judging(name, plan, settings, run)
        try:
            waiting = []
            for place in of_protocol:
                known = run.outcomes.get(answers[place].key + suffix)
                if known is None:
                    waiting.append(place)
                else:
                    found[place] = known
            coming = pipeline.outcomes(name, [answers[place].response for place in waiting])
            at = 0
            async for outcome in coming:
                place = waiting[at]
                at += 1
                found[place] = outcome
                if not _passes(outcome):
                    run.add(Judged(key=answers[place].key + suffix, outcome=outcome))
                tell(f"judging with {name}", len(found), len(questions))
        finally:
            await pipeline.close()
    return [found[place] for place in range(len(questions))]


def _passes(outcome: ResponseScored) -> bool:
    """Whether the judge only failed for now: such an outcome is not kept, and judged again next time."""
    return outcome.reason == "dead_letter"


async def _judging(name: str, plan: Plan, settings: Settings, run: RunFile) -> tuple[Pipeline, str]:
    """The judges, and what tells their outcomes from those of others."""
    from groundwatch.runtime.stores.images import check_image

    async def load(digest: str) -> tuple[bytes, str]:
        checked = await asyncio.to_thread(lambda: check_image(run.image(digest), settings.gateway.intake))
        return checked.data, checked.media_type

    judging = judging_stage(registry.get(name)).value
    named = {"extraction": plan.engine, judging: plan.judge}
    changed = {
        stage: getattr(settings, stage).model_copy(update={"engine": engine})
        for stage, engine in named.items()
        if engine
    }
    pipeline = Pipeline(settings.model_copy(update=changed), load_image=load)
    judges = await pipeline.judges(name, Stage.EXTRACTION)
    if found := pipeline.problems():
        raise UsageError("; ".join(found))
    return pipeline, f":{judges[Stage.EXTRACTION]}:{judges[judging]}"


async def _chains(
    protocol: ChainProtocol,
    suite: Suite,
    questions: Sequence[Question],
    plan: Plan,
    settings: Settings,
    asker: Asker,
    run: RunFile,
    tell: Tell,
) -> Probed:
    from groundwatch.generation.engines import DEFAULT, build

    length = plan.length or protocol.default_length
    if (settings.generation.engine or DEFAULT) == "none":
        raise UsageError("a chain needs an image generator: set 'generation.engine' to triton or openai")
    painter = build(settings.generation, images=settings.images, triton=settings.triton)
    try:
        await _warm_up(painter, "setting 'generation.engine'")
        chains = Chains(
            asker,
            plan.target.model,
            painter,
            protocol,
            run,
            settings.gateway.intake,
            length=length,
            pause=PAUSE,
        )
        walks: list[ChainRun] = await _ask(questions, chains.walk, plan, lambda walk: walk.answer, tell)
    finally:
        await painter.close()
    outcomes = [_of_walk(walk, protocol) for walk in walks]
    whole: list[ChainAdvanced] = [walk.chain for walk in walks if walk.whole]
    return Probed(
        suite=suite.name,
        plan=plan,
        questions=tuple(questions),
        left_out=dict(suite.left_out),
        answers=tuple(walk.answer for walk in walks),
        outcomes=tuple(outcomes),
        figures=protocol.figures(whole, length),
    )


def _of_walk(walk: ChainRun, protocol: ChainProtocol) -> ResponseScored:
    why = walk.answer.response.unanswered
    if why is None:
        return outcome_of(walk.chain, protocol)
    return without_score(
        walk.answer.response,
        protocol.name,
        OutcomeKind.UNSCORED,
        why.reason,
        detail=why.detail,
        judges=walk.chain.judges,
        usage=walk.chain.usage,
    )


def _count(reasons: Any) -> dict[str, int]:
    return dict(sorted(Counter(reasons).items()))
