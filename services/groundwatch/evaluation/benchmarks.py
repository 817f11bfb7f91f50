"""Answers to a benchmark's questions as recorded responses, with the benchmark's annotation as reference.

Tri-HE: recorded responses that name their image in the tag `image_id` or `image`, or the benchmark's own
JSON with a model's answers written into its instances, as its authors suggest. POPE: replies beside the
question files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import KnownFact, Reference, ResponseRecorded
from groundwatch.protocols.faithscore.annotation import UNNAMED_MODEL
from groundwatch.protocols.pope.tally import read_pairs
from groundwatch.protocols.published import Place, json_members
from groundwatch.protocols.trihe.outcomes import IMAGE_TAGS
from groundwatch.protocols.trihe.published import Annotated, read_benchmark

_OWN = frozenset({"question", "answer", "triplet"})


def annotated_responses(
    protocol: str, file: Path, annotation: Path, read: Callable[[Path], Iterable[ResponseRecorded]]
) -> list[ResponseRecorded]:
    """The responses of a file with references from a benchmark's annotation.

    `read` reads recorded responses. Raises `FileFormatError` naming file, line and key, and `UsageError` for
    a protocol without such a format.
    """
    if protocol == "pope":
        return _pope(file, annotation)
    if protocol == "tri-he":
        return _tri_he(file, annotation, read)
    raise UsageError(f"{protocol} takes no annotation of a benchmark", "annotation")


def answered_benchmark(file: Path) -> list[ResponseRecorded]:
    """Tri-HE's JSON with one model's answers in its instances, under a key of the model's name.

    Raises `FileFormatError`, also where there is no such key or more than one.
    """
    images = {one.image: one for one in read_benchmark(file)}
    pieces = json_members(file)
    keys = sorted(
        {
            key
            for piece in pieces
            for instance in piece.value["instance"]
            for key, value in instance.items()
            if key not in _OWN and isinstance(value, str)
        }
    )
    if len(keys) != 1:
        told = f"answers of several models ({', '.join(keys)}): keep one" if keys else "no model's answers"
        raise FileFormatError(file, f"key 'instance': {told}", line=1)
    responses = []
    for piece in pieces:
        for at, instance in enumerate(piece.value["instance"]):
            place = Place(file, piece.line, f"image '{piece.key}', instance {at}")
            responses.append(
                ResponseRecorded(
                    id=f"{piece.key}-{at}",
                    model=keys[0],
                    prompt=instance["question"],
                    answer=place.take(instance, keys[0], str, "the model's answer"),
                    reference=_graph(images[piece.key]),
                    tags={"image_id": piece.key},
                )
            )
    return responses


def _pope(file: Path, labels: Path) -> list[ResponseRecorded]:
    return [
        ResponseRecorded(
            id=str(number),
            model=UNNAMED_MODEL,
            prompt=one.question,
            answer=one.reply,
            reference=Reference(facts=(KnownFact(text=one.question, holds=one.label == "yes"),)),
        )
        for number, one in enumerate(read_pairs(file, labels), start=1)
    ]


def _tri_he(
    file: Path, annotation: Path, read: Callable[[Path], Iterable[ResponseRecorded]]
) -> list[ResponseRecorded]:
    images = {one.image: one for one in read_benchmark(annotation)}
    found = []
    for response in read(file):
        name = _image(response.tags)
        if name is None or name not in images:
            named = "no image (by tag 'image_id' or 'image')" if name is None else f"image '{name}'"
            raise FileFormatError(
                file, f"response '{response.id}' names {named}, and {annotation} has none such"
            )
        found.append(msgspec.structs.replace(response, reference=_graph(images[name])))
    return found


def _image(tags: Mapping[str, str]) -> str | None:
    return next((Path(tags[name]).stem for name in IMAGE_TAGS if tags.get(name)), None)


def _graph(image: Annotated) -> Reference:
    return Reference(triplets=image.triplets, objects=image.objects)
