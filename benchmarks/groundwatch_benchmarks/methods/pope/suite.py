"""POPE's files: replies (`answer` a line) beside questions with labels (`text`, `label`), and the questions.

Source: Evaluating Object Hallucination in Large Vision-Language Models (Li et al. 2023); its numbers, section
5.1, where the published script stops with an error if a denominator is 0.

Lines belong together by `question_id` where every line of both files has one, else by their order. A reply
that is neither yes nor no is unscored, and counted by reason; `as_published` gives the same numbers as the
published script reads replies, which makes yes of whatever has no "no" in its first sentence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.events import KnownFact, Reference, ResponseRecorded
from groundwatch.protocols.base import folded
from groundwatch.protocols.method import (
    CATEGORY,
    Images,
    Pair,
    Question,
    ReadResponses,
    Result,
    Tally,
    TallyRequest,
    files,
)
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.questions import Answer, read_reply
from groundwatch_benchmarks.json_files import UNNAMED_MODEL, Place, json_lines, read_lines
from groundwatch_benchmarks.methods.yes_no import (
    CELLS,
    RATES,
    count,
    intervals,
    numbers,
    outcome_cell,
    question,
    read_as_published,
    unscored,
)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    reply: str
    label: Answer


class _Id(msgspec.Struct):
    question_id: int | str


class _Answered(msgspec.Struct):
    answer: str


class _Labelled(msgspec.Struct):
    label: str


class _Asked(_Labelled):
    question_id: int | str
    image: str
    text: str


def read_pairs(answers: Path, labels: Path) -> list[Reply]:
    asked = list(json_lines(labels))
    said = list(json_lines(answers))
    if all("question_id" in record for _, record in (*asked, *said)):
        said = _by_id(said, asked)
    elif len(said) != len(asked):
        place = (said if len(said) > len(asked) else asked)[min(len(said), len(asked))][0]
        raise place.wrong(f"no counterpart: {len(said)} answers for {len(asked)} labels")
    else:
        _check_order(said, asked)
    return [
        Reply(
            question=str(label.get("text", "")),
            reply=at.read(
                {"answer": answer["text"]} | answer if "text" in answer else answer, _Answered
            ).answer,
            label=_label(label_at, label_at.read(label, _Labelled)),
        )
        for (at, answer), (label_at, label) in zip(said, asked, strict=True)
    ]


def tally_replies(replies: Sequence[Reply]) -> Result:
    """The numbers over replies that were read, and beside them what the published script would print."""
    readings = [(read_reply(one.reply, one.question), one.label) for one in replies]
    unread = Counter(reading.reason for reading, _ in readings if reading.answer is None)
    return {
        **numbers(
            count((reading.answer, label) for reading, label in readings if reading.answer is not None)
        ),
        "questions": len(replies),
        "unscored": unread.total(),
        "unscored_by_reason": dict(sorted(unread.items())),
        "as_published": numbers(count((read_as_published(one.reply), one.label) for one in replies)),
    }


Line = tuple[Place, dict[str, Any]]


def _by_id(said: list[Line], asked: list[Line]) -> list[Line]:
    found, wanted = _named(said), _named(asked)
    for lines, others, what in ((wanted, found, "answer"), (found, wanted, "label")):
        for name, (place, _) in lines.items():
            if name not in others:
                raise place.wrong(f"key 'question_id': {name} has no {what}")
    return [found[name] for name in wanted]


def _named(lines: list[Line]) -> dict[str, Line]:
    found: dict[str, Line] = {}
    for place, record in lines:
        name = str(place.read(record, _Id).question_id)
        if name in found:
            raise place.wrong(f"key 'question_id': {name} is there twice")
        found[name] = (place, record)
    return found


def _check_order(said: list[Line], asked: list[Line]) -> None:
    """Refuse answers that repeat another line's question: their order is not the labels'."""
    known = {folded(record["text"]) for _, record in asked if isinstance(record.get("text"), str)}
    for (place, answer), (_, label) in zip(said, asked, strict=True):
        question, text = answer.get("question"), label.get("text")
        if not isinstance(question, str) or not isinstance(text, str):
            continue
        if folded(question) != folded(text) and folded(question) in known:
            raise place.wrong("key 'question': is not the question of the same line in the labels")


def _label(place: Place, line: _Labelled) -> Answer:
    match line.label.strip().casefold():
        case "yes" | "no" as label:
            return label
    raise place.wrong("key 'label': expected yes or no")


def annotate(file: Path, labels: Path, read: ReadResponses) -> list[ResponseRecorded]:
    """Replies beside the question files, as responses that know the truth."""
    return [
        ResponseRecorded(
            id=str(number),
            model=UNNAMED_MODEL,
            prompt=one.question,
            answer=one.reply,
            reference=Reference(facts=(KnownFact(text=one.question, holds=one.label == "yes"),)),
        )
        for number, one in enumerate(read_pairs(file, labels), start=1)
    ]


def _compute(request: TallyRequest) -> Result:
    assert request.labels is not None
    return tally_replies(read_pairs(request.file, request.labels))


TALLY = Tally(
    compute=_compute, needs={"labels": "the file of questions with their labels (JSON lines: text, label)"}
)


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """`*_pope_STRATEGY.json`, JSON lines of question_id, image, text, label."""
    for path in files(folder, "*pope_*.json*", "POPE's question files, such as coco_pope_random.json"):
        strategy = path.name.partition(".")[0].rpartition("_")[2]
        for place, line in read_lines(path, _Asked):
            label, picture = _label(place, line), images.picture(line.image)
            name = f"{strategy}-{line.question_id}"
            asked = picture and (Pope.name, name, line.text, label, line.image, picture, strategy)
            yield question(*asked) if asked else None


def figures(pairs: Sequence[Pair]) -> Result:
    groups: dict[str, list[Pair]] = defaultdict(list)
    for asked, outcome in pairs:
        groups[asked.tags.get(CATEGORY, "")].append((asked, outcome))
    result = _figures(pairs)
    if len(groups) > 1 or "" not in groups:
        result["by_category"] = {name: _figures(found) for name, found in sorted(groups.items())}
    return result


def _figures(pairs: Sequence[Pair]) -> Result:
    units: dict[str, Counter[str]] = defaultdict(Counter)
    for asked, outcome in pairs:
        units[asked.unit or asked.id][outcome_cell((asked, outcome))] += 1
    counts = [one for one in units.values() if any(one[name] for name in CELLS)]
    return {
        **numbers(sum(counts, Counter[str]())),
        "questions": len(pairs),
        **unscored(pairs),
        "intervals": intervals(counts, numbers, RATES),
    }
