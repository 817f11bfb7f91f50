"""An answer's sub-sentences with the little context that their labels depend on."""

from collections.abc import Sequence

import msgspec

from groundwatch.language.subsentences import Span, split

_ENDS_A_SENTENCE = frozenset(".!?…\n。！？؟।॥")


class Unit(msgspec.Struct, frozen=True):
    """A sub-sentence; `sentence` is the index of the first sub-sentence of its sentence."""

    text: str
    start: int
    end: int
    sentence: int


def outline(answer: str) -> tuple[Unit, ...]:
    return place(answer, split(answer))


def place(answer: str, spans: Sequence[Span]) -> tuple[Unit, ...]:
    """Turn spans of `answer` into units: what ends a sentence stands between two of them."""
    units: list[Unit] = []
    sentence = 0
    for index, span in enumerate(spans):
        if index and not _ENDS_A_SENTENCE.isdisjoint(answer[spans[index - 1].end : span.start]):
            sentence = index
        units.append(Unit(answer[span.start : span.end], span.start, span.end, sentence))
    return tuple(units)
