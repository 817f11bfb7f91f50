"""Files of the metric on VLM²-Bench: one image sequence a line, with what was asked, answered and true.

A file of outcomes, which `groundwatch score vlm2 … --out` writes, is tallied too. A suite's lines are
{sequence, task, images, coarse: {question, truth}, fine: [{question, truth}]}.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.protocols import registry
from groundwatch.protocols.method import (
    Images,
    Pair,
    Picture,
    Question,
    Result,
    Tally,
    TallyRequest,
    files,
    mean_of,
)
from groundwatch.protocols.published import Place, is_outcome, json_lines, read_lines, read_outcomes
from groundwatch.protocols.vlm2.protocol import LEVEL, QUESTIONS, SEQUENCE, TASK, TRUTH, Vlm2
from groundwatch.protocols.vlm2.scoring import (
    ImageSequence,
    Text,
    as_text,
    score_outcomes,
    score_sequence,
    tally,
)


class _Asked(msgspec.Struct):
    question: str
    truth: Text


class _Sequence(msgspec.Struct):
    sequence: str | int
    task: str
    images: list[str | int]
    coarse: _Asked
    fine: list[_Asked]


def read_sequences(lines: Iterable[tuple[Place, dict[str, Any]]]) -> list[ImageSequence]:
    """Read the sequences; raises `FileFormatError` naming file, line and key.

    A sequence that is there twice in one task is an error: its score would be added twice.
    """
    found: dict[tuple[str, str], ImageSequence] = {}
    for place, record in lines:
        one = place.read(record, ImageSequence)
        if (one.task, str(one.sequence)) in found:
            raise place.wrong(f"key 'sequence': {one.sequence} is there twice in task '{one.task}'")
        found[one.task, str(one.sequence)] = one
    return list(found.values())


def _compute(request: TallyRequest) -> Result:
    lines = list(json_lines(request.file))
    if is_outcome(lines[0][1]):
        seconds = registry.get(Vlm2.name).group_seconds
        return tally(score_outcomes(read_outcomes(lines, Vlm2.name), seconds))
    return tally([score_sequence(one) for one in read_sequences(lines)])


TALLY = Tally(compute=_compute, outcomes=True)


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    for path in files(folder, "*.jsonl", "JSON lines of sequences"):
        for _, line in read_lines(path, _Sequence):
            pictures = [images.picture(str(name)) for name in line.images]
            there = tuple(picture for picture in pictures if picture is not None)
            count = 1 + len(line.fine)
            for number, one in enumerate((line.coarse, *line.fine)):
                whole = bool(there) and len(there) == len(pictures)
                truth = as_text(one.truth)
                yield (
                    question(str(line.sequence), line.task, number, count, one.question, truth, there)
                    if whole
                    else None
                )


def question(
    sequence: str, task: str, number: int, count: int, text: str, truth: str, images: tuple[Picture, ...]
) -> Question:
    """Question `number` of `count`; the first is the coarse one."""
    return Question(
        id=f"{task}-{sequence}-{number}",
        protocol=Vlm2.name,
        prompt=text,
        images=images,
        tags={
            SEQUENCE: sequence,
            TASK: task,
            LEVEL: "fine" if number else "coarse",
            QUESTIONS: str(count),
            TRUTH: truth,
        },
        unit=f"{task}-{sequence}",
    )


def figures(pairs: Sequence[Pair]) -> Result:
    place = Place(Path("probe"), 0)
    scored = score_outcomes((place, outcome) for _, outcome in pairs)
    return {**tally(scored), "score_mean_interval": mean_of(one.score for one in scored)}
