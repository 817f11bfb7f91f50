"""COCO's 80 classes and the words for them: a list of our own making, in `coco.json`.

A caption is read from left to right, the longest phrase first. `instead` names phrases that hold a class's
word and mean something else ("train station"), with the class that is really there, if any.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources

import msgspec

from groundwatch.language.lexicon import singular

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_PAUSE = re.compile(r"[.,;:!?()\n]+")


class Mention(msgspec.Struct, frozen=True):
    """A COCO object that a caption speaks of: its class, and the words that said so."""

    name: str
    words: str


class _Data(msgspec.Struct, frozen=True):
    classes: dict[str, list[str]]
    instead: dict[str, str]
    colours: frozenset[str]
    after_a_thing: frozenset[str]


class Vocabulary:
    """The words for each class, ready to be looked up."""

    def __init__(self, data: _Data) -> None:
        self.classes = tuple(data.classes)
        self._names: dict[tuple[str, ...], str] = {}
        for name, synonyms in data.classes.items():
            for phrase in (name, *synonyms):
                self._names[tuple(phrase.split())] = name
        self._names.update({tuple(phrase.split()): name for phrase, name in data.instead.items()})
        self._colours = data.colours
        self._after_a_thing = data.after_a_thing
        self._longest = max(map(len, self._names))

    def mentions(self, text: str) -> list[Mention]:
        """Every COCO object in a text, in order, as often as it is said."""
        pieces = _PAUSE.split(text.casefold().replace("’", "'"))
        return [mention for piece in pieces for mention in self._mentions(_WORD.findall(piece))]

    def kind(self, name: str) -> str | None:
        """The class of an annotated thing by the longest end of its name: a "red umbrella" is an umbrella.

        None for another thing, and for what only ends like one ("train station" holds no class).
        """
        words = tuple(_WORD.findall(name.casefold()))
        for start in range(max(0, len(words) - self._longest), len(words)):
            found = self._look_up(words[start:])
            if found is not None:
                return found or None
        return None

    def _mentions(self, words: list[str]) -> Iterator[Mention]:
        at = 0
        while at < len(words):
            size, name = self._at(words, at)
            if name and not self._is_colour(words, at, size):
                yield Mention(name, " ".join(words[at : at + size]))
            at += size

    def _at(self, words: list[str], at: int) -> tuple[int, str]:
        for size in range(min(self._longest, len(words) - at), 0, -1):
            name = self._look_up(tuple(words[at : at + size]))
            if name is not None:
                return size, name
        return 1, ""

    def _look_up(self, words: tuple[str, ...]) -> str | None:
        if not words:
            return None
        name = self._names.get(words)
        return self._names.get(tuple(singular(" ".join(words)).split())) if name is None else name

    def _is_colour(self, words: list[str], at: int, size: int) -> bool:
        """Whether a word such as "orange" stands before what it colours: "an orange cat"."""
        if size != 1 or words[at] not in self._colours or at + 1 == len(words):
            return False
        return words[at + 1] not in self._after_a_thing


@cache
def vocabulary() -> Vocabulary:
    """COCO's vocabulary, read once."""
    return Vocabulary(msgspec.json.decode(_shipped(), type=_Data))


@cache
def list_digest() -> str:
    """Twelve hex digits over the list: numbers by another list are other numbers."""
    return hashlib.sha256(_shipped()).hexdigest()[:12]


def classes_of(names: Iterable[str]) -> set[str]:
    """The COCO classes among annotated object names; other things have none and fall away."""
    return {found for name in names if (found := vocabulary().kind(name))}


def _shipped() -> bytes:
    return resources.files("groundwatch.protocols").joinpath("coco.json").read_bytes()
