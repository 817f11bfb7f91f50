"""Hallu_Q and Hallu_I, overall and by kind: of a published result file, and of a model that was asked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from groundwatch.events import OutcomeKind
from groundwatch.protocols.method import Images, Pair, Picture, Question, Result, Tally, TallyRequest, files
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.scoring import Kind
from groundwatch.statistics.intervals import bootstrap
from groundwatch_benchmarks.methods.trihe.files import (
    AnnotatedImage,
    judged_question,
    read_benchmark,
    read_judgements,
)
from groundwatch_benchmarks.methods.trihe.scoring import JudgedQuestion, rates

KINDS: tuple[Kind, ...] = get_args(Kind)


def tally_questions(questions: Sequence[JudgedQuestion]) -> Result:
    """Equations 1 and 2 as the published script computes them.

    An undecided triplet ("null") is in the denominator and not hallucinated. `by_kind` is there where every
    hallucinated triplet names the part that is wrong; `part_not_named` counts those without one.
    """
    overall = rates(questions, undecided_count=True)
    triplets = [one for question in questions for one in question.triplets]
    wrong = [one for one in triplets if one.hallucinated]
    result: Result = {
        **msgspec.structs.asdict(overall),
        "triplets": len(triplets),
        "hallucinated": len(wrong),
        "undecided": sum(one.hallucinated is None for one in triplets),
        "without_triplets": len(questions) - overall.questions,
    }
    result["part_not_named"] = sum(one.part is None for one in wrong)
    if not result["part_not_named"]:
        by_kind = {kind: rates(questions, kind, undecided_count=True) for kind in KINDS}
        result["by_kind"] = {
            kind: {"hallu_q": found.hallu_q, "hallu_i": found.hallu_i} for kind, found in by_kind.items()
        }
    return result


def _compute(request: TallyRequest) -> Result:
    if request.share is not None or request.tokens is not None:
        from groundwatch_benchmarks.methods.trihe import analysis

        return analysis.compute(request)
    model, questions = read_judgements(request.file)
    return {"judgements": model, **tally_questions(questions)}


TALLY = Tally(compute=_compute, takes=frozenset({"share", "tokens"}), outcomes=True)


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    (path,) = files(folder, "tri-he.json", "tri-he.json")
    for image in read_benchmark(path):
        picture = images.picture(image.image)
        for at, asked in enumerate(image.questions):
            yield question(f"{image.image}-{at}", asked.question, image, picture) if picture else None


def question(name: str, text: str, image: AnnotatedImage, picture: Picture) -> Question:
    return Question(
        id=name,
        protocol=TriHe.name,
        prompt=text,
        images=(picture,),
        reference=image.graph,
        tags={"image_id": image.image},
        unit=image.image,
    )


def figures(pairs: Sequence[Pair]) -> Result:
    questions = [
        judged_question(outcome, asked.unit or asked.id) for asked, outcome in pairs if outcome.claims
    ]
    unscored = Counter(outcome.reason for _, outcome in pairs if outcome.outcome is not OutcomeKind.SCORED)
    images: dict[str, list[JudgedQuestion]] = defaultdict(list)
    for one in questions:
        images[one.image].append(one)
    units = list(images.values())
    return {
        **tally_questions(questions),
        "unscored_by_reason": dict(sorted(unscored.items())),
        "hallu_q_interval": bootstrap(units, _rate),
    }


def _rate(images: Sequence[Sequence[JudgedQuestion]]) -> float | None:
    return rates([one for image in images for one in image], undecided_count=True).hallu_q
