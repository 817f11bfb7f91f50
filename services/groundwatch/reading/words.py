"""Question and answer as one row of words, in windows that the encoder can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

Span = tuple[int, int]
"""First and last word, both inside."""

LINE_BREAK = "\n"
PROMPT_WORDS, PROMPT_END = 40, 4_000
"""Words of the prompt that are read, and characters at its end among which they are."""
WINDOW = 300
"""Words of the answer in one window, which ends with a line or sentence; so many more where none ends."""

SHARED = 40
"""Words at most that a window shares with the one before: a pronoun needs what it stands for."""

_OVERRUN = 60
_WORD = re.compile(
    r"\n|[$€£]?\d+(?:[.,:/]\d+)+%?|[$€£]\d+|[A-Za-z]+n['’]t\b|['’](?:s|re|ve|ll|d|m)\b"
    r"|[^\W_]+(?:[-‑][^\W_]+)*|[^\w\s]|_"
)
_ENDS = frozenset({".", "!", "?", LINE_BREAK, "|"})
_MARK = re.compile(r"(?:^|(?<=\s))\(?([A-H])[.):]\s*+|\n", re.IGNORECASE)
"""What begins an option, or ends one: its letter, or the end of a line."""

_CHOICE = re.compile(
    r"\s*+(?:(?:the|my) )?(?:final |correct |best )?(?:answer|option|choice)?(?: is)?:?"
    r"[\s*$({\[]*+([A-H])\)?(?:[.):*$}\]]|\s*(?:\n|$))",
    re.I,
)
_KEYED_CHOICE = re.compile(
    r'"(?:final[_ ])?(?:answer|option|choice)"\s{0,9}+:\s{0,9}+"\(?([A-H])(?:[.):]|")', re.I
)
_REPLIES = {"true": "True", "correct": "Correct", "false": "False"}
_REPLIES |= dict.fromkeys(("yes", "yeah", "yep", "yup"), "Yes") | dict.fromkeys(("no", "nope"), "No")
_MARKUP = re.compile(r"[*`]{1,3}|(?<!\w)_+|_+(?!\w)")


class Word(NamedTuple):
    """A word and where it stands: `[start, end)` of the prompt or of the answer."""

    start: int
    end: int
    text: str


class Passage:
    """The end of a prompt and a window of an answer, in words; the answer's begin at `split`.

    From `fresh` on they are in no window before: what stands before it is there for what refers to it.

    The answer is a document's text: as long as the answer, blank where nothing is read. Of the options that
    a prompt offers, only the one that the answer chose is among the words.
    """

    __slots__ = ("answer", "fresh", "prompt", "split", "words")

    def __init__(self, prompt: str, answer: str, words: list[Word], shared: int = 0) -> None:
        asked = _prompt_words(prompt, answer.strip())
        self.prompt = prompt
        self.answer = answer
        self.words = asked + words
        self.split = len(asked)
        self.fresh = self.split + shared

    def is_fresh(self, at: int) -> bool:
        """Whether what begins at this character of the answer is in no window before."""
        return self.fresh == self.split or at >= self.words[self.fresh].start

    def text(self, span: Span) -> str:
        """What stands there, in one line and without marks of Markdown."""
        source = self.prompt if span[1] < self.split else self.answer
        text = _MARKUP.sub("", source[self.words[span[0]].start : self.words[span[1]].end])
        return " ".join(text.replace("_", " ").split())

    def characters(self, span: Span) -> tuple[int, int]:
        """The span in the answer's characters; nothing at its start for what stands in the prompt."""
        if span[1] < self.split:
            return (0, 0)
        return (self.words[max(span[0], self.split)].start, self.words[span[1]].end)

    def span(self, start: int, end: int, *, prompt: bool = False) -> Span | None:
        """The words that touch the characters `[start, end)` of the answer or of the prompt."""
        where = range(self.split) if prompt else range(self.split, len(self.words))
        touched = [at for at in where if self.words[at].start < end and self.words[at].end > start]
        return (touched[0], touched[-1]) if touched else None

    def sentences(self) -> list[Span]:
        """Sentences, lines and cells of the answer."""
        spans, first = [], self.split
        for at in range(self.split, len(self.words)):
            if self.words[at].text in _ENDS or at + 1 == len(self.words):
                spans.append((first, at))
                first = at + 1
        return spans


def passages(prompt: str, answer: str) -> list[Passage]:
    """The windows of an answer, in order; of a long prompt the end is read."""
    prompt = " " * (len(prompt) - PROMPT_END) + prompt[-PROMPT_END:]
    words = _as_sentence(split_words(answer), prompt)
    return [Passage(prompt, answer, words[back:end], start - back) for back, start, end in _windows(words)]


def _as_sentence(words: list[Word], prompt: str) -> list[Word]:
    """A word alone that affirms, denies or chooses, as the reader was taught it: "YES" is "Yes."."""
    spoken = [word for word in words if word.text.isalnum()]
    if len(spoken) != 1:
        return words
    (start, end, text), *_ = spoken
    if text.lower() in _REPLIES:
        return [Word(start, end, said) for said in (_REPLIES[text.lower()], ".")]
    if re.fullmatch("[A-H]", text, re.I) and _offers(prompt):
        return [Word(start, end, said) for said in ("(", text.upper(), ")")]
    return words


def split_words(text: str) -> list[Word]:
    """Words and marks; line breaks in a row are one, and none stands at either end."""
    words: list[Word] = []
    for match in _WORD.finditer(text):
        if match[0] != LINE_BREAK or (words and words[-1].text != LINE_BREAK):
            words.append(Word(match.start(), match.end(), match[0]))
    while words and words[-1].text == LINE_BREAK:
        words.pop()
    return words


def _windows(words: list[Word]) -> Iterator[tuple[int, int, int]]:
    """Where each window begins, with the last sentences before it, where it goes on, and where it ends."""
    back = start = end = 0
    ends = [0]
    for at, word in enumerate(words):
        if (full := at - back >= WINDOW and end > start) or at - back >= WINDOW + _OVERRUN:
            stop = end if full else at
            yield back, start, stop
            start = stop
            back = next((known for known in ends if known >= start - SHARED), start)
        if word.text in _ENDS:
            end = at + 1
            ends = [known for known in ends if known >= end - SHARED] + [end]
    if start < len(words):
        yield back, start, len(words)


def chooses_nothing(prompt: str, reply: str) -> bool:
    """Whether a reply is the letter of an option that the prompt does not offer, nor asks for a letter."""
    choice = _CHOICE.match(reply)
    if choice is None or any(map(str.isalnum, reply[choice.end() :])):
        return False
    return not _offers(prompt) and re.search(r"\bletters?\b", prompt, re.I) is None


def _offers(prompt: str) -> list[tuple[str, int, int, int]]:
    options = _options(prompt)
    letters = "".join(letter for letter, *_ in options)
    return options if len(options) > 1 and "ABCDEFGH".startswith(letters) else []


def _prompt_words(prompt: str, reply: str) -> list[Word]:
    choice = _CHOICE.match(reply) or (_KEYED_CHOICE.search(reply) if reply.startswith(("{", "`")) else None)
    if choice and (options := _offers(prompt)):
        # What stands behind them says how to answer, or nothing.
        prompt = prompt[: options[-1][3]]
        for letter, start, text, end in options:
            gap = text if letter == choice[1].upper() else end
            prompt = prompt[:start] + " " * (gap - start) + prompt[gap:]
        asked = len(prompt[: options[0][1]].rstrip())
        prompt = prompt[:asked] + prompt[asked:].replace(LINE_BREAK, " ")
    return split_words(prompt)[-PROMPT_WORDS:]


def _options(prompt: str) -> list[tuple[str, int, int, int]]:
    """Each option's letter, and where it begins, its text begins and its text ends."""
    options: list[tuple[str, int, int, int]] = []
    marks = list(_MARK.finditer(prompt))
    for at, mark in enumerate(marks):
        if mark[1] is None or mark.end() == len(prompt) or (options and mark.start() < options[-1][3]):
            continue
        ends = (
            cut.start()
            for cut in map(marks.__getitem__, range(at + 1, len(marks)))
            if cut.start() > mark.end() and (cut[1] is None or cut[0][-1].isspace())
        )
        text = prompt[mark.end() : next(ends, len(prompt))].rstrip()
        options.append((mark[1].upper(), mark.start(), mark.end(), mark.end() + len(text)))
    return options
