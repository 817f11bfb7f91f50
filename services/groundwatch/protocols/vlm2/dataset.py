"""VLM²-Bench: yes/no questions by template, from the cues that tell a sequence's images apart."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec

from groundwatch.protocols.published import Place, json_lines, write_lines
from groundwatch.protocols.tally import Result
from groundwatch.protocols.vlm2.questions import Cue, build


def build_dataset(
    file: Annotated[
        Path,
        msgspec.Meta(
            description="Sequences (JSON lines: sequence, cues of image, subject, attribute, value)."
        ),
    ],
    *,
    out: Annotated[Path, msgspec.Meta(description="Write the questions here, one sequence a line.")],
    seed: Annotated[int, msgspec.Meta(description="The same seed draws the same questions.")] = 0,
) -> Result:
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
        questions = build(cues, seed=seed)
        labels.update(question.truth for question in questions)
        lines.append({"sequence": sequence, "fine": msgspec.to_builtins(questions)})
    write_lines(out, lines)
    return {
        "sequences": len(lines),
        "questions": labels.total(),
        "yes": labels["yes"],
        "no": labels["no"],
        "seed": seed,
    }


def _cue(place: Place, cue: object) -> Cue:
    if not isinstance(cue, dict):
        raise place.wrong("expected an object")
    return Cue(
        image=place.take(cue, "image", int, "the image's number, from 1"),
        subject=place.take(cue, "subject", str, "a text"),
        attribute=place.take(cue, "attribute", str, "a text"),
        value=place.take(cue, "value", str, "a text"),
    )
