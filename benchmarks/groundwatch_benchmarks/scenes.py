"""The hand-written scenes that the demo's recorded answers are made of (`tools/demo_answers.py`)."""

from pathlib import Path
from typing import Literal

import msgspec

from groundwatch.events import KnownFact, Reference

SCENES = Path(__file__).with_name("scenes.jsonl")

Task = Literal["description", "conversation", "complex question"]


class Piece(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sentence about a scene. Two pieces that share a word of `about` never stand in one answer."""

    about: tuple[str, ...]
    text: str
    holds: bool


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something a person may ask of the image, with first sentences of an answer."""

    task: Task
    prompt: str
    answers: tuple[Piece, ...]


class Scene(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One image, in words."""

    id: str
    objects: tuple[str, ...]
    triplets: tuple[tuple[str, str, str], ...]
    facts: tuple[KnownFact, ...]
    openings: tuple[Piece, ...]
    details: tuple[Piece, ...]
    remarks: tuple[str, ...]
    questions: tuple[Question, ...]

    @property
    def reference(self) -> Reference:
        """What a judge is told of the image."""
        return Reference(facts=self.facts, objects=self.objects, triplets=self.triplets, complete=True)


def load_scenes(path: Path = SCENES) -> tuple[Scene, ...]:
    lines = path.read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Scene) for line in lines if line.strip())
