"""`groundwatch bench-build pope` and `vlm2`: yes/no questions from what people annotated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.cli.options import JsonOption
from groundwatch.cli.output import print_json, render_numbers, write_lines
from groundwatch.errors import UsageError
from groundwatch.protocols.pope import questions as pope_questions
from groundwatch.protocols.published import Place, json_lines
from groundwatch.protocols.vlm2 import questions as vlm2_questions
from groundwatch.protocols.vlm2.questions import Cue
from groundwatch.terminal import Console

STRATEGIES: tuple[pope_questions.Strategy, ...] = ("random", "popular", "adversarial")

Out = Annotated[Path, typer.Option(help="Write the questions here, one a line.", show_default=False)]
Seed = Annotated[int, typer.Option(help="The same seed draws the same questions.")]


def register(builder: typer.Typer) -> None:
    """Add the commands to `bench-build`."""
    builder.command("pope")(pope)
    builder.command("vlm2")(vlm2)


def pope(
    file: Annotated[
        Path,
        typer.Argument(help="Annotated images (JSON lines: image, objects).", show_default=False),
    ],
    out: Out,
    strategy: Annotated[str, typer.Option(help=f"Negatives: {', '.join(STRATEGIES)}.")] = "random",
    per_image: Annotated[
        int, typer.Option(min=1, help="Objects of each image that are asked for, and as many absent ones.")
    ] = pope_questions.PER_IMAGE,
    seed: Seed = 0,
    as_json: JsonOption = False,
) -> None:
    """Questions about objects that an image has and has not (POPE, section 4), in the published format."""
    chosen = next((one for one in STRATEGIES if one == strategy), None)
    if chosen is None:
        raise UsageError(f"--strategy {strategy}: one of {', '.join(STRATEGIES)}")
    images: dict[str, list[str]] = {}
    for place, record in json_lines(file):
        name = place.take(record, "image", str, "a text")
        if name in images:
            raise place.wrong(f"key 'image': {name} is there twice")
        images[name] = _texts(place, record, "objects")
    found = pope_questions.build(images, chosen, seed=seed, per_image=per_image)
    write_lines(out, found)
    labels = Counter(one.label for one in found)
    told = {
        "images": len(images),
        "objects": len({name for names in images.values() for name in names}),
        "questions": len(found),
        "yes": labels["yes"],
        "no": labels["no"],
        "strategy": chosen,
        "seed": seed,
    }
    print_json(told) if as_json else render_numbers(told, Console())


def vlm2(
    file: Annotated[
        Path,
        typer.Argument(
            help="Sequences (JSON lines: sequence, cues of image, subject, attribute, value).",
            show_default=False,
        ),
    ],
    out: Out,
    seed: Seed = 0,
    as_json: JsonOption = False,
) -> None:
    """Fine-grained yes/no questions from the cues that tell a sequence's images apart, by template."""
    lines: list[dict[str, Any]] = []
    labels: Counter[str] = Counter()
    seen: set[str] = set()
    for place, record in json_lines(file):
        sequence = place.take(record, "sequence", str, "a text")
        if sequence in seen:
            raise place.wrong(f"key 'sequence': {sequence} is there twice")
        seen.add(sequence)
        cues = [
            _cue(place._replace(what=f"cue {at}"), one)
            for at, one in enumerate(place.take(record, "cues", list, "a list of objects"))
        ]
        found = vlm2_questions.build(cues, seed=seed)
        labels.update(one.truth for one in found)
        lines.append({"sequence": sequence, "fine": msgspec.to_builtins(found)})
    write_lines(out, lines)
    told = {
        "sequences": len(lines),
        "questions": labels.total(),
        "yes": labels["yes"],
        "no": labels["no"],
        "seed": seed,
    }
    print_json(told) if as_json else render_numbers(told, Console())


def _cue(place: Place, one: object) -> Cue:
    if not isinstance(one, dict):
        raise place.wrong("expected an object")
    return Cue(
        image=place.take(one, "image", int, "the image's number, from 1"),
        subject=place.take(one, "subject", str, "a text"),
        attribute=place.take(one, "attribute", str, "a text"),
        value=place.take(one, "value", str, "a text"),
    )


def _texts(place: Place, record: dict[str, Any], key: str) -> list[str]:
    found = place.take(record, key, list, "a list of texts")
    if not all(isinstance(text, str) for text in found):
        raise place.wrong(f"key '{key}': expected a list of texts")
    return found
