"""A graph written out as atomic facts: "There is a dog.", "The dog is brown.", "The dog is on the sofa."."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from groundwatch.reading.graph import Fact, Graph, Kind, Mention, Naming, Place, Statement, Thing
from groundwatch.reading.inflection import (
    BE,
    finite,
    head,
    is_modal,
    is_plural,
    verb_base,
    verb_form,
    with_head,
)
from groundwatch.reading.names import ARTICLE, bare, compose, indefinite, the
from groundwatch.reading.replies import apply_reply
from groundwatch.reading.word_lists import WORDS
from groundwatch.reading.words import Passage, Span, chooses_nothing

LEAST_CONFIDENCE = 0.6
"""Facts that the reader is less sure of are left out; chosen on the project's own gold."""

DOUBTFUL = 0.4
"""From here to `LEAST_CONFIDENCE` a fact is doubtful: what is said in an unusual way, or misread."""

_PREDICATES = (Kind.QUALITY, Kind.COLOR, Kind.RELATION)
_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_SINGLE = frozenset({"one", "1", "a single", "single", "a", "an"})
_PRONOUNS = WORDS["pronouns"]
_EMPTY = WORDS["nameless"]
_ALPHANUMERIC = re.compile(r"[^\W_]")
_NOBODY = frozenset({"nobody", "no one", "no-one", "nothing"})
_OPENS_OF = re.compile(
    r"\b(?:on top|in front|to the (?:far )?(?:left|right)|in the (?:middle|cent(?:er|re)|corner|back|front)"
    r"|at the (?:top|bottom|edge|end|foot|base|back|front|side)|on the (?:left|right|side|edge))$",
    re.I,
)
_ENDS_IN_ARTICLE = re.compile(r"(?<=\w) (?:an?|the)$", re.I)
_CALLED = re.compile(r"(titled|entitled|labell?ed|captioned|named|called|marked)\W*$", re.I)
_DENIAL = re.compile(
    r"^(?:(?:is|are|was|were|has|have|does|do|did|can|could|will|would)?n['’]t"
    r"|not|never|without|(?:does|do|did)(?= not\b))\s+",
    re.I,
)
_BE_SHORT = frozenset(
    {"isn't", "aren't", "wasn't", "weren't", "isn’t", "aren’t", "wasn’t", "weren’t", "'s", "’s", "'re", "’re"}
)
_BETWEEN = frozenset(
    {"not", "also", "still", "both", "all", "neither", "either", "never", "only", "just", "now"}
)
_FINITE_PAST = frozenset({"stand", "sit", "lie"})
_POSTURES = frozenset({"stand", "sit", "lie", "hang", "run"})
"""Verbs that a statement may take from elsewhere in its sentence: "On the shelf stand a cup and a jug"."""

_PERCEIVED = frozenset({"see", "notice", "observe", "find", "spot", "perceive"})

_NEVER_LAST = frozenset(
    {"of", "from", "with", "at", "to", "than", "into", "onto", "by", "for", "in", "under", "between"}
)
_JOINS = frozenset({"and", "or", "but", "while", "as", "yet", "then"})
_DETERMINERS = frozenset({"a", "an", "the", "his", "her", "its", "their", "one", "some", "this", "that"})


def facts_of(
    passage: Passage, graph: Graph, *, most_optional: float = 1.0, least: float = LEAST_CONFIDENCE
) -> list[Fact]:
    """The facts of a passage in the order of its words, each sentence once."""
    sentences: dict[str, Fact] = {}
    for fact in read(passage, graph)[0]:
        if fact.confidence >= least and fact.optional <= most_optional:
            sentences.setdefault(fact.text.lower(), fact)
    return list(sentences.values())


def read(passage: Passage, graph: Graph) -> tuple[list[Fact], list[Thing]]:
    """All facts of a passage, however sure, and the things it names, in the order of its words."""
    writer = _Writer(passage, apply_reply(passage, graph))
    return sorted(writer.facts(), key=lambda fact: fact.span[0]), list(writer.things())


def write(
    kind: Kind | None, subject: str, words: str = "", object_: str = "", *, denied: bool = False
) -> str:
    """The sentence of a fact whose words are those of a predicate already."""
    match kind:
        case None:
            thing = f"no {subject}" if denied else indefinite(subject)
            sentence = f"there {'are' if is_plural(subject) else 'is'} {thing}"
        case Kind.COUNT:
            verb = "is" if words.lower() in _SINGLE else "are"
            sentence = f"there {verb} {'not ' if denied else ''}{words} {subject}"
        case Kind.TEXT:
            says = predicate("say", subject, denied=denied, verb=True)
            sentence = f'{the(subject)} {says} "{words}"'
        case Kind.VALUE:
            sentence = f"{the(subject)} is {'not ' if denied else ''}{words}"
        case Kind.RELATION:
            sentence = f"{the(subject)} {words} {the(object_)}"
        case _:
            sentence = f"{the(subject)} {words}"
    return " ".join(f"{sentence[:1].upper()}{sentence[1:]}.".split())


def predicate(
    words: str,
    subject: str,
    *,
    denied: bool = False,
    verb: bool = False,
    copular: bool = False,
    before: bool = False,
) -> str:
    """Words as a predicate of a subject: "on" is "is on", "stand" of one is "stands", of many "stand".

    `verb` where a lone base form is a verb; `copular` where "is" stood before the words; `before` where they
    stood before their subject, as adjectives do.
    """
    words = _DENIAL.sub("", words)
    parts = words.split()
    while parts and ((first := parts[0].lower()) in BE or first == "not"):
        copular |= first in BE
        parts.pop(0)
    plural = is_plural(subject)
    be = ("are" if plural else "is") + (" not" if denied else "")
    if not parts:
        return be
    first, rest = parts[0], parts[1:]
    if is_modal(first):
        return " ".join([first, *(["not"] if denied else []), *rest])
    base = None if copular else finite(first, attributive=before)
    if (
        not copular
        and (past := verb_base(first)) in _FINITE_PAST
        and first.lower() == verb_form(past or "", "VBD")
    ):
        base = past
    if base == first.lower() and not verb and not plural and base != "have":
        base = None
    if base is None:
        return " ".join([be, *parts])
    if base == "have" and rest and _is_perfect(rest):
        have = "have" if plural else "has"
        return " ".join([have, *(["not"] if denied and rest[0] != "not" else []), *rest])
    if denied:
        return " ".join(["do" if plural else "does", "not", base, *rest])
    return " ".join([base if plural else verb_form(base, "VBZ"), *rest])


def _is_perfect(rest: list[str]) -> bool:
    """Whether "has" is followed by a participle, as in "has stopped"; "has rolled-up sleeves" has none."""
    if rest[0] in {"not", "been", "just", "already"}:
        return True
    base = verb_base(rest[0])
    return base is not None and rest[0].lower() == verb_form(base, "VBN") and rest[0].lower() != base


class _Writer:
    def __init__(self, passage: Passage, graph: Graph) -> None:
        self._passage = passage
        self._graph = graph
        self._lower = {word.text for word in passage.words if word.text.islower()}
        self._counts = {one.span: self._number(one) for one in graph.statements if one.kind is Kind.COUNT}
        many = {
            subject: self._counts[one.span].lower() not in _SINGLE
            for one in graph.statements
            if one.kind is Kind.COUNT
            for subject in one.subjects
        }
        texts = Counter(
            subject
            for text in {(one.span, tuple(one.subjects)): one for one in graph.statements}.values()
            if text.kind is Kind.TEXT
            for subject in text.subjects
        )
        # Of several texts on several things each stands on one of them.
        self._several_texts = {subject for subject, count in texts.items() if count > 1}
        self._own = {span: passage.text(span) for span in graph.mentions}
        self._bare = {span: bare(own) for span, own in self._own.items()}
        self._nouns = {span: head(name) for span, name in self._bare.items()}
        self._places = {span: passage.characters(span) for span in graph.mentions}
        # The first mention by each noun: what is called by the same noun later needs no other name.
        self._first: dict[str, Span] = {}
        for mention in graph.mentions.values():
            if mention.naming is Naming.OWN:
                self._first.setdefault(self._nouns[mention.span], mention.span)
        self._namers = {span: self._named_by(span) for span in graph.mentions}
        self._names: dict[Span, str] = {}
        for span in graph.mentions:
            name = self._name(span)
            counted = span if span in many else self._namers[span]
            if (
                counted is not None
                and many.get(counted)
                and name
                and graph.mentions[span].naming in (Naming.OWN, Naming.OTHER)
            ):
                name = with_head(name, plural=True)
            self._names[span] = name
        self._telling = {span for span, name in self._names.items() if _says_something(name)}
        self._named = {
            span
            for span in self._telling
            if self._bare[span] not in _PRONOUNS and self._names[span].lower() not in _NOBODY
        }

    def facts(self) -> Iterator[Fact]:
        if chooses_nothing(self._passage.prompt, self._passage.answer.strip()):
            # "B" may be what is written there; what is asked about it is not said.
            for statement in self._graph.statements:
                if statement.kind in (Kind.TEXT, Kind.VALUE) and statement.span[0] >= self._passage.split:
                    yield from self._stated(statement)
            return
        for mention in self._graph.mentions.values():
            if mention.entity:
                yield from self._entity(mention)
        for statement in self._graph.statements:
            yield from self._stated(statement)

    def things(self) -> Iterator[Thing]:
        for span, mention in sorted(self._graph.mentions.items()):
            if span in self._named:
                yield Thing(self._names[span], self._places[span], self._is_denied(mention), mention.hedged)

    def _is_denied(self, mention: Mention) -> bool:
        """A denial that is in doubt is none of what something is surely said about."""
        if not (mention.entity and mention.denied) or mention.confidence >= LEAST_CONFIDENCE:
            return mention.entity and mention.denied
        return not any(
            not statement.denied
            and statement.confidence >= LEAST_CONFIDENCE
            and mention.span in statement.subjects.keys() | statement.objects.keys()
            for statement in self._graph.statements
        )

    def _thing(self, span: Span) -> Place:
        """Where what a mention speaks of is named by words of its own."""
        seen = {span}
        mentions = self._graph.mentions
        while mentions[span].naming is Naming.OTHER and (other := mentions[span].other) in mentions:
            if other is None or other in seen:
                break
            seen.add(other)
            span = other
        return self._places[span]

    def _entity(self, mention: Mention) -> Iterator[Fact]:
        name = self._names[mention.span]
        if mention.span not in self._named:
            return
        yield Fact(
            text=write(None, name, denied=mention.denied),
            kind=None,
            subject=name,
            denied=mention.denied,
            hedged=mention.hedged,
            optional=mention.optional,
            confidence=mention.confidence,
            span=self._places[mention.span],
            thing=self._thing(mention.span),
        )

    def _stated(self, statement: Statement) -> Iterator[Fact]:
        words = self._counts.get(statement.span) or self._words(statement)
        for subject, sure in sorted(statement.subjects.items()):
            if statement.kind is not Kind.RELATION:
                yield from self._fact(statement, words, subject, None, statement.confidence * sure)
                continue
            if inner := self._inner(statement):
                yield from self._fact(
                    replace(statement, form="*"), inner[0], subject, inner[1], statement.confidence * sure
                )
            for target, target_sure in sorted(statement.objects.items()):
                yield from self._fact(
                    statement, words, subject, target, statement.confidence * sure * target_sure
                )

    def _fact(
        self, statement: Statement, words: str, subject: Span, target: Span | None, confidence: float
    ) -> Iterator[Fact]:
        kind, denied = statement.kind, statement.denied
        name = self._names[subject]
        target_name = "" if target is None else self._names[target]
        if target is not None:
            if name.lower() == target_name.lower():
                return
            words = _ENDS_IN_ARTICLE.sub("", words)
            if _OPENS_OF.search(words):
                words += " of"
            elif statement.form == "*" and target[0] <= statement.span[0] and statement.span[1] <= target[1]:
                words = "in"
        if not target_name:
            words = words.removesuffix(" of")
        if subject not in self._telling or (target is not None and target not in self._telling):
            return
        if kind is not Kind.RELATION and (not _says_something(words) or words.lower() in _NEVER_LAST):
            return
        if kind is Kind.TEXT and subject in self._several_texts and is_plural(name):
            name = f"one {with_head(name, plural=False)}"
        called = kind is Kind.TEXT and _CALLED.search(self._passage.answer[: self._start(statement)][-14:])
        if kind is Kind.TEXT:
            words = words.strip("\"“”'‘’ ")
        if called:
            kind, words = Kind.QUALITY, f'{called[1].lower()} "{words}"'
        nobody = name.lower() in _NOBODY
        if kind in _PREDICATES:
            words = predicate(
                words,
                name,
                denied=denied and not nobody,
                verb=kind is Kind.RELATION or len(statement.subjects) > 1,
                copular=statement.form == "*" and self._copular(statement),
                before=kind is not Kind.RELATION and statement.span < subject,
            )
        yield Fact(
            text=write(kind, name, words, target_name, denied=denied and not nobody),
            kind=kind,
            subject=name,
            words=words,
            object=target_name,
            denied=denied or nobody,
            hedged=statement.hedged,
            optional=statement.optional,
            confidence=confidence,
            span=self._passage.characters(statement.span),
            thing=self._thing(subject),
        )

    def _inner(self, statement: Statement) -> tuple[str, Span] | None:
        """ "Tightens a bolt with" a wrench: the words before the thing inside, and that thing."""
        first, last = statement.span
        inside = [span for span in self._graph.mentions if first < span[0] and span[1] < last]
        linked = statement.subjects.keys() | statement.objects.keys()
        if not inside or statement.denied or (target := min(inside)) in linked:
            return None
        words = [word.text.lower() for word in self._passage.words[first : target[0]]]
        qualities = [one.span[0] - first for one in self._graph.statements if first < one.span[0] < target[0]]
        end = min([at for at, word in enumerate(words) if word in _DETERMINERS] + qualities + [len(words)])
        verb = next((word for word in words[:end] if word not in BE and word not in _BETWEEN), "")
        if verb_base(verb) is None or verb in _NEVER_LAST:
            return None
        return self._passage.text((first, first + end - 1)), target

    def _start(self, statement: Statement) -> int:
        return self._passage.characters(statement.span)[0]

    def _copular(self, statement: Statement) -> bool:
        """Whether "is" stands right before the words, perhaps with a "not" between."""
        before = [
            word.text.lower()
            for word in self._passage.words[max(0, statement.span[0] - 2) : statement.span[0]]
        ]
        while before and (before[-1] in _BETWEEN or before[-1].endswith("ly")):
            before.pop()
        return bool(before) and (before[-1] in BE or before[-1] in _BE_SHORT)

    def _words(self, statement: Statement) -> str:
        words = self._passage.text(self._closed(statement))
        if statement.kind in _PREDICATES and (words[1:2].islower() or len(words) == 1):
            words = words[:1].lower() + words[1:]
        if statement.kind is Kind.QUALITY and words.startswith("with "):
            words = f"have {words[5:]}"
        if (
            statement.kind not in (Kind.RELATION, Kind.QUALITY)
            or statement.form == "*"
            or not self._has_posture(statement)
        ):
            return words
        words = _DENIAL.sub("", words)
        return statement.form.replace("*", words).replace("a " + words, indefinite(words))

    def _closed(self, statement: Statement) -> Span:
        """A quality without a preposition at its end whose thing is not part of it: "watching from"."""
        first, last = statement.span
        words = self._passage.words
        if statement.kind is Kind.QUALITY and first < last + 1 < len(words):
            behind = words[last + 1].text
            while first < last and behind[:1].isalnum() and behind.lower() not in _JOINS:
                if words[last].text.lower() not in _NEVER_LAST:
                    break
                behind, last = words[last].text, last - 1
        return first, last

    def _has_posture(self, statement: Statement) -> bool:
        """Whether the verb of a posture, if its form has one, stands in the statement's sentence."""
        verb = statement.form.partition(" ")[0]
        if verb not in _POSTURES:
            return True
        first, last = next(
            (one for one in self._passage.sentences() if one[0] <= statement.span[0] <= one[1]),
            (0, len(self._passage.words) - 1),
        )
        return any(verb_base(word.text) == verb for word in self._passage.words[first : last + 1])

    def _number(self, statement: Statement) -> str:
        number = self._passage.text(statement.span).lower()
        if number in _SINGLE:
            return "one"
        return _NUMBERS[int(number)] if number.isdecimal() and int(number) < len(_NUMBERS) else number

    def _named_by(self, span: Span) -> Span | None:
        """The mention that names this one: none names what an earlier one calls by the same noun."""
        mention = self._graph.mentions[span]
        if mention.naming is Naming.OWN or self._first.get(self._nouns[span], span) < span:
            return None
        return mention.other if mention.other in self._graph.mentions else None

    def _name(self, span: Span, depth: int = 0) -> str:
        mention = self._graph.mentions[span]
        own = self._own[span]
        before = self._passage.words[span[0] - 1].text.lower() if span[0] else ""
        if own.lower() in ("one", "body") and before == "no":
            own = "No one"
        if own.lower() in _NOBODY:
            return own.capitalize()
        if own.lower() == "one" and self._is_anyone(span):
            return ""
        other = self._namers[span]
        if other is None or depth > 4:
            return self._uncapitalised(ARTICLE.sub("", own), span)
        name = compose(ARTICLE.sub("", own), self._name(other, depth + 1), mention.naming)
        return self._uncapitalised(name, span) if mention.naming is not Naming.OTHER else name

    def _is_anyone(self, span: Span) -> bool:
        """ "One can see a church": whoever looks."""
        behind = self._passage.words[span[1] + 1].text if span[1] + 1 < len(self._passage.words) else ""
        return is_modal(behind.lower()) or verb_base(behind.lower()) in _PERCEIVED

    def _uncapitalised(self, name: str, span: Span) -> str:
        """ "Platform" at the head of a line is the platform, "Peter" is Peter."""
        first, *rest = name.split() or [""]
        if not (first[:1].isupper() and first[1:].islower()):
            return name
        before = self._passage.words[span[0] - 1].text if span[0] and span[0] != self._passage.split else "."
        title = bool(rest) and all(word[:1].isupper() for word in rest)
        if (
            first.lower() in self._lower
            or (not before[:1].isalnum() and not title)
            or (title and span[0] < self._passage.split)
        ):
            first = first.lower()
        return " ".join([first, *rest])


def _says_something(name: str) -> bool:
    return _ALPHANUMERIC.search(name) is not None and name.lower() not in _EMPTY
