"""Answers with their facts, in the notation of `data/NOTATION.md`.

`python -m tools.reader.notation FILES` checks files, and prints each fact as a sentence with `--show`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

DATA = Path(__file__).parent / "data"

ARITY = {"e": 1, "n": 2, "c": 2, "o": 2, "r": 3, "t": 2, "v": 2, "s": 1}
_ITEM = re.compile(r"^### (?=[a-z_]+[ \t]*$)", re.M)
_BODY = re.compile(r"\s*P:\s?(?P<prompt>.*?)\nA<<\n(?P<answer>.*?)\n>>\s*\nF:[^\n]*\n?(?P<facts>.*)\Z", re.S)
_FACT = re.compile(r"^(?P<optional>~?)(?P<denied>-?)(?P<hedged>\??)(?P<kind>[encortvs])\s*\|(?P<parts>.*)$")
_PART = re.compile(r"^(?P<name>.*?)\{(?P<stands>.*)\}$")

Place = tuple[int, int]
"""Characters `[start, end)` of an answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """One cell of a fact: what it is called, and where the words that say so stand in the answer."""

    name: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Fact:
    kind: str
    parts: tuple[Part, ...]
    denied: bool = False
    hedged: bool = False
    optional: bool = False


@dataclass(slots=True)
class Item:
    """An answer and its facts; `expected` says why there are none."""

    id: str
    style: str
    prompt: str
    answer: str
    facts: list[Fact] = field(default_factory=list)
    expected: str = "facts"


class NotationError(ValueError):
    """What is wrong with an item, each mistake in a line."""


def read_files(paths: Sequence[Path] = ()) -> list[Item]:
    """The items of the files, by default all of the repository's. Raises `NotationError`."""
    files = sorted(paths or DATA.glob("[0-9]*.txt"))
    return [item for path in files for item in read(path.read_text(encoding="utf-8"), path.stem)]


def read(text: str, name: str) -> list[Item]:
    items, mistakes = [], []
    for number, block in enumerate(_ITEM.split(text)[1:], start=1):
        style, _, rest = block.partition("\n")
        item_id = f"{name}-{number:03d}"
        body = _BODY.match(rest)
        if not body:
            mistakes.append(f"{item_id}: not P:, A<<, >>, F:")
            continue
        item = Item(item_id, style.strip(), body["prompt"].strip(), body["answer"])
        mistakes += [f"{item_id}: {mistake}" for mistake in _read_facts(item, body["facts"].splitlines())]
        items.append(item)
    if mistakes:
        raise NotationError("\n".join(mistakes))
    return items


def _read_facts(item: Item, lines: Sequence[str]) -> list[str]:
    """Adds the facts to their item; what is wrong with them."""
    mistakes, start, searched = [], 0, 0
    for line in filter(None, map(str.strip, lines)):
        if line.startswith("@"):
            words = line[1:].strip()
            start = item.answer.find(words, searched)
            start = start if start >= 0 else item.answer.find(words)
            if start < 0:
                mistakes.append(f"not in the answer: {line!r}")
                start = searched
            searched = start
        elif line.startswith("!"):
            item.expected = line[1:].strip()
        else:
            match = _FACT.match(line)
            cells = match["parts"].split("|") if match else []
            if not match or len(cells) != ARITY[match["kind"]]:
                mistakes.append(f"no fact: {line!r}")
                continue
            parts = [_part(item.answer, cell.strip(), start) for cell in cells]
            mistakes += [f"{part} is not in the answer: {line!r}" for part in parts if isinstance(part, str)]
            placed = tuple(part for part in parts if isinstance(part, Part))
            marks = (bool(match[mark]) for mark in ("denied", "hedged", "optional"))
            if len(placed) == len(parts):
                item.facts.append(Fact(match["kind"], placed, *marks))
    if item.facts:
        item.expected = "facts"
    elif item.expected == "facts":
        mistakes.append("no facts, and no reason why not")
    return mistakes


def _part(answer: str, cell: str, start: int) -> Part | str:
    """`has{with}` is called "has" and stands at "with", `x{}` stands nowhere; the words if absent."""
    match = _PART.match(cell)
    name, stands = (match["name"].strip(), match["stands"].strip()) if match else (cell, cell)
    if not stands:
        return Part(name, None)
    place = _locate(answer, stands, start)
    return repr(stands) if place is None else Part(name, place)


def _locate(answer: str, words: str, start: int) -> Place | None:
    """The first place behind `start`, else the last before it."""
    parts = [re.escape(word) for word in words.split()]
    if re.match(r"\w", words[0]) and re.match(r"\w", words[-1]):
        pattern = r"(?<![^\W_])" + r"\s+".join(parts) + r"(?![^\W_])"
    else:
        pattern = r"\s*".join(parts)
    places = [match.span() for match in re.finditer(pattern, answer, re.I)]
    behind = [place for place in places if place[0] >= start]
    return behind[0] if behind else places[-1] if places else None


def main() -> None:
    from tools.reader.labelling import sentence

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--show", action="store_true", help="print each fact as a sentence")
    options = parser.parse_args()
    try:
        items = read_files(options.files)
    except NotationError as error:
        sys.exit(str(error))
    for item in items if options.show else ():
        print(f"{item.id} {item.style}: {item.expected}")
        for fact in item.facts:
            print("  " + sentence(fact) + " (hedged)" * fact.hedged + " (optional)" * fact.optional)
    print(f"{len(items)} answers, {sum(len(item.facts) for item in items)} facts")


if __name__ == "__main__":
    main()
