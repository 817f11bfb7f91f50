"""What the words of a sub-sentence say of it, for the recogniser: the regular expressions of `patterns.toml`.

A sentence that opens with a guess ("Perhaps a child has arranged them.", "It looks like a game.") people call
analytical. FaithScore's annotated answers hold few of them in plain short words, so a regression alone reads
"It may be a page of a picture book" by its picture book. Only what opens a sentence counts: in an aside
("which is likely a swan", "possibly with a price tag") people take the guess for what is seen.
"""

import re
from importlib import resources

import msgspec


class _Patterns(msgspec.Struct, forbid_unknown_fields=True):
    cues: list[str]
    finer: list[str]
    hedged: list[str]
    seen: str


def _compiled(patterns: list[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(one, re.IGNORECASE) for one in patterns)


_TEXT = resources.files("groundwatch.extraction.engines.linguistic").joinpath("patterns.toml").read_bytes()
_DATA = msgspec.toml.decode(_TEXT, type=_Patterns)
_CUES, _FINER, _HEDGED = _compiled(_DATA.cues), _compiled(_DATA.finer), _compiled(_DATA.hedged)
_SEEN = re.compile(_DATA.seen, re.IGNORECASE)

COUNT, FINER_COUNT = len(_CUES), len(_FINER)

HEDGED_CHANCE = 0.04
"""How probably a guess is descriptive: of 22 in the annotated answers none is (Laplace's rule)."""


def cues(text: str) -> tuple[float, ...]:
    """1.0 for every group that occurs in `text`, else 0.0; they also tell of a neighbour's context."""
    return tuple(float(pattern.search(text) is not None) for pattern in _CUES)


def finer_cues(text: str) -> tuple[float, ...]:
    """The same for groups that matter to the sub-sentence itself only."""
    return tuple(float(pattern.search(text) is not None) for pattern in _FINER)


def hedged(sentence: str) -> bool:
    """Whether what opens a sentence is a guess or an impression, by its words."""
    return any(pattern.search(sentence) for pattern in _HEDGED) and not _SEEN.search(sentence)
