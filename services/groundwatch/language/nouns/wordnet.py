"""The nouns that `tools/wordnet.py` keeps of WordNet: which words mean the same, and what is above them."""

from collections import defaultdict
from functools import cache, lru_cache
from importlib import resources

import msgspec

from groundwatch.events import digest


class _Data(msgspec.Struct):
    synsets: list[str]


class Nouns:
    """Looks up meanings by word. Words are lower-case lemmas, several joined by blanks."""

    def __init__(self, data: bytes) -> None:
        self.digest = digest(data.decode())[:12]
        self._meanings: dict[str, list[int]] = defaultdict(list)
        self._above: list[tuple[int, ...]] = []
        self._names: list[str] = []
        for number, text in enumerate(msgspec.json.decode(data, type=_Data).synsets):
            words, _, above = text.partition("#")
            self._above.append(tuple(map(int, above.split())))
            self._names.append(words.partition("|")[0])
            for word in words.split("|"):
                self._meanings[word].append(number)
        self._closure = lru_cache(maxsize=8192)(self._climb)

    def __contains__(self, word: str) -> bool:
        return word in self._meanings

    def meanings(self, word: str) -> int:
        return len(self._meanings.get(word, ()))

    def synset(self, word: str) -> str | None:
        """The name of the word's synset, its first word ("auto": "car"); None for a word that is not here.

        Which sense is the commonest is not kept, so a synset that is named after the word goes first.
        """
        names = [self._names[meaning] for meaning in self._meanings.get(word, ())]
        return word if word in names else next(iter(names), None)

    def same(self, one: str, other: str) -> bool:
        return not set(self._meanings.get(one, ())).isdisjoint(self._meanings.get(other, ()))

    def steps(self, narrow: str, broad: str) -> int | None:
        """How many steps a meaning of `broad` lies above one of `narrow`; None when it does not."""
        above = self._closure(narrow)
        found = [above[meaning] for meaning in self._meanings.get(broad, ()) if above.get(meaning)]
        return min(found, default=None)

    def _climb(self, word: str) -> dict[int, int]:
        found = dict.fromkeys(self._meanings.get(word, ()), 0)
        level = list(found)
        step = 0
        while level:
            step += 1
            level = [above for meaning in level for above in self._above[meaning] if above not in found]
            found.update(dict.fromkeys(level, step))
        return found


@cache
def nouns() -> Nouns:
    """The nouns of this process, read once (about 0.1 s)."""
    return Nouns(resources.files("groundwatch.language.nouns").joinpath("wordnet.json").read_bytes())
