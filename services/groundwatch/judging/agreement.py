"""Judges beside people: claims that people labelled, judged by any verifier of the settings; and people's
verdicts on claims of live traffic."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from groundwatch.errors import GroundwatchError, UsageError, told_to_user
from groundwatch.events import (
    LIVE,
    Claim,
    Decision,
    Judge,
    Label,
    ResponseRecorded,
    ResponseScored,
    SubSentence,
)
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.judging.files import ImageFolder, no_images
from groundwatch.keys import in_partition, response_key
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.method import Progress
from groundwatch.protocols.people import (
    JudgedLabel,
    LabelledAnswer,
    PersonsVerdict,
    VerdictAgreement,
    claim_agreement,
    decision_on,
    joined,
    verdict_agreement,
)
from groundwatch.protocols.published import UNNAMED_MODEL, Place
from groundwatch.replay.pipeline import Pipeline
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.homes import places_of
from groundwatch.runtime.settings import Settings
from groundwatch.topology import OUTCOMES, is_token, subject_of


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


async def compare_verdicts(
    verdicts: Iterable[tuple[Place, PersonsVerdict]], bus: Bus
) -> dict[str, VerdictAgreement]:
    """By protocol. Raises `FileFormatError` with the line that has no outcome."""
    return verdict_agreement([(one, await _judged(bus, place, one)) for place, one in verdicts])


async def _judged(bus: Bus, place: Place, verdict: PersonsVerdict) -> Decision:
    if not is_token(verdict.protocol):
        raise place.wrong(f"no protocol '{verdict.protocol}'")
    bare = response_key(verdict.tenant, verdict.id)
    keys = [in_partition(bare, one) for one in await places_of(bus, bare)]
    subjects = [subject_of("outcome", LIVE, verdict.protocol, key) for key in keys]
    found = await bus.history.last_of_each(OUTCOMES, subjects)
    message = next(filter(None, found), None)
    if message is None:
        what = f"no outcome of {verdict.protocol} for response '{verdict.id}' of tenant '{verdict.tenant}'"
        raise place.wrong(what)
    decision = decision_on(verdict, msgspec.json.decode(message.data, type=ResponseScored))
    if decision is None:
        raise place.wrong(f"key 'claim': the outcome of '{verdict.id}' has no claim {verdict.claim!r}")
    return decision


def write_metrics(path: Path, found: dict[str, VerdictAgreement]) -> None:
    """Write the counts for the textfile collector of node_exporter, or a Pushgateway."""
    collected = CollectorRegistry()
    verdicts = Gauge(
        "groundwatch_people_verdicts",
        "Verdicts of people on claims, beside what the judge said",
        ("protocol", "people", "judge"),
        registry=collected,
    )
    compared = Gauge(
        "groundwatch_people_compared_time_seconds",
        "When people's verdicts were compared, in seconds since the epoch",
        registry=collected,
    )
    compared.set(time.time())
    for protocol, agreement in found.items():
        for people, judged in agreement.counts.items():
            for judge, number in judged.items():
                verdicts.labels(protocol, people, judge).set(number)
    with told_to_user(f"{path}: cannot be written"):
        write_to_textfile(str(path), collected)
