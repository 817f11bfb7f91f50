"""Closed classes of English that the decomposer's rules ask for, and what lemminflect knows of a word.

The words of each class, and what it is for, are in `words.toml`.
"""

from functools import lru_cache

from groundwatch.language.lexicon import singular
from groundwatch.language.numbers import NUMBER_WORDS
from groundwatch.language.word_lists import word_lists

_LISTS = word_lists("groundwatch.extraction.engines.linguistic", "words.toml")

NUMBERS = frozenset(NUMBER_WORDS) | {"dozen"}
COLORS = _LISTS["colors"]
VAGUE_NUMBERS = _LISTS["vague_numbers"]
ARTICLES = _LISTS["articles"]
DETERMINERS = _LISTS["determiners"]
POSSESSIVES = _LISTS["possessives"]
PRONOUNS = _LISTS["pronouns"]
STAND_INS = _LISTS["stand_ins"]
BE = _LISTS["be"]
AUXILIARIES = _LISTS["auxiliaries"]
MODALS = _LISTS["modals"]
RELATIVES = _LISTS["relatives"]
CONJUNCTIONS = _LISTS["conjunctions"]
SUBORDINATORS = _LISTS["subordinators"]
PREPOSITIONS = _LISTS["prepositions"]
PHRASAL = _LISTS["phrasal"]
PLACES = _LISTS["places"]
CLOSE = _LISTS["close"]
PICTURES = _LISTS["pictures"]
SPOTS = _LISTS["spots"]
SIDES = _LISTS["sides"]
HALVES = _LISTS["halves"]
RESEMBLING = _LISTS["resembling"]
DEGREES = _LISTS["degrees"]
SHELLS = _LISTS["shells"]
FOCUSES = _LISTS["focuses"]
QUALITIES = _LISTS["qualities"]
POSITIONAL = _LISTS["positional"]
AREAS = _LISTS["areas"]
INTERPRETING = _LISTS["interpreting"]
EMPTY_ADJECTIVES = _LISTS["empty_adjectives"]
MANNERS = _LISTS["manners"]
PLACE_GERUNDS = _LISTS["place_gerunds"]
OCCASIONS = _LISTS["occasions"]
MASS = _LISTS["mass"]
PLURAL_ONLY = _LISTS["plural_only"]
PEOPLE = _LISTS["people"]
ANIMALS = _LISTS["animals"]
MEN = _LISTS["men"]
WOMEN = _LISTS["women"]
MEASURES = _LISTS["measures"]
STATES = _LISTS["states"]
DONE_BY_PEOPLE = _LISTS["done_by_people"]
HOLDING = _LISTS["holding"]
INSTRUMENTAL = _LISTS["instrumental"]
SHOWING = _LISTS["showing"]
HEDGES = _LISTS["hedges"]
_PERSONAL = tuple(sorted(_LISTS["personal"]))
_SEEN_ALL_THE_SAME = _LISTS["seen_all_the_same"]
COMPOUNDS = _LISTS["compounds"]
NOT_THINGS = _LISTS["not_things"]
NOTIONS = _LISTS["notions"]


@lru_cache(maxsize=8192)
def lemmas(word: str) -> dict[str, tuple[str, ...]]:
    from lemminflect import getAllLemmas

    return dict(getAllLemmas(word))


@lru_cache(maxsize=8192)
def verb(word: str) -> str:
    """The infinitive of a verb form, "" when the word can be none."""
    found = lemmas(word).get("VERB", ())
    return found[0] if found else ""


@lru_cache(maxsize=8192)
def is_plural(word: str) -> bool:
    """Whether a word is a noun in the plural, whatever else it may be."""
    return singular(word) != word and "NOUN" in lemmas(word)


@lru_cache(maxsize=8192)
def person(word: str) -> bool:
    """Whether a singular noun names a person, by list or by its ending."""
    return word in PEOPLE or word.endswith(_PERSONAL)


@lru_cache(maxsize=8192)
def abstract(word: str) -> bool:
    """Whether a singular noun names no thing that can be seen, by list or by its ending."""
    if word in NOT_THINGS:
        return True
    return (
        word.endswith(("ness", "ity", "ism", "ance", "ence", "tion", "sion"))
        and word not in _SEEN_ALL_THE_SAME
    )


@lru_cache(maxsize=8192)
def inflect(word: str, tag: str) -> str:
    """An infinitive or a singular in the form that the Penn Treebank `tag` names."""
    from lemminflect import getInflection

    found = getInflection(word, tag)
    return found[0] if found else word
