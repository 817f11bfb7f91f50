"""POPE, section 4: questions about objects that an image has and has not, in the published format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from groundwatch.evaluation.datasets.lines import write_lines
from groundwatch.protocols.pope.questions import Strategy, build
from groundwatch.protocols.published import Place, json_lines


def build_pope(file: Path, out: Path, strategy: Strategy, *, seed: int, per_image: int) -> dict[str, Any]:
    """Write the questions and count them; raises `FileFormatError` naming file, line and key."""
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
