"""Composes the demo's answers from hand-written scenes: `python -m tools.demo_answers`.

`scenes.jsonl` holds described scenes: what is in the image, sentences that hold, sentences that do not,
and remarks that nothing in the image could refute. From them this tool writes `answers.jsonl`, the
recorded traffic of two invented models. `heron-7b` is right nearly always; `osprey-13b` is as good up to
the middle of the file and clearly worse from there on. Which sentence was planted as wrong stays here
(`Composed.holds`) and is not in the file.

The same scenes give the same bytes on every machine: the only source of chance is `Random.random`, whose
sequence Python promises to keep.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec

from groundwatch import demo
from groundwatch.events import Reference
from groundwatch_benchmarks.scenes import Piece, Scene, Task, load_scenes

ANSWERS = Path(demo.__file__).with_name("answers.jsonl")

GOOD = "heron-7b"
TURNING = "osprey-13b"
ANSWER_COUNT = 360
SEED = 20240611

USUAL_RATE = 0.065
"""Share of descriptive sentences that are wrong while a model is well."""
WORSE_RATE = 0.47
"""The same from the middle of the file on for the model that turns bad; not all a wrong sentence says
is wrong, so this is some 30 to 40 % of its facts."""

T = TypeVar("T")

DESCRIPTION_PROMPTS = (
    "Describe the image in detail.",
    "What do you see in this picture?",
    "Please describe this image.",
    "Can you describe the scene for me?",
    "Write a short description of the photo.",
    "What is going on in this image?",
    "Give me a caption with some detail.",
    "Describe the main elements of this photograph.",
    "What is shown here?",
    "Could you tell me what this photo shows?",
    "Explain the visual content of the image.",
    "I cannot see the image. What is in it?",
)
PLAN: dict[Task, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "description": ((2, 3, 3, 4, 4, 5), (0, 0, 1, 1)),
    "conversation": ((1, 1, 2, 2, 3), (0, 0, 1)),
    "complex question": ((1, 2, 2, 3), (1, 1, 2)),
}
"""For each task, how many descriptive sentences and how many remarks an answer may have."""
TASKS: tuple[Task, ...] = (
    "description",
    "description",
    "description",
    "conversation",
    "complex question",
)
LINKS = ("Additionally, ", "In addition, ")
PLAIN_START = re.compile(r"(?:The|A|An|There|Several|Two|Three|Some|One|His|Her|It|They|She|He)\b")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `answers.jsonl`."""

    id: str
    model: str
    prompt: str
    answer: str
    images: tuple[str, ...] = ()
    reference: Reference
    tags: dict[str, str]


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with what only its builder knows: which of its descriptive sentences hold."""

    answer: Answer
    worse: bool
    holds: tuple[bool, ...]


class Slot(msgspec.Struct, kw_only=True):
    """An answer before its words are chosen."""

    model: str
    scene: Scene
    task: Task
    worse: bool
    remarks: int
    holds: list[bool]


class Chance:
    """Draws that stay the same in every Python."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._used: Counter[str] = Counter()

    def below(self, share: float) -> bool:
        """True with this probability."""
        return self._random.random() < share

    def one(self, items: Sequence[T]) -> T:
        """Any of the items."""
        return items[int(self._random.random() * len(items))]

    def order(self, items: Iterable[T]) -> list[T]:
        """The items in random order."""
        keyed = [(self._random.random(), index, item) for index, item in enumerate(items)]
        return [item for _, _, item in sorted(keyed, key=lambda entry: entry[:2])]

    def fresh(self, scope: str, items: Iterable[T], name: str) -> T:
        """Of the items, one that was taken least often within the scope; `name` is their attribute or ''."""
        shuffled = self.order(items)

        def times(item: T) -> int:
            return self._used[f"{scope}\0{getattr(item, name) if name else item}"]

        taken = min(shuffled, key=times)
        self._used[f"{scope}\0{getattr(taken, name) if name else taken}"] += 1
        return taken


def compose(scenes: Sequence[Scene], count: int = ANSWER_COUNT, seed: int = SEED) -> list[Composed]:
    """All answers in the order in which they are asked for."""
    chance = Chance(seed)
    slots = _plan(scenes, count, chance)
    return [_fill(slot, index, count, chance) for index, slot in enumerate(slots)]


def _plan(scenes: Sequence[Scene], count: int, chance: Chance) -> list[Slot]:
    """Decide who answers what, at which length, and which sentences are to be wrong."""
    models: list[str] = []
    while len(models) < count:
        models += chance.order((GOOD, TURNING))
    queues: dict[str, list[Scene]] = {GOOD: [], TURNING: []}
    tasks: dict[str, list[Task]] = {GOOD: [], TURNING: []}
    slots = []
    for index, model in enumerate(models[:count]):
        if not queues[model]:
            queues[model] = chance.order(scenes)
        if not tasks[model]:
            tasks[model] = chance.order(TASKS)
        task = tasks[model].pop()
        lengths, remarks = PLAN[task]
        slots.append(
            Slot(
                model=model,
                scene=queues[model].pop(),
                task=task,
                worse=model == TURNING and index >= count // 2,
                remarks=chance.one(remarks),
                holds=[True] * chance.one(lengths),
            )
        )
    for model in (GOOD, TURNING):
        for late in (False, True):
            group = [
                slot
                for index, slot in enumerate(slots)
                if slot.model == model and (index >= count // 2) == late
            ]
            places = chance.order((slot, place) for slot in group for place in range(len(slot.holds)))
            rate = WORSE_RATE if model == TURNING and late else USUAL_RATE
            for slot, place in places[: round(rate * len(places))]:
                slot.holds[place] = False
    return slots


def _fill(slot: Slot, index: int, count: int, chance: Chance) -> Composed:
    """Choose the words."""
    scene = slot.scene
    if slot.task == "description":
        prompt = chance.one(DESCRIPTION_PROMPTS)
        first = scene.openings
    else:
        asked = [question for question in scene.questions if question.task == slot.task]
        question = chance.fresh(scene.id, asked, "prompt")
        prompt, first = question.prompt, question.answers
    taken: list[Piece] = []
    for place, holds in enumerate(slot.holds):
        about = {word for piece in taken for word in piece.about}
        free = [
            piece
            for piece in (scene.details if place else first)
            if not about.intersection(piece.about) and piece.text not in prompt
        ]
        wanted = [piece for piece in free if piece.holds == holds] or [piece for piece in free if piece.holds]
        if not wanted:
            break
        taken.append(chance.fresh(scene.id, wanted, "text"))
    sentences = [piece.text for piece in taken]
    if len(sentences) > 2 and chance.below(0.3) and PLAIN_START.match(sentences[-1]):
        sentences[-1] = chance.one(LINKS) + sentences[-1][0].lower() + sentences[-1][1:]
    remarks: list[str] = []
    for _ in range(slot.remarks):
        left = [text for text in scene.remarks if text not in remarks]
        remarks.append(chance.fresh(scene.id, left, ""))
    if remarks and len(sentences) > 1 and chance.below(0.12) and PLAIN_START.match(remarks[-1]):
        remarks[-1] = "Overall, " + remarks[-1][0].lower() + remarks[-1][1:]
    return Composed(
        answer=Answer(
            id=f"demo-{index + 1:04}",
            model=slot.model,
            prompt=prompt,
            answer=" ".join(sentences + remarks),
            reference=scene.reference,
            tags={"scene": scene.id, "task": slot.task, "release": _release(slot.model, index / count)},
        ),
        worse=slot.worse,
        holds=tuple(piece.holds for piece in taken),
    )


def _release(model: str, share: float) -> str:
    """What was deployed at that point of the stream: each model changes once, only one for the worse."""
    if model == TURNING:
        return "1.4" if share < 0.5 else "1.5"
    return "2.0" if share < 0.35 else "2.1"


def wrong_share(composed: Iterable[Composed]) -> float:
    """The share of descriptive sentences that were planted as wrong."""
    marks = [holds for one in composed for holds in one.holds]
    return marks.count(False) / len(marks) if marks else 0.0


def encode(composed: Iterable[Composed]) -> bytes:
    """The bytes of `answers.jsonl`."""
    return b"".join(msgspec.json.encode(one.answer) + b"\n" for one in composed)


def main() -> None:
    """Rewrite the demo's `answers.jsonl`."""
    ANSWERS.write_bytes(encode(compose(load_scenes())))


if __name__ == "__main__":
    main()
