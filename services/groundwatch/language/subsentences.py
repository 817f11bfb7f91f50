"""Where an answer is cut into sub-sentences (FaithScore, section 3.2).

The paper labels pieces "split by punctuations" as descriptive or analytical. Its published annotations
cut at every comma and full stop. Cutting there alone would break "3.5", "1,000" and "Dr. Smith", so a
mark inside a number, a name or an abbreviation does not cut here; the marks that the annotations do not
contain (colons, line breaks, marks of other scripts) cut as commas do.
"""

import re
import unicodedata

import msgspec


class Span(msgspec.Struct, frozen=True):
    """A sub-sentence's place: `answer[start:end]`, characters, end exclusive, no white space around it."""

    start: int
    end: int


_MARKS = re.compile("[.,;:!?\u2026\u2014\u203d\n\r\v\f\x85\u2028\u2029，。；：！？、､｡،؛؟۔।॥။።፣]+")
_TITLES = frozenset(
    {"dr", "mr", "mrs", "ms", "mx", "prof", "st", "mt", "ft", "lt", "sgt", "capt", "col", "gen", "rev"}
    | {"hon", "sr", "sra", "vs", "cf", "ca", "approx", "fig", "no", "e.g", "i.e", "eg", "viz", "incl"}
)
_SHORTENED = frozenset({"etc", "jr", "inc", "ltd", "co", "corp", "bros", "ave", "blvd", "dept", "est", "al"})
_OPENS_A_NUMBER = frozenset({"no", "fig", "ca", "approx", "ft"})
_LAST_WORD = re.compile(r"[^\W_]+(?:\.[^\W_]+)*\Z")
_LOOK_BACK = 24
_CLOSERS = "\"')]}»”’›"
_BULLETS = re.compile(r"(?:[-*•·▪◦‣–]+[ \t]+)+")


def split(answer: str) -> tuple[Span, ...]:
    """The sub-sentences of `answer`, in order, disjoint; only punctuation and white space lie between them.

    Takes time linear in the answer's length. An answer without letters, digits or symbols has none.
    """
    spans = []
    start = 0
    for marks in _MARKS.finditer(answer):
        if not _cuts(answer, marks.start(), marks.end()):
            continue
        spans.append(_trim(answer, start, marks.start()))
        start = marks.end()
    spans.append(_trim(answer, start, len(answer)))
    return tuple(span for span in spans if _says_something(answer, span))


def _cuts(answer: str, start: int, end: int) -> bool:
    if end - start > 1:
        return True
    mark = answer[start]
    after = answer[end : end + 1]
    if mark == ",":
        return not (answer[start - 1 : start].isdigit() and after.isdigit())
    if mark == ":":
        return not after or after.isspace()
    return mark != "." or _full_stop_cuts(answer, start)


def _full_stop_cuts(answer: str, at: int) -> bool:
    found = _LAST_WORD.search(answer, max(0, at - _LOOK_BACK), at)
    word = found.group() if found else ""
    after = answer[at + 1 : at + 2]
    following = answer[at + 1 : at + 3].lstrip(" \t")[:1]
    if after and not after.isspace() and after not in _CLOSERS:
        abbreviated = len(word.rpartition(".")[2]) == 1
        return not after.isalnum() or (after.isupper() and not abbreviated and not word[-1:].isdigit())
    lowered = word.lower()
    if lowered in _OPENS_A_NUMBER:
        return not following.isdigit()
    if lowered in _TITLES:
        return not following
    dotted = "." in word and all(len(part) == 1 for part in word.split("."))
    if dotted or lowered in _SHORTENED:
        return not following.islower() and not following.isdigit()
    if found and _is_initial(answer, found.start(), word):
        return not following.isupper()
    if found and word.isdigit() and len(word) <= 3:
        line = answer[max(0, found.start() - _LOOK_BACK) : found.start()].rpartition("\n")[2]
        return not following or bool(line.strip())
    return True


def _is_initial(answer: str, start: int, word: str) -> bool:
    """ "J. Smith" but not "on side A. The": an initial opens the text or follows a capitalised word."""
    if len(word) != 1 or not word.isupper():
        return False
    before = answer[max(0, start - _LOOK_BACK) : start].split()
    last = before[-1] if before else ""
    return start == 0 or (last[:1].isupper() and not last.endswith((",", "!", "?")))


def _trim(answer: str, start: int, end: int) -> Span:
    closed = start
    while closed < end and answer[closed] in _CLOSERS:
        closed += 1
    if closed == end or answer[closed].isspace():
        start = closed
    start = end - len(answer[start:end].lstrip())
    if bullet := _BULLETS.match(answer, start, end):
        start = bullet.end()
    return Span(start, start + len(answer[start:end].rstrip()))


def _says_something(answer: str, span: Span) -> bool:
    return any(
        not character.isspace() and unicodedata.category(character)[0] != "P"
        for character in answer[span.start : span.end]
    )
