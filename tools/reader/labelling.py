"""An annotated answer as the graph that the reader is to find in it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from tools.reader.notation import Fact, Item, Part

from groundwatch.reading.document import read_document
from groundwatch.reading.graph import FORMS, Graph, Kind, Mention, Naming, Statement
from groundwatch.reading.inflection import base_words, head, is_plural, with_head
from groundwatch.reading.names import ARTICLE, bare, compose
from groundwatch.reading.sentences import predicate, write
from groundwatch.reading.words import Passage, Span, split_words

KINDS = {
    "n": Kind.COUNT,
    "c": Kind.COLOR,
    "o": Kind.QUALITY,
    "r": Kind.RELATION,
    "t": Kind.TEXT,
    "v": Kind.VALUE,
}
_OWNER = re.compile(r"^.*?['’]s? (?=\w)")
_ORDER = re.compile(
    r"^(?:one|other|another|both|all|first|second|third|two|three|four|most|many) (?:of )?(?:the )?"
)

_OF_THEM = r"(?: of (?:them|these|those|which|whom))?"
_PREPOSITIONS = frozenset(
    (
        *("of", "in", "on", "at", "with", "near", "behind", "from", "to", "by", "for", "under", "next"),
        *("between", "inside", "beside", "against", "above", "below", "along", "around", "over", "across"),
        *("into", "who", "that", "which", "whose", "holding", "wearing"),
    )
)
"""Words behind the noun that a name turns on."""

_ONE_PART = re.compile(
    r"(?:one|other|another|first|second|third|fourth|fifth|last|each|every|either|left|right|.* one)"
    + _OF_THEM
)
_SOME_PARTS = re.compile(
    r"(?:two|three|four|five|six|several|most|some|many|half|all|others|.* ones)" + _OF_THEM
)
"""Words that name a part of a whole and leave out its noun."""


def label(item: Item) -> tuple[Passage, Graph]:
    """The item's words, and what stands in them. What the graph cannot hold is left out."""
    text = read_document(item.answer).text
    passage = Passage(item.prompt, text, split_words(text))
    labels = _Labels(passage)
    for fact in item.facts:
        labels.add(fact)
    return passage, labels.graph()


def sentence(fact: Fact) -> str:
    """The fact as its annotator calls its parts."""
    names = [part.name for part in fact.parts]
    if fact.kind == "s":
        return names[0]
    if fact.kind == "e":
        return write(None, names[0], denied=fact.denied)
    kind = KINDS[fact.kind]
    words, subject = (names[0], names[1]) if fact.kind in "nco" else (names[1], names[0])
    if kind in (Kind.COLOR, Kind.QUALITY, Kind.RELATION):
        words = predicate(words, ARTICLE.sub("", subject), denied=fact.denied, verb=True)
    return write(kind, subject, words, names[2] if len(names) > 2 else "", denied=fact.denied)


_OF_THE = 5
"""Words from a part to its whole behind it: "one of the three eggs"."""


class _Labels:
    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._mentions: dict[Span, Mention] = {}
        self._names: dict[Span, str] = {}
        self._statements: dict[tuple[Kind, Span, bool], Statement] = {}

    def add(self, fact: Fact) -> None:
        if fact.kind == "e":
            self._add_entity(fact)
        elif fact.kind in KINDS:
            self._add_statement(fact)

    def graph(self) -> Graph:
        for span in sorted(self._mentions, key=lambda span: span[0] - span[1]):
            self._shorten(span)
        for span in sorted(self._mentions):
            self._name(span)
        ordered = sorted(self._statements.values(), key=lambda statement: statement.span)
        return Graph({span: self._mentions[span] for span in sorted(self._mentions)}, ordered)

    def _add_entity(self, fact: Fact) -> None:
        span = self._mention(fact.parts[0])
        if span is None:
            return
        mention = self._mentions[span]
        if not mention.entity or (mention.optional and not fact.optional):
            mention.entity = True
            mention.denied, mention.hedged, mention.optional = fact.denied, fact.hedged, float(fact.optional)

    def _add_statement(self, fact: Fact) -> None:
        kind = KINDS[fact.kind]
        value, thing = (
            (fact.parts[0], fact.parts[1]) if fact.kind in "nco" else (fact.parts[1], fact.parts[0])
        )
        subject = self._mention(thing)
        other = self._mention(fact.parts[2]) if kind is Kind.RELATION else None
        if subject is None or (kind is Kind.RELATION and other is None):
            return
        span, form = self._place(kind, value, other)
        if span is None:
            return
        statement = self._statements.setdefault(
            (kind, span, fact.denied),
            Statement(
                kind, span, denied=fact.denied, hedged=fact.hedged, optional=float(fact.optional), form=form
            ),
        )
        statement.subjects[subject] = 1.0
        if other is not None:
            statement.objects[other] = 1.0
        statement.optional = min(statement.optional, float(fact.optional))

    def _place(self, kind: Kind, value: Part, other: Span | None) -> tuple[Span | None, str]:
        """Where the words of a statement stand, and how a sentence comes from them."""
        span = self._passage.span(*value.place) if value.place else None
        if span and kind in (Kind.RELATION, Kind.QUALITY, Kind.COLOR):
            span = self._predicate(span)
        wanted = base_words(value.name)
        if span is None or base_words(self._passage.text(span)) != wanted:
            asked = self._in_prompt(value.name)
            if asked is not None:
                return asked, "*"
        if span is None:
            span = other
        return span, "*" if span is None else _form(wanted, base_words(self._passage.text(span)))

    def _predicate(self, span: Span) -> Span:
        """The span without "is", "does not" and the like before its words: denial is a mark, not a word."""
        first, last = span
        while first < last and not base_words(self._passage.words[first].text):
            first += 1
        return first, last

    def _mention(self, part: Part) -> Span | None:
        """The mention that a part names, made at its first use."""
        span = self._passage.span(*part.place) if part.place else None
        if span is None:
            name = bare(part.name)
            same = [at for at in self._mentions if name in (self._names[at], self._own(at))]
            span = max(same) if same else self._in_prompt(part.name)
        if span is None:
            return None
        first, last = span
        while first < last and ARTICLE.match(self._passage.words[first].text + " "):
            first += 1
        self._mentions.setdefault((first, last), Mention((first, last)))
        self._names.setdefault((first, last), bare(part.name))
        return first, last

    def _shorten(self, span: Span) -> None:
        """A mention in which things are named is the thing that it turns on: a word has one label.

        "roof of the house" is the roof where it is a thing, "left wall" the wall, "rows of bushes" the rows
        where only the bushes are one, "a cat and a dog" both.
        """
        first, last = span
        inside = [
            at
            for at, mention in self._mentions.items()
            if mention.entity and at != span and first <= at[0] and at[1] <= last
        ]
        if not inside:
            return
        words = [word.text.lower() for word in self._passage.words[first : last + 1]]
        end = next((at for at, word in enumerate(words) if at and word in _PREPOSITIONS), len(words))
        head_end = first + end - 1
        if heads := [at for at in inside if at[1] == head_end]:
            parts = inside if "and" in words[:end] else [min(heads)]
        elif end < len(words):
            parts = [(first, head_end)]
        else:
            return
        mention, name = self._mentions.pop(span), self._names.pop(span)
        for part in parts:
            if part not in self._mentions:
                self._mentions[part] = replace(mention, span=part)
                self._names[part] = self._own(part) if bare(name) == bare(self._passage.text(span)) else name
            elif mention.entity and not self._mentions[part].entity:
                self._mentions[part] = replace(mention, span=part)
        for key, statement in list(self._statements.items()):
            for linked in (statement.subjects, statement.objects):
                if linked.pop(span, None):
                    linked.update(dict.fromkeys(parts, 1.0))
            if statement.span == span and statement.kind is Kind.RELATION:
                self._statements[key] = replace(statement, span=parts[0])

    def _own(self, span: Span) -> str:
        return bare(self._passage.text(span))

    def _in_prompt(self, name: str) -> Span | None:
        words = bare(re.sub(r"^(?:is|are|was|were|be) ", "", name.lower())).split()
        if not words:
            return None
        pattern = r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)"
        for match in re.finditer(pattern, self._passage.prompt, re.I):
            if span := self._passage.span(*match.span(), prompt=True):
                return span
        return None

    def _name(self, span: Span) -> None:
        """Says how a mention comes to its name: by its own words or by those of another mention."""
        mention, wanted, own = self._mentions[span], self._names[span], self._own(span)
        if own == wanted or own == _OWNER.sub("", wanted):
            return
        if other := self._nearest(span, [at for at in self._mentions if self._says(at, wanted)]):
            mention.naming, mention.other = Naming.OTHER, other
            return
        for naming in (Naming.OWN_AND_SINGULAR, Naming.OWN_AND_PLURAL):
            wholes = [
                at
                for at in self._mentions
                if at != span and at[0] <= span[1] + _OF_THE
                if bare(compose(own, self._names[at], naming)) == wanted
            ]
            if other := self._nearest(span, wholes):
                mention.naming, mention.other = naming, other
                return
        named = [at for at in self._mentions if self._names[at] == wanted and at < span]
        one, some = _ONE_PART.fullmatch(own), _SOME_PARTS.fullmatch(own)
        if not named and (one or some):
            nouns = {base_noun(word) for word in wanted.split()}
            wholes = [at for at in self._mentions if at < span and base_noun(head(self._names[at])) in nouns]
            if other := self._nearest(span, wholes):
                mention.naming = Naming.OWN_AND_SINGULAR if one else Naming.OWN_AND_PLURAL
                mention.other = other
                return
        plain = _ORDER.sub("", wanted)
        other = (
            self._nearest(span, named)
            or self._nearest(span, [at for at in self._mentions if self._says(at, plain)])
            or self._in_prompt(wanted)
        )
        if other is None:
            tails = wanted.split()
            for start in range(1, len(tails)):
                ends = [at for at in self._mentions if self._says(at, " ".join(tails[start:]))]
                if other := self._nearest(span, ends):
                    break
        if other:
            self._mentions.setdefault(other, Mention(other))
            self._names.setdefault(other, self._own(other))
            mention.naming, mention.other = Naming.OTHER, other

    def _says(self, span: Span, name: str) -> bool:
        own = self._own(span)
        return own == name or base_noun(own) == base_noun(name)

    def _nearest(self, span: Span, others: list[Span]) -> Span | None:
        """The last of the others before a mention, an entity first; else the first behind it."""
        before = [at for at in others if at < span]
        if before:
            entities = [at for at in before if self._mentions[at].entity]
            return max(entities or before)
        return min((at for at in others if at != span), default=None)


@lru_cache(maxsize=50_000)
def base_noun(name: str) -> str:
    return with_head(name, plural=False) if is_plural(name) else name


def _form(wanted: str, stands: str) -> str:
    if wanted == stands:
        return "*"
    if wanted in FORMS:
        return wanted
    if not wanted:
        return "be"
    pattern = re.sub(rf"(?<!\w){re.escape(stands)}(?!\w)", "*", wanted, count=1) if stands else wanted
    pattern = {"make of *": "made of *", "an *": "a *"}.get(pattern, pattern)
    return pattern if pattern in FORMS else "*"
