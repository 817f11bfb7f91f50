"""VLM²-Bench: yes/no questions by template, from the cues that tell the images of a sequence apart.

A cue is what a person wrote down of one image: an attribute (color, text, number, …) of a thing with its
value. It gives a question whose truth is yes and, with the value that the same attribute has in another
image of the sequence, one whose truth is no.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from groundwatch.protocols.base import folded
from groundwatch.protocols.method import Result
from groundwatch.protocols.questions import Answer
from groundwatch_benchmarks.json_files import read_lines, write_lines

TEMPLATES = {
    "color": "In image {image}, is the {subject} {value}?",
    "text": 'In image {image}, does the {subject} show the text "{value}"?',
    "number": "In image {image}, is the number of {subject} exactly {value}?",
    "presence": "In image {image}, is there a {subject}?",
}
"""One for each kind of cue; any other attribute takes `OTHER`."""

OTHER = "In image {image}, is the {attribute} of the {subject} {value}?"
ABSENT = "absent"
"""The value of a `presence` cue for a thing that is not in the image."""


class Cue(msgspec.Struct, frozen=True, kw_only=True):
    """What a person saw: images of a sequence are counted from 1."""

    image: int
    subject: str
    attribute: str
    value: str


class FineQuestion(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    truth: Answer


def build(cues: Sequence[Cue], *, seed: int = 0) -> list[FineQuestion]:
    """A question with the cue's own value, and one with another image's, for each cue; none twice.

    A cue whose attribute has the same value wherever it is known gives no question whose truth is no. A
    question is left out when the cues would answer it with both yes and no, as two cues of one image do
    that differ.
    """
    random = Random(seed)
    truths: dict[str, set[Answer]] = {}
    known: dict[tuple[int, str, str], set[str]] = {}
    for cue in cues:
        known.setdefault((cue.image, *_aspect(cue)), set()).add(folded(cue.value))
    for cue in cues:
        if cue.attribute == "presence":
            truths.setdefault(ask(cue), set()).add("no" if folded(cue.value) == ABSENT else "yes")
            continue
        truths.setdefault(ask(cue), set()).add("yes")
        own = known[cue.image, *_aspect(cue)]
        others = sorted(
            {
                other.value
                for other in cues
                if _aspect(other) == _aspect(cue) and folded(other.value) not in own
            }
        )
        if others:
            wrong = msgspec.structs.replace(cue, value=random.choice(others))
            truths.setdefault(ask(wrong), set()).add("no")
    return [
        FineQuestion(question=text, truth=next(iter(found)))
        for text, found in truths.items()
        if len(found) == 1
    ]


def ask(cue: Cue) -> str:
    template = TEMPLATES.get(cue.attribute, OTHER)
    return template.format(image=cue.image, subject=cue.subject, attribute=cue.attribute, value=cue.value)


def _aspect(cue: Cue) -> tuple[str, str]:
    return folded(cue.subject), cue.attribute


class _Line(msgspec.Struct):
    sequence: str
    cues: list[Cue]


def build_dataset(
    file: Annotated[
        Path, Meta(description="Sequences (JSON lines: sequence, cues of image, subject, attribute, value).")
    ],
    *,
    out: Annotated[Path, Meta(description="Write the questions here, one sequence a line.")],
    seed: Annotated[int, Meta(description="The same seed draws the same questions.")] = 0,
) -> Result:
    """Fine-grained yes/no questions from the cues that tell a sequence's images apart, by template."""
    found: dict[str, list[FineQuestion]] = {}
    for place, line in read_lines(file, _Line):
        if line.sequence in found:
            raise place.wrong(f"key 'sequence': {line.sequence} is there twice")
        found[line.sequence] = build(line.cues, seed=seed)
    labels = Counter(question.truth for questions in found.values() for question in questions)
    write_lines(out, [{"sequence": sequence, "fine": questions} for sequence, questions in found.items()])
    return {
        "sequences": len(found),
        "questions": labels.total(),
        "yes": labels["yes"],
        "no": labels["no"],
        "seed": seed,
    }
