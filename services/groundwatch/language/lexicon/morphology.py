"""Singulars and verb bases by rule, with the irregular ones from the data."""

from collections.abc import Iterable, Mapping

_VOWELS = frozenset("aeiou")


def singular(name: str, irregular: Mapping[str, str], uninflected: frozenset[str]) -> str:
    """A lower-case name with its last word in the singular; a word that has none stays as it is.

    `irregular` may name a word with the one before it: "wine glasses" are no spectacles.
    """
    start = name.rfind(" ", 0, max(name.rfind(" "), 0)) + 1
    if name[start:] in irregular:
        return name[:start] + irregular[name[start:]]
    before, blank, word = name.rpartition(" ")
    return before + blank + _singular(word, irregular, uninflected)


def _singular(word: str, irregular: Mapping[str, str], uninflected: frozenset[str]) -> str:
    if word in irregular:
        return irregular[word]
    if word in uninflected or len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    return word[:-1]


def inflections(base: str) -> Iterable[str]:
    """Regular forms of a verb: third person, participle and past."""
    yield base
    if base.endswith(("s", "sh", "ch", "x", "z", "o")):
        yield base + "es"
    elif base.endswith("y") and base[-2:-1] not in _VOWELS:
        yield base[:-1] + "ies"
    else:
        yield base + "s"
    for stem, past in _stems(base):
        yield stem + "ing"
        yield past


def _stems(base: str) -> Iterable[tuple[str, str]]:
    if base.endswith("ie"):
        yield base[:-2] + "y", base + "d"
    elif base.endswith("e") and not base.endswith(("ee", "oe", "ye")):
        yield base[:-1], base + "d"
    elif base.endswith("y") and base[-2:-1] not in _VOWELS:
        yield base, base[:-1] + "ied"
    else:
        yield base, base + "ed"
        if _doubles(base):
            yield base + base[-1], base + base[-1] + "ed"


def _doubles(base: str) -> bool:
    return (
        len(base) > 2
        and base[-1] not in _VOWELS
        and base[-1] not in "wxy"
        and base[-2] in _VOWELS
        and base[-3] not in _VOWELS
    )


def guessed_base(word: str) -> str:
    """The base of a verb form that the data does not know, good enough to compare two such forms."""
    for suffix in ("ing", "ed"):
        stem = word.removesuffix(suffix)
        if stem != word and len(stem) > 2:
            if stem[-1] == stem[-2] and stem[-1] not in "sl":
                stem = stem[:-1]
            return stem.removesuffix("e")
    return word
