"""FaithScore's published annotations: what people said of each sub-sentence and each atomic fact.

One JSON object a line: `id` (the image), `answer`, `stage 1` (sub-sentence to 1 for descriptive, 0 for
analytical) and `stage 2` (atomic fact to 1 for in the image, 0 for hallucinated).
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from groundwatch.events import KnownFact, Label, Reference, ResponseRecorded
from groundwatch.protocols.method import Result, Tally, TallyRequest, mean_of
from groundwatch.protocols.published import UNNAMED_MODEL, Place, beginning, read_lines
from groundwatch.statistics.intervals import Interval


class _Line(msgspec.Struct):
    id: str
    answer: str
    labels: dict[str, object] = msgspec.field(name="stage 1")
    facts: dict[str, object] = msgspec.field(name="stage 2")


class AnnotatedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as people annotated it. Several answers share an image.

    `labels` maps sub-sentences, in the answer's order and without surrounding white space, to their label;
    `facts` maps atomic facts to whether they hold in the image.
    """

    image: str
    answer: str
    labels: dict[str, Label]
    facts: dict[str, bool]


def read_annotations(path: Path) -> list[AnnotatedAnswer]:
    return [
        AnnotatedAnswer(
            image=line.id,
            answer=line.answer,
            labels={
                text.strip(): Label.DESCRIPTIVE if descriptive else Label.ANALYTICAL
                for text, descriptive in _judged(place, "stage 1", line.labels).items()
            },
            facts=_judged(place, "stage 2", line.facts),
        )
        for place, line in read_lines(path, _Line)
    ]


def _judged(place: Place, key: str, judgements: dict[str, object]) -> dict[str, bool]:
    for text, value in judgements.items():
        if isinstance(value, float) or value not in (0, 1):
            raise place.wrong(f"key '{key}', '{text}': expected 1 or 0")
    return {text: bool(value) for text, value in judgements.items()}


def is_annotation(path: Path) -> bool:
    """Whether the first line that says something is FaithScore's: it has a key `stage 1` or `stage 2`."""
    _, record = beginning(path)
    return isinstance(record, dict) and not record.keys().isdisjoint(("stage 1", "stage 2"))


def annotated_response(number: int, annotated: AnnotatedAnswer) -> ResponseRecorded:
    """An annotated answer as a recorded response; several share an image, so `number` makes the id."""
    return ResponseRecorded(
        id=f"{annotated.image}-{number}",
        model=UNNAMED_MODEL,
        answer=annotated.answer,
        reference=Reference(
            facts=tuple(KnownFact(text=text, holds=holds) for text, holds in annotated.facts.items())
        ),
        tags={"image": annotated.image},
    )


def read_answers(path: Path) -> list[ResponseRecorded] | None:
    """The annotated answers as recorded responses; None for a file of another kind."""
    if not is_annotation(path):
        return None
    return [annotated_response(number, one) for number, one in enumerate(read_annotations(path), start=1)]


def tally_answers(answers: Sequence[AnnotatedAnswer]) -> Result:
    """Equation 1 on people's labels: the mean over answers that have facts, None when none has.

    `as_published` counts those without facts as 0, as the authors' code does (`framework.py`, stage 3).
    """
    scores = [fmean(annotated.facts.values()) for annotated in answers if annotated.facts]
    interval = mean_of(scores)
    facts = [holds for annotated in answers for holds in annotated.facts.values()]
    return {
        "faithscore": interval.value if interval else None,
        "interval": msgspec.to_builtins(interval),
        "as_published": sum(scores) / len(answers) if answers else None,
        "answers": len(answers),
        "scored": len(scores),
        "unscored": len(answers) - len(scores),
        "facts": len(facts),
        "hallucinated": facts.count(False),
    }


def _compute(request: TallyRequest) -> Result:
    return tally_answers(read_annotations(request.file))


def _tell(result: Result) -> str:
    shown = "–"
    if result["interval"] is not None:
        found = msgspec.convert(result["interval"], Interval)
        shown = f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f}, n = {found.n})"
    return (
        f"faithscore {shown} over {result['scored']} of {result['answers']} answers; "
        f"{result['unscored']} without facts; {result['hallucinated']} of {result['facts']} facts "
        "not in the image"
    )


TALLY = Tally(compute=_compute, tell=_tell)
