"""Answers to Tri-HE's questions, with the benchmark's scene graphs as references.

They are recorded responses that name their image in the tag `image_id` or `image`, or stand in the
benchmark's own JSON, in its instances, as its authors suggest.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from groundwatch.errors import FileFormatError
from groundwatch.events import Reference, ResponseRecorded
from groundwatch.protocols.published import Place, json_members
from groundwatch.protocols.trihe.outcomes import image_of
from groundwatch.protocols.trihe.published import AnnotatedImage, is_benchmark, read_benchmark

_OWN = frozenset({"question", "answer", "triplet"})


def read_answers(file: Path) -> list[ResponseRecorded] | None:
    """Tri-HE's JSON with one model's answers in its instances, under a key of the model's name.

    None for a file of another kind. Raises `FileFormatError`, also unless there is one such key.
    """
    if not is_benchmark(file):
        return None
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


def annotate(
    file: Path, annotation: Path, read: Callable[[Path], Iterable[ResponseRecorded]]
) -> list[ResponseRecorded]:
    """The responses of a file, which `read` reads, with the scene graphs of their images."""
    images = {one.image: one for one in read_benchmark(annotation)}
    found = []
    for response in read(file):
        name = image_of(response.tags)
        if name is None or name not in images:
            named = "no image (by tag 'image_id' or 'image')" if name is None else f"image '{name}'"
            raise FileFormatError(
                file, f"response '{response.id}' names {named}, and {annotation} has none such"
            )
        found.append(msgspec.structs.replace(response, reference=_graph(images[name])))
    return found


def _graph(image: AnnotatedImage) -> Reference:
    return Reference(triplets=image.triplets, objects=image.objects)
