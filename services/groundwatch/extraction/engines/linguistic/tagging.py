"""Words of a sub-sentence with parts of speech.

The tagger is TextBlob's PatternTagger, a lexicon with context rules that was made for newspapers. The
corrections here are for what captions do otherwise: "features" is a verb there, and participles without
"be" follow nouns.
"""

import re
import threading
from functools import lru_cache

import msgspec

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.comparisons import compared
from groundwatch.extraction.engines.linguistic.finite import (
    governed,
    has_finite,
    is_plural_present,
    is_third_person,
    may_be_third_person,
    present,
)
from groundwatch.language.tokens import tokenise

_LIST_MARK = re.compile(r"\s*\d{1,3}[.)]\s+")
_PHRASE_STARTS: dict[str, list[tuple[str, ...]]] = {}
for _phrase in sorted(w.PHRASAL, key=len, reverse=True):
    _parts = tuple(_phrase.split())
    _PHRASE_STARTS.setdefault(_parts[0], []).append(_parts)

NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
ADJECTIVES = frozenset({"JJ", "JJR", "JJS"})
FINITE = frozenset({"VBZ", "VBP", "VBD", "BE", "MD", "HV"})
LIMIT = 400
"""Words of one sub-sentence that are looked at: people write far fewer between two marks."""
_READ = 4_000
_LONGEST = 40
_LATIN = re.compile("[0-9A-Za-z\u00c0-\u024f]")
_TAGGER = threading.Lock()
_SIDEWAYS = frozenset({"left", "right"})


class Token(msgspec.Struct):
    """A word, or several that work as one. `tag` is Penn Treebank's, with BE, HV (have, do), PRO (stand-ins)
    and W (relatives) set apart."""

    text: str
    lower: str
    tag: str


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
    for index in range(len(tokens)):
        _correct(tokens, index)
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


def _correct(tokens: list[Token], at: int) -> None:
    token = tokens[at]
    if " " in token.lower:
        return
    before = tokens[at - 1] if at else None
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    token.tag = _closed(token, before, after) or _open(tokens, token, before, after)


def _closed(token: Token, before: Token | None, after: Token | None) -> str:
    word = token.lower
    noun_follows = after is not None and (after.tag in NOUNS or after.tag in ADJECTIVES)
    if word == "'s":
        return "POS"
    if word == "not":
        return "RB"
    if word in w.BE:
        return "BE"
    if word in {"appear", "appears", "seem", "seems"}:
        return "VBZ" if word.endswith("s") else "VBP"
    if word in {"midair", "mid-air"}:
        return "NN" if before is not None and before.tag in {"IN", "DT"} else "RB"
    if word == "can" and before is not None and _is_container(before, after):
        return "NN"
    if (word in w.MODALS and word not in {"can", "will", "might"}) or (
        word in w.MODALS and not _noun_before(before)
    ):
        return "MD"
    if word in w.AUXILIARIES:
        return "HV"
    if word in w.CONJUNCTIONS:
        return "CC"
    if word == "that":
        return "W" if before is not None and before.tag in NOUNS else "DT"
    if word in w.RELATIVES:
        return "W"
    if word == "her":
        return (
            "PRP$"
            if after is not None and after.tag not in {"IN", "CC", "BE", "MD", "TO", "DT", "RB"}
            else "PRP"
        )
    if word in w.POSSESSIVES:
        return "PRP$"
    if word in w.PRONOUNS:
        return "PRP"
    if word in {"others"} or (word in w.STAND_INS and not noun_follows and not _number_like(after)):
        return "PRO"
    if word in {"various", "different"}:
        return "JJ"
    if word in w.NUMBERS or word in w.VAGUE_NUMBERS or word.replace(",", "").isdigit():
        return "CD"
    if word in w.DETERMINERS:
        return "DT"
    if word == "there":
        return "EX" if after is not None and after.tag in {"BE", "MD", "VBZ", "VBP", "RB"} else "RB"
    if word in w.COLORS:
        return "JJ" if not (after is None and before is not None and before.lower in {"in", "of"}) else "NN"
    if word in w.SUBORDINATORS:
        return "SUB"
    if word == "to":
        return "TO" if after is not None and after.tag == "VB" else "IN"
    if word in w.PREPOSITIONS:
        return "IN"
    return ""


def _is_container(before: Token, after: Token | None) -> bool:
    """ "A trash can is": after the modal would stand an infinitive."""
    if before.tag not in {"NN", "JJ", "VBG"}:
        return False
    word = after.lower if after is not None else ""
    return word != "be" and (w.verb(word) != word or not word) and (after is None or after.tag != "RB")


def _noun_before(before: Token | None) -> bool:
    return before is not None and before.tag in {"DT", "JJ", "PRP$", "CD"}


def _number_like(after: Token | None) -> bool:
    return after is not None and (after.tag == "CD" or after.lower in w.VAGUE_NUMBERS | {"other"})


def _open(tokens: list[Token], token: Token, before: Token | None, after: Token | None) -> str:
    word, tag_ = token.lower, token.tag
    at = next(index for index, other in enumerate(tokens) if other is token)
    earlier = tokens[at - 2].tag if at > 1 else ""
    previous = before.tag if before else ""
    following = after.tag if after else ""
    leads_noun = following in NOUNS | ADJECTIVES and (
        previous in {"DT", "PRP$", "CD", "POS"} | ADJECTIVES
        or (previous == "RB" and earlier in {"DT", "PRP$", "JJ", "CC"} and following in NOUNS)
    )
    if word[0].isdigit():
        return "JJ"
    if word.endswith("-old") and token.tag == "JJ":
        return "JJ"
    if previous == "DT" and tag_ in ADJECTIVES and after is not None and after.lower == "of":
        return "NN"
    if word.endswith("ly") and tag_ in {"RB", "JJ", "NN"} and "ADV" in w.lemmas(word):
        return "RB"
    if word in w.HALVES and _begins_corner(before, after):
        return "JJ" if following in NOUNS or (after is not None and after.lower in _SIDEWAYS) else "NN"
    if word in _SIDEWAYS and before is not None and before.lower in w.HALVES and earlier in {"DT", "PRP$"}:
        return "JJ" if following in NOUNS else "NN"
    if word in _SIDEWAYS:
        return "JJ" if following in NOUNS else "NN" if previous in {"DT", "IN"} else "RB"
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
        and _is_participle(word)
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
    if before is not None and before.lower in {"a", "an"} and _before_its_verb(tokens, at):
        return "NN"
    if tag_ == "JJR" and _is_thing(tokens, at):
        return "NN"
    if word.endswith("ing") and previous == "JJ" and following not in NOUNS and _heads(tokens, at):
        return "NN"
    if word.endswith("ing") and w.verb(word):
        return _ing(word, tag_, previous, following, leads_noun, after.lower if after else "")
    if tag_ in {"VBN", "VBD"} or (word.endswith("ed") and w.verb(word) not in {"", word}):
        return _past(word, previous, following, leads_noun)
    finite = not has_finite(tokens, at) and (following in {"DT", "PRP$"} or not governed(tokens, at))
    if tag_ in {"NN", "NNS", "VBZ", "VBP", "VB", "JJ"} and w.verb(word) and finite:
        guess = present(word, previous, following, after)
        if guess:
            return guess
    if tag_ == "VBZ" and w.is_plural(word) and (not finite or previous in {"VBG", "VBN", "VBD", "IN", "CC"}):
        return "NNS"
    if tag_ in {"VB", "VBP"} and previous == "NN" and w.lemmas(word).get("NOUN"):
        return "NN"
    if tag_ == "VBZ" and before is not None and before.lower in {"this", "that"} and finite and w.verb(word):
        return "NNS" if w.lemmas(word).get("NOUN") else "VBZ"
    if tag_ in {"VBZ", "VB", "VBP"} and (previous in {"DT", "PRP$", "JJ", "CD", "POS"} or not w.verb(word)):
        return "NNS" if word.endswith("s") and w.is_plural(word) else "NN"
    if tag_ in {"FW", "SYM", "LS", "UH", "IN", "WDT", "WP", "PDT", "DT", "CC", "CD", "PRP", "EX", "RP"}:
        return "NN"
    if tag_ == "NN" and w.is_plural(word) and word.endswith("s"):
        return "NNS"
    return tag_


def _begins_corner(before: Token | None, after: Token | None) -> bool:
    """ "At the top", "the upper left": neither is told of a noun that follows."""
    if before is None or before.tag not in {"DT", "PRP$"}:
        return False
    return after is None or after.lower in _SIDEWAYS or after.tag not in NOUNS | ADJECTIVES | {"VBG", "VBN"}


def _before_its_verb(tokens: list[Token], at: int) -> bool:
    """ "An awning covers the stall": a singular before an -s form that no noun follows."""
    token, after = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
    if token.tag not in {"JJ", "VBG"} or after is None or not may_be_third_person(after.lower):
        return False
    return _before_other(tokens, at + 1) and token.lower in w.lemmas(token.lower).get("NOUN", ())


def _is_thing(tokens: list[Token], at: int) -> bool:
    """ "A cooler stands", "the blue cooler": no comparative where a noun is due and the word can be one."""
    if not at or not _heads(tokens, at) or tokens[at].lower not in w.lemmas(tokens[at].lower).get("NOUN", ()):
        return False
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    return (
        after is None
        or after.tag in FINITE | {"IN", "VBG", "VBN", "RB", "POS"}
        or after.lower in w.BE | w.AUXILIARIES | w.MODALS
        or (may_be_third_person(after.lower) and _before_other(tokens, at + 1))
    )


def _before_other(tokens: list[Token], at: int) -> bool:
    """Whether no noun follows, which an -s form in the middle of a noun phrase would have."""
    return at + 1 >= len(tokens) or tokens[at + 1].tag not in NOUNS


def _heads(tokens: list[Token], at: int) -> bool:
    """ "A striped awning in red": after an article and an adjective a noun is due."""
    at -= 1
    while at > 0 and tokens[at].tag == "JJ":
        at -= 1
    return tokens[at].lower in w.ARTICLES


def _is_participle(word: str) -> bool:
    return bool(w.verb(word)) and w.inflect(w.verb(word), "VBN") == word


def _ing(word: str, tag_: str, previous: str, following: str, leads_noun: bool, after: str) -> str:
    if not previous and not following:
        return "VBG"
    if word in w.PLACE_GERUNDS and following in NOUNS:
        return "NN"
    if previous in {"DT", "PRP$", "POS", "CD"} and following not in NOUNS | ADJECTIVES:
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
