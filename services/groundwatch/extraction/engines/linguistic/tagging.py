"""Words of a sub-sentence with parts of speech.

The tagger is TextBlob's PatternTagger, a lexicon with context rules that was made for newspapers. The
corrections here are for what captions do otherwise: "features" is a verb there, participles without
"be" follow nouns, and verbs in the present tense are taken for nouns: "a net lies on the boards".
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.language.lexicon import singular
from groundwatch.language.tokens import tokenise

_LIST_MARK = re.compile(r"\s*\d{1,3}[.)]\s+")
_PHRASE_STARTS: dict[str, list[tuple[str, ...]]] = {}
for _phrase in sorted(w.PHRASAL, key=len, reverse=True):
    _parts = tuple(_phrase.split())
    _PHRASE_STARTS.setdefault(_parts[0], []).append(_parts)

NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
ADJECTIVES = frozenset({"JJ", "JJR", "JJS"})
NOMINAL = NOUNS | ADJECTIVES
FINITE = frozenset({"VBZ", "VBP", "VBD", "BE", "MD", "HV"})
LIMIT = 400
"""Words of one sub-sentence that are looked at: people write far fewer between two marks."""
_READ = 4_000
_LONGEST = 40
_LATIN = re.compile("[0-9A-Za-z\u00c0-\u024f]")
_TAGGER = threading.Lock()
_SIDEWAYS = frozenset({"left", "right"})
_AFTER_PEOPLE = frozenset({"", "IN", "RB", "DT", "PRP$", "TO", "SUB", "CC", "RP"})
_SINGLE = frozenset({"a", "an", "another", "each", "every", "one"})
_INNER = frozenset({"NN", "NNP", "JJ", "VBN", "VBG"})


class Token(msgspec.Struct):
    """A word, or several that work as one. `tag` is Penn Treebank's, with BE, HV (have, do), PRO (stand-ins)
    and W (relatives) set apart."""

    text: str
    lower: str
    tag: str


END = Token("", "", "")
"""Stands before the first word and after the last."""


def look(tokens: Sequence[Token], at: int) -> Token:
    return tokens[at] if 0 <= at < len(tokens) else END


def tag(text: str) -> tuple[Token, ...]:
    """Cut a sub-sentence into tagged words. Scripts other than Latin give none: the rules are English."""
    return _tag(text[:_READ])


@lru_cache(maxsize=4096)
def _tag(text: str) -> tuple[Token, ...]:
    mark = _LIST_MARK.match(text)
    found = tokenise(text[mark.end() if mark else 0 :])[:LIMIT]
    pieces = [word for word in found if len(word) <= _LONGEST and _LATIN.search(word)]
    if not pieces:
        return ()
    tokens = _join_phrases(_first_guess(pieces))
    for index, token in enumerate(tokens):
        if " " not in token.lower:
            before, after = look(tokens, index - 1), look(tokens, index + 1)
            token.tag = _closed(token, before, after) or _open(tokens, index)
    return tuple(tokens)


def _first_guess(pieces: list[str]) -> list[Token]:
    from textblob.en import tag as pattern_tag

    lowered = [pieces[0].lower(), *pieces[1:]]
    with _TAGGER:
        tags = [found for _, found in pattern_tag(" ".join(lowered), tokenize=False)]
    if len(tags) != len(pieces):
        tags = ["NN"] * len(pieces)
    return [Token(text, text.lower(), tag_) for text, tag_ in zip(pieces, tags, strict=True)]


def _join_phrases(tokens: list[Token]) -> list[Token]:
    joined: list[Token] = []
    index = 0
    while index < len(tokens):
        words = [token.lower for token in tokens[index : index + 3]]
        if words[1:] in (["year", "old"], ["years", "old"]):
            joined.append(Token("-".join(words), "-".join(words), "JJ"))
            index += 3
            continue
        size, comparison, comparison_tag = compared(tokens, index)
        if size:
            joined.append(Token(comparison, comparison, comparison_tag))
            index += size
            continue
        for parts in _PHRASE_STARTS.get(tokens[index].lower, ()):
            if tuple(token.lower for token in tokens[index : index + len(parts)]) == parts:
                phrase = " ".join(parts)
                joined.append(Token(phrase, phrase, _PHRASE_TAGS.get(phrase, "IN")))
                index += len(parts)
                break
        else:
            joined.append(tokens[index])
            index += 1
    return joined


_PHRASE_TAGS = {
    "as well as": "CC",
    "each other": "PRP",
    "a lot of": "CD",
    "lots of": "CD",
    "at least": "RB",
    "a few": "CD",
    "side by side": "RB",
}


_CLOSED = {
    word: name
    for words, name in (
        (w.PREPOSITIONS, "IN"),
        (w.SUBORDINATORS, "SUB"),
        (w.DETERMINERS, "DT"),
        (w.NUMBERS | w.VAGUE_NUMBERS, "CD"),
        (w.PRONOUNS, "PRP"),
        (w.POSSESSIVES, "PRP$"),
        (w.RELATIVES, "W"),
        (w.CONJUNCTIONS, "CC"),
        (w.AUXILIARIES, "HV"),
        (w.BE, "BE"),
    )
    for word in words
} | {"'s": "POS", "not": "RB", "various": "JJ", "different": "JJ"}
"""The tags of closed classes; of a word in two of them the later one's."""


def _closed(token: Token, before: Token, after: Token) -> str:
    word = token.lower
    if word in {"appear", "appears", "seem", "seems"}:
        return "VBZ" if word.endswith("s") else "VBP"
    if word in {"midair", "mid-air"}:
        return "NN" if before.tag in {"IN", "DT"} else "RB"
    if word == "can" and _is_container(before, after):
        return "NN"
    noun_begun = word in {"can", "will", "might"} and before.tag in {"DT", "JJ", "PRP$", "CD"}
    if word in w.MODALS and not noun_begun:
        return "MD"
    if word == "that":
        return "W" if before.tag in NOUNS else "DT"
    if word == "her":
        return "PRP" if after.tag in {"", "IN", "CC", "BE", "MD", "TO", "DT", "RB"} else "PRP$"
    if word == "others" or (word in w.STAND_INS and not _begins_noun(after)):
        return "PRO"
    if word == "there":
        return "EX" if after.tag in {"BE", "MD", "VBZ", "VBP", "RB"} else "RB"
    if word in w.COLORS:
        return "NN" if after is END and before.lower in {"in", "of"} else "JJ"
    if word == "to":
        return "TO" if after.tag == "VB" else "IN"
    return "CD" if word.replace(",", "").isdigit() else _CLOSED.get(word, "")


def _begins_noun(token: Token) -> bool:
    return token.tag in NOMINAL or token.tag == "CD" or token.lower in w.VAGUE_NUMBERS | {"other"}


def _is_container(before: Token, after: Token) -> bool:
    """ "A trash can is": after the modal would stand an infinitive."""
    word = after.lower
    infinitive = word == "be" or (bool(word) and w.verb(word) == word)
    return before.tag in {"NN", "JJ", "VBG"} and not infinitive and after.tag != "RB"


def _open(tokens: list[Token], at: int) -> str:
    token, before, after = tokens[at], look(tokens, at - 1), look(tokens, at + 1)
    word, tag_ = token.lower, token.tag
    earlier, previous, following = look(tokens, at - 2).tag, before.tag, after.tag
    leads_noun = following in NOMINAL and (
        previous in {"DT", "PRP$", "CD", "POS"} | ADJECTIVES
        or (previous == "RB" and earlier in {"DT", "PRP$", "JJ", "CC"} and following in NOUNS)
    )
    if word[0].isdigit() or (word.endswith("-old") and tag_ == "JJ"):
        return "JJ"
    if previous == "DT" and tag_ in ADJECTIVES and after.lower == "of":
        return "NN"
    if word.endswith("ly") and tag_ in {"RB", "JJ", "NN"} and "ADV" in w.lemmas(word):
        return "RB"
    if word in w.HALVES and _begins_corner(before, after):
        return "JJ" if following in NOUNS or after.lower in _SIDEWAYS else "NN"
    if word in _SIDEWAYS:
        corner = before.lower in w.HALVES and earlier in {"DT", "PRP$"}
        return "JJ" if following in NOUNS else "NN" if corner or previous in {"DT", "IN"} else "RB"
    if word in {"visible", "present", "close", "full", "closer", "nearer", "ready", "available"}:
        return "JJ"
    if previous == "BE" and tag_ == "NN" and following in {"", "CC"} and w.lemmas(word).get("ADJ"):
        return "JJ"
    if word in {"out", "up", "down", "off"} and previous.startswith("V"):
        return "IN" if following in {"DT", "PRP$"} else "RB"
    if word in {"male", "female", "adult"}:
        return "JJ" if following in NOUNS else "NN"
    if word in {"nearby", "together", "away", "further", "farther", "overhead", "apart", "forward"}:
        if word == "nearby" and following in {"DT", "PRP$"}:
            return "IN"
        return "JJ" if word == "nearby" and following in NOUNS and previous != "NNS" else "RB"
    if (
        previous in {"BE", ""}
        and following in {"IN", "RB", "RP"}
        and tag_ in {"NN", "VB", "VBP"}
        and w.verb(word)
        and w.inflect(w.verb(word), "VBN") == word
    ):
        return "VBN"
    if tag_ == "VBZ" and not following and (not previous or (previous == "CC" and tokens[0] is before)):
        return "NNS"
    if "-" in word and tag_ not in {"VBG", "VBZ"} and (following in NOUNS or word.endswith(("ed", "-up"))):
        return "JJ"
    if is_third_person(tokens, at):
        return "VBZ"
    if is_plural_present(tokens, at):
        return "VBP"
    if before.lower in {"a", "an"} and _before_its_verb(tokens, at):
        return "NN"
    if tag_ == "JJR" and _is_thing(tokens, at):
        return "NN"
    if word.endswith("ing") and previous == "JJ" and following not in NOUNS and _heads(tokens, at):
        return "NN"
    if word.endswith("ing") and w.verb(word):
        return _ing(word, tag_, previous, following, leads_noun, after.lower)
    if tag_ in {"VBN", "VBD"} or (word.endswith("ed") and w.verb(word) not in {"", word}):
        return _past(word, previous, following, leads_noun)
    finite = not has_finite(tokens, at) and (following in {"DT", "PRP$"} or not governed(tokens, at))
    if tag_ in {"NN", "NNS", "VBZ", "VBP", "VB", "JJ"} and w.verb(word) and finite:
        guess = present(word, previous, after)
        if guess:
            return guess
    if tag_ == "VBZ" and w.is_plural(word) and (not finite or previous in {"VBG", "VBN", "VBD", "IN", "CC"}):
        return "NNS"
    if tag_ in {"VB", "VBP"} and previous == "NN" and w.lemmas(word).get("NOUN"):
        return "NN"
    if tag_ == "VBZ" and before.lower in {"this", "that"} and finite and w.verb(word):
        return "NNS" if w.lemmas(word).get("NOUN") else "VBZ"
    if tag_ in {"VBZ", "VB", "VBP"} and (previous in {"DT", "PRP$", "JJ", "CD", "POS"} or not w.verb(word)):
        return "NNS" if word.endswith("s") and w.is_plural(word) else "NN"
    if tag_ in {"FW", "SYM", "LS", "UH", "IN", "WDT", "WP", "PDT", "DT", "CC", "CD", "PRP", "EX", "RP"}:
        return "NN"
    if tag_ == "NN" and w.is_plural(word) and word.endswith("s"):
        return "NNS"
    return tag_


def _begins_corner(before: Token, after: Token) -> bool:
    """ "At the top", "the upper left": neither is told of a noun that follows."""
    leads = after.tag in NOMINAL | {"VBG", "VBN"}
    return before.tag in {"DT", "PRP$"} and (after.lower in _SIDEWAYS or not leads)


def _before_its_verb(tokens: list[Token], at: int) -> bool:
    """ "An awning covers the stall": a singular before an -s form that no noun follows."""
    token = tokens[at]
    if token.tag not in {"JJ", "VBG"} or not may_be_third_person(look(tokens, at + 1).lower):
        return False
    return _before_other(tokens, at + 1) and token.lower in w.lemmas(token.lower).get("NOUN", ())


def _is_thing(tokens: list[Token], at: int) -> bool:
    """ "A cooler stands", "the blue cooler": no comparative where a noun is due and the word can be one."""
    if not at or not _heads(tokens, at) or tokens[at].lower not in w.lemmas(tokens[at].lower).get("NOUN", ()):
        return False
    after = look(tokens, at + 1)
    return (
        after is END
        or after.tag in FINITE | {"IN", "VBG", "VBN", "RB", "POS"}
        or after.lower in w.BE | w.AUXILIARIES | w.MODALS
        or (may_be_third_person(after.lower) and _before_other(tokens, at + 1))
    )


def _before_other(tokens: list[Token], at: int) -> bool:
    """Whether no noun follows, which an -s form in the middle of a noun phrase would have."""
    return look(tokens, at + 1).tag not in NOUNS


def _heads(tokens: list[Token], at: int) -> bool:
    """ "A striped awning in red": after an article and an adjective a noun is due."""
    at -= 1
    while at > 0 and tokens[at].tag == "JJ":
        at -= 1
    return tokens[at].lower in w.ARTICLES


def _ing(word: str, tag_: str, previous: str, following: str, leads_noun: bool, after: str) -> str:
    if not previous and not following:
        return "VBG"
    if word in w.PLACE_GERUNDS and following in NOUNS:
        return "NN"
    if previous in {"DT", "PRP$", "POS", "CD"} and following not in NOMINAL:
        return "NN"
    if leads_noun:
        return "JJ" if tag_ != "NN" else "NN"
    if previous == "JJ" and (tag_ == "NN" or following not in {"DT", "PRP$", "IN", "PRP"}):
        return "NN"
    if previous in NOUNS and following in NOUNS and (tag_ == "NN" or after in w.OCCASIONS):
        return "NN"
    known_noun = word in w.lemmas(word).get("NOUN", ()) and tag_ == "NN"
    if known_noun and previous in NOUNS and following not in {"DT", "PRP$", "PRP"}:
        return "NN" if word in {"building", "clothing", "railing", "ceiling", "painting", "siding"} else "VBG"
    if known_noun and previous in {"IN", "CC", ""} and following not in {"DT", "PRP$", "PRP", "IN"}:
        return "NN"
    return "VBG"


def _past(word: str, previous: str, following: str, leads_noun: bool) -> str:
    if leads_noun or (previous in {"IN", "CC", ""} and following in NOUNS and word.endswith("ed")):
        return "JJ"
    if previous in NOUNS | {"PRP"} and following in {"DT", "PRP$"}:
        return "VBD"
    return "VBN"


def is_third_person(tokens: Sequence[Token], at: int) -> bool:
    """Whether a word in -s must be a verb: after "a net" no plural can stand, nor before "the stall"."""
    word = tokens[at].lower
    if not may_be_third_person(word):
        return False
    before, after = look(tokens, at - 1), look(tokens, at + 1)
    article = after.lower in w.ARTICLES | w.POSSESSIVES
    if before.tag == "CC":
        return article and any(token.tag in {"VBZ", "BE"} for token in tokens[:at])
    if article and (before.lower in {"this", "that"} or before.lower in w.COLORS):
        return True
    if before.tag not in {"NN", "NNP"}:
        return False
    if article or (w.person(singular(before.lower)) and after.tag in _AFTER_PEOPLE):
        return True
    at -= 1
    while at > 0 and tokens[at].tag in _INNER:
        at -= 1
    return tokens[at].lower in _SINGLE


def may_be_third_person(word: str) -> bool:
    """Whether a word is the -s form of a verb."""
    if not word.endswith("s") or word.endswith("ss") or word in w.PLURAL_ONLY:
        return False
    verb = w.verb(word)
    return bool(verb) and w.inflect(verb, "VBZ") == word


def is_plural_present(tokens: Sequence[Token], at: int) -> bool:
    """ "Both men wear hats", "a man and a woman stand on a hill": what the tagger calls an infinitive."""
    token = tokens[at]
    if at == 0 or token.tag not in {"VB", "VBP"} or w.verb(token.lower) != token.lower:
        return False
    before = tokens[at - 1]
    following = look(tokens, at + 1).tag
    if following not in _AFTER_PEOPLE | {"NNS", "JJ", "CD"} or not w.person(singular(before.lower)):
        return False
    return before.tag == "NNS" or (before.tag == "NN" and any(other.tag == "CC" for other in tokens[:at]))


def present(word: str, previous: str, after: Token) -> str:
    """The tag of a word as a verb in the present by what stands around it, "" when it is none."""
    object_follows = after.tag in {"DT", "PRP$", "CD", "JJ"} or after.lower in w.DETERMINERS
    if word.endswith("s") and not word.endswith("ss"):
        subject = previous in NOUNS | {"PRP", "W", "PRO", "RB"}
        governs = after.lower in w.PREPOSITIONS and not w.lemmas(word).get("NOUN")
        return "VBZ" if subject and (object_follows or previous in {"PRP", "W"} or governs) else ""
    if previous in {"PRP", "W"} or (previous == "NNS" and (object_follows or after.tag == "IN")):
        return "VBP"
    return "VB" if previous in {"TO", "MD"} else ""


def governed(tokens: Sequence[Token], at: int) -> bool:
    """Whether the nouns before this word are a preposition's: then they are nobody's subject."""
    at -= 1
    while look(tokens, at).tag in NOMINAL | {"DT", "PRP$", "CD", "POS"}:
        at -= 1
    return look(tokens, at).tag == "IN" and tokens[at].lower not in {"of", "with"}


def has_finite(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause of this word has its finite verb before it."""
    finite = {"BE", "MD", "VBZ", "VBP"}
    telling = (other.tag for other in reversed(tokens[:at]) if other.tag in finite | {"W", "SUB", "CC"})
    return next(telling, "") in finite


_SHAPE = re.compile(r".+ than|as .+ as|the same .+ as")
_MORE = frozenset({"more", "less"})
_UNCOUNTED = frozenset({"more", "less", "fewer"})


def compares(preposition: str) -> bool:
    """Whether a token that governs a noun compares with it."""
    return _SHAPE.fullmatch(preposition) is not None


def compared(tokens: Sequence[Token], at: int) -> tuple[int, str, str]:
    """The number of words of the comparison that begins here, 0 for none, with its text and its tag.

    How much larger is left out, and so is the number in "more than two balls": some number is there.
    """
    start = at
    if tokens[at].lower == "a" and look(tokens, at + 1).lower in {"bit", "little", "lot"}:
        at += 1
    if at + 1 < len(tokens) and tokens[at].lower in w.DEGREES:
        at += 1
    words = [token.lower for token in tokens[at : at + 4]]
    match words:
        case [more, "than", number, *_] if more in _UNCOUNTED and (number in w.NUMBERS or number.isdigit()):
            return at - start + 3, " ".join(words[:3]), "RB"
        case [word, "than", *_] if _is_comparative(tokens[at]):
            return at - start + 2, f"{word} than", "IN"
        case [more, _, "than", *_] if more in _MORE and _describes(tokens[at + 1]):
            return at - start + 3, " ".join(words[:3]), "IN"
        case [_, "and", _, "than"] if _is_comparative(tokens[at]) and _is_comparative(tokens[at + 2]):
            return at - start + 4, " ".join(words), "IN"
        case ["as", _, "as", *_] if _describes(tokens[at + 1]):
            return at - start + 3, " ".join(words[:3]), "IN"
        case ["the", "same", quality, "as"] if quality in w.QUALITIES or singular(quality) in w.QUALITIES:
            return at - start + 4, " ".join(words), "IN"
    return 0, "", ""


def _is_comparative(token: Token) -> bool:
    if token.lower in {"other", "rather"} | _UNCOUNTED:
        return False
    return token.tag in {"JJR", "RBR"} or (token.lower.endswith("er") and "ADJ" in w.lemmas(token.lower))


def _describes(token: Token) -> bool:
    adverb = token.lower in {"well", "soon", "long", "far"}
    return token.tag.startswith("JJ") or ("ADJ" in w.lemmas(token.lower) and not adverb)
