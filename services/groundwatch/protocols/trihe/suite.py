"""Tri-HE's published questions, and the figures of a model that answered them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from groundwatch.events import Decision, OutcomeKind, Reference, Verdict
from groundwatch.protocols.suite import Images, Pair, Question, files, interval
from groundwatch.protocols.tally import Result
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.published import read_benchmark
from groundwatch.protocols.trihe.scoring import JudgedQuestion, JudgedTriplet, rates
from groundwatch.protocols.trihe.tally import tally_questions
from groundwatch.protocols.trihe.wording import blamed

_HALLUCINATED = {Decision.SUPPORTED: False, Decision.REFUTED: True, Decision.UNDECIDED: None}


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """`tri-he.json`: image to triplets, objects and questions."""
    (path,) = files(folder, "tri-he.json", "tri-he.json")[:1]
    for one in read_benchmark(path):
        picture = images.picture(one.image)
        for at, asked in enumerate(one.questions):
            yield (
                Question(
                    id=f"{one.image}-{at}",
                    protocol=TriHe.name,
                    prompt=asked.question,
                    images=(picture,),
                    reference=Reference(triplets=one.triplets, objects=one.objects),
                    tags={"image_id": one.image},
                    unit=one.image,
                )
                if picture
                else None
            )


def figures(pairs: Sequence[Pair]) -> Result:
    questions = [
        JudgedQuestion(
            image=question.unit or question.id,
            triplets=tuple(
                JudgedTriplet(
                    hallucinated=_HALLUCINATED[claim.decision],
                    part=blamed(Verdict(decision=claim.decision, evidence=claim.evidence)),
                )
                for claim in outcome.claims
            ),
        )
        for question, outcome in pairs
        if outcome.claims
    ]
    unscored = Counter(outcome.reason for _, outcome in pairs if outcome.outcome is not OutcomeKind.SCORED)
    images: dict[str, list[JudgedQuestion]] = defaultdict(list)
    for one in questions:
        images[one.image].append(one)
    units = list(images.values())
    return {
        **tally_questions(questions),
        "unscored_by_reason": dict(sorted(unscored.items())),
        "hallu_q_interval": interval(units, lambda drawn: _rate(drawn)),
    }


def _rate(images: Sequence[Sequence[JudgedQuestion]]) -> float | None:
    return rates([one for image in images for one in image], undecided_count=True).hallu_q
