"""The nouns of a description that AMBER's lists have, of the things that were read in it."""

import re
from collections.abc import Iterator, Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, ResponseRecorded
from groundwatch.reading.graph import Reading
from groundwatch_benchmarks.methods.amber.scoring import Annotation, annotation_of

OBJECT = "object"
"""The category of every claim."""

_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")


def read(response: ResponseRecorded, reading: Reading) -> tuple[Claim, ...]:
    """Raises `Unscorable` for a response whose reference names nothing."""
    return mentions(response.answer, reading, annotation_of(response))


def mentions(answer: str, reading: Reading, known: Annotation) -> tuple[Claim, ...]:
    """A claim for each mention: the text is the answer's own word, `parts` is the listed noun.

    What the answer denies is not mentioned.
    """
    claims: dict[int, Claim] = {}
    for thing in reading.things:
        for word in _WORD.finditer(answer, *thing.span):
            noun = "" if thing.denied else known.mention(word[0].lower())
            if noun:
                claim = Claim(
                    text=word[0].lower(),
                    category=OBJECT,
                    unit=thing.unit,
                    parts=(noun,),
                    span=word.span(),
                    hedged=thing.hedged,
                )
                claims.setdefault(word.start(), claim)
    return tuple(claim for _, claim in sorted(claims.items()))


def nouns_of(descriptions: Sequence[tuple[str, Annotation]]) -> Iterator[list[str]]:
    """The listed nouns of each description, in order. Raises `Unscorable` for one that is too long."""
    from groundwatch.extraction.engines.reader import ReaderEngine

    engine = ReaderEngine()
    for at in range(0, len(descriptions), engine.batch):
        some = descriptions[at : at + engine.batch]
        responses = [ResponseRecorded(id="", model="", answer=answer) for answer, _ in some]
        for (answer, known), reading in zip(some, engine.read(responses), strict=True):
            if isinstance(reading, GroundwatchError):
                raise reading
            yield [claim.parts[0] for claim in mentions(answer, reading, known)]
