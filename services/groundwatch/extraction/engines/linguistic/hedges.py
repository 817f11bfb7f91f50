"""Sentences that guess: "Perhaps a child has arranged them.", "It looks like a game."

People call them analytical. FaithScore's annotated answers are mostly of long captions and replies to
questions and hold few of them in plain short words, so a regression alone reads "It may be a page of a
picture book" by its picture book. Only what opens a sentence counts: in an aside ("which is likely a swan",
"possibly with a price tag") people take the guess for what is seen.
"""

from __future__ import annotations

import re

_MAIN = r"^\W*(?:that\b)?(?:(?!\b(?:which|that|who|where)\b).)*?"
"""Up to a place in the main clause."""
_IMPRESSION = (
    r"(?:it|this|that|they|these|everything|(?:the|this|their) (?:\w+ )?(?:image|picture|photo|scene"
)
_IMPRESSION += r"|arrangement|composition|setting|mood|atmosphere|place|whole|layout|drawing|illustration))"
_ADVERB = r"(?:\w+ly|also|all|even|just|quite)"
_HEDGED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"^\W*(?:perhaps|maybe|possibly|probably|presumably|most likely)\b",
        rf"{_MAIN}\b(?:might|could|(?<!in )may)\b",
        rf"{_MAIN}\b(?:is|are) (?:perhaps|maybe|possibly|probably|presumably|most likely|likely)\b",
        rf"^\W*{_IMPRESSION}(?: {_ADVERB})? (?:looks?|feels?|seems?|sounds?)\b"
        r"(?! (?:at|into|out|down|up|away|through|over|back|off|toward|towards|to be \w+ing)\b)",
        r"^[^,]*\b(?:looks?|feels?|seems?) (?:like|as if|as though)\b",
    )
)
_SEEN = re.compile(
    r"\b(?:could|might|may) (?:also |all )?be (?:seen|observed|spotted|found|noticed)\b", re.IGNORECASE
)
DESCRIPTIVE = 0.04
"""How probably such a sentence is descriptive: of 22 in the annotated answers none is (Laplace's rule)."""


def hedged(sentence: str) -> bool:
    """Whether what opens a sentence is a guess or an impression, by its words."""
    return any(pattern.search(sentence) for pattern in _HEDGED) and not _SEEN.search(sentence)
