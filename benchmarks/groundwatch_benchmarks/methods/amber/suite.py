"""AMBER's published files: the questions of its benchmark, and answers in the format of its own code."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from groundwatch.errors import FileFormatError
from groundwatch.events import OutcomeKind
from groundwatch.protocols.base import load
from groundwatch.protocols.method import (
    CATEGORY,
    IMAGE,
    Images,
    Pair,
    Picture,
    Question,
    Result,
    Tally,
    TallyRequest,
    files,
)
from groundwatch.protocols.questions import Answer, cell, read_reply
from groundwatch_benchmarks.json_files import json_document, json_items, read_bytes
from groundwatch_benchmarks.methods.amber.protocol import Amber, Attribute, Existence, Relation
from groundwatch_benchmarks.methods.amber.scoring import (
    ATTRIBUTES,
    DESCRIPTION,
    EXISTENCE,
    RELATION,
    Annotation,
    Sums,
    count,
)
from groundwatch_benchmarks.methods.yes_no import outcome_cell, question

TYPES = {
    "generative": DESCRIPTION,
    "discriminative-hallucination": EXISTENCE,
    **{f"discriminative-attribute-{kind}": kind for kind in ATTRIBUTES},
    "discriminative-relation": RELATION,
    "relation": RELATION,
}
"""What the file of annotations calls each kind; relations whose answer is no have a shorter name there."""

PROTOCOL_OF = {EXISTENCE: Existence.name, RELATION: Relation.name} | dict.fromkeys(ATTRIBUTES, Attribute.name)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One query: `truth` is the image's annotation for a description, else the right answer."""

    id: int
    image: str
    query: str
    kind: str
    truth: Annotation | Answer


class _Query(msgspec.Struct):
    id: int
    image: str
    query: str


class _Annotated(msgspec.Struct):
    id: int
    type: str
    truth: tuple[str, ...] | Literal["yes", "no"]
    hallu: tuple[str, ...] = ()


class _Response(msgspec.Struct):
    id: int
    response: str


def read_items(folder: Path) -> Iterator[Item]:
    """`query_all.json`, or the other query files where it is not there, with what `annotations.json` says.

    Words are those of `relation.json` and `safe_words.txt`. Raises `FileFormatError`.
    """
    named = {name: files(folder, f"**/{name}", f"AMBER's file {name}")[0] for name in NEEDED}
    truths = dict(_truths(named["annotations.json"], _lists(named["relation.json"], named["safe_words.txt"])))
    queries = "AMBER's queries, such as query_all.json"
    paths = sorted(folder.glob("**/query_all.json")) or files(folder, "**/query_*.json", queries)
    seen: set[int] = set()
    for place, value in (item for path in paths for item in json_items(path)):
        query = place.read(value, _Query)
        if query.id not in truths:
            raise place.wrong(f"key 'id': {query.id} has no annotation")
        if query.id not in seen:
            seen.add(query.id)
            kind, truth = truths[query.id]
            yield Item(id=query.id, image=query.image, query=query.query, kind=kind, truth=truth)


NEEDED = ("annotations.json", "relation.json", "safe_words.txt")


def _truths(path: Path, lists: Annotation) -> Iterator[tuple[int, tuple[str, Annotation | Answer]]]:
    for place, value in json_items(path):
        one = place.read(value, _Annotated)
        kind = TYPES.get(one.type)
        if kind is None:
            raise place.wrong(f"key 'type': expected {', '.join(TYPES)}")
        if isinstance(one.truth, str) is (kind == DESCRIPTION):
            wanted = "names of objects" if kind == DESCRIPTION else "yes or no"
            raise place.wrong(f"key 'truth': expected {wanted}")
        if isinstance(one.truth, str):
            yield one.id, (kind, one.truth)
        else:
            yield one.id, (kind, lists.about(one.truth, one.hallu))


def _lists(relation: Path, safe: Path) -> Annotation:
    """The benchmark's lists without an image: what is listed are all words of `relation.json`."""
    associated = {
        name.casefold(): tuple(map(str.casefold, words))
        for name, words in json_document(relation, dict[str, tuple[str, ...]]).items()
    }
    try:
        spared = read_bytes(safe).decode().casefold().split()
    except UnicodeDecodeError as error:
        raise FileFormatError(safe, f"is no text ({error.reason})") from error
    listed = frozenset(associated).union(*associated.values())
    return Annotation(associated=associated, listed=listed, safe=frozenset(spared))


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """The queries whose image is there, asked in their own words."""
    for item in read_items(folder):
        picture = images.picture(item.image)
        if picture is None:
            yield None
        elif isinstance(item.truth, Annotation):
            yield description(str(item.id), item.query, item.truth, item.image, picture)
        else:
            asked = (PROTOCOL_OF[item.kind], str(item.id), item.query, item.truth, item.image, picture)
            yield question(*asked, item.kind)


def description(name: str, prompt: str, known: Annotation, image: str, picture: Picture) -> Question:
    return Question(
        id=name,
        protocol=Amber.name,
        prompt=prompt,
        images=(picture,),
        reference=known.reference(),
        tags={CATEGORY: DESCRIPTION, IMAGE: image},
        unit=image,
    )


def figures(pairs: Sequence[Pair]) -> Result:
    """All of AMBER's numbers. A description that was not judged is in none; an unread answer is wrong."""
    sums = Sums()
    for pair in pairs:
        asked, outcome = pair
        if asked.protocol != Amber.name:
            sums.add(asked.tags[CATEGORY], asked.unit, {outcome_cell(pair): 1})
            if outcome.outcome is not OutcomeKind.SCORED:
                sums.reasons[outcome.reason] += 1
        elif outcome.values:
            counts = {name: int(value) for name, value in outcome.values.items()}
            sums.add(DESCRIPTION, asked.unit, counts)
        else:
            sums.reasons[outcome.reason] += 1
    return {**sums.measure(), "questions": len(pairs)}


def _compute(request: TallyRequest) -> Result:
    """Answers as the published code reads them, a JSON list of `id` and `response`."""
    assert request.labels is not None
    items = {item.id: item for item in read_items(request.labels)}
    sums, seen = Sums(), set()
    descriptions: list[tuple[Item, str, Annotation]] = []
    for place, value in json_items(request.file):
        answer = place.read(value, _Response)
        item = items.get(answer.id)
        if item is None or item.id in seen:
            why = "is no query of the benchmark" if item is None else "is there twice"
            raise place.wrong(f"key 'id': {answer.id} {why}")
        seen.add(item.id)
        if isinstance(item.truth, Annotation):
            descriptions.append((item, answer.response, item.truth))
            continue
        reading = read_reply(answer.response, item.query)
        if reading.answer is None:
            sums.reasons[reading.reason] += 1
        found = cell(reading.answer, item.truth) if reading.answer else f"unread_{item.truth}"
        sums.add(item.kind, item.image, {found: 1})
    nouns_of = load(f"{__package__}.extraction:nouns_of")
    told = [(answer, known) for _, answer, known in descriptions]
    for (item, _, known), nouns in zip(descriptions, nouns_of(told), strict=True):
        sums.add(item.kind, item.image, count(nouns, known.matches(nouns), known))
    return {**sums.measure(), "answers": len(seen), "unanswered": len(items) - len(seen)}


TALLY = Tally(compute=_compute, needs={"labels": "the folder of AMBER's files, such as annotations.json"})
