"""FaithScore's questions about annotated images (section 5.2), and the columns of its tables 4 and 5.

MSCOCO-Cap asks for a caption of each image, LLaVA-1k puts questions of three kinds. Its authors had an LLM
write those from COCO's annotation and published none. So they are read from files as LLaVA published its own
ones of COCO's images, and where there are none, ours stand in their place, the same for every image.

Its published annotations say what people said of each sub-sentence and each atomic fact, one JSON object a
line: `id` (the image), `answer`, `stage 1` (sub-sentence to 1 for descriptive, 0 for analytical) and `stage
2` (atomic fact to 1 for in the image, 0 for hallucinated).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import msgspec

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import KnownFact, Label, Reference, ResponseRecorded, ResponseScored
from groundwatch.protocols import prompts
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.method import (
    IMAGE,
    Images,
    Pair,
    Picture,
    Question,
    Result,
    Tally,
    TallyRequest,
    mean_of,
)
from groundwatch.statistics.intervals import bootstrap
from groundwatch_benchmarks.json_files import UNNAMED_MODEL, Place, beginning, json_document, read_lines
from groundwatch_benchmarks.methods.yes_no import unscored


class _AnnotatedLine(msgspec.Struct):
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
        for place, line in read_lines(path, _AnnotatedLine)
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


TALLY = Tally(compute=_compute)

TASKS = {"conv": "conversation", "detail": "detailed-description", "complex": "complex-question"}
"""The tag `task` of LLaVA-1k's answers, by LLaVA's word for it."""

CAPTION = "caption"
"""The same of MSCOCO-Cap's."""

LLAVA, MSCOCO = "llava-1k", "mscoco-cap"
"""The tag `dataset`."""

COCO = "COCO_val2014_"
"""How names of COCO's images begin, which annotations leave out."""


class Asked(NamedTuple):
    """A question as it is put, and the tag `task` by which the paper's tables know it."""

    text: str
    task: str


class _Line(msgspec.Struct):
    question_id: int | str
    image: str
    text: str
    category: Literal["conv", "detail", "complex"]


class _Image(msgspec.Struct):
    id: int | str
    file_name: str


class _Category(msgspec.Struct):
    id: int
    name: str


class _Annotation(msgspec.Struct):
    image_id: int | str
    category_id: int | None = None
    caption: str = ""


class _Coco(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category] = []


class _Annotated:
    """What is known of an image, and what is asked about it."""

    def __init__(self) -> None:
        self.facts: dict[KnownFact, None] = {}
        self.objects: dict[str, None] = {}
        self.questions: list[Asked] = []

    @property
    def reference(self) -> Reference | None:
        if not self.facts and not self.objects:
            return None
        return Reference(facts=tuple(self.facts), objects=tuple(self.objects))


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """Of each image that is annotated or asked about its questions, and a caption.

    Annotations are COCO's (objects, captions) and FaithScore's (facts); questions are in the format of
    LLaVA-Bench (COCO), `qa90_questions.jsonl`. Raises `FileFormatError`.
    """
    known: dict[str, _Annotated] = defaultdict(_Annotated)
    for path in sorted(folder.glob("*.json*")):
        _, first = beginning(path)
        if is_annotation(path):
            for said in read_annotations(path):
                facts = (KnownFact(text=text, holds=holds) for text, holds in said.facts.items())
                known[_name(said.image)].facts |= dict.fromkeys(facts)
        elif isinstance(first, dict) and "question_id" in first:
            for _, line in read_lines(path, _Line):
                known[_name(line.image)].questions.append(Asked(line.text, TASKS[line.category]))
        else:
            _read_coco(path, known)
    if not known:
        raise UsageError(
            f"{folder}: holds no annotated images: put COCO's annotation there, such as "
            "captions_val2014.json, FaithScore's annotation.jsonl or LLaVA's qa90_questions.jsonl"
        )
    tasks = (CAPTION, *TASKS.values())
    caption, *ours = (Asked(prompts.load(FaithScore.package, f"ask_{task}").user, task) for task in tasks)
    if any(one.questions for one in known.values()):
        ours = []
    for name, one in known.items():
        picture = images.picture(name) or images.picture(COCO + name)
        for at, asked in enumerate((*(one.questions or ours), caption)):
            yield question(f"{name}-{at}", asked, name, picture, one.reference) if picture else None


def _name(image: str) -> str:
    return Path(image).stem.removeprefix(COCO)


def _read_coco(path: Path, known: dict[str, _Annotated]) -> None:
    read = json_document(path, _Coco)
    by_id = {image.id: known[_name(image.file_name)] for image in read.images}
    kinds = {category.id: category.name for category in read.categories}
    for one in read.annotations:
        if one.image_id not in by_id or (one.category_id is not None and one.category_id not in kinds):
            what = f"category {one.category_id}" if one.image_id in by_id else f"image {one.image_id}"
            raise FileFormatError(path, f"an annotation names {what}, which is not in the file")
        image = by_id[one.image_id]
        if one.category_id is not None:
            image.objects[kinds[one.category_id]] = None
        if caption := " ".join(one.caption.split()):
            image.facts[KnownFact(text=caption, holds=True)] = None


def question(name: str, asked: Asked, image: str, picture: Picture, known: Reference | None) -> Question:
    dataset = MSCOCO if asked.task == CAPTION else LLAVA
    return Question(
        id=name,
        protocol=FaithScore.name,
        prompt=asked.text,
        images=(picture,),
        reference=known,
        tags={IMAGE: image, "task": asked.task, "dataset": dataset} | prompts.own_tags(asked.text),
        unit=image,
    )


def figures(pairs: Sequence[Pair]) -> Result:
    """The columns of tables 4 and 5, each with both scores, their intervals over images, and the length."""
    tasks: dict[str, list[Pair]] = {name: [] for name in (*TASKS.values(), CAPTION)}
    for pair in pairs:
        tasks[pair[0].tags["task"]].append(pair)
    captions = tasks.pop(CAPTION)
    columns = tasks | {"overall": [pair for several in tasks.values() for pair in several], MSCOCO: captions}
    found: Result = {name: _column(several) for name, several in columns.items() if several}
    return found | {"questions": len(pairs), **unscored(pairs)}


def _column(pairs: Sequence[Pair]) -> Result:
    units: dict[str, list[ResponseScored]] = defaultdict(list)
    for asked, outcome in pairs:
        units[asked.unit].append(outcome)
    several = list(units.values())
    means = {name: bootstrap(several, partial(_mean, name)) for name in ("faithscore", "sentence_level")}
    return {**means, "answer_words": _mean("answer_words", several), "answers": len(pairs)}


def _mean(name: str, units: Sequence[Sequence[ResponseScored]]) -> float | None:
    values = [one.values[name] for outcomes in units for one in outcomes if name in one.values]
    return fmean(values) if values else None
