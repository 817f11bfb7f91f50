"""Tri-HE's files: the benchmark (image → triplets, objects, questions), results with judgements, and answers.

Triplets are texts such as "(man, riding, horse)", in results also lists of three. Some of the benchmark's
have more commas or two triplets in one text; they are cut as far as they can be, and never dropped silently.
Answers are recorded responses that name their image in a tag, or stand in the benchmark's own JSON, in its
instances, as its authors suggest.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path, PurePath
from typing import Any

import msgspec

from groundwatch.errors import FileFormatError
from groundwatch.events import OutcomeKind, Reference, ResponseRecorded, ResponseScored
from groundwatch.protocols.method import ReadResponses
from groundwatch.protocols.trihe.protocol import HALLUCINATED, TriHe
from groundwatch.protocols.trihe.scoring import JudgedTriplet
from groundwatch.protocols.triplets import Part, Triplet, blamed, triplet_of
from groundwatch_benchmarks.json_files import Place, beginning, json_images, read_outcomes
from groundwatch_benchmarks.methods.trihe.scoring import JudgedQuestion

IMAGE_TAGS = ("image_id", "image")
"""The tags that name a response's image, the first one that is there."""

JUDGEMENTS = "_triplets_judgements"
"""What the key of a question's judgements ends in; before it stands the name of the model."""

_BETWEEN = re.compile(r"\)?\s*[;,]\s*\(")
_VERDICT = re.compile(r"\bmy answer is\W{1,4}(yes|no)\b|^\W{0,4}(yes|no|null)\b")
_NAMES = r"(object[ _]?1|object[ _]?2|relation|object|subject)\b"
_PART = re.compile(rf"\b{_NAMES}")
_BLAMED = re.compile(rf"\brelated to\W{{1,4}}{_NAMES}")
_PARTS: dict[str, Part] = {
    "object1": "object1",
    "subject": "object1",
    "object2": "object2",
    "object": "object2",
    "relation": "relation",
}


class _Instance(msgspec.Struct):
    question: str
    answer: str
    triplet: list[str]


class _Image(msgspec.Struct):
    instance: list[_Instance]
    triplets: list[str]
    all_object: list[str]
    object: list[str]


class _Results(msgspec.Struct):
    instance: list[dict[str, Any]]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the benchmark with its reference answer and the triplets that explain it."""

    question: str
    answer: str
    triplets: tuple[Triplet, ...] = ()


class AnnotatedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the benchmark. `objects` are all that are named, each once."""

    image: str
    triplets: tuple[Triplet, ...]
    objects: tuple[str, ...]
    questions: tuple[Asked, ...] = ()

    @property
    def graph(self) -> Reference:
        return Reference(triplets=self.triplets, objects=self.objects)


def read_benchmark(path: Path) -> list[AnnotatedImage]:
    return [_annotated(*piece) for piece in json_images(path)]


def is_benchmark(path: Path) -> bool:
    """Whether a file begins as one JSON object of images with instances, on one line or several."""
    begins, record = beginning(path)
    if record is None:
        return begins.lstrip().startswith(b"{") and b'"instance"' in begins
    values = list(record.values()) if isinstance(record, dict) else []
    return bool(values) and all(isinstance(value, dict) and "instance" in value for value in values)


def read_triplets(texts: Iterable[str]) -> tuple[Triplet, ...]:
    found: dict[Triplet, None] = {}
    for text in texts:
        for one in _BETWEEN.split(text):
            parts = [part.strip(" ()'\"") for part in one.split(",")]
            parts = [part for part in parts if part]
            if len(parts) > 1:
                found[parts[0], parts[1], ", ".join(parts[2:])] = None
    return tuple(found)


def read_judgements(path: Path) -> tuple[str, list[JudgedQuestion]]:
    """The judged model's key and the judged questions of a result file.

    Raises `FileFormatError` naming file, line and key; also where a file has judgements of several models,
    whose rates are not to be mixed.
    """
    images = json_images(path)
    instances = [
        (place.inside(f"instance {at}"), image, one)
        for place, image, value in images
        for at, one in enumerate(place.read(value, _Results).instance)
    ]
    keys = sorted({key for _, _, one in instances for key in one if key.endswith(JUDGEMENTS)})
    if len(keys) != 1:
        several = f"judgements of several models ({', '.join(keys)}): keep one" if keys else "none there"
        raise Place(path, images[0][0].line if images else 1).wrong(f"key '…{JUDGEMENTS}': {several}")
    return keys[0], [_judged(*instance, keys[0]) for instance in instances]


def judged_question(outcome: ResponseScored, image: str) -> JudgedQuestion:
    ends = list(accumulate(len(unit.text.split()) for unit in outcome.units))
    return JudgedQuestion(
        image=image,
        triplets=tuple(
            JudgedTriplet(
                hallucinated=HALLUCINATED[claim.decision],
                part=blamed(claim),
                triplet=triplet_of(claim),
                tokens=ends[claim.unit] if 0 <= claim.unit < len(ends) else None,
            )
            for claim in outcome.claims
        ),
    )


def judged_outcomes(lines: Iterable[tuple[Place, dict[str, Any]]]) -> list[JudgedQuestion]:
    """One question for each response that was judged, its image by tag, else by its own id."""
    return [
        judged_question(outcome, _image_of(outcome.tags) or outcome.id)
        for _, outcome in read_outcomes(lines, TriHe.name)
        if outcome.outcome is not OutcomeKind.DECLINED
    ]


def read_answers(file: Path) -> list[ResponseRecorded] | None:
    """Tri-HE's JSON with one model's answers in its instances, under a key of the model's name.

    None for a file of another kind. Raises `FileFormatError`, also unless there is one such key.
    """
    if not is_benchmark(file):
        return None
    images = [(*piece, _annotated(*piece)) for piece in json_images(file)]
    own = _Instance.__struct_fields__
    instances = (instance for _, _, value, _ in images for instance in value["instance"])
    keys = sorted(
        {key for one in instances for key, value in one.items() if key not in own and isinstance(value, str)}
    )
    if len(keys) != 1:
        told = f"answers of several models ({', '.join(keys)}): keep one" if keys else "no model's answers"
        raise FileFormatError(file, f"key 'instance': {told}", line=1)
    responses = []
    for place, image, value, annotated in images:
        for at, (instance, asked) in enumerate(zip(value["instance"], annotated.questions, strict=True)):
            answer = instance.get(keys[0])
            if not isinstance(answer, str):
                raise place.inside(f"instance {at}").wrong(f"key '{keys[0]}': expected the model's answer")
            responses.append(
                ResponseRecorded(
                    id=f"{image}-{at}",
                    model=keys[0],
                    prompt=asked.question,
                    answer=answer,
                    reference=annotated.graph,
                    tags={"image_id": image},
                )
            )
    return responses


def annotate(file: Path, annotation: Path, read: ReadResponses) -> list[ResponseRecorded]:
    """The responses of a file, which `read` reads, with the scene graphs of their images."""
    images = {one.image: one for one in read_benchmark(annotation)}
    found = []
    for response in read(file):
        name = _image_of(response.tags)
        if name is None or name not in images:
            named = "no image (by tag 'image_id' or 'image')" if name is None else f"image '{name}'"
            raise FileFormatError(
                file, f"response '{response.id}' names {named}, and {annotation} has none such"
            )
        found.append(msgspec.structs.replace(response, reference=images[name].graph))
    return found


def _image_of(tags: Mapping[str, str]) -> str | None:
    """The image that a response is about, without the ending of its file's name."""
    return next((PurePath(tags[name]).stem for name in IMAGE_TAGS if tags.get(name)), None)


def _annotated(place: Place, name: str, value: object) -> AnnotatedImage:
    found = place.read(value, _Image)
    return AnnotatedImage(
        image=name,
        triplets=read_triplets(found.triplets),
        objects=tuple(dict.fromkeys([*found.all_object, *found.object])),
        questions=tuple(
            Asked(question=one.question, answer=one.answer, triplets=read_triplets(one.triplet))
            for one in found.instance
        ),
    )


def _judged(place: Place, image: str, one: dict[str, Any], key: str) -> JudgedQuestion:
    judgements = one.get(key)
    if not isinstance(judgements, list):
        raise place.wrong(f"key '{key}': {'expected a list of judgements' if key in one else 'is missing'}")
    said = one.get(key.removesuffix("_judgements"))
    triplets: Sequence[Triplet | None] = [_triplet(each) for each in said] if isinstance(said, list) else ()
    if len(triplets) != len(judgements):
        triplets = [None] * len(judgements)
    return JudgedQuestion(
        image=image,
        triplets=tuple(
            _judgement(place, key, each, triplet) for each, triplet in zip(judgements, triplets, strict=True)
        ),
    )


def _judgement(place: Place, key: str, judged: object, triplet: Triplet | None) -> JudgedTriplet:
    """A judgement is yes, no or null, a judge's whole reply, or either with the part that is wrong.

    The part stands in the same text ("no, relation"), beside it in a list, or in an object's other value.
    """
    if isinstance(judged, bool):
        judged = "yes" if judged else "no"
    values = judged if isinstance(judged, list) else judged.values() if isinstance(judged, dict) else [judged]
    texts = ["null" if value is None else str(value).casefold() for value in values]
    verdicts = [(at, found) for at, text in enumerate(texts) if (found := _VERDICT.search(text))]
    if not verdicts:
        if any(" " in text.strip() for text in texts):
            return JudgedTriplet(hallucinated=None, triplet=triplet)
        raise place.wrong(f"key '{key}': expected yes, no or null, not {judged!r}")
    at, verdict = verdicts[0]
    answer = verdict[1] or verdict[2]
    if answer != "no":
        return JudgedTriplet(hallucinated=None if answer == "null" else False, triplet=triplet)
    rest = " ".join([texts[at][verdict.end() :], *texts[:at], *texts[at + 1 :]])
    part = _BLAMED.search(rest) or _PART.search(rest)
    return JudgedTriplet(
        hallucinated=True, part=_PARTS[re.sub("[ _]", "", part[1])] if part else None, triplet=triplet
    )


def _triplet(value: object) -> Triplet | None:
    if isinstance(value, str):
        found = read_triplets([value])
        return found[0] if len(found) == 1 else None
    if isinstance(value, list) and len(value) > 1 and all(isinstance(part, str) for part in value):
        return value[0], value[1], ", ".join(value[2:])
    return None
