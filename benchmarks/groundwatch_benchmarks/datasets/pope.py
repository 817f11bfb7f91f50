"""POPE's questions about annotated images, in the published format."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from groundwatch.protocols.method import Result
from groundwatch_benchmarks.json_files import read_lines, write_lines
from groundwatch_benchmarks.pope import PER_IMAGE, Strategy, build


class _Line(msgspec.Struct):
    image: str
    objects: list[str]


def build_dataset(
    file: Annotated[Path, Meta(description="Annotated images (JSON lines: image, objects).")],
    *,
    out: Annotated[Path, Meta(description="Write the questions here, one a line.")],
    strategy: Annotated[Strategy, Meta(description="How absent objects are drawn.")] = "random",
    per_image: Annotated[
        int, Meta(ge=1, description="Objects of each image that are asked for, and as many absent ones.")
    ] = PER_IMAGE,
    seed: Annotated[int, Meta(description="The same seed draws the same questions.")] = 0,
) -> Result:
    """Questions about objects that an image has and has not (POPE, section 4), in the published format."""
    images: dict[str, list[str]] = {}
    for place, line in read_lines(file, _Line):
        if line.image in images:
            raise place.wrong(f"key 'image': {line.image} is there twice")
        images[line.image] = line.objects
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
