"""Forms of English words, by the library lemminflect; a few that its dictionary does not have."""

from __future__ import annotations

import re
from functools import lru_cache

import lemminflect

from groundwatch.reading.word_lists import WORDS

NAMES = 4_096
"""Names that are remembered: an answer says each several times, and a stranger's may be long."""

_PLURAL_ONLY = WORDS["plural_only"]
_UNCOUNTABLE_S = WORDS["singular_in_s"]
_PREPOSITION = re.compile(r" (?:of|in|on|at|with|near|behind|from|to|by|for|under|next|between) ")
_MODALS = frozenset(["can", "could", "will", "would", "may", "might", "must", "should"])
BE = frozenset(["is", "are", "was", "were", "be", "been", "being", "am"])


@lru_cache(maxsize=NAMES)
def head(name: str) -> str:
    """The noun that a name turns on: the last word before a preposition."""
    words = _PREPOSITION.split(name, maxsplit=1)[0].split()
    return words[-1] if words else name


@lru_cache(maxsize=50_000)
def singular_noun(noun: str) -> str:
    """A single noun's singular; itself if it has none."""
    lowered = noun.lower()
    if lowered == "people":
        return "person"
    if lowered in _PLURAL_ONLY or lowered in _UNCOUNTABLE_S or len(noun) < 3:
        return noun
    known = lemminflect.getAllLemmas(lowered, upos="NOUN").get("NOUN", ())
    if lowered in known and (lowered == "means" or lowered[:-1] not in known):
        # The dictionary has "reeds", "letters" and "taxis" as words of their own too.
        return noun
    if not known and (not lowered.endswith("s") or lowered.endswith(("ss", "us", "is", "'s", "’s"))):
        return noun
    lemmas = [lemma for lemma in known if lemma != lowered] or lemminflect.getLemma(lowered, upos="NOUN")
    singular = str(next(iter(lemmas), lowered))
    return _as_written(noun, singular)


@lru_cache(maxsize=50_000)
def plural_noun(noun: str) -> str:
    lowered = noun.lower()
    if is_plural_noun(noun) or not lowered[-1:].isalpha():
        return noun
    if lowered == "person":
        return _as_written(noun, "people")
    forms = lemminflect.getInflection(lowered, tag="NNS")
    return _as_written(noun, str(forms[0])) if forms else noun + "s"


@lru_cache(maxsize=50_000)
def is_plural_noun(noun: str) -> bool:
    return noun.lower() in _PLURAL_ONLY or singular_noun(noun).lower() != noun.lower()


@lru_cache(maxsize=NAMES)
def is_plural(name: str) -> bool:
    """Whether a name takes a plural verb: by its head, or because it is joined by "and"."""
    return is_plural_noun(head(name)) or " and " in name


def with_head(name: str, *, plural: bool) -> str:
    noun = head(name)
    before, found, behind = name.partition(noun) if name.count(noun) == 1 else name.rpartition(noun)
    return before + (plural_noun(found) if plural else singular_noun(found)) + behind


@lru_cache(maxsize=50_000)
def verb_base(word: str) -> str | None:
    """The base form of a word that can be a verb."""
    lemmas = lemminflect.getAllLemmas(word.lower(), upos="VERB").get("VERB", ())
    return str(lemmas[0]) if lemmas else None


@lru_cache(maxsize=50_000)
def verb_form(base: str, tag: str) -> str:
    """The form of a verb with this Penn tag: VBZ, VBG, VBN, VBD."""
    forms = lemminflect.getInflection(base, tag=tag)
    return str(forms[0]) if forms else base


@lru_cache(maxsize=50_000)
def finite(word: str, *, attributive: bool = False) -> str | None:
    """The base of a word that is a finite verb by its form ("stands", "stood", "face"); None for others.

    A base form that is also an adjective, an adverb or, where it stands before its noun (`attributive`), a
    noun counts as that.
    """
    lowered = word.lower()
    if lowered in BE or lowered in _MODALS:
        return None
    base = verb_base(lowered)
    if base is None or not lowered.isalpha():
        return None
    if base == "have":
        return base
    if lowered == base:
        other = lemminflect.getAllLemmas(lowered)
        if "ADJ" in other or "ADV" in other or attributive or lowered in _NOT_VERBS:
            return None
        return base
    if lowered == verb_form(base, "VBZ"):
        return None if attributive else base
    past, participle = (lemminflect.getInflection(base, tag=tag) for tag in ("VBD", "VBN"))
    # "lit" is a participle that the library does not know; a regular past form looks like one.
    return base if lowered in past and lowered not in participle and base != "light" else None


_NOT_VERBS = WORDS["not_verbs"]


def is_modal(word: str) -> bool:
    return word.lower() in _MODALS


def is_be(word: str) -> bool:
    return word.lower() in BE


def base_words(text: str) -> str:
    """Words of a predicate to be compared: lower case, without "be" and denial, the verb in its base form."""
    words = re.sub(r"[*_`]", " ", text.lower().replace("’", "'")).split()
    while words and (words[0] in _EMPTY or is_be(words[0])):
        words.pop(0)
    if words and (base := verb_base(words[0])):
        words[0] = base
    return " ".join(words)


_EMPTY = WORDS["before_predicates"]


def _as_written(noun: str, form: str) -> str:
    return form[:1].upper() + form[1:] if noun[:1].isupper() else form
