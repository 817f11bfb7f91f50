"""An answer as a document: what in it is spoken about the image, and what is not.

Reasoning, program text, marks, foreign languages and loops are left out by blanking: the text keeps its
length, so that every place in it is a place in the answer. Takes time linear in the answer's length.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Claim, LeftOut, LeftOutKind

REASONING_ONLY = "reasoning_only"
ANOTHER_LANGUAGE = "another_language"
"""Why nothing of an answer is read: it is reasoning alone, or in a language that the engine does not read."""

REPEATS = 3
"""How often the same words may follow each other, or the same sentence may come, before it is a loop."""

SHORT_REPEATS = 10
"""How often a sentence of one or two words may follow itself: rows of a table say "no" again and again."""

LOOP = 40
"""Words of the longest stretch that is looked for as a loop within a sentence."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """An answer and what of it is to be read.

    `text` is as long as `answer`, with spaces in the place of what is left out. `left_out` are those places
    in order, disjoint. `cut` says that reasoning had no end: the model did not come to its answer there.
    """

    answer: str
    text: str
    left_out: tuple[LeftOut, ...] = ()
    cut: bool = False

    @property
    def unread(self) -> Unscorable | None:
        """Why nothing of it is to be read: reasoning is all that there is, or other languages are."""
        foreign = [part for part in self.left_out if part.kind is LeftOutKind.LANGUAGE]
        if foreign and not any(map(str.isalpha, self.text)):
            return Unscorable(ANOTHER_LANGUAGE, max(foreign, key=lambda part: part.end - part.start).detail)
        reasoned = any(part.kind is LeftOutKind.REASONING for part in self.left_out)
        if reasoned and not any(map(str.isalnum, self.text)):
            return Unscorable(REASONING_ONLY, "cut_off" if self.cut else "")
        return None

    def without(self, parts: Iterable[LeftOut]) -> Document:
        """The document without these places too."""
        parts = [rest for part in parts for rest in self._rest_of(part)]
        if not parts:
            return self
        left_out = sorted((*self.left_out, *parts), key=lambda part: part.start)
        text = blanked(self.text, ((part.start, part.end) for part in parts))
        return msgspec.structs.replace(self, text=text, left_out=tuple(_joined(self.answer, left_out)))

    def _rest_of(self, part: LeftOut) -> Iterator[LeftOut]:
        """What of a place is not left out already, where something stands."""
        at = part.start
        for known in self.left_out[bisect_left(self.left_out, part.start, key=lambda known: known.end) :]:
            if known.start >= part.end:
                break
            if self.text[at : known.start].strip():
                yield msgspec.structs.replace(part, start=at, end=known.start)
            at = max(at, known.end)
        if self.text[at : part.end].strip():
            yield part if at == part.start else msgspec.structs.replace(part, start=at)


class _Marks(msgspec.Struct, frozen=True):
    reasoning: list[tuple[str, str]]
    thoughts: list[str]
    answers: list[str]
    answer_channels: list[str]
    places: list[str]
    programs: list[str]


class _Patterns(NamedTuple):
    begins: str
    reasoning: re.Pattern[str]
    ends: dict[str, str]
    thoughts: re.Pattern[str]
    answers: re.Pattern[str]
    channels: frozenset[str]
    marks: re.Pattern[str]
    programs: frozenset[str]


_BEGIN_MARKS = '<~!(["\\'
_CHANNEL = re.compile(r"(?:<\|start\|>\w{0,40}+)?<\|channel\|>\s*+(\w{1,40}+)[^<\n]{0,80}+(?:<\|message\|>)?")
_TURN = re.compile(r"<\|(?:channel|start|end|return|call)\|>")

_NUMBER = r"-?\d{1,6}+(?:\.\d{1,17}+)?+%?+"
_GAP = r"[ \t\n]{0,20}+"
_LIST = rf"{_NUMBER}(?:{_GAP},{_GAP}{_NUMBER})"
_PLACES = (
    rf"\[{_GAP}{_LIST}{{3,63}}+{_GAP}\]"
    rf"|\[{_GAP}\[{_GAP}{_LIST}{{1,63}}+{_GAP}\](?:{_GAP},{_GAP}\[{_GAP}{_LIST}{{1,63}}+{_GAP}\])*+{_GAP}\]"
    rf"|\({_GAP}{_LIST}{{3,63}}+{_GAP}\)"
    rf"|\({_GAP}{_LIST}{_GAP}\)(?:{_GAP},{_GAP}\({_GAP}{_LIST}{_GAP}\))++"
)
_PAIR = rf"[\[(]{_GAP}{_LIST}{_GAP}[\])]"

# Markdown's fences, also in lists and quotations. By its own pattern: markdown-it-py takes 4 s for 1 MB of
# short lines, and 30 s for 1 MB of list items, in which no other answer is read.
_FENCE = re.compile(
    r"^[ \t>]{0,40}+(?:(?:[-*+]|\d{1,4}+[.)])[ \t]++)?+(`{3,40}+|~{3,40}+)[ \t]*+([^\s`]*+)[^\n`]*+$", re.M
)
_LANGUAGE = re.compile(r"[{.]*+([\w+#-]++)")
_FORMULAS = {"\\[": "\\]", "\\(": "\\)", "$$": "$$"}
_FORMULA = re.compile(
    r"(?=[\\$])(?:\\[\[(]|\$\$|(?<![\w$\\])\$(?![\s\d$\"'”’])[^$\n]{1,200}+(?<=\S)\$(?![\w$]))"
)
LONGEST_FORMULA = 1_000
"""Characters between the marks of a formula; what is longer is none."""
_SETTING = r"\\(?:boxed|text(?:bf|it|rm)?+|math(?:bf|it|rm))(?=\{)"
"""Commands of LaTeX around words."""
_SIGN = re.compile(r"\\(?![()\[\],; ])|[=^_<>]")
_WORDS_OR_NUMBER = re.compile(r"[^\W\d_]{2}|[A-Z\d]")
# What is struck out, pictures, and where links lead to.
_WITHDRAWN = (
    r"~~(?=[^\s~])[^\n~]{1,400}+~~|!\[[^\[\]\n]{0,200}+\]\([^()\n]{0,200}+\)"
    r"|(?<=\])\((?:https?:|mailto:|\.{0,2}/)[^()\n]{0,400}+\)"
)

_JSON = json.JSONDecoder()
_OBJECT = re.compile(r"^[ \t]{0,20}+(?:`{3,40}+\w*+\s{1,20}+)?+\{", re.MULTILINE)
_KEY = re.compile(r'\s{0,40}+,?+\s{0,40}+"([^"\\\n]{1,80}+)"\s{0,40}+:\s{0,40}+')
_OBJECT_ENDS = re.compile(r"\s{0,40}+\}(?:\s{0,20}+`{3,40}+)?+")

_ALOUD = re.compile(
    r"\W{0,4}+(?:(?:okay|ok|alright|all right|hmm+|so|well|right|got it|first)\b[,.!]?+\s{0,3}+)*+"
    r"(?:the user|we need to|we are asked|i need to|i have to|i should|i'm asked|my task is"
    r"|let me (?:think|look|see|analy[sz]e|start|check)|let's (?:think|look|see|analy[sz]e))\b",
    re.IGNORECASE,
)
_TO_ONESELF = re.compile(
    r"\b(?:the user|let me|let's|i should|i need to|i'll|i have to|i must|we need to|we should|hmm+|wait"
    r"|my (?:answer|response)|the (?:final )?answer (?:should|would))\b",
    re.IGNORECASE,
)
_PARAGRAPH = re.compile(r"[^\n]++(?:\n(?![^\S\n]*+\n)[^\n]++)*+")
_ENDS = tuple('.!?)"”*`|}]】。！？:')
_SENTENCE = re.compile(r"[^.!?\n。！？]++[.!?。！？]*+")
_HIDDEN = re.compile(
    r"<!--(?:(?!-->)[\s\S]){0,2000}+-->|<(script|style)\b[^<>]{0,400}+>[^<]{0,20000}+</\1>", re.IGNORECASE
)
"""What nobody sees of a page: comments, and what is no text of it."""

_WORD = re.compile(r"\w++|[^\w\s]")


def read_document(answer: str) -> Document:
    """What of an answer is spoken about the image, in whatever language."""
    patterns = _patterns()
    reasoning, cut = _reasoning(answer, patterns)
    document = Document(answer=answer, text=answer, cut=cut)
    document = document.without(
        LeftOut(start=start, end=end, kind=LeftOutKind.REASONING) for start, end in reasoning
    )
    document = document.without(_keys(document.text, patterns))
    document = document.without(
        LeftOut(start=match.start(), end=match.end(), kind=LeftOutKind.CODE)
        for match in (_HIDDEN.finditer(document.text) if "<" in document.text else ())
    )
    document = document.without(
        LeftOut(start=start, end=end, kind=LeftOutKind.CODE)
        for start, end in _programs(document.text, patterns.programs)
    )
    document = document.without(
        LeftOut(start=match.start(), end=match.end(), kind=LeftOutKind.MARK, detail=_numbers(match.group()))
        for match in (patterns.marks.finditer(document.text) if _has(document.text, _BEGIN_MARKS) else ())
    )
    return document.without(
        LeftOut(start=start, end=end, kind=LeftOutKind.REPETITION) for start, end in _loops(document.text)
    )


def _has(text: str, characters: str) -> bool:
    """Whether one of these is in the text: quicker than a pattern that finds nothing, as most do."""
    return any(map(text.__contains__, characters))


def keep_languages(document: Document, languages: frozenset[str] | None, prompt: str) -> Document:
    """The document without what is in another language than these; None reads any.

    A text whose words do not tell its language, such as "42", is in that of the prompt.
    """
    if languages is None or not any(map(str.isalpha, document.text)):
        return document
    # Loaded where it is wanted: an engine that reads any language needs no detector.
    from groundwatch.reading.language import ENGLISH, language_of, parts_of

    parts = parts_of(document.text, language_of(prompt, ENGLISH))
    return document.without(
        LeftOut(start=part.start, end=part.end, kind=LeftOutKind.LANGUAGE, detail=part.language)
        for part in parts
        if part.language not in languages
    )


_BEFORE = re.compile(
    r'\s*(?:[,{]?\s*"(?:label|name|object|category|class|text|description)"\s*:\s*"?\s*)?(?:(?:an?|the)\s)?\s*',
    re.IGNORECASE,
)
_BEHIND = re.compile(r"[^\w{};\n]*")
_FAR = 100
"""Characters at most between words and the mark of their place, with what is left out between them."""


def with_places(claims: Sequence[Claim], document: Document) -> tuple[Claim, ...]:
    """The claims, those with a `place` that the answer gives in a mark directly behind their words, or before
    them as detectors and JSON do."""
    marks = [part for part in document.left_out if part.kind is LeftOutKind.MARK and part.detail]
    if not marks:
        return tuple(claims)
    placed = []
    for claim in claims:
        if claim.span is not None and claim.span[1]:
            start, end = claim.span
            at = bisect_left(marks, end, key=lambda mark: mark.start)
            if at < len(marks) and _is_near(_BEHIND, document.text, end, marks[at].start):
                claim = msgspec.structs.replace(claim, place=marks[at].detail)
            elif at and _is_near(_BEFORE, document.text, marks[at - 1].end, start):
                claim = msgspec.structs.replace(claim, place=marks[at - 1].detail)
        placed.append(claim)
    return tuple(placed)


def _is_near(between: re.Pattern[str], text: str, start: int, end: int) -> bool:
    """Whether nothing but this stands in `text[start:end]`, without what is left out there."""
    return end - start <= _FAR and between.fullmatch(text, start, end) is not None


def blanked(text: str, places: Iterable[tuple[int, int]]) -> str:
    """The text with spaces in these places, which are in order and disjoint; its lines stay."""
    pieces, at = [], 0
    for start, end in places:
        pieces.append(text[at:start])
        pieces.append("\n".join(" " * len(line) for line in text[start:end].split("\n")))
        at = end
    return "".join((*pieces, text[at:]))


def _joined(answer: str, parts: Sequence[LeftOut]) -> Iterator[LeftOut]:
    """The places, of which those of one kind that only white space parts are one."""
    last = parts[0]
    for part in parts[1:]:
        if (part.kind, part.detail) == (last.kind, last.detail) and not answer[last.end : part.start].strip():
            last = msgspec.structs.replace(last, end=part.end)
        else:
            yield last
            last = part
    yield last


@cache
def _patterns() -> _Patterns:
    marks = msgspec.toml.decode(files(__package__ or "").joinpath("marks.toml").read_bytes(), type=_Marks)
    reasoning = "|".join(re.escape(mark) for pair in marks.reasoning for mark in pair)
    # Looked at first: to try every mark at every character takes three times as long.
    begins = "".join({mark[0] for pair in marks.reasoning for mark in pair} | {"<"})
    places = "|".join(marks.places)
    keyed = rf"\"(?:{places})\"{_GAP}:{_GAP}(?:{_PLACES}|{_PAIR}){_GAP},?+"
    tag = r"</?[a-z][\w:-]{0,40}+(?:\s[^<>\n]{0,400}+)?+/?>|<\|/?[\w:/-]{1,40}+\|?>"
    mark = "|".join(
        (
            _CHANNEL.pattern,
            _WITHDRAWN,
            rf"(?:{tag})(?:{_GAP}(?:{_PLACES}|{_PAIR}))?+",
            keyed,
            _PLACES,
            _SETTING,
            r"\\[()\[\]]",
        )
    )
    return _Patterns(
        begins=begins,
        reasoning=re.compile(rf"(?=[{re.escape(begins)}])(?:{reasoning}|{_CHANNEL.pattern})", re.IGNORECASE),
        ends={begin.lower(): end.lower() for begin, end in marks.reasoning},
        thoughts=re.compile(rf"\W{{0,8}}+({'|'.join(marks.thoughts)})\b[*_ ]{{0,4}}+[:\n]", re.IGNORECASE),
        answers=re.compile(
            rf"^\W{{0,8}}+(?:(?:the|my) )?+((?:final )?(?:{'|'.join(marks.answers)}))\b(?: is)?+"
            r"[*_ ]{0,4}+[:\n][*_\s]{0,8}+",
            re.IGNORECASE | re.MULTILINE,
        ),
        channels=frozenset(marks.answer_channels),
        marks=re.compile(rf"(?=[{re.escape(_BEGIN_MARKS)}])(?:{mark})+", re.IGNORECASE),
        programs=frozenset(marks.programs),
    )


def _reasoning(answer: str, patterns: _Patterns) -> tuple[list[tuple[int, int]], bool]:
    """Where the answer reasons, and whether that is cut off."""
    if not _has(answer, patterns.begins):
        return _aloud(answer, patterns)
    places: list[tuple[int, int]] = []
    cut = False
    lowered = answer.lower() if len(answer.lower()) == len(answer) else answer
    without_end: set[str] = set()
    ends = frozenset(patterns.ends.values())
    at = 0
    while match := patterns.reasoning.search(answer, at):
        mark = match.group().lower()
        if match[1] is not None:
            end, at = _channel(answer, match, patterns)
            if end is not None:
                places.append((match.start(), end))
                cut = end == len(answer) and not answer.endswith("|>")
            continue
        if mark in ends:
            # Its beginning is missing, often since the prompt had it.
            places, at = [(0, match.end())], match.end()
            continue
        end_mark = patterns.ends[mark]
        end_at = -1 if end_mark in without_end else lowered.find(end_mark, match.end())
        if end_at < 0:
            without_end.add(end_mark)
            return [*places, (match.start(), len(answer))], True
        at = end_at + len(end_mark)
        places.append((match.start(), at))
    return (places, cut) if places else _aloud(answer, patterns)


def _channel(answer: str, match: re.Match[str], patterns: _Patterns) -> tuple[int | None, int]:
    """Where the channel's reasoning ends, None for one that is the answer; and where to go on."""
    if match[1].lower() in patterns.channels:
        return None, match.end()
    turn = _TURN.search(answer, match.end())
    if turn is None:
        return len(answer), len(answer)
    return (turn.end(), turn.end()) if turn.group() == "<|end|>" else (turn.start(), turn.start())


def _aloud(answer: str, patterns: _Patterns) -> tuple[list[tuple[int, int]], bool]:
    """Reasoning without marks, where the first words say that it is some: what stands between two heads, or
    the first paragraphs in which the model speaks to itself; all of an answer that is cut off there."""
    if (thoughts := patterns.thoughts.match(answer)) and (
        said := patterns.answers.search(answer, thoughts.end())
    ):
        return [(0, said.end())], False
    if not _ALOUD.match(answer):
        return [], False
    end = 0
    paragraphs = list(_PARAGRAPH.finditer(answer))
    for paragraph in paragraphs:
        if not _TO_ONESELF.search(paragraph.group()):
            break
        end = paragraph.end()
    if end < paragraphs[-1].end():
        return [(0, end)] if end else [], False
    if answer.rstrip().endswith(_ENDS):
        # An answer in one piece, with a word or two to itself: it ends as an answer does.
        return [], False
    return [(0, len(answer))], True


def _keys(text: str, patterns: _Patterns) -> Iterator[LeftOut]:
    """What is not the answer of an answer in JSON: reasoning under a key of its own, and all around the value
    where nothing else stands in the object."""
    begin = _OBJECT.search(text)
    fields, end = _fields(text, begin.end()) if begin else ([], 0)
    reasoning, said, other = [], [], False
    for key, start, stop in fields:
        inner = (start + 1, stop - 1) if text[start] in '"[{' else (start, stop)
        if patterns.thoughts.fullmatch(f"{key}:"):
            reasoning.append(inner)
        elif patterns.answers.fullmatch(f"{key}:") and text[start] not in "[{":
            said.append(inner)
        else:
            other = True
    if begin is None or not said:
        return
    alone = len(said) == 1 and not other
    at = begin.start()
    for start, stop in sorted(reasoning + said if alone else reasoning):
        if alone:
            yield LeftOut(start=at, end=start, kind=LeftOutKind.MARK)
        if (start, stop) not in said:
            yield LeftOut(start=start, end=stop, kind=LeftOutKind.REASONING)
        at = stop
    if alone:
        yield LeftOut(start=at, end=end, kind=LeftOutKind.MARK)


def _fields(text: str, at: int) -> tuple[list[tuple[str, int, int]], int]:
    """Of the object that opens before `at` each key in plain words and where its value stands, and where the
    object ends, with the fence behind it; nothing of what is no object of JSON."""
    fields = []
    while key := _KEY.match(text, at):
        try:
            _, at = _JSON.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            return [], 0
        fields.append((re.sub(r"[_-]", " ", key[1]), key.end(), at))
    end = _OBJECT_ENDS.match(text, at)
    return (fields, end.end()) if end else ([], 0)


def _programs(text: str, names: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Where fenced blocks hold a program, and formulas stand; a block without an end goes to the text's."""
    begin: re.Match[str] | None = None
    at = 0
    for fence in _FENCE.finditer(text) if "```" in text or "~~~" in text else ():
        if begin is None:
            yield from _formulas(text, at, fence.start())
            begin = fence
        elif fence[1].startswith(begin[1]) and not fence[2]:
            if _holds_program(begin, names):
                yield begin.start(), fence.end()
            begin, at = None, fence.end()
    if begin is None:
        yield from _formulas(text, at, len(text))
    elif _holds_program(begin, names):
        yield begin.start(), len(text)


def _holds_program(fence: re.Match[str], names: frozenset[str]) -> bool:
    name = _LANGUAGE.match(fence[2])
    return name is not None and name[1].casefold() in names


def _formulas(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if not _has(text, "\\$"):
        return
    nearest: dict[str, int] = {}
    while formula := _FORMULA.search(text, start, end):
        begin, start = formula.span()
        if mark := _FORMULAS.get(formula.group()):
            if nearest.get(mark, 0) < start:
                closed = text.find(mark, start, end)
                nearest[mark] = closed if closed >= 0 else end
            if nearest[mark] - start > LONGEST_FORMULA or nearest[mark] == end:
                continue
            start = nearest[mark] + len(mark)
        if not _is_said(text[begin:start]):
            yield begin, start


def _is_said(formula: str) -> bool:
    """Whether it is an answer: boxed, or nothing but words or a number."""
    rest = re.sub(_SETTING, "", formula)
    return "\\boxed" in formula or (not _SIGN.search(rest) and _WORDS_OR_NUMBER.search(rest) is not None)


def _numbers(mark: str) -> str:
    """The place that a mark names, as the model wrote it: "112, 340, 655, 498"; empty for none."""
    return ", ".join(re.findall(r"(?:(?<![\w.])|(?<=<loc)|(?<=patch_index_))\d+(?:\.\d+)?", mark)[:64])


def _loops(text: str) -> Iterator[tuple[int, int]]:
    """Where words or sentences are said again and again; the first time stays."""
    sentences = list(_SENTENCE.finditer(text))
    written = [sentence.group().strip() for sentence in sentences]
    # Who repeats a sentence mostly writes it in the same way.
    spelt = {each: _WORD.findall(each.casefold()) for each in set(written)}
    joined = {each: " ".join(words).rstrip(" .!?。！？") for each, words in spelt.items()}
    counts = Counter(spoken for each in written if (spoken := joined[each]).count(" ") >= 2)
    looped = {spoken for spoken, number in counts.items() if number > REPEATS}
    rows = groupby(spoken for each in written if (spoken := joined[each]))
    looped |= {
        spoken for spoken, row in rows if any(map(str.isalpha, spoken)) and len(list(row)) > SHORT_REPEATS
    }
    seen: set[str] = set()
    last = ""
    for number, (sentence, each) in enumerate(zip(sentences, written, strict=True), start=1):
        spoken = joined[each]
        # The last of a loop is often cut off.
        broken_off = number == len(sentences) and bool(spoken) and last.startswith(spoken)
        if spoken in seen or (broken_off and last in seen):
            yield sentence.span()
            continue
        if spoken in looped:
            seen.add(spoken)
            last = spoken
        if _may_stutter(spelt[each]):
            for start, end in _stutters(list(_WORD.finditer(sentence.group()))):
                yield sentence.start() + start, sentence.start() + end


def _may_stutter(words: list[str]) -> bool:
    """Whether a word, and not a comma alone, comes often enough for a stretch with it to be repeated."""
    if len(words) - len(set(words)) < REPEATS:
        return False
    return any(number > REPEATS and word[0].isalpha() for word, number in Counter(words).items())


def _stutters(words: Sequence[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Where the same one to `LOOP` words follow each other more than `REPEATS` times, without the first."""
    spelt = [word.group().casefold() for word in words]
    loops: dict[int, tuple[int, int]] = {}
    # The shortest loop that begins at a word is the last that is found.
    for period in range(min(LOOP, len(spelt) // REPEATS), 0, -1):
        same = 0
        for at in range(len(spelt) - period - 1, -1, -1):
            same = same + 1 if spelt[at] == spelt[at + period] else 0
            if same > period * (REPEATS - 1):
                loops[at] = period, at + period + same
    at = 0
    while at < len(spelt):
        period, end = loops.get(at, (0, at + 1))
        if period and any(word[0].isalpha() for word in spelt[at : at + period]):
            yield words[at + period].start(), words[end - 1].end()
        at = end
