"""The trained reader: passages in, their graphs out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from groundwatch.language.tokens import NUMBER_WORDS
from groundwatch.reading.graph import FORMS, Graph, Kind, Mention, Naming, Statement
from groundwatch.reading.model import (
    DENIED,
    ENTITY,
    HEDGED,
    LAYERS,
    NAME,
    OBJECT,
    OPTIONAL,
    SUBJECT,
    ReaderModel,
    Spans,
)
from groundwatch.reading.replies import can_deny
from groundwatch.reading.word_lists import WORDS
from groundwatch.reading.words import LINE_BREAK, Passage, Span

BATCH = 12
"""Passages that are read at once: more take more memory and hardly less time."""

_BEGIN, _INSIDE = 1, 2
_SIDE_BY_SIDE = math.log(0.01)
"""How much less likely a thing is that begins where another ends, unless one is a pronoun ("her hair",
"a man who"): mostly it is a name of two words."""

_OUTSIDE = math.log(0.5)
"""How much less likely than it seems a word is outside all mentions, a pronoun twice as much: a thing too
many is mostly linked to nothing, one too few takes its facts with it."""

_GUESSED = 0.4
"""From here on something is marked as guessed: told as sure, a guess is a hallucination."""

_PRONOUNS = WORDS["pronouns"]

_MISSING, _SOME, _SIDES = WORDS["missing"], WORDS["some_of_them"], WORDS["sides"]
_NAMINGS = tuple(Naming)
_OPENING, _CLOSING = frozenset('"“«„'), frozenset('"”»“')


class Reader:
    """Reads many passages at a time. Not for two threads at once."""

    def __init__(self, model: ReaderModel) -> None:
        self.model = model.eval()

    def read(self, passages: Sequence[Passage]) -> list[Graph]:
        """A graph for each passage, in order; those of like length share a batch."""
        order = sorted(range(len(passages)), key=lambda at: len(passages[at].words))
        graphs: dict[int, Graph] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            graphs.update(zip(batch, self._read([passages[at] for at in batch]), strict=True))
        return [graphs[at] for at in range(len(passages))]

    @torch.inference_mode()
    def _read(self, passages: Sequence[Passage]) -> list[Graph]:
        states = self.model.states(passages)
        tags, says = self.model.label_words(states)
        labels, chances = tags.argmax(-1), tags.log_softmax(-1).amax(-1)
        describes = self.model.describes(states)[..., 0]
        drafts = [
            _Draft(
                passage,
                labels[at, : len(passage.words)],
                chances[at],
                says[at].sigmoid(),
                describes[at],
                mentions=tags[at, : len(passage.words), 0].log_softmax(-1).tolist(),
            )
            for at, passage in enumerate(passages)
        ]
        targets = _spans([draft.mentions for draft in drafts])
        if not len(targets):
            return [Graph(describes=draft.describes) for draft in drafts]
        sources = _spans([draft.statements for draft in drafts])
        target, source = self.model.represent(states, targets), self.model.represent(states, sources)
        mention_marks, naming, _ = self.model.properties(target)
        marks, _, form = self.model.properties(source)
        return [
            draft.graph(*parts)
            for draft, *parts in zip(
                drafts,
                _split(mention_marks.sigmoid(), drafts, "mentions"),
                _split(naming.argmax(-1), drafts, "mentions"),
                map(_best, self._link(NAME, passages, targets, target, targets, target)),
                _split(marks.sigmoid(), drafts, "statements"),
                _split(form.argmax(-1), drafts, "statements"),
                [
                    scores.sigmoid()
                    for scores in self._link(SUBJECT, passages, sources, source, targets, target)
                ],
                [
                    scores.sigmoid()
                    for scores in self._link(OBJECT, passages, sources, source, targets, target)
                ],
                strict=True,
            )
        ]

    def _link(
        self,
        kind: int,
        passages: Sequence[Passage],
        sources: Spans,
        source: Tensor,
        targets: Spans,
        target: Tensor,
    ) -> list[Tensor]:
        return self.model.link(kind, passages, sources, source, targets, target)


class _Draft:
    """The spans that a passage's labels make, before anything is known of them."""

    def __init__(
        self,
        passage: Passage,
        labels: Tensor,
        chances: Tensor,
        says: Tensor,
        describes: Tensor,
        mentions: Sequence[Sequence[float]],
    ) -> None:
        self._passage = passage
        self.describes: list[float] = describes[: len(passage.words)].tolist()
        self._chances = chances
        speaks = [True] * len(passage.words)
        for first, last in passage.sentences():
            if float(says[first : last + 1].mean()) < 0.5:
                speaks[first : last + 1] = [False] * (last + 1 - first)
        self._speaks = speaks
        self._can_deny = can_deny(passage)
        spans = {layer: _decode(labels[:, at].tolist()) for at, layer in enumerate(LAYERS)}
        spans[LAYERS[0]] = _decode(_likeliest(passage, mentions))
        spans[Kind.TEXT] = _whole_quotes(passage, spans[Kind.TEXT])
        spans[Kind.RELATION] = _whole_places(passage, spans[Kind.RELATION], spans[LAYERS[0]])
        # What is read as a text, a color or a number is no thing.
        qualities = [*spans[Kind.TEXT], *spans[Kind.COLOR], *spans[Kind.COUNT]]
        self.mentions = [
            (LAYERS[0], (first, last))
            for first, last in spans[LAYERS[0]]
            if not any(start <= first and last <= end for start, end in qualities)
        ]
        self.statements = [
            (kind, span)
            for kind in Kind
            for span in (spans[kind] if self.mentions else ())
            if speaks[span[1]]
        ]

    def graph(
        self,
        mention_marks: Tensor,
        naming: Tensor,
        names: Tensor,
        marks: Tensor,
        forms: Tensor,
        subjects: Tensor,
        objects: Tensor,
    ) -> Graph:
        spans = [span for _, span in self.mentions]
        mentions = {}
        for span, mark, way, other in zip(
            spans, mention_marks.tolist(), naming.tolist(), names.tolist(), strict=True
        ):
            named = spans[other] if spans[other] != span else None
            denied = mark[DENIED] > 0.5
            mentions[span] = Mention(
                span,
                entity=mark[ENTITY] > 0.5
                and self._speaks[span[1]]
                and not (denied and _is_one_missing(self._passage, span)),
                denied=denied,
                hedged=mark[HEDGED] > _GUESSED,
                optional=mark[OPTIONAL],
                confidence=self._confidence(LAYERS[0], span, mark, mark[ENTITY]),
                naming=_NAMINGS[way] if named else Naming.OWN,
                other=named,
            )
        statements = []
        for (layer, span), mark, form, subject, target in zip(
            self.statements, marks.tolist(), forms.tolist(), subjects.tolist(), objects.tolist(), strict=True
        ):
            kind = Kind(layer)
            statements.append(
                Statement(
                    kind,
                    span,
                    subjects=_linked(spans, subject),
                    objects=_linked(spans, target) if kind is Kind.RELATION else {},
                    denied=mark[DENIED] > 0.5,
                    hedged=mark[HEDGED] > _GUESSED,
                    optional=mark[OPTIONAL],
                    confidence=self._confidence(layer, span, mark),
                    form=FORMS[form] if kind in (Kind.RELATION, Kind.QUALITY) else "*",
                )
            )
        return Graph(mentions, sorted(statements, key=attrgetter("span")), self.describes)

    def _confidence(self, layer: str, span: Span, mark: Sequence[float], there: float = 1.0) -> float:
        """How sure it is that something stands here, is `there`, and whether it is denied: in doubt it is
        better not read than inverted."""
        sure = float(self._chances[span[0] : span[1] + 1, LAYERS.index(layer)].mean().exp())
        return there * sure * max(mark[DENIED] if self._can_deny else 0.0, 1 - mark[DENIED])


def _spans(drafts: Sequence[Sequence[tuple[str, Span]]]) -> Spans:
    rows = [(at, span, LAYERS.index(layer)) for at, draft in enumerate(drafts) for layer, span in draft]
    return Spans(*map(list, zip(*rows, strict=True))) if rows else Spans([], [], [])


def _split(rows: Tensor, drafts: Sequence[_Draft], of: str) -> Iterator[Tensor]:
    return iter(rows.split([len(getattr(draft, of)) for draft in drafts]))


def _best(scores: Tensor) -> Tensor:
    return scores.argmax(-1) if scores.numel() else scores[:, 0:0].flatten()


def _whole_places(passage: Passage, spans: Sequence[Span], mentions: Sequence[Span]) -> list[Span]:
    """ "To the left of" is one relation, also where it stands before its verb."""
    words = [word.text.lower() for word in passage.words]
    places = [
        (at, at + 3)
        for at in range(passage.split, len(words) - 3)
        if words[at] in ("to", "in", "at", "on")
        and (words[at + 1], words[at + 3]) == ("the", "of")
        and words[at + 2] in _SIDES
        and not any(first <= at + 3 and at <= last for first, last in mentions)
    ]
    whole = []
    for first, last in spans:
        place = next((one for one in places if one[0] <= last and first <= one[1]), (first, last))
        whole.append((min(first, place[0]), max(last, place[1])))
    return [
        one
        for one in dict.fromkeys(whole)
        if not any(other[0] <= one[0] and one[1] <= other[1] for other in whole if other != one)
    ]


def _is_one_missing(passage: Passage, span: Span) -> bool:
    """Whether it is "a missing tooth", "two missing tiles": that others are there is not denied."""
    before = [word.text.lower() for word in passage.words[max(0, span[0] - 2) : span[0]]]
    return len(before) == 2 and before[1] in _MISSING and (before[0] in _SOME or before[0] in NUMBER_WORDS)


def _linked(spans: Sequence[Span], scores: Sequence[float]) -> dict[Span, float]:
    """The mentions more likely linked than not, or else the likeliest."""
    linked = {span: score for span, score in zip(spans, scores, strict=True) if score > 0.5}
    best = max(scores)
    return linked or {spans[scores.index(best)]: best}


def _likeliest(passage: Passage, chances: Sequence[Sequence[float]]) -> list[int]:
    """The likeliest labels of mentions, as a row: "flat cap" is one thing rather than two side by side.

    `chances` are log-probabilities of outside, begin and inside: [words, 3].
    """
    best, ways = [0.0, -math.inf, -math.inf], list[list[int]]()
    pronouns = [word.text.lower() in _PRONOUNS for word in passage.words]
    for at, (outside, *inside) in enumerate(chances):
        chance = [outside + _OUTSIDE * (2 if pronouns[at] else 1), *inside]
        beside = 0.0 if pronouns[at] or (at and pronouns[at - 1]) else _SIDE_BY_SIDE
        beginning = [best[0], best[_BEGIN] + beside, best[_INSIDE] + beside]
        before = [
            max(range(3), key=best.__getitem__),
            max(range(3), key=beginning.__getitem__),
            max((_BEGIN, _INSIDE), key=best.__getitem__),
        ]
        ways.append(before)
        best = [
            (beginning if label == _BEGIN else best)[last] + chance[label]
            for label, last in enumerate(before)
        ]
    labels, label = list[int](), max(range(3), key=best.__getitem__)
    for before in reversed(ways):
        labels.append(label)
        label = before[label]
    return labels[::-1]


def _decode(labels: Sequence[int]) -> list[Span]:
    """The spans of one layer; an inside that nothing began begins one."""
    spans: list[Span] = []
    before = 0
    for at, label in enumerate(labels):
        if label == _BEGIN or (label == _INSIDE and before == 0):
            spans.append((at, at))
        elif label == _INSIDE:
            spans[-1] = (spans[-1][0], at)
        before = label
    return spans


def _whole_quotes(passage: Passage, spans: Sequence[Span]) -> list[Span]:
    """A text that was read is all that stands between its quotes; pieces of one are one."""
    quotes, start = [], None
    for at in range(passage.split, len(passage.words)):
        word = passage.words[at].text
        if word == LINE_BREAK:
            start = None
        elif start is None and word in _OPENING:
            start = at
        elif start is not None and word in _CLOSING:
            if at > start + 1:
                quotes.append((start + 1, at - 1))
            start = None
    whole = [
        next((quote for quote in quotes if quote[0] <= last and first <= quote[1]), (first, last))
        for first, last in spans
    ]
    return list(dict.fromkeys(whole))
