"""Labelled answers: the claims of an answer are given, and any verifier of the settings judges them anew.

"Hallucinated" is the positive class, as in MHaluBench (Unified Hallucination Detection for Multimodal Large
Language Models, Chen et al., ACL 2024, section 5). Of its files, JSON lists, an item has its `image_path`,
and in the validation files `response`, `task_type` and `segments`, each with its `claims` (`claim`,
`claim_label`) and its own `segment_label`. The training file has `claim_list` beside `ref_claim_label`. A
label is hallucination or non-hallucination; a segment without one is hallucinated where one of its claims is,
as in the paper.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from groundwatch.errors import GroundwatchError, UsageError
from groundwatch.events import Claim, Decision, Judge, Label, ResponseRecorded, ResponseScored, SubSentence
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.judging.files import with_engines
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.method import Progress, Result
from groundwatch.runtime.settings import Settings
from groundwatch.statistics.intervals import RatioSums, bootstrap, cluster_rate
from groundwatch_benchmarks.agreement.judging import JUDGE, JUDGED_IMAGES, judged
from groundwatch_benchmarks.coefficients import roc_auc
from groundwatch_benchmarks.json_files import UNNAMED_MODEL, Place, json_items


async def validate(
    file: Annotated[Path, Meta(description="MHaluBench's labelled claims (JSON).")],
    *,
    images: Annotated[Path | None, Meta(description=JUDGED_IMAGES)] = None,
    judge: Annotated[str, Meta(description=JUDGE)] = "",
    protocol: Annotated[
        str, Meta(description="Whose verifier judges them; the gateway's own protocol when absent.")
    ] = "",
    settings: Settings,
    progress: Progress,
) -> Result:
    """Any verifier against people's labels of claims: precision, recall and F1 of both classes, AUC."""
    name = protocol or settings.gateway.protocols[0]
    chosen = with_engines(settings, {Stage.VERIFICATION.value: judge}, name)
    answers = read_labelled(file)
    return agreement(answers, await judge_labelled(answers, name, chosen, images, progress))


class LabelledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer's claims, and which of them people call hallucinated; `segments` are ranges of claims, each
    with whether people call it so."""

    image: str
    answer: str
    claims: tuple[str, ...]
    hallucinated: tuple[bool, ...]
    segments: tuple[tuple[range, bool], ...] = ()
    task: str = ""


class JudgedLabel(NamedTuple):
    """A person's label beside a judge's verdict; `probability` is that the claim holds, if known."""

    hallucinated: bool
    decision: Decision
    probability: float | None = None


def joined(claims: Sequence[JudgedLabel], hallucinated: bool) -> JudgedLabel:
    """Claims judged as one: refuted where one is, supported where all are; the least probability."""
    decisions = {one.decision for one in claims}
    found = next(
        (one for one in (Decision.REFUTED, Decision.UNDECIDED) if one in decisions), Decision.SUPPORTED
    )
    known = [one.probability for one in claims if one.probability is not None]
    return JudgedLabel(hallucinated, found, min(known) if len(known) == len(claims) else None)


def claim_agreement(answers: Sequence[Sequence[JudgedLabel]]) -> dict[str, Any]:
    """Accuracy, precision, recall and F1 of both classes and their means, AUC, coverage.

    Over claims that the judge decided; intervals draw whole answers. `auc` is the chance that a claim which
    holds is found likelier than one that does not, None where a decided claim has no probability.
    """
    decided = [[one for one in answer if one.decision is not Decision.UNDECIDED] for answer in answers]
    cells = [_cells(answer) for answer in decided]
    covered = RatioSums()
    for answer, known in zip(answers, decided, strict=True):
        covered.add(len(known), len(answer))
    claims = sum(map(len, answers))
    return {
        **{
            name: bootstrap(cells, lambda drawn, name=name: _rates(*map(sum, zip(*drawn, strict=True)))[name])  # type: ignore[misc]
            for name in _rates(0, 0, 0, 0)
        },
        "auc": bootstrap(decided, _claims_auc, resamples=200),
        "coverage": cluster_rate(covered),
        "claims": claims,
        "undecided": claims - sum(map(len, decided)),
        "answers": len(answers),
    }


def _cells(decided: Iterable[JudgedLabel]) -> tuple[int, int, int, int]:
    """Claims hallucinated and refuted, only refuted, only hallucinated, neither."""
    seen = Counter((one.decision is Decision.REFUTED, one.hallucinated) for one in decided)
    return seen[True, True], seen[True, False], seen[False, True], seen[False, False]


def _rates(hit: int, alarms: int, missed: int, held: int) -> dict[str, float | None]:
    right, said, there = (hit, held), (hit + alarms, held + missed), (hit + missed, held + alarms)
    rates = {"accuracy": _share(hit + held, hit + alarms + missed + held)}
    for measure, parts, wholes in (
        ("precision", right, said),
        ("recall", right, there),
        ("f1", [2 * part for part in right], [sum(two) for two in zip(said, there, strict=True)]),
    ):
        both = [_share(part, whole) for part, whole in zip(parts, wholes, strict=True)]
        rates[f"hallucination.{measure}"], rates[f"non_hallucination.{measure}"] = both
        known = [one for one in both if one is not None]
        rates[f"macro.{measure}"] = fmean(known) if len(known) == len(both) else None
    return rates


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _claims_auc(answers: Sequence[Sequence[JudgedLabel]]) -> float | None:
    chances = [(one.hallucinated, one.probability) for answer in answers for one in answer]
    held, gone = ([p for wrong, p in chances if wrong is which and p is not None] for which in (False, True))
    return roc_auc(held, gone) if len(held) + len(gone) == len(chances) else None


class _Claim(msgspec.Struct):
    claim: str
    claim_label: str


class _Segment(msgspec.Struct):
    claims: list[_Claim]
    segment_label: str = ""


class _Item(msgspec.Struct):
    image_path: str
    response: str = ""
    task_type: str = ""
    segments: list[_Segment] | None = None
    claim_list: list[str] | None = None
    ref_claim_label: list[str] = []


def read_labelled(path: Path) -> list[LabelledAnswer]:
    """Raises `FileFormatError` naming file, line and key."""
    return [_answer(place, place.read(value, _Item)) for place, value in json_items(path)]


def _answer(place: Place, item: _Item) -> LabelledAnswer:
    claims: list[str] = []
    labels: list[bool] = []
    segments: list[tuple[range, bool]] = []
    for segment in item.segments if item.segments is not None else _as_segments(place, item):
        own = [_label(place, "claim_label", one.claim_label) for one in segment.claims]
        given = segment.segment_label
        whole = _label(place, "segment_label", given) if given else any(own)
        segments.append((range(len(labels), len(labels) + len(own)), whole))
        claims += [one.claim for one in segment.claims]
        labels += own
    return LabelledAnswer(
        # Only the name: the path is that of the machine on which the answers were labelled.
        image=PureWindowsPath(item.image_path).name,
        answer=item.response,
        task=item.task_type,
        claims=tuple(claims),
        hallucinated=tuple(labels),
        segments=tuple(segments),
    )


def _as_segments(place: Place, item: _Item) -> list[_Segment]:
    if item.claim_list is None:
        raise place.wrong("key 'segments': is missing, and so is 'claim_list'")
    if len(item.claim_list) != len(item.ref_claim_label):
        why = f"{len(item.ref_claim_label)} labels for {len(item.claim_list)} claims"
        raise place.wrong(f"key 'ref_claim_label': {why}")
    return [_Segment([_Claim(*one)]) for one in zip(item.claim_list, item.ref_claim_label, strict=True)]


def _label(place: Place, key: str, label: str) -> bool:
    match label.strip().casefold():
        case "hallucination" | "non-hallucination" as found:
            return found == "hallucination"
    raise place.wrong(f"key '{key}': expected hallucination or non-hallucination")


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
