"""Claims that people labelled, judged by any verifier of the settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groundwatch.errors import GroundwatchError, UsageError
from groundwatch.evaluation.judging import ImageFolder, no_images
from groundwatch.events import Claim, Decision, Judge, Label, ResponseRecorded, ResponseScored, SubSentence
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.method import Progress
from groundwatch.protocols.people import JudgedLabel, LabelledAnswer, claim_agreement, joined
from groundwatch.protocols.published import UNNAMED_MODEL
from groundwatch.replay.pipeline import Pipeline
from groundwatch.runtime.settings import Settings


class GivenClaims(ExtractionEngine):
    """Finds the claims of the answer whose number is the response's id, all in one sub-sentence."""

    batch = 32

    def __init__(self, answers: Sequence[LabelledAnswer]) -> None:
        self._answers = answers

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="people")

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        return [
            Extraction(
                units=(SubSentence(start=0, end=len(it.answer), text=it.answer, label=Label.DESCRIPTIVE),),
                claims=tuple(Claim(text=text, category="other") for text in self._answers[int(it.id)].claims),
            )
            for it in responses
        ]


async def judged(
    responses: Sequence[ResponseRecorded],
    protocol: str,
    settings: Settings,
    images: Path | None,
    extraction: ExtractionEngine | None,
    progress: Progress,
) -> list[ResponseScored]:
    """One outcome for each response, by the verifier of the settings; `UsageError` where that is away.

    Without `extraction` the settings' engine finds the claims.
    """
    loader = no_images if images is None else ImageFolder(images, settings.gateway.intake).load
    engines = {} if extraction is None else {Stage.EXTRACTION: extraction}
    pipeline = Pipeline(settings, engines=engines, load_image=loader)
    found: list[ResponseScored] = []
    try:
        await pipeline.judges(protocol, Stage.EXTRACTION)
        if problems := pipeline.problems():
            raise UsageError("; ".join(problems))
        async for outcome in pipeline.outcomes(protocol, responses):
            found.append(outcome)
            progress(f"judging with {protocol}", len(found), len(responses))
    finally:
        await pipeline.close()
    return found


def looks(protocol: str, settings: Settings, images: Path | None) -> bool:
    """Whether the verifier of the settings looks at images, and not at references.

    Raises `UsageError` for a protocol that verifies nothing, and for a judge that looks without a folder.
    """
    found = registry.get(protocol)
    if why := found.why_not(""):
        raise UsageError(why, "protocol")
    engine = settings.verification.of(found).engine
    if engine in ("reference", "similarity", "calibrated"):
        return False
    if images is None and engine != "noop":
        raise UsageError(f"{engine} looks at images: name their folder", "images")
    return True


async def judge_labelled(
    answers: Sequence[LabelledAnswer],
    protocol: str,
    settings: Settings,
    images: Path | None,
    progress: Progress,
) -> list[ResponseScored]:
    """The outcomes of people's own claims, by a judge that looks and is told nothing else of the image."""
    if not looks(protocol, settings, images):
        raise UsageError("people's claims are judged by the image: name a judge that looks at it", "judge")
    responses = [
        ResponseRecorded(id=str(at), model=UNNAMED_MODEL, answer=one.answer, images=(one.image,))
        for at, one in enumerate(answers)
    ]
    return await judged(responses, protocol, settings, images, GivenClaims(answers), progress)


def labels_of(answer: LabelledAnswer, outcome: ResponseScored) -> list[JudgedLabel]:
    """People's labels beside the judge's verdicts; undecided where the outcome has no claims."""
    if not outcome.claims:
        return [JudgedLabel(one, Decision.UNDECIDED) for one in answer.hallucinated]
    pairs = zip(answer.hallucinated, outcome.claims, strict=True)
    return [JudgedLabel(label, claim.decision, claim.probability) for label, claim in pairs]


def agreement(answers: Sequence[LabelledAnswer], outcomes: Sequence[ResponseScored]) -> dict[str, Any]:
    """`claim_agreement` of claims, of segments, and of the claims of each task where there are several."""
    found = [labels_of(answer, outcome) for answer, outcome in zip(answers, outcomes, strict=True)]
    tasks: dict[str, list[list[JudgedLabel]]] = {}
    segments = []
    for answer, labels in zip(answers, found, strict=True):
        tasks.setdefault(answer.task, []).append(labels)
        segments.append([joined([labels[at] for at in part], wrong) for part, wrong in answer.segments])
    several = {task: claim_agreement(labels) for task, labels in sorted(tasks.items()) if len(tasks) > 1}
    return {**claim_agreement(found), "segments": claim_agreement(segments), "by_task": several}
