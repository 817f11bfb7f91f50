"""An answer with its wrong words marked: made from sub-sentences, which say where in it they stand, and the
refuted facts that came of each."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from groundwatch.events import Decision, JudgedClaim, Label, LeftOut, LeftOutKind, SubSentence
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

LEFT_OUT = {
    LeftOutKind.REASONING: "reasoning: not judged",
    LeftOutKind.MARK: "a mark: not judged",
    LeftOutKind.LANGUAGE: "another language: not read",
    LeftOutKind.REPETITION: "said again and again: judged once",
}
"""Why words are grey."""


def marked(
    answer: str | None,
    units: Sequence[SubSentence],
    claims: Sequence[JudgedClaim],
    limit: int = SHOWN,
    left_out: Sequence[LeftOut] = (),
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
        return _words(_between(answer, len(answer), units, wrong, left_out))
    left = len(answer) - MOST
    more = Markup('<p class="note">{:,} more characters are not shown</p>').format(left) if left > 0 else ""
    return Markup("{}<details><summary>all {:,} characters</summary>{}{}</details>").format(
        _words(_between(answer, limit, units, wrong, left_out) + "…"),
        len(answer),
        _words(_between(answer, min(len(answer), MOST), units, wrong, left_out)),
        more,
    )


def marked_sentence(sentence: str, facts: Iterable[str]) -> Markup:
    """One sub-sentence with the words of these facts marked."""
    return Markup('<bdi class="sentence-text">{}</bdi>').format(
        _unit(sentence.strip(), Label.DESCRIPTIVE, list(facts))
    )


def _between(
    answer: str,
    end: int,
    units: Sequence[SubSentence],
    wrong: dict[int, list[str]],
    left_out: Sequence[LeftOut],
) -> Markup:
    made, at = [], 0
    for number, unit in enumerate(units):
        # Places are the judge's word, and may be none.
        if unit.start < at or unit.end > len(answer) or unit.end <= unit.start or unit.start >= end:
            continue
        piece = answer[unit.start : min(unit.end, end)]
        start = unit.start + len(piece) - len(piece.lstrip())
        made.append(_grey(answer, at, start, left_out))
        at = min(unit.end, end)
        made.append(_grey(answer, start, at, left_out, unit.label, wrong.get(number, ())))
    made.append(_grey(answer, at, end, left_out))
    return Markup("").join(made)


def _grey(
    answer: str,
    start: int,
    end: int,
    left_out: Sequence[LeftOut],
    label: Label = Label.DESCRIPTIVE,
    facts: Sequence[str] = (),
) -> Markup:
    """A stretch of the answer, in grey what of it was not read, with the reason."""
    made, at = [], start
    for part in left_out[bisect_left(left_out, start, key=lambda part: part.end) :]:
        if part.start >= end:
            break
        first, last = max(part.start, at), min(part.end, end)
        if first >= last:
            continue
        made.append(_unit(answer[at:first], label, facts))
        why = LEFT_OUT[part.kind] + (f" ({part.detail})" if part.detail else "")
        made.append(
            Markup('<span class="unit analytical" title="{}">{}</span>').format(
                why, visible(answer[first:last])
            )
        )
        at = last
    made.append(_unit(answer[at:end], label, facts))
    return Markup("").join(made)


def _unit(text: str, label: Label, facts: Sequence[str]) -> Markup:
    if not facts:
        if label is Label.ANALYTICAL:
            return _not_judged(text, "analytical: not judged")
        return escape(visible(text))
    words = {stem(word) for fact in facts for word in _WORD.findall(fact)} - STOP
    pieces = [
        Markup("<mark>{}</mark>").format(piece) if at % 2 and stem(piece) in words else escape(visible(piece))
        for at, piece in enumerate(_WORD.split(text))
    ]
    title = visible("\n".join(f"✗ {fact[:200]}" for fact in facts[:5]))
    return Markup('<span class="unit wrong" title="{}">{}</span>').format(title, Markup("").join(pieces))


def _not_judged(text: str, why: str) -> Markup:
    return Markup('<span class="unit analytical" title="{}">{}</span>').format(why, visible(text))


def stem(word: str) -> str:
    """In lower case, without the s of a plural."""
    low = word.lower()
    return low[:-1] if len(low) > 3 and low.endswith("s") and not low.endswith("ss") else low


def _words(content: Markup) -> Markup:
    return Markup('<div class="words answer-text" dir="auto">{}</div>').format(content)
