"""Derives `wordnet.json` from WordNet 3.0 as Debian packages it (`wordnet-base`).

    apt-get install wordnet-base
    python tools/wordnet.py /usr/share/wordnet OUT.json

Kept are nouns for what a picture can show, in the senses that are in use: a sense is dropped when WordNet's
own counts say that the word hardly ever has it. Names of persons and places and Latin names fall away; what
stood below them is attached above. Nothing else is changed, so the result can be compared with its source.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

KINDS = {
    "05": "animal",
    "06": "artifact",
    "08": "body",
    "10": "communication",
    "13": "food",
    "14": "group",
    "15": "location",
    "17": "object",
    "18": "person",
    "19": "phenomenon",
    "20": "plant",
    "25": "shape",
    "27": "substance",
}
"""WordNet's lexicographer files that are kept."""

TOPS = frozenset({"organism", "person", "animal", "plant", "food", "artifact"})
"""Of the topmost meanings, which form a file of their own, those that name a kind of thing."""

ABSTRACT = frozenset({"10", "14", "15", "19", "25", "27"})
"""Of these only what occurs in WordNet's counted texts is kept: their rest is terms of art."""

MOST_SENSES = 4
SHARE = 0.1
"""A sense stays when it makes up this share of the word's counted uses, or when nothing was counted."""


class Synset(msgspec.Struct):
    """A meaning: its words, each with its place among the word's senses, and the meanings above it."""

    kind: str
    words: list[str]
    parents: list[str]


def read(folder: Path) -> dict[str, Synset]:
    """Every kept synset by its offset, parents still among all synsets."""
    every = dict(_synsets(folder / "data.noun"))
    senses = _senses(folder)
    kept = {}
    for offset, synset in every.items():
        if synset.kind not in KINDS and not (synset.kind == "03" and synset.words[0] in TOPS):
            continue
        words = []
        counted = False
        for word in synset.words:
            if word != word.lower():
                continue
            rank, uses, total = senses[word].get(offset, (9, 0, 0))
            counted = counted or uses > 0
            if rank <= MOST_SENSES and (rank == 1 or (uses >= SHARE * total if total else rank <= 2)):
                words.append(word.replace("_", " "))
        if words and (counted or synset.kind not in ABSTRACT):
            kept[offset] = Synset(synset.kind, words, synset.parents)
    for synset in kept.values():
        synset.parents = sorted(set(_above(synset.parents, kept, every)))
    return kept


def write(kept: dict[str, Synset], path: Path) -> None:
    """One text for each synset: its words with bars between them, then the numbers of those above it."""
    order = sorted(kept)
    number = {offset: at for at, offset in enumerate(order)}
    lines = []
    for offset in order:
        above = " ".join(str(number[parent]) for parent in kept[offset].parents)
        lines.append("|".join(kept[offset].words) + (f"#{above}" if above else ""))
    path.write_bytes(msgspec.json.format(msgspec.json.encode({"synsets": lines}), indent=1) + b"\n")


def _synsets(path: Path) -> Iterator[tuple[str, Synset]]:
    for line in path.read_text("latin-1").splitlines():
        if line.startswith(" "):
            continue
        fields = line.partition(" | ")[0].split()
        size = int(fields[3], 16)
        words = [fields[4 + 2 * at] for at in range(size)]
        pointers = fields[5 + 2 * size :]
        parents = [pointers[at + 1] for at in range(0, len(pointers) - 3, 4) if pointers[at] == "@"]
        yield fields[0], Synset(fields[1], words, parents)


def _senses(folder: Path) -> dict[str, dict[str, tuple[int, int, int]]]:
    """For each word and synset: the sense's place, its counted uses, and those of all the word's senses."""
    uses: dict[tuple[str, int], int] = {}
    for line in (folder / "cntlist.rev").read_text("latin-1").splitlines():
        key, sense, counted = line.split()
        word, _, rest = key.partition("%")
        if rest.startswith("1:"):
            uses[word, int(sense)] = int(counted)
    found: dict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
    for line in (folder / "index.noun").read_text("latin-1").splitlines():
        if line.startswith(" "):
            continue
        fields = line.split()
        offsets = fields[-int(fields[2]) :]
        counts = [uses.get((fields[0], rank), 0) for rank in range(1, len(offsets) + 1)]
        for rank, (offset, times) in enumerate(zip(offsets, counts, strict=True), start=1):
            found[fields[0]][offset] = (rank, times, sum(counts))
    return found


def _above(parents: list[str], kept: dict[str, Synset], every: dict[str, Synset]) -> Iterator[str]:
    for parent in parents:
        if parent in kept:
            yield parent
        elif parent in every:
            yield from _above(every[parent].parents, kept, every)


if __name__ == "__main__":
    write(read(Path(sys.argv[1])), Path(sys.argv[2]))
