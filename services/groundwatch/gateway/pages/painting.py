"""An answer with what its judges say of it: words of wrong facts marked, and grey what was not read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from markupsafe import Markup, escape

from groundwatch.events import Decision, JudgedClaim, Label, LeftOut, LeftOutKind, SubSentence
from groundwatch.gateway.pages.rendering import MOST as MOST_CHARACTERS
from groundwatch.gateway.pages.rendering import visible

SHOWN = 1_800
"""Characters of an answer that are shown at once."""

WORD = re.compile(r"(\w+)")

STOP = frozenset(
    WORD.findall(
        "a an the is are was were be been being there it its this that these those of in on at to from with "
        "by and or as has have had do does for into onto out up down over under he she they his her their "
        "one some"
    )
)
"""Words that are wrong by themselves in no answer."""

LEFT_OUT = {
    LeftOutKind.REASONING: "reasoning: not judged",
    LeftOutKind.MARK: "a mark: not judged",
    LeftOutKind.CODE: "program text or a formula: not judged",
    LeftOutKind.LANGUAGE: "another language: not read",
    LeftOutKind.REPETITION: "said again and again: judged once",
}
"""Why words are grey."""


class Said(NamedTuple):
    """A fact that words of an answer say: its number on the page, None on others, and where it stands, if its
    judge tells."""

    number: int | None
    text: str
    span: tuple[int, int] | None = None
    wrong: bool = True


class Look(NamedTuple):
    """How a sub-sentence looks, and what is told of it; `left_out` is what was not read."""

    kind: str
    title: str
    left_out: bool = False


_PLAIN = Look("", "")

Facts = tuple[Said, ...]
Stretch = tuple[int, int, Look, Facts]
"""Characters of an answer that look alike, and the facts that they say."""


def marked(
    answer: str | None,
    units: Sequence[SubSentence],
    claims: Sequence[JudgedClaim],
    limit: int = SHOWN,
    left_out: Sequence[LeftOut] = (),
) -> Markup:
    """The answer with its sub-sentences; without one, the sub-sentences alone. A long one is cut.

    The words that say a fact name it, where its judge tells which they are; of a refuted one they are marked.
    """
    said = said_in(claims)
    if answer is None:
        alone = (
            _sentence(unit.text, [one._replace(span=None) for one in said.get(at, ())], unit.label)
            for at, unit in enumerate(units)
        )
        return _words(Markup(" ").join(alone))
    stretches = stretches_of(answer, units, said, left_out)
    if len(answer) <= limit:
        return _words(_painted(answer, stretches))
    left = len(answer) - MOST_CHARACTERS
    more = Markup('<p class="note">{:,} more characters are not shown</p>').format(left) if left > 0 else ""
    return Markup("{}<details><summary>all {:,} characters</summary>{}{}</details>").format(
        _words(_painted(answer, stretches, limit) + "…"),
        len(answer),
        _words(_painted(answer, stretches, MOST_CHARACTERS)),
        more,
    )


def said_in(claims: Sequence[JudgedClaim]) -> Mapping[int, Sequence[Said]]:
    """By sub-sentence, the facts that it says."""
    said: dict[int, list[Said]] = defaultdict(list)
    for at, claim in enumerate(claims):
        said[claim.unit].append(Said(at, claim.text, claim.span, claim.decision is Decision.REFUTED))
    return said


def marked_sentence(sentence: str, facts: Iterable[str]) -> Markup:
    """One sub-sentence with the words of these facts marked."""
    said = [Said(None, fact) for fact in facts]
    return Markup('<bdi class="sentence-text">{}</bdi>').format(_sentence(sentence, said))


def _sentence(text: str, facts: Sequence[Said], label: Label = Label.DESCRIPTIVE) -> Markup:
    alone = text.strip()
    whole = SubSentence(start=0, end=len(alone), text=alone, label=label)
    return _painted(alone, stretches_of(alone, [whole], {0: facts}))


def stretches_of(
    answer: str,
    units: Sequence[SubSentence],
    said: Mapping[int, Sequence[Said]],
    left_out: Sequence[LeftOut] = (),
) -> list[Stretch]:
    """The whole answer in order: all looks as its sub-sentence does, or grey where it was not read."""
    layers: list[tuple[int, int, Look | Facts]] = []
    at = 0
    for number, unit in enumerate(units):
        # Places are the judge's word, and may be none.
        if not at <= unit.start < unit.end <= len(answer):
            continue
        piece = answer[unit.start : unit.end]
        first, at = unit.start + len(piece) - len(piece.lstrip()), unit.end
        facts = said.get(number, ())
        layers.append((first, at, _look(unit.label, [fact for fact in facts if fact.wrong])))
        layers += _places(answer, unit, facts)
    for part in left_out:
        why = LEFT_OUT[part.kind] + (f" ({part.detail})" if part.detail else "")
        layers.append((max(0, part.start), min(part.end, len(answer)), Look("analytical", why, True)))
    opened, closed = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for number, (start, last, _) in enumerate(layers):
        if start < last:
            opened[start].append(number)
            closed[last].append(number)
    on: dict[int, Look | Facts] = {}
    found: list[Stretch] = []
    for start, last in pairwise(sorted({0, len(answer), *opened, *closed})):
        for number in closed.get(start, ()):
            del on[number]
        on |= {number: layers[number][2] for number in opened.get(start, ())}
        look = max((one for one in on.values() if isinstance(one, Look)), key=_is_left_out, default=_PLAIN)
        several = () if look.left_out else [one for one in on.values() if not isinstance(one, Look)]
        found.append((start, last, look, tuple(chain.from_iterable(several))))
    return found


_is_left_out = attrgetter("left_out")


def _painted(answer: str, stretches: Iterable[Stretch], end: int | None = None) -> Markup:
    """The answer up to `end`."""
    made = []
    for look, several in groupby(stretches, key=itemgetter(2)):
        inside = Markup("").join(
            paint(answer[start : last if end is None else min(last, end)], facts)
            for start, last, _, facts in several
            if end is None or start < end
        )
        made.append(framed(look, inside))
    return Markup("").join(made)


def framed(look: Look, inside: Markup) -> Markup:
    if not look.kind or not inside:
        return inside
    told = Markup(' title="{}"').format(look.title) if look.title else ""
    return Markup('<span class="unit {}"{}>{}</span>').format(look.kind, told, inside)


def paint(text: str, facts: Sequence[Said]) -> Markup:
    """Words with the numbers of the facts that they say, marked where one of these is wrong."""
    shown = escape(visible(text))
    numbers = " ".join(str(fact.number) for fact in facts[:MOST_NAMED] if fact.number is not None)
    names = f' data-facts="{numbers}"' if numbers else ""
    if any(fact.wrong for fact in facts):
        return Markup(f"<mark{names}>{shown}</mark>")
    return Markup(f"<span{names}>{shown}</span>") if names else shown


MOST_NAMED = 8
"""Facts that the same words name."""


def _look(label: Label, wrong: Sequence[Said]) -> Look:
    """The kind of a sub-sentence, and what is told of it."""
    if wrong:
        return Look("wrong", visible("\n".join(f"✗ {fact.text[:200]}" for fact in wrong[:5])))
    return Look("analytical", "analytical: not judged") if label is Label.ANALYTICAL else _PLAIN


def _places(answer: str, unit: SubSentence, facts: Iterable[Said]) -> Iterator[tuple[int, int, Facts]]:
    """Where a sub-sentence says facts. Of a wrong one whose place is not told, or lies outside of it, its
    words wherever they stand."""
    words: dict[str, dict[Said, None]] = defaultdict(dict)
    for fact in facts:
        first, last = fact.span or (0, 0)
        if unit.start <= first < last <= unit.end:
            yield first, last, (fact,)
        elif fact.wrong:
            for word in WORD.findall(fact.text):
                if len(known := words[stem(word)]) < MOST_NAMED:
                    known[fact] = None
    for word in WORD.finditer(answer, unit.start, unit.end) if words else ():
        if (low := stem(word[0])) in words and low not in STOP:
            yield *word.span(), tuple(words[low])


def stem(word: str) -> str:
    """In lower case, without the s of a plural."""
    low = word.lower()
    return low[:-1] if len(low) > 3 and low.endswith("s") and not low.endswith("ss") else low


def _words(content: Markup) -> Markup:
    return Markup('<div class="words answer-text" dir="auto">{}</div>').format(content)
