"""A reply of yes or no: what its question asks is stated or denied by it."""

from __future__ import annotations

import re
from dataclasses import replace

from groundwatch.reading.graph import Graph, Kind, Statement
from groundwatch.reading.word_lists import WORDS
from groundwatch.reading.words import Passage

_REPLY = re.compile(
    r"\W*(?:(yes|yeah|yep|yup|correct|true)|(no|nope|false|not really|none))\s*(?:[,.!;:–—*\n-]|$)", re.I
)
_ASKS = re.compile(
    r"(?:^|[.!\n] ?|\b(?:and|so|whether|if)\s|image,?\s|picture,?\s)"
    r"(is|are|was|were|does|do|did|has|have|can|could|isn't|aren't|doesn't|don't)\b",
    re.I,
)
_DENIES = re.compile(r"n['’]t\b|\b(?:not|no|missing|without|lack)", re.I)
_DENIALS = WORDS["denials"]
_DENYING_ENDS = re.compile(r"n['’]t$|less$")
_DENIES_TOO = WORDS["denies_too"]


def apply_reply(passage: Passage, graph: Graph) -> Graph:
    """The graph with what the reply says of the question's own words; others are left as they are."""
    reply = _REPLY.match(passage.answer.strip())
    if not reply or not passage.split or not _asks(passage.prompt):
        return graph
    return _Reply(passage, graph, no=bool(reply[2])).graph()


def _asks(prompt: str) -> bool:
    """Whether it asks something that yes or no answers, read without blanks beside blanks: in linear time."""
    lines = (" ".join(line.split()) for line in prompt.splitlines())
    return _ASKS.search("\n".join(filter(None, lines))) is not None


def can_deny(passage: Passage) -> bool:
    """Whether any word of question and answer could be why something is denied."""
    words = (word.text.lower() for word in passage.words)
    return any(word in _DENIALS or word in _DENIES_TOO or _DENYING_ENDS.search(word) for word in words)


class _Reply:
    def __init__(self, passage: Passage, graph: Graph, *, no: bool) -> None:
        self._passage = passage
        self._graph = graph
        self._no = no
        self._split = passage.split
        self._first = next((last + 1 for first, last in passage.sentences() if last > first + 1), self._split)
        self._only_reply_denies = no and not any(
            word.text.lower() in _DENIALS or _DENYING_ENDS.search(word.text.lower())
            for word in passage.words[self._split + 1 : self._first]
        )

    def graph(self) -> Graph:
        asked = self._asked_whether_there_is()
        mentions = {}
        for span, mention in self._graph.mentions.items():
            if mention.entity and span[1] < self._split and (not self._no or span == asked):
                mention = replace(mention, denied=self._no)
            elif mention.entity and self._only_reply_denies and self._split <= span[0] < self._first:
                mention = replace(mention, denied=False)
            mentions[span] = mention
        last = max(
            (
                one.span
                for one in self._graph.statements
                if self._is_asked(one) and one.kind is not Kind.COUNT
            ),
            default=None,
        )
        denies = _DENIES.search(self._passage.prompt) is not None
        statements = []
        for statement in self._graph.statements:
            if self._is_asked(statement):
                if asked and self._no and statement.kind is not Kind.COUNT:
                    continue  # "There is no bench in the park" is said by the denial of the bench.
                if (self._no and statement.span == last) or (not self._no and not denies):
                    statement = replace(statement, denied=self._no)
                statements += self._apart(statement)
            elif self._only_reply_denies and self._split <= statement.span[0] < self._first:
                statements.append(replace(statement, denied=False))
            else:
                statements.append(statement)
        return Graph(mentions, statements, self._graph.describes)

    def _is_asked(self, statement: Statement) -> bool:
        return statement.span[1] < self._split

    def _apart(self, statement: Statement) -> list[Statement]:
        """ "Is she holding an umbrella?" "No, a newspaper.": she is holding that, and no umbrella."""
        answered = {span: sure for span, sure in statement.objects.items() if span[0] >= self._split}
        if not (self._only_reply_denies and statement.denied and answered):
            return [statement]
        asked = {span: sure for span, sure in statement.objects.items() if span not in answered}
        stated = [replace(statement, denied=False, objects=answered)]
        return [*stated, replace(statement, objects=asked)] if asked else stated

    def _asked_whether_there_is(self) -> tuple[int, int] | None:
        words = [word.text.lower() for word in self._passage.words[: self._split]]
        there = next(
            (
                at
                for at in range(1, len(words))
                if words[at] == "there" and words[at - 1] in {"is", "are", "was", "were"}
            ),
            None,
        )
        if there is None:
            return None
        return min(
            (span for span in self._graph.mentions if there < span[0] and span[1] < self._split), default=None
        )
