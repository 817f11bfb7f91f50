"""The nouns of a description that AMBER's lists have, by the linguistic engine's tagger."""

import importlib.util

from groundwatch.errors import MissingExtraError
from groundwatch.events import Claim, ResponseRecorded
from groundwatch.extraction.engines.linguistic.tagging import NOUNS, tag
from groundwatch.protocols.amber.annotation import Annotation, annotation_of
from groundwatch.protocols.base import Extracted, units_of

if importlib.util.find_spec("textblob") is None:
    raise MissingExtraError("textblob", "embedded")

OBJECT = "object"
"""The category of every claim."""


def read(response: ResponseRecorded) -> Extracted:
    """Raises `Unscorable` for a response whose reference names nothing."""
    return mentions(response.answer, annotation_of(response))


def mentions(answer: str, known: Annotation) -> Extracted:
    """A claim for each mention: the text is the answer's own word, `parts` is the listed noun."""
    units = units_of(answer)
    return units, tuple(
        Claim(text=token.lower, category=OBJECT, unit=number, parts=(noun,))
        for number, unit in enumerate(units)
        for token in tag(unit.text)
        if token.tag in NOUNS and (noun := known.mention(token.lower))
    )
