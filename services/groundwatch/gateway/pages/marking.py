"""An answer with its wrong words marked: made from sub-sentences, which say where in it they stand, and the
refuted facts that came of each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from groundwatch.events import Decision, JudgedClaim, Label, SubSentence
from groundwatch.gateway.pages.showing import MOST, visible

SHOWN = 1_800
"""Characters of an answer that are shown at once."""

_WORD = re.compile(r"(\w+)")

STOP = frozenset(
    _WORD.findall(
        "a an the is are was were be been being there it its this that these those of in on at to from with "
        "by and or as has have had do does for into onto out up down over under he she they his her their "
        "one some"
    )
)
"""Words that are wrong by themselves in no answer."""


def marked(
    answer: str | None, units: Sequence[SubSentence], claims: Sequence[JudgedClaim], limit: int = SHOWN
) -> Markup:
    """The answer with its sub-sentences; without one, the sub-sentences alone. A long one is cut."""
    wrong: dict[int, list[str]] = defaultdict(list)
    for claim in claims:
        if claim.decision is Decision.REFUTED:
            wrong[claim.unit].append(claim.text)
    if answer is None:
        whole = Markup(" ").join(
            _unit(unit.text.strip(), unit.label, wrong.get(at, ())) for at, unit in enumerate(units)
        )
        return _words(whole)
    if len(answer) <= limit:
        return _words(_between(answer, 0, len(answer), units, wrong))
    left = len(answer) - MOST
    more = Markup('<p class="note">{:,} more characters are not shown</p>').format(left) if left > 0 else ""
    return Markup("{}<details><summary>all {:,} characters</summary>{}{}</details>").format(
        _words(_between(answer, 0, limit, units, wrong) + "…"),
        len(answer),
        _words(_between(answer, 0, min(len(answer), MOST), units, wrong)),
        more,
    )


def marked_sentence(sentence: str, facts: Iterable[str]) -> Markup:
    """One sub-sentence with the words of these facts marked."""
    return Markup('<bdi class="sentence-text">{}</bdi>').format(
        _unit(sentence.strip(), Label.DESCRIPTIVE, list(facts))
    )


def _between(
    answer: str, first: int, end: int, units: Sequence[SubSentence], wrong: dict[int, list[str]]
) -> Markup:
    made, at = [], first
    for number, unit in enumerate(units):
        # Places are the judge's word, and may be none.
        if unit.start < at or unit.end > len(answer) or unit.end <= unit.start or unit.start >= end:
            continue
        piece = answer[unit.start : min(unit.end, end)]
        bare = piece.lstrip()
        made.append(escape(visible(answer[at : unit.start] + piece[: len(piece) - len(bare)])))
        made.append(_unit(bare, unit.label, wrong.get(number, ())))
        at = min(unit.end, end)
    made.append(escape(visible(answer[at:end])))
    return Markup("").join(made)


def _unit(text: str, label: Label, facts: Sequence[str]) -> Markup:
    if not facts:
        if label is Label.ANALYTICAL:
            told = "analytical: not judged"
            return Markup('<span class="unit analytical" title="{}">{}</span>').format(told, visible(text))
        return escape(visible(text))
    words = {stem(word) for fact in facts for word in _WORD.findall(fact)} - STOP
    pieces = [
        Markup("<mark>{}</mark>").format(piece) if at % 2 and stem(piece) in words else escape(visible(piece))
        for at, piece in enumerate(_WORD.split(text))
    ]
    title = visible("\n".join(f"✗ {fact[:200]}" for fact in facts[:5]))
    return Markup('<span class="unit wrong" title="{}">{}</span>').format(title, Markup("").join(pieces))


def stem(word: str) -> str:
    """In lower case, without the s of a plural."""
    low = word.lower()
    return low[:-1] if len(low) > 3 and low.endswith("s") and not low.endswith("ss") else low


def _words(content: Markup) -> Markup:
    return Markup('<div class="words answer-text" dir="auto">{}</div>').format(content)
