"""POPE, section 4: questions about objects that an image has and has not, in the published format."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec

from groundwatch.protocols.pope.questions import PER_IMAGE, Strategy, build
from groundwatch.protocols.published import Place, json_lines, write_lines
from groundwatch.protocols.tally import Result


def build_dataset(
    file: Annotated[Path, msgspec.Meta(description="Annotated images (JSON lines: image, objects).")],
    *,
    out: Annotated[Path, msgspec.Meta(description="Write the questions here, one a line.")],
    strategy: Annotated[Strategy, msgspec.Meta(description="How absent objects are drawn.")] = "random",
    per_image: Annotated[
        int,
        msgspec.Meta(ge=1, description="Objects of each image that are asked for, and as many absent ones."),
    ] = PER_IMAGE,
    seed: Annotated[int, msgspec.Meta(description="The same seed draws the same questions.")] = 0,
) -> Result:
    """Questions about objects that an image has and has not (POPE, section 4), in the published format."""
    images: dict[str, list[str]] = {}
    for place, record in json_lines(file):
        name = place.take(record, "image", str, "a text")
        if name in images:
            raise place.wrong(f"key 'image': {name} is there twice")
        images[name] = _objects(place, record)
    questions = build(images, strategy, seed=seed, per_image=per_image)
    write_lines(out, questions)
    labels = Counter(question.label for question in questions)
    return {
        "images": len(images),
        "objects": len({name for names in images.values() for name in names}),
        "questions": len(questions),
        "yes": labels["yes"],
        "no": labels["no"],
        "strategy": strategy,
        "seed": seed,
    }


def _objects(place: Place, record: dict[str, Any]) -> list[str]:
    objects = place.take(record, "objects", list, "a list of texts")
    if not all(isinstance(name, str) for name in objects):
        raise place.wrong("key 'objects': expected a list of texts")
    return objects
