"""Building a benchmark as Tri-HE was built: questions that need a conclusion, asked of a model that looks.

Source: section 4 and appendix E.2. From scene graphs in GQA's format those images are taken that have
enough different relations; a vision-language model then writes questions about each, with answers and the
triplets that explain them, which are added to the graph's. What it writes is a draft: the paper's authors
checked every question by hand.
"""

import re
from collections.abc import Iterable
from typing import Any

from groundwatch.protocols.prompts import Form, Step, load, quoted, read_reply
from groundwatch.protocols.scene_graphs import ImageGraph
from groundwatch.protocols.trihe.published import Asked
from groundwatch.protocols.triplets import Triplet

QUESTIONS = 10
"""How many questions the paper asks for about each image."""

RELATIONS = 6
"""Different relations that an image's graph must have: the paper takes images with more than five."""

_PACKAGE, _PROMPT = "groundwatch.protocols.trihe", "ask"
_NOT_IN_PARTS = re.compile(r"[,;()\[\]\s]+")


class _Triplet(Form, frozen=True):
    object1: str
    relation: str
    object2: str


class _Question(Form, frozen=True):
    question: str
    answer: str
    triplets: list[_Triplet]


class _Questions(Form, frozen=True):
    questions: list[_Question]


def prompt_digest() -> str:
    """Digest of the prompt: another wording gives another benchmark."""
    return load(_PACKAGE, _PROMPT).digest[:16]


def question_step(graph: ImageGraph | None, number: int = QUESTIONS) -> Step:
    """The call that writes questions; the image goes with it. `graph` only lends its names."""
    prompt = load(_PACKAGE, _PROMPT)
    lines = "\n".join(dict.fromkeys(quoted(one.name) for one in graph.things) if graph else ())
    return prompt.step(_Questions, number=str(number), scene=lines or "(not known)")


def read_questions(reply: object, number: int = QUESTIONS) -> tuple[Asked, ...]:
    """The questions of a reply, each once. Raises `ValueError` saying what is wrong with it.

    Fewer than asked for will do, none will not; more are an error, since nobody knows which are meant.
    """
    found: dict[str, Asked] = {}
    written = read_reply(reply, _Questions).questions
    if not 0 < len(written) <= number:
        raise ValueError(f"{len(written)} questions, where {number} were asked for")
    for at, one in enumerate(written):
        question, answer = " ".join(one.question.split()), " ".join(one.answer.split())
        triplets = tuple(dict.fromkeys(map(_triplet, one.triplets)))
        if not question or not answer:
            raise ValueError(f"question {at} or its answer is empty")
        if not triplets or not all(part for triplet in triplets for part in triplet):
            raise ValueError(f"question {at} has no triplet, or one with an empty part")
        found.setdefault(question.casefold(), Asked(question=question, answer=answer, triplets=triplets))
    return tuple(found.values())


def rich_enough(graph: ImageGraph, relations: int = RELATIONS) -> bool:
    """Whether an image has so many different relations."""
    return len({relation.name for thing in graph.things for relation in thing.relations}) >= relations


def benchmark_entry(graph: ImageGraph | None, questions: Iterable[Asked]) -> dict[str, Any]:
    """One image as the benchmark's file has it."""
    asked = list(questions)
    known = _graph_triplets(graph) if graph else []
    explained = [triplet for one in asked for triplet in one.triplets]
    names = [thing.name for thing in graph.things] if graph else []
    own = [name for triplet in explained for name in (triplet[0], triplet[2])]
    return {
        "instance": [
            {
                "question": one.question,
                "answer": one.answer,
                "triplet": [triplet_text(triplet) for triplet in one.triplets],
            }
            for one in asked
        ],
        "triplets": [triplet_text(triplet) for triplet in dict.fromkeys((*known, *explained))],
        "all_object": names,
        "object": list(dict.fromkeys((*names, *own))),
    }


def triplet_text(triplet: Triplet) -> str:
    """How the benchmark's file writes a triplet."""
    return f"({', '.join(triplet)})"


def _graph_triplets(graph: ImageGraph) -> list[Triplet]:
    return [
        _plain(triplet)
        for thing in graph.things
        for triplet in (
            *((thing.name, "is", attribute) for attribute in thing.attributes),
            *((thing.name, relation.name, relation.other) for relation in thing.relations),
        )
    ]


def _triplet(one: _Triplet) -> Triplet:
    return _plain((one.object1, one.relation, one.object2))


def _plain(triplet: Triplet) -> Triplet:
    """Without what separates parts and triplets in the file, so that it reads back as it was written."""
    first, relation, second = (_NOT_IN_PARTS.sub(" ", part).strip(" '\"") for part in triplet)
    return first, relation, second
