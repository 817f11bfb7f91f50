"""English text cut into words."""

import re

_TOKEN = re.compile(
    r"(?>\d+(?:[.,:]\d+){0,9}(?:st|nd|rd|th|'?s)?)\b(?!-[^\W\d_])|[^\W_]+(?:[-'&.][^\W_]+)*'?|,"
)
_ASIDE = re.compile(r"\([^()]*\)")
_CLITICS = (("'re", "are"), ("'ve", "have"), ("'ll", "will"), ("'m", "am"))
_NOT = {"ca": "can", "wo": "will"}
_IS_AFTER = frozenset(
    {"he", "she", "it", "they", "i", "we", "you", "this", "that"}
    | {"which", "who", "what", "where", "there", "here"}
)
"""Words after which "'s" is a verb; after others it is a possessive."""


def tokenise(text: str) -> list[str]:
    """Words as they are written, and commas.

    Contractions and possessives come apart: "isn't" into "is" and "not", "man's" into "man" and "'s".
    """
    found = _TOKEN.findall(text.replace("’", "'"))
    return [piece for word in found for piece in (_pieces(word) if "'" in word else (word,))]


def plain_words(text: str) -> list[str]:
    """Lower-case words and commas without what stands in brackets."""
    return tokenise(_ASIDE.sub(" ", text).lower())


def _pieces(word: str) -> list[str]:
    lower = word.lower()
    if lower.endswith("n't") and len(word) > 3:
        return [_NOT.get(lower[:-3], word[:-3]), "not"]
    for end, full in _CLITICS:
        if lower.endswith(end):
            return [word[: -len(end)], full]
    if lower.endswith("'s") and len(word) > 2:
        return [word[:-2], "is" if lower[:-2] in _IS_AFTER else "'s"]
    if lower.endswith("s'"):
        return [word[:-1], "'s"]
    return [word.rstrip("'")]


_TO_TWENTY = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty
"""
_BEYOND = {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}

NUMBER_WORDS = {word: number for number, word in enumerate(_TO_TWENTY.split())} | _BEYOND
NUMBER_WORDS |= {"hundred": 100, "thousand": 1000}
