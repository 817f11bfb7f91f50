"""POPE's files: replies (`answer` a line) beside questions with labels (`text`, `label`).

Lines belong together by `question_id` where every line of both files has one, else by their order. A reply
that is neither yes nor no is unscored, and counted by reason; `as_published` gives the same numbers as the
published script reads replies, which makes yes of whatever has no "no" in its first sentence.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.events import KnownFact, Reference, ResponseRecorded
from groundwatch.protocols.pope.scoring import count
from groundwatch.protocols.published import UNNAMED_MODEL, Place, json_lines
from groundwatch.protocols.tally import Result, Tally, TallyRequest
from groundwatch.protocols.yes_no import Answer, read_as_published, read_reply


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A model's reply to one question, with the truth."""

    question: str
    reply: str
    label: Answer


def read_pairs(answers: Path, labels: Path) -> list[Reply]:
    """Read both files; raises `FileFormatError` naming file, line and key."""
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
        Reply(question=str(label.get("text", "")), reply=_reply(at, answer), label=_label(label_at, label))
        for (at, answer), (label_at, label) in zip(said, asked, strict=True)
    ]


def tally_replies(replies: Sequence[Reply]) -> Result:
    """The numbers over replies that were read, and beside them what the published script would print."""
    readings = [(read_reply(one.reply, one.question), one.label) for one in replies]
    unscored = Counter(reading.reason for reading, _ in readings if reading.answer is None)
    return {
        **count(
            (reading.answer, label) for reading, label in readings if reading.answer is not None
        ).numbers(),
        "questions": len(replies),
        "unscored": unscored.total(),
        "unscored_by_reason": dict(sorted(unscored.items())),
        "as_published": count((read_as_published(one.reply), one.label) for one in replies).numbers(),
    }


Line = tuple[Place, dict[str, Any]]


def _by_id(said: list[Line], asked: list[Line]) -> list[Line]:
    """The answers in the labels' order."""
    found: dict[str, Line] = {}
    for place, record in said:
        name = _id(place, record)
        if name in found:
            raise place.wrong(f"key 'question_id': {name} is there twice")
        found[name] = (place, record)
    ordered = []
    seen = set()
    for place, record in asked:
        name = _id(place, record)
        if name in seen:
            raise place.wrong(f"key 'question_id': {name} is there twice")
        seen.add(name)
        if name not in found:
            raise place.wrong(f"key 'question_id': {name} has no answer")
        ordered.append(found[name])
    for name, (place, _) in found.items():
        if name not in seen:
            raise place.wrong(f"key 'question_id': {name} has no label")
    return ordered


def _check_order(said: list[Line], asked: list[Line]) -> None:
    """Refuse answers that repeat another line's question: their order is not the labels'."""
    known = {_plain(record["text"]) for _, record in asked if isinstance(record.get("text"), str)}
    for (place, answer), (_, label) in zip(said, asked, strict=True):
        question, text = answer.get("question"), label.get("text")
        if not isinstance(question, str) or not isinstance(text, str):
            continue
        if _plain(question) != _plain(text) and _plain(question) in known:
            raise place.wrong("key 'question': is not the question of the same line in the labels")


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _id(place: Place, record: dict[str, Any]) -> str:
    return str(place.take(record, "question_id", (int, str), "a number or a string"))


def _reply(place: Place, record: dict[str, Any]) -> str:
    key = "text" if "answer" not in record and "text" in record else "answer"
    return place.take(record, key, str, "the reply as a string")


def _label(place: Place, record: dict[str, Any]) -> Answer:
    label = place.take(record, "label", str, "yes or no").strip().casefold()
    if label == "yes":
        return "yes"
    if label == "no":
        return "no"
    raise place.wrong("key 'label': expected yes or no")


def annotate(
    file: Path, labels: Path, read: Callable[[Path], Iterable[ResponseRecorded]]
) -> list[ResponseRecorded]:
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
