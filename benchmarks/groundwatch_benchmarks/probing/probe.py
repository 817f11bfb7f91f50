"""A probe from its questions to its figures: asked, kept, judged, counted. And a canary: a small sample of a
suite against a model in production, again and again."""

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from groundwatch.addresses import shown_address
from groundwatch.captioning.engines import CaptioningEngine
from groundwatch.client.files.submitting import Submission
from groundwatch.errors import UsageError
from groundwatch.events import (
    ChainAdvanced,
    NoAnswer,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    Strategy,
    Usage,
    own_prompts,
)
from groundwatch.judging.files import with_engines
from groundwatch.protocols import registry
from groundwatch.protocols.base import ChainProtocol, Stage
from groundwatch.protocols.method import Progress, Question, mean_of
from groundwatch.replay.pipeline import Pipeline, judging_stage
from groundwatch.reporting.report import Report, prompts_in
from groundwatch.runtime.delivery.outcomes import outcome_of, without_score
from groundwatch.runtime.services.tasks import unless, until_set
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import declare
from groundwatch_benchmarks.probing.suites import (
    GIVEN_UP,
    IMAGES,
    OF_THE_TARGET,
    Asker,
    ChainRun,
    Chains,
    Header,
    Judged,
    ProbeAnswer,
    RunFile,
    Suite,
    Target,
    at_once,
    sample,
)

SENT = "responses.jsonl"


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
    answers: tuple[ProbeAnswer, ...]
    outcomes: tuple[ResponseScored, ...]
    figures: dict[str, Any]

    @property
    def unanswered(self) -> dict[str, int]:
        return _count(one.response.unanswered.reason for one in self.answers if one.response.unanswered)

    @property
    def unscored(self) -> dict[str, int]:
        """Outcomes without a score, by reason; an unanswered question is among them with its own."""
        return _count(one.reason for one in self.outcomes if one.outcome is not OutcomeKind.SCORED)

    @property
    def asked(self) -> set[str]:
        """The prompts in the user's own words that the model was asked."""
        return {name for one in self.answers for name in own_prompts(one.judge.prompt)}

    def report(self) -> Report:
        report = Report()
        for outcome in self.outcomes:
            # However long a run took, its answers are of one round.
            report.add(msgspec.structs.replace(outcome, recorded_at=0.0))
        return report

    def to_dict(self) -> dict[str, Any]:
        models = self.report().models()
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
            "own_prompts": sorted(self.asked.union(prompts_in(models))),
            "models": msgspec.to_builtins(list(models)),
        }


async def probe(suite: Suite, plan: Plan, settings: Settings, tell: Progress) -> Probed:
    """Ask what the run has no answer to yet, judge what is not judged yet, and count.

    Raises `UsageError` for a target that answers nobody; what was answered before is kept.
    """
    questions = sample(suite.questions(), plan.limit, plan.seed)
    header = Header(
        suite=suite.name, model=plan.target.model, source=plan.source, strategy=plan.strategy.value
    )
    with contextlib.closing(RunFile(plan.folder, header)) as run:
        async with _ready(plan.target, settings) as engine:
            asker = Asker(engine, plan.target.model, run, settings.gateway.intake, plan.strategy)
            chain = registry.method(suite.name).chain
            if chain is not None:
                answers, outcomes, figures = await _chains(chain, questions, plan, settings, asker, run, tell)
            else:
                answers = await _ask(questions, asker.answer, plan, lambda answer: answer, tell)
        if chain is None:
            outcomes = await _judge(questions, answers, plan, settings, run, tell)
            figures = registry.benchmark(suite.name, "figures", "suite").figures(
                list(zip(questions, outcomes, strict=True))
            )
    return Probed(
        suite=suite.name,
        plan=plan,
        questions=tuple(questions),
        left_out=dict(suite.left_out),
        answers=tuple(answers),
        outcomes=tuple(outcomes),
        figures=figures,
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
    questions: Sequence[Question],
    ask: Any,
    plan: Plan,
    answer_of: Callable[[Any], ProbeAnswer],
    tell: Progress,
) -> list[Any]:
    """What became of each question, in their order. The first is asked alone: it may tell of a bad target.

    Raises `UsageError` for a target not worth asking any more: nothing but faults, and never an answer.
    """
    found: dict[int, Any] = {}
    faults, answered = 0, False
    for start, part in ((0, questions[:1]), (1, questions[1:])):
        async with contextlib.aclosing(at_once(part, ask, plan.target.at_once)) as coming:
            async for place, one in coming:
                found[start + place] = one
                answer = answer_of(one)
                if not answer.again:
                    answered = True
                elif not answered:
                    faults += 1
                    why = answer.response.unanswered
                    assert why is not None
                    if why.reason in OF_THE_TARGET or faults >= GIVEN_UP:
                        raise UsageError(
                            f"target {plan.target.url}: {why.detail or why.reason}; "
                            "what was answered is kept, run again to go on"
                        )
                tell(f"asking {plan.target.model}", len(found), len(questions))
    return [found[place] for place in range(len(questions))]


async def _judge(
    questions: Sequence[Question],
    answers: Sequence[ProbeAnswer],
    plan: Plan,
    settings: Settings,
    run: RunFile,
    tell: Progress,
) -> list[ResponseScored]:
    found: dict[int, ResponseScored] = {}
    places: dict[str, list[int]] = {}
    for place, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        why = answer.response.unanswered
        if why is not None:
            found[place] = _unanswered(answer, why, question.protocol)
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
            places_left = iter(waiting)
            async for outcome in pipeline.outcomes(name, [answers[place].response for place in waiting]):
                place = next(places_left)
                found[place] = outcome
                # A judge that only failed for now is asked again next time: that is not kept.
                if outcome.reason != "dead_letter":
                    run.add(Judged(key=answers[place].key + suffix, outcome=outcome))
                tell(f"judging with {name}", len(found), len(questions))
        finally:
            await pipeline.close()
    return [found[place] for place in range(len(questions))]


def _unanswered(
    answer: ProbeAnswer, why: NoAnswer, protocol: str, chain: ChainAdvanced | None = None
) -> ResponseScored:
    return without_score(
        answer.response,
        protocol,
        OutcomeKind.UNSCORED,
        why.reason,
        detail=why.detail,
        judges=chain.judges if chain else {},
        usage=chain.usage if chain else Usage(),
    )


async def _judging(name: str, plan: Plan, settings: Settings, run: RunFile) -> tuple[Pipeline, str]:
    """The judges, and what tells their outcomes from those of others."""
    from groundwatch.runtime.stores.images import check_image

    async def load(digest: str) -> tuple[bytes, str]:
        checked = await asyncio.to_thread(lambda: check_image(run.image(digest), settings.gateway.intake))
        return checked.data, checked.media_type

    judging = judging_stage(registry.get(name)).value
    named = {"extraction": plan.engine, judging: plan.judge}
    pipeline = Pipeline(with_engines(settings, named, name), load_image=load)
    judges = await pipeline.judges(name, Stage.EXTRACTION)
    if found := pipeline.problems():
        raise UsageError("; ".join(found))
    return pipeline, f":{judges[Stage.EXTRACTION]}:{judges[judging]}"


async def _chains(
    protocol: ChainProtocol,
    questions: Sequence[Question],
    plan: Plan,
    settings: Settings,
    asker: Asker,
    run: RunFile,
    tell: Progress,
) -> tuple[list[ProbeAnswer], list[ResponseScored], dict[str, object]]:
    """Answers and outcomes in the questions' order, and the figures over whole chains."""
    from groundwatch.generation.engines import DEFAULT, build

    figures = registry.benchmark(protocol.name, "chain_figures", "suite").chain_figures
    assert figures is not None
    length = plan.length or protocol.default_length
    if (settings.generation.engine or DEFAULT) == "none":
        raise UsageError("a chain needs an image generator: set 'generation.engine' to triton or openai")
    painter = build(settings.generation, images=settings.images, triton=settings.triton)
    try:
        await _warm_up(painter, "setting 'generation.engine'")
        chains = Chains(asker, painter, protocol, length)
        walks: list[ChainRun] = await _ask(questions, chains.walk, plan, lambda walk: walk.answer, tell)
    finally:
        await painter.close()
    outcomes, whole = [], []
    for walk in walks:
        if (why := walk.answer.response.unanswered) is None:
            whole.append(walk.chain)
            outcomes.append(outcome_of(walk.chain, protocol))
        else:
            outcomes.append(_unanswered(walk.answer, why, protocol.name, walk.chain))
    return [walk.answer for walk in walks], outcomes, figures(whole, length)


def _count(reasons: Any) -> dict[str, int]:
    return dict(sorted(collections.Counter(reasons).items()))


async def send(probed: Probed, gateway: str, *, label: str = "probe") -> dict[str, int]:
    """Write the answers into the run's folder as recorded responses, and send that file.

    An answer's id is `label`, the suite and its key, so that sending twice adds nothing. Raises `UsageError`
    when no gateway takes them, or with the first reason for which it refused one.
    """
    path = probed.plan.folder / SENT
    answered = [one for one in probed.answers if one.response.unanswered is None]
    path.write_bytes(
        b"".join(
            msgspec.json.encode(_record(one.response, f"{label}-{probed.suite}-{one.key}")) + b"\n"
            for one in answered
        )
    )
    told = {"accepted": 0, "duplicates": 0, "refused": 0, "unanswered": len(probed.answers) - len(answered)}
    if not answered:
        return told
    submission = Submission(gateway, path)
    with contextlib.closing(submission):
        await asyncio.to_thread(lambda: list(submission.send()))
    found = submission.result
    if found.errors:
        raise UsageError(f"{gateway} refused {found.refused} answers: {found.errors[0].error}")
    return told | {"accepted": found.accepted, "duplicates": found.duplicates, "refused": found.refused}


def _record(response: ResponseRecorded, name: str) -> dict[str, object]:
    record: dict[str, object] = {
        "id": name,
        "model": response.model,
        "prompt": response.prompt,
        "answer": response.answer,
        "images": [f"{IMAGES}/{digest}" for digest in response.images],
        "tags": response.tags,
        "protocols": list(response.protocols),
    }
    if response.reference is not None:
        record["reference"] = msgspec.to_builtins(response.reference)
    return record


class CanaryMetrics:
    """What the last round found, for Prometheus."""

    score: Gauge
    at: Gauge
    questions: Counter
    failed: Counter

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        declare(self, "canary", self.registry)


class RoundTold(msgspec.Struct, frozen=True, kw_only=True):
    """One round as it is told, to programs or people. `score` is the mean, from `low` to `high`."""

    round: int
    suite: str
    model: str
    questions: int
    scored: int
    unscored: dict[str, int]
    score: float | None
    low: float | None
    high: float | None
    submitted: int | None = None


class Canary:
    """Rounds of one suite against one model. A round that cannot be done is told and counted, not fatal."""

    def __init__(self, suite: Suite, plan: Plan, settings: Settings, *, fresh: bool, submit: str) -> None:
        self.metrics = CanaryMetrics()
        self._suite = suite
        self._plan = plan
        self._settings = settings
        self._fresh = fresh
        self._submit = submit
        self._number = len(list(plan.folder.glob("round-*")))

    async def run(
        self, every: float, rounds: int | None, stopped: asyncio.Event, report: Callable[[RoundTold], None]
    ) -> None:
        """A round each `every` seconds from now, until `stopped` or for so many `rounds`."""
        done = 0
        while not stopped.is_set() and (rounds is None or done < rounds):
            began = time.monotonic()
            # What was answered by then is kept in the round's folder; nobody waits for the rest.
            if (told := await unless(stopped, self.round())) is not None:
                report(told)
            done += 1
            if rounds is None or done < rounds:
                await until_set(stopped, max(0.0, every - (time.monotonic() - began)))

    async def round(self) -> RoundTold | None:
        """One round; None when it could not be done, which the log and a metric tell."""
        self._number += 1
        plan = msgspec.structs.replace(
            self._plan,
            folder=self._plan.folder / f"round-{self._number:05}",
            seed=self._plan.seed + (self._number if self._fresh else 0),
        )
        labels = (self._suite.name, plan.target.model)
        try:
            probed = await probe(self._suite, plan, self._settings, lambda *_: None)
            submitted = None
            if self._submit:
                submitted = (await send(probed, self._submit, label=f"canary-{self._number}"))["accepted"]
        except UsageError as error:
            self.metrics.failed.labels(*labels).inc()
            logger.error("canary.round_failed", round=self._number, error=str(error))
            return None
        return self._told(probed, submitted, labels)

    def _told(self, probed: Probed, submitted: int | None, labels: tuple[str, str]) -> RoundTold:
        for outcome in probed.outcomes:
            self.metrics.questions.labels(*labels, outcome.outcome.value).inc()
        bottom = 0.0 if registry.method(self._suite.name).chain is None else -1.0
        mean = mean_of((outcome.score for outcome in probed.outcomes), bounds=(bottom, 1.0))
        if mean is not None:
            self.metrics.score.labels(*labels).set(mean.value)
        self.metrics.at.labels(*labels).set(time.time())
        return RoundTold(
            round=self._number,
            suite=labels[0],
            model=labels[1],
            questions=len(probed.questions),
            scored=sum(outcome.score is not None for outcome in probed.outcomes),
            unscored=probed.unscored,
            score=mean.value if mean else None,
            low=mean.low if mean else None,
            high=mean.high if mean else None,
            submitted=submitted,
        )
