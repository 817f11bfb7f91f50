"""What words mean, as far as judging a description needs it: our own small lexicon.

Nouns with synonyms and broader concepts, attributes by kind, numbers, verbs and prepositions are data
(`*.json` beside this file); nothing here learns or downloads anything. Engines of more than one service
share it, so that "matched" and "supported" rest on the same idea of sameness.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import groupby
from typing import NamedTuple

import msgspec

from groundwatch.keys import digest
from groundwatch.language.tokens import NUMBER_WORDS

_FILES = ("nouns.json", "attributes.json", "relations.json")


class Attribute(NamedTuple):
    """A property's value, such as ("color", "light blue"). `kind` is "" where the data knows none."""

    kind: str
    value: str


class _Nouns(msgspec.Struct):
    synonyms: list[list[str]]
    narrower: dict[str, list[str]]
    irregular_plurals: dict[str, str]
    uninflected: frozenset[str]
    pairs: frozenset[str]
    quantities: frozenset[str]
    plural_quantities: frozenset[str]
    generic: frozenset[str]
    indefinite: frozenset[str]
    wildcards: frozenset[str]
    pronouns: dict[str, str]
    places: frozenset[str]
    settings: frozenset[str]
    parts: dict[str, list[str]]
    roles: dict[str, list[str]]


class _Kind(msgspec.Struct):
    exclusive: bool
    values: list[list[str]]
    narrower: dict[str, list[str]]
    near: list[list[str]]
    neutral: list[str]


class _Attributes(msgspec.Struct):
    kinds: dict[str, _Kind]
    shades: list[str]
    kind_words: dict[str, str]
    numbers: dict[str, int]
    vague: dict[str, tuple[int, int | None]]
    inherent: dict[str, list[str]]


class _Preposition(msgspec.Struct):
    forms: list[str]
    inverse: str
    entails: list[str]


class _Relations(msgspec.Struct):
    prepositions: dict[str, _Preposition]
    spatial: frozenset[str]
    exclusive: list[list[str]]
    verbs: list[list[str]]
    weak: frozenset[str]
    postures: frozenset[str]
    entails: dict[str, list[str]]
    carries_position: dict[str, str]
    possession: frozenset[str]
    conflicts: list[list[str]]
    irregular_verbs: dict[str, str]
    swaps: dict[str, list[str]]
    fills: frozenset[str]
    everywhere: dict[str, str]
    copulas: frozenset[str]
    showing: frozenset[str]
    adverbs: frozenset[str]


_PALE = frozenset({"light", "pale", "bright", "pastel"})
_DEEP = frozenset({"dark", "deep"})


class Lexicon:
    """Answers what a word is and how two words relate.

    A *concept* is the first word of a synonym group, or the word itself in the singular; concepts of
    several words are narrower than their last word unless the data says otherwise.
    """

    def __init__(
        self, nouns: _Nouns, attributes: _Attributes, relations: _Relations, data_digest: str
    ) -> None:
        self.digest = data_digest
        self.nouns, self.attributes, self.relations = nouns, attributes, relations
        self._concepts = {word: group[0] for group in nouns.synonyms for word in group}
        self._parents: dict[str, set[str]] = {}
        for broad, narrow in nouns.narrower.items():
            for word in narrow:
                self._parents.setdefault(self._canonical(word), set()).add(self._canonical(broad))
        self.known = frozenset(self._concepts) | frozenset(self._parents) | frozenset(nouns.narrower)
        self.longest = max(word.count(" ") for word in self.known) + 1
        self.parts: dict[str, list[str]] = {}
        for whole, parts in nouns.parts.items():
            for part in parts:
                self.parts.setdefault(self._canonical(part), []).append(self._canonical(whole))
        self.numbers = NUMBER_WORDS | attributes.numbers
        self._values = {
            word: Attribute(kind, group[0])
            for kind, entry in attributes.kinds.items()
            for group in entry.values
            for word in group
        }
        self._verbs = dict(relations.irregular_verbs)
        self._verb_concepts: dict[str, str] = {}
        for group in relations.verbs:
            for base in group:
                self._verb_concepts.setdefault(base, group[0])
                for form in inflections(base):
                    self._verbs.setdefault(form, base)
        for base in relations.weak:
            for form in inflections(base):
                self._verbs.setdefault(form, base)
        self.prepositions = {
            form: name for name, entry in relations.prepositions.items() for form in entry.forms
        }
        self.longest_preposition = max(form.count(" ") for form in self.prepositions) + 1
        self._verb_conflicts = {
            frozenset((one, other)) for group in relations.conflicts for one in group for other in group
        }
        self._preposition_conflicts = {frozenset(pair) for pair in relations.exclusive}
        self.social = frozenset(role for role, tools in nouns.roles.items() if not tools)
        self.ancestors = lru_cache(maxsize=8192)(self._ancestors)
        self.entailed_verbs = cache(self._entailed_verbs)

    def _canonical(self, phrase: str) -> str:
        return self._concepts.get(phrase, phrase)

    def singular(self, name: str) -> str:
        """A lower-case name with its last word in the singular; a word that has none stays as it is.

        The data may name a word with the one before it: "wine glasses" are no spectacles.
        """
        irregular = self.nouns.irregular_plurals
        start = name.rfind(" ", 0, max(name.rfind(" "), 0)) + 1
        if name[start:] in irregular:
            return name[:start] + irregular[name[start:]]
        word = name[name.rfind(" ") + 1 :]
        if word in irregular:
            return name[: len(name) - len(word)] + irregular[word]
        uninflected = word in self.nouns.uninflected or word.endswith(("ss", "us", "is"))
        if uninflected or len(word) < 4 or not word.endswith("s"):
            return name
        if word.endswith("ies") and len(word) > 4:
            return name[:-3] + "y"
        return name[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zzes")) else name[:-1]

    def concept(self, words: tuple[str, ...]) -> str:
        """The concept that lower-case words name, the last of them being the head."""
        if not words:
            return ""
        lemmas = (*words[:-1], self.singular(" ".join(words[-2:])).rpartition(" ")[2])
        for start in range(len(words)):
            phrase = " ".join(lemmas[start:])
            if phrase not in self.known:
                phrase = " ".join(words[start:])
            if phrase in self.known:
                before = (self._canonical(lemma) for lemma in lemmas[:start])
                return self._canonical(" ".join((*before, self._canonical(phrase))))
        return " ".join(lemmas)

    def _ancestors(self, concept: str) -> frozenset[str]:
        found = [concept]
        for current in found:
            parents = self._parents.get(current)
            if parents is None and " " in current and current not in self._concepts:
                parents = {self._canonical(current.split(" ", 1)[1])}
            elif parents is None and current not in self._concepts:
                genders = [one for one in ("woman", "man") if current.endswith(one) and current != one]
                parents = set(genders[:1])
            found += [parent for parent in parents or () if parent not in found]
        return frozenset(found[1:])

    def is_vague(self, concept: str) -> bool:
        """Whether a concept is no thing of its own: "scene", "side", "something"."""
        nouns = self.nouns
        return concept in nouns.wildcards or not nouns.generic.isdisjoint((concept, concept.split(" ")[-1]))

    def is_a(self, narrow: str, broad: str) -> bool:
        return narrow == broad or broad in self.ancestors(narrow)

    def attribute(self, word: str) -> Attribute | None:
        return self._values.get(word)

    def entails_value(self, narrow: Attribute, broad: Attribute) -> bool:
        """Whether what is `narrow` ("light blue") is `broad` ("blue") too."""
        if narrow == broad:
            return True
        if narrow.kind != broad.kind:
            return False
        _, base = self._shade(narrow)
        shade, broad_base = self._shade(broad)
        if shade:
            return False
        entry = self.attributes.kinds.get(narrow.kind)
        return base == broad_base or (entry is not None and base in entry.narrower.get(broad_base, ()))

    def conflicting_values(self, one: Attribute, other: Attribute) -> bool:
        """Whether one thing cannot have both values: red and green, but not red and maroon."""
        entry = self.attributes.kinds.get(one.kind)
        if one.kind != other.kind or entry is None or not entry.exclusive:
            return False
        shade, base = self._shade(one)
        other_shade, other_base = self._shade(other)
        if base == other_base:
            return (shade in _PALE and other_shade in _DEEP) or (shade in _DEEP and other_shade in _PALE)
        if base in entry.neutral or other_base in entry.neutral:
            return False
        if base in entry.narrower.get(other_base, ()) or other_base in entry.narrower.get(base, ()):
            return False
        return not any(
            base in group and other_base in group and group[0] in (base, other_base) for group in entry.near
        )

    def _shade(self, attribute: Attribute) -> tuple[str, str]:
        shade, _, base = attribute.value.rpartition(" ")
        return (shade, base) if shade in self.attributes.shades else ("", attribute.value)

    def verb(self, form: str) -> str | None:
        """The verb's concept, if the form is of a verb that the data knows; weak verbs give themselves."""
        base = self._verbs.get(form)
        return None if base is None else self._verb_concepts.get(base, base)

    def guessed_verb(self, form: str) -> str:
        return self.verb(form) or guessed_base(form)

    def knows_verb(self, concept: str) -> bool:
        """Whether the data has this verb, so that its absence from a complete reference says something."""
        return concept in self._verb_concepts

    def _entailed_verbs(self, verb: str) -> frozenset[str]:
        """The verb and everything that doing it implies: who carries a bag holds and has it."""
        found = [verb]
        for known in found:
            found += [one for one in self.relations.entails.get(known, ()) if one not in found]
        return frozenset(found)

    def conflicting_verbs(self, one: str, other: str) -> bool:
        return one != other and frozenset((one, other)) in self._verb_conflicts

    def conflicting_prepositions(self, one: str, other: str) -> bool:
        """Whether both cannot hold of the same pair in the same order: left and right of."""
        return frozenset((one, other)) in self._preposition_conflicts

    def number(self, word: str) -> tuple[int, int | None] | None:
        """How many a word means, as lowest and highest (None: no bound)."""
        if word in self.numbers:
            value = self.numbers[word]
            return value, value
        digits = word.replace(",", "")
        if digits.isascii() and digits.isdigit() and len(digits) < 10:
            return int(digits), int(digits)
        return self.attributes.vague.get(word)


@cache
def lexicon() -> Lexicon:
    folder = resources.files(__package__ or "groundwatch.language.lexicon")
    texts = [folder.joinpath(name).read_text(encoding="utf-8") for name in _FILES]
    return Lexicon(
        msgspec.json.decode(texts[0], type=_Nouns),
        msgspec.json.decode(texts[1], type=_Attributes),
        msgspec.json.decode(texts[2], type=_Relations),
        digest(*texts)[:12],
    )


def singular(name: str) -> str:
    return lexicon().singular(name)


_VOWELS = frozenset("aeiou")
_DOUBLES = re.compile(r"[^aeiou][aeiou][^aeiouwxy]\Z")


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
        if _DOUBLES.search(base):
            yield base + base[-1], base + base[-1] + "ed"


def guessed_base(word: str) -> str:
    """The base of a verb form that the data does not know, good enough to compare two such forms."""
    for suffix in ("ing", "ed"):
        stem = word.removesuffix(suffix)
        if stem != word and len(stem) > 2:
            if stem[-1] == stem[-2] and stem[-1] not in "sl":
                stem = stem[:-1]
            return stem.removesuffix("e")
    return word


ARTICLES = frozenset({"a", "an", "the", "this", "that", "these", "those"})
_OWNERS = frozenset({"his", "her", "its", "their", "my", "your", "our"})
DETERMINERS = ARTICLES | _OWNERS | frozenset({"such", "same", "main", "only", "first", "no"})
_HEDGES = frozenset({"at", "least", "about", "around", "exactly", "only", "just"})
MAX_WORDS = 80
"""A longer text is no atomic fact; it is compared as a whole and not taken apart."""


class NounPhrase(msgspec.Struct, frozen=True):
    """A thing as a text names it. `low` and `high` bound its number where the text gives one."""

    concept: str
    attributes: tuple[Attribute, ...] = ()
    low: int | None = None
    high: int | None = None
    plural: bool = False
    owner: str = ""
    of: str = ""

    @property
    def counted(self) -> bool:
        """Whether the text says how many, beyond "a" and "some"."""
        return self.low is not None and (self.low > 1 or self.high is not None)


def noun_phrases(words: Sequence[str], lexicon: Lexicon) -> list[NounPhrase]:
    """The things in "a hat and two red gloves"; at most `MAX_WORDS` words are looked at."""
    joints = ("and", ",", "or", "&", "plus")
    parts = [list(part) for joint, part in groupby(words[:MAX_WORDS], joints.__contains__) if not joint]
    merged: list[list[str]] = [[]]
    for index, part in enumerate(parts, start=1):
        merged[-1] += part
        describes = all(
            word in DETERMINERS or lexicon.attribute(word) or word in lexicon.attributes.shades
            for word in part
        )
        if not describes and index < len(parts):
            merged.append([])
    found = (_noun_phrase(part, lexicon) for part in merged if part)
    return [phrase for phrase in found if phrase is not None]


def _noun_phrase(words: list[str], lexicon: Lexicon) -> NounPhrase | None:
    owner = ""
    if "'s" in words:
        at = words.index("'s")
        possessor = _noun_phrase(words[:at], lexicon)
        owner = possessor.concept if possessor else ""
        words = words[at + 1 :]
    if "of" in words[1:-1]:
        at = words.index("of", 1)
        return _of_phrase(words[:at], words[at + 1 :], owner, lexicon)
    low: int | None = None
    high: int | None = None
    open_ended = "least" in words[:-1]
    while words and (words[0] in DETERMINERS or lexicon.number(words[0]) or words[0] in _HEDGES):
        number = lexicon.number(words[0])
        if number and len(words) == 1:
            if words[0] in lexicon.numbers and words[0] != "one":
                low, high = number
            break
        low, high = number or (low, high)
        words = words[1:]
    if open_ended:
        high = None
    if not words:
        return None
    attributes, rest = _attributes(words, lexicon)
    head = rest[-1]
    concept = lexicon.nouns.pronouns.get(head) if len(rest) == 1 else None
    concept = concept or lexicon.concept(tuple(rest))
    named = " ".join(rest[-2:])
    plural = lexicon.singular(named) != named or head in ("people", "cattle", "they", "them")
    return NounPhrase(concept, tuple(attributes), low, high, plural, owner)


def _of_phrase(words: list[str], rest: list[str], owner: str, lexicon: Lexicon) -> NounPhrase | None:
    """ "A group of people" is people; "the head of the giraffe" is a head."""
    outer = _noun_phrase(words, lexicon)
    inner = _noun_phrase(rest, lexicon)
    if outer is None or inner is None:
        return inner or outer
    joined = lexicon.concept((lexicon.singular(words[-1]), "of", *rest))
    if joined in lexicon.known:
        return msgspec.structs.replace(outer, concept=joined, owner=owner)
    measure = lexicon.singular(words[-1])
    if measure not in lexicon.nouns.quantities:
        if rest[0] not in DETERMINERS and " " not in inner.concept and inner.concept != outer.concept:
            outer = msgspec.structs.replace(outer, concept=f"{inner.concept} {outer.concept}")
        return msgspec.structs.replace(outer, owner=owner, of=inner.concept)
    low, high = inner.low, inner.high
    if low is None:
        paired = inner.concept in lexicon.nouns.pairs and measure == "pair"
        several = measure in lexicon.nouns.plural_quantities and inner.plural
        vague = lexicon.number(measure) or ((2, None) if several else (low, high))
        low, high = (outer.low, outer.high) if measure == "piece" or paired else vague
    attributes, plural = tuple(dict.fromkeys(inner.attributes)), inner.plural and measure != "piece"
    return msgspec.structs.replace(
        inner, attributes=attributes, low=low, high=high, plural=plural, owner=owner
    )


def _attributes(words: list[str], lexicon: Lexicon) -> tuple[list[Attribute], list[str]]:
    """Split the words before the head into attribute values and the rest, a compound noun."""
    sizes = range(min(len(words), lexicon.longest), 1, -1)
    known = (size for size in sizes if lexicon.singular(" ".join(words[-size:])) in lexicon.known)
    longest = next(known, 1)
    attributes: list[Attribute] = []
    compound: list[str] = []
    before = words[:-longest]
    for index, word in enumerate(before):
        if word in lexicon.relations.adverbs or word in DETERMINERS or word == "-":
            continue
        following = before[index + 1] if index + 1 < len(before) else ""
        shaded = lexicon.attribute(following)
        if word in lexicon.attributes.shades and shaded and shaded.kind == "color":
            continue
        value = lexicon.attribute(word)
        if value is None and word.endswith(("ing", "ed")) and lexicon.verb(word) is not None:
            value = Attribute("", lexicon.guessed_verb(word))
        if value is None:
            compound.append(word)
            continue
        shade = before[index - 1] if index else ""
        if value.kind == "color" and shade in lexicon.attributes.shades:
            value = Attribute("color", f"{shade} {value.value}")
        attributes.append(value)
    return attributes, [*compound, *words[-longest:]]
