"""Files of the metric on VLM²-Bench: one image sequence a line, with what was asked, answered and true.

A file of outcomes, which `groundwatch score vlm2 … --out` writes, is tallied too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from groundwatch.protocols.outcomes import read_outcomes
from groundwatch.protocols.published import Place, json_lines
from groundwatch.protocols.tally import Result, Tally, TallyRequest
from groundwatch.protocols.vlm2.outcomes import is_outcome, score_outcomes
from groundwatch.protocols.vlm2.protocol import Vlm2
from groundwatch.protocols.vlm2.scoring import (
    Asked,
    ImageSequence,
    Scored,
    by_task,
    pool,
    reasons,
    score_sequence,
)


def read_sequences(lines: Iterable[tuple[Place, dict[str, Any]]]) -> list[ImageSequence]:
    """Read the sequences; raises `FileFormatError` naming file, line and key.

    A sequence that is there twice in one task is an error: its score would be added twice.
    """
    found: dict[tuple[str, str], ImageSequence] = {}
    for place, record in lines:
        one = _sequence(place, record)
        if (one.task, one.sequence) in found:
            raise place.wrong(f"key 'sequence': {one.sequence} is there twice in task '{one.task}'")
        found[one.task, one.sequence] = one
    return list(found.values())


def tally_scored(scored: Sequence[Scored]) -> Result:
    """Sum and mean over sequences, all together and by task."""
    return {
        **msgspec.structs.asdict(pool(scored)),
        "unscored_by_reason": reasons(scored),
        "by_task": {task: msgspec.structs.asdict(found) for task, found in by_task(scored).items()},
    }


def _sequence(place: Place, record: dict[str, Any]) -> ImageSequence:
    fine = place.take(record, "fine", list, "a list of questions")
    return ImageSequence(
        sequence=str(place.take(record, "sequence", (str, int), "the sequence's name")),
        task=place.take(record, "task", str, "a string"),
        coarse=_asked(place, "coarse", place.take(record, "coarse", dict, "a question")),
        fine=tuple(_asked(place, f"fine[{at}]", one) for at, one in enumerate(fine)),
    )


def _asked(place: Place, key: str, value: object) -> Asked:
    place = place._replace(what=f"key '{key}'")
    if not isinstance(value, dict):
        raise place.wrong("expected an object with question, answer and truth")
    return Asked(
        question=place.take(value, "question", str, "a string"),
        answer=_text(place.take(value, "answer", (str, bool, int, float), "the model's reply")),
        truth=_text(place.take(value, "truth", (str, bool, int, float), "yes, no, a number or a string")),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _compute(request: TallyRequest) -> Result:
    lines = list(json_lines(request.file))
    if is_outcome(lines[0][1]):
        return tally_scored(score_outcomes(read_outcomes(lines, Vlm2.name)))
    return tally_scored([score_sequence(one) for one in read_sequences(lines)])


TALLY = Tally(compute=_compute)
