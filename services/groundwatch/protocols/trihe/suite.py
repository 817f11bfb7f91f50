"""Tri-HE's published questions, and the figures of a model that answered them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from groundwatch.events import OutcomeKind, Reference
from groundwatch.protocols.suite import Images, Pair, Question, files, interval
from groundwatch.protocols.tally import Result
from groundwatch.protocols.trihe.outcomes import judged_question
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.published import read_benchmark
from groundwatch.protocols.trihe.scoring import JudgedQuestion, rates
from groundwatch.protocols.trihe.tally import tally_questions


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
        judged_question(outcome, question.unit or question.id)
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
        "hallu_q_interval": interval(units, _rate),
    }


def _rate(images: Sequence[Sequence[JudgedQuestion]]) -> float | None:
    return rates([one for image in images for one in image], undecided_count=True).hallu_q
