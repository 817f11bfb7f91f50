"""What a passage says, as a graph over its words: mentions of things, and statements about them; and what
protocols take from it, by the answer's sub-sentences: facts and things."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from groundwatch.events import SubSentence
from groundwatch.reading.words import Span


class Kind(StrEnum):
    """What a statement states of its subjects."""

    COUNT = "count"
    COLOR = "color"
    QUALITY = "quality"
    RELATION = "relation"
    TEXT = "text"
    VALUE = "value"


class Naming(StrEnum):
    """How a mention's thing is called: by its own words, by those of another mention, or by its own before
    the other's noun, in singular or plural ("the other" of "two sisters" is the other sister)."""

    OWN = "own"
    OTHER = "other"
    OWN_AND_SINGULAR = "own and singular"
    OWN_AND_PLURAL = "own and plural"


@dataclass(slots=True)
class Mention:
    """Words that name a thing.

    `entity` where the passage says here that the thing is there, or, `denied`, that it is not. `optional` is
    the probability that an attentive annotator skips it. `other` is the mention that `naming` refers to.
    """

    span: Span
    entity: bool = False
    denied: bool = False
    hedged: bool = False
    optional: float = 0.0
    confidence: float = 1.0
    naming: Naming = Naming.OWN
    other: Span | None = None


@dataclass(slots=True)
class Statement:
    """Words that state something of each subject; a relation states it between subjects and objects.

    Subjects and objects are mentions' spans with their probabilities. `form` is how the words that stand
    there become those of a sentence: one of `FORMS`, where `*` stands for them.
    """

    kind: Kind
    span: Span
    subjects: dict[Span, float] = field(default_factory=dict)
    objects: dict[Span, float] = field(default_factory=dict)
    denied: bool = False
    hedged: bool = False
    optional: float = 0.0
    confidence: float = 1.0
    form: str = "*"


FORMS = (
    "*", "have", "wear", "be", "on", "in", "at", "contain", "show", "hold", "use", "belong to",
    "to the left of", "to the right of", "have *", "have a *", "a *", "the *", "in *", "in a *", "made of *",
    "* of", "* on", "* in", "* to", "* at", "* than", "stand *", "lie *", "sit *", "hang *", "run *",
)  # fmt: skip
"""How words that stand somewhere become those of a statement; verbs in their base form."""


@dataclass(slots=True)
class Graph:
    """The mentions and statements of a passage, each in the order of its words.

    `describes` are log odds for each word: their mean over a sub-sentence says whether people call it
    descriptive (FaithScore, section 3.2).
    """

    mentions: dict[Span, Mention] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    describes: list[float] = field(default_factory=list)


Place = tuple[int, int]
"""Characters of the answer; `(0, 0)` for what the question alone says."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One atomic fact and the pieces it is made of; `kind` is None for "There is …".

    `span` is where the answer says it, `thing` where it names the fact's subject first, by the words that a
    pronoun stands for.
    """

    text: str
    kind: Kind | None
    subject: str
    words: str = ""
    object: str = ""
    denied: bool = False
    hedged: bool = False
    optional: float = 0.0
    confidence: float = 1.0
    span: Place = (0, 0)
    thing: Place = (0, 0)
    unit: int = 0

    @property
    def category(self) -> str:
        """FaithScore's; a denial is none of its own four kinds."""
        if self.denied:
            return "other"
        if self.kind is None:
            return "entity"
        return self.kind.value if self.kind in (Kind.COUNT, Kind.COLOR, Kind.RELATION) else "other"


@dataclass(frozen=True, slots=True)
class Thing:
    """What the answer names in a place: by the name that the facts have for it, `denied` where it says that
    it is not there."""

    name: str
    span: Place
    denied: bool = False
    hedged: bool = False
    unit: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was read of an answer: its sub-sentences, the facts of each, each mention of a thing.

    `doubtful` are facts that may have been misread, `asked` the names of the things in the question.
    """

    units: tuple[SubSentence, ...] = ()
    facts: tuple[Fact, ...] = ()
    doubtful: tuple[Fact, ...] = ()
    things: tuple[Thing, ...] = ()
    asked: tuple[str, ...] = ()
    most_optional: float = 1.0

    def stated(self) -> tuple[Fact, ...]:
        """The facts without those that annotators leave out, unless there are no others."""
        return tuple(fact for fact in self.facts if fact.optional <= self.most_optional) or self.facts
