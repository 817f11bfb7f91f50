"""The yes/no metric on VLM²-Bench: fine-grained questions behind a coarse one, per image sequence.

A sequence scores 0 when its coarse question is answered wrong, else the accuracy over its fine-grained
questions; a task's score is the sum over its sequences, and the mean is told beside it, since sums of tasks
of different size cannot be compared.

A refusal does not pay: a reply that cannot be read counts as a wrong one. Beside that figure stands the one
over the replies that were read, with its coverage.

Files have one image sequence a line, with what was asked, answered and true. A file of outcomes, which
`groundwatch score vlm2 … --out` writes, is tallied too. A suite's lines are {sequence, task, images, coarse:
{question, truth}, fine: [{question, truth}]}.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import msgspec

from groundwatch.events import ResponseScored
from groundwatch.protocols import registry
from groundwatch.protocols.groups import GroupedAnswer, split
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
from groundwatch.protocols.vlm2.protocol import (
    LEVEL,
    QUESTIONS,
    SEQUENCE,
    TASK,
    TRUTH,
    UNREADABLE,
    Vlm2,
    is_right,
)
from groundwatch_benchmarks.json_files import Place, is_outcome, json_lines, read_lines, read_outcomes

NO_FINE_QUESTION = "no_fine_question"
NO_COARSE_QUESTION = "no_coarse_question"

Text = str | bool | int | float
"""A truth or a reply as files write it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    answer: Text
    truth: Text


class ImageSequence(msgspec.Struct, frozen=True, kw_only=True):
    sequence: str | int
    task: str
    coarse: Asked
    fine: tuple[Asked, ...]


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence's score, or why it has none; `read` is the score over the replies that could be read."""

    task: str
    score: float | None
    reason: str = ""
    read: float | None = None
    questions: int = 0
    unread: int = 0


class _Tags(msgspec.Struct):
    sequence: str
    level: Literal["coarse", "fine"]
    task: str = ""
    questions: Annotated[str, msgspec.Meta(pattern=r"^[1-9]\d{0,5}$")] = ""


def gate(coarse: bool | None, fine: Sequence[bool | None]) -> float | None:
    """The score of one sequence from what was right; None without a fine-grained question.

    A wrong coarse answer gives 0 whatever follows. None stands for a reply that could not be read, and is as
    wrong as any other.
    """
    if not coarse:
        return 0.0
    return sum(map(bool, fine)) / len(fine) if fine else None


def gated(task: str, coarse: bool | None, fine: Sequence[bool | None]) -> Scored:
    read = [right for right in fine if right is not None]
    score = gate(coarse, fine)
    return Scored(
        task=task,
        score=score,
        reason=NO_FINE_QUESTION if score is None else "",
        read=None if coarse is None else gate(coarse, read),
        questions=1 + len(fine),
        unread=[coarse, *fine].count(None),
    )


def score_sequence(asked: ImageSequence) -> Scored:
    coarse, *fine = (
        is_right(as_text(one.answer), as_text(one.truth), one.question) for one in (asked.coarse, *asked.fine)
    )
    return gated(asked.task, coarse, fine)


def as_text(value: Text) -> str:
    """Yes and no for true and false, and no point behind whole numbers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def pool(scored: Sequence[Scored]) -> Result:
    """Sum and mean over sequences; the sum of none is 0, the mean of none does not exist.

    `read_mean` is the mean over what could be read, `coverage` the share of replies that could.
    """
    scores = [one.score for one in scored if one.score is not None]
    read = [one.read for one in scored if one.read is not None]
    total = math.fsum(scores)
    questions, unread = sum(one.questions for one in scored), sum(one.unread for one in scored)
    return {
        "score_sum": total,
        "score_mean": total / len(scores) if scores else None,
        "read_mean": fmean(read) if read else None,
        "coverage": 1 - unread / questions if questions else None,
        "sequences": len(scored),
        "unscored": len(scored) - len(scores),
        "unread": unread,
    }


def tally(scored: Sequence[Scored]) -> Result:
    return {
        **pool(scored),
        "unscored_by_reason": dict(
            sorted(Counter(one.reason for one in scored if one.score is None).items())
        ),
        "by_task": {
            task: pool([one for one in scored if one.task == task])
            for task in sorted({one.task for one in scored})
        },
    }


def score_outcomes(
    outcomes: Iterable[tuple[Place, ResponseScored]], seconds: float = math.inf
) -> list[Scored]:
    """Each sequence through the gate, in the order of their first response; their answers come in any.

    It is over `seconds` after its first answer was recorded, as `groups` has it. Questions that were
    declined, or that failed for another reason than their reply, have no answer. Raises `FileFormatError`
    for missing tags and a second coarse question.
    """
    sequences: dict[tuple[str, str], list[GroupedAnswer]] = {}
    coarse: dict[tuple[str, str], Place] = {}
    for place, outcome in outcomes:
        tags = place.read(outcome.tags, _Tags)
        answers = sequences.setdefault((tags.task, tags.sequence), [])
        if tags.level == "coarse":
            coarse[tags.task, tags.sequence] = place
        if outcome.reason in ("", UNREADABLE):
            values: dict[str, float] = {tags.level: outcome.score or 0.0}
            if outcome.score is not None:
                values[f"{tags.level}_read"] = outcome.score
            part = 1 / int(tags.questions) if tags.questions else 0.0
            answers.append(GroupedAnswer(outcome.recorded_at, part, 1.0, tuple(values.items())))
    scored = []
    for (task, sequence), answers in sequences.items():
        for group in split(answers, seconds, math.inf):
            rights: dict[str, list[bool | None]] = {"coarse": [], "fine": []}
            for answer in group.answers:
                (level, right), *read = answer.values
                rights[level].append(right > 0 if read else None)
            if len(rights["coarse"]) > 1:
                raise coarse[task, sequence].wrong(f"key '{SEQUENCE}': {sequence} has two coarse questions")
            if group.reason or not rights["coarse"]:
                reason = group.told if group.reason else NO_COARSE_QUESTION
                came, unread = len(group.answers), [*rights["coarse"], *rights["fine"]].count(None)
                scored.append(Scored(task=task, score=None, reason=reason, questions=came, unread=unread))
            else:
                scored.append(gated(task, rights["coarse"][0], rights["fine"]))
    return scored


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
