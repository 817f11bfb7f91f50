"""Answers that somebody looks for: what is asked, in which order they come, and what a list shows of each.

Every order ends in the outcome's place, so that no two are equal: who has one page asks for what comes behind
its last answer, and gets it whatever was recorded meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from groundwatch.errors import UNDECODED, UsageError
from groundwatch.times import read_moment

Order = Literal["newest", "worst", "uncertain"]
Verdict = Literal["refuted", "undecided", "supported"]
Outcome = Literal["scored", "unscored", "declined"]

ORDERS: tuple[Order, ...] = get_args(Order)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

MOST = 50
"""Answers of a page."""

LONGEST = 512
"""Characters of a filter."""

MANY_WORDS = 8

FACTS, FACT_LENGTH, SENTENCE_LENGTH = 3, 160, 300
"""How much of an answer a list shows: refuted facts, and characters."""

NO_SCORE, NO_DOUBT = -2.0, -1.0
"""Where an outcome without a score, or without a claim that has a probability, stands."""

RECORD, FIELD = "\x1e", "\x1f"
"""Around each, and between the two parts of each, tag and each pair of category and verdict."""

RANKS: dict[Order, tuple[str, ...]] = {
    "newest": ("moment", "stream", "sequence"),
    "worst": ("refuted", "badness", "moment", "stream", "sequence"),
    "uncertain": ("doubt", "moment", "stream", "sequence"),
}
"""Columns by which each order goes, the highest first."""

FLOATS = ("badness", "doubt")
"""Of these columns, those whose numbers are not whole."""

_WORDS = re.compile(r'"([^"]+)"|(\S+)')

Rank = tuple[float, ...]


class AnswerQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked; empty matches everything. Times in seconds since the epoch, `until` excluded.

    `words` are in lower case, each of which must stand somewhere in the answer's sub-sentences or facts.
    `category` and `verdict` together mean a fact of this category with this verdict; `tag` is `name=value`.
    Case matters in `tenant`, `run`, `id` and `tag` alone.
    """

    words: tuple[str, ...] = ()
    model: str = ""
    version: str = ""
    tenant: str = ""
    protocol: str = ""
    category: str = ""
    verdict: Verdict | Literal[""] = ""
    outcome: Outcome | Literal[""] = ""
    reason: str = ""
    tag: str = ""
    run: str = ""
    id: str = ""
    since: float | None = None
    until: float | None = None
    order: Order = "newest"

    def conditions(self, after: Rank | None = None, back: bool = False) -> tuple[list[str], list[Any]]:
        """Of names, tag and time, in SQL, with their parameters; behind a rank where it is given, or before
        it when one goes `back`."""
        found: list[str] = []
        values: list[Any] = []

        def want(condition: str, *parameters: Any) -> None:
            found.append(condition)
            values.extend(parameters)

        for name in ("tenant", "run", "id"):
            if value := getattr(self, name):
                want(f"{name} = ?", value)
        for name in ("model", "version", "protocol", "outcome", "reason"):
            if value := getattr(self, name):
                want(f"lower({name}) = lower(?)", value)
        if self.tag:
            name, _, value = self.tag.partition("=")
            want("instr(tags, ?) > 0", f"{RECORD}{name}{FIELD}{value}{RECORD}")
        if self.since is not None:
            want("moment >= ?", round(self.since * 1e6))
        if self.until is not None:
            want("moment < ?", round(self.until * 1e6))
        if after is not None:
            condition, behind_it = _behind(RANKS[self.order], after, ">" if back else "<")
            want(condition, *behind_it)
        return found, values


def _behind(columns: Sequence[str], rank: Rank, sign: str) -> tuple[str, list[Any]]:
    """Lower than this rank, or higher, column by column."""
    condition, values = f"{columns[-1]} {sign} ?", [rank[-1]]
    for column, value in zip(columns[-2::-1], rank[-2::-1], strict=True):
        condition = f"({column} {sign} ? OR ({column} = ? AND {condition}))"
        values = [value, value, *values]
    return condition, values


class HitFact(msgspec.Struct, frozen=True):
    """A refuted fact of an answer in a list; `unit` as in `events.Claim`."""

    text: str
    category: str
    unit: int = 0


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome in a list. `moment` is when its response was recorded, or else it was scored, in µs since
    the epoch; `stream` and `sequence` are its place.

    `sentence` is the sub-sentence of the first of `facts`, which are the first refuted ones; of an answer
    without any it is the first descriptive one.
    """

    id: str
    tenant: str
    run: str
    model: str
    version: str
    protocol: str
    key: str
    outcome: str
    reason: str
    moment: int
    stream: int
    sequence: int
    score: float | None
    refuted: int
    supported: int
    undecided: int
    badness: float
    doubt: float
    sentence: str
    facts: tuple[HitFact, ...]
    image: str

    def rank(self, order: Order) -> Rank:
        return tuple(getattr(self, name) for name in RANKS[order])

    @property
    def place(self) -> tuple[int, int]:
        return self.stream, self.sequence

    @property
    def recorded_at(self) -> float:
        return self.moment / 1e6

    @property
    def doubtful(self) -> float | None:
        """How far the least certain claim's probability is from one half; None without any."""
        return -self.doubt if self.doubt > NO_DOUBT else None


class Found(msgspec.Struct, frozen=True):
    """What a search gave, in order. Where not everything was looked through, `searched_to` is the moment, in
    seconds since the epoch, down to which it was."""

    hits: list[Hit]
    searched_to: float | None = None


class Facets(msgspec.Struct, frozen=True):
    """How many outcomes a search means: in all, by outcome and reason, and by each value of some `names`, the
    most frequent first. Of categories, which are not counted, the number is 0."""

    total: int
    reasons: list[tuple[str, str, int]]
    names: dict[str, dict[str, int]]


class WrongFilter(UsageError):
    """A filter, the order or the cursor is wrong: `field`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class TooSlow(UsageError):
    """A search that takes too long: it is to be narrowed."""


def read_query(values: Mapping[str, str], now: float) -> AnswerQuery:
    """What an address asks for: `q` are the words. Raises `WrongFilter`."""
    texts = {
        name: values.get(name, "").strip()
        for name in ("q", *AnswerQuery.__struct_fields__)
        if name != "words"
    }
    for name, text in texts.items():
        if len(text) > LONGEST:
            raise WrongFilter(name, f"at most {LONGEST} characters are taken")
    words = tuple(dict.fromkeys((one[0] or one[1]).lower() for one in _WORDS.findall(texts.pop("q"))))
    if len(words) > MANY_WORDS:
        raise WrongFilter("q", f"at most {MANY_WORDS} words are looked for")
    texts["order"] = texts["order"] or "newest"
    for name, names in (("order", ORDERS), ("verdict", VERDICTS), ("outcome", OUTCOMES)):
        if texts[name] and texts[name] not in names:
            raise WrongFilter(name, f"write one of {', '.join(names)}")
    if texts["tag"] and not texts["tag"].partition("=")[0]:
        raise WrongFilter("tag", "write name=value")
    times = {name: _moment(texts.pop(name), name, now) for name in ("since", "until")}
    return msgspec.convert({**texts, **times, "words": words}, AnswerQuery)


def _moment(text: str, name: str, now: float) -> float | None:
    try:
        return read_moment(text, name, now) if text else None
    except UsageError as error:
        raise WrongFilter(name, str(error).removeprefix(f"{name} ")) from error


def write_cursor(order: Order, rank: Rank) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((order, rank))).decode().rstrip("=")


def read_cursor(text: str, order: Order) -> Rank | None:
    """The rank in a cursor of this order, None for none. Raises `WrongFilter`."""
    if not text:
        return None
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found, rank = msgspec.msgpack.decode(packed, type=tuple[Order, tuple[int | float, ...]])
    except (*UNDECODED, binascii.Error, ValueError) as error:
        raise WrongFilter("cursor", "it is not one that was given here") from error
    if found != order or len(rank) != len(RANKS[order]):
        raise WrongFilter("cursor", "it belongs to another order")
    for name, value in zip(RANKS[order], rank, strict=True):
        # A sequence as a float would not be exact, and columns have 64 bits.
        whole = isinstance(value, int) and -(2**63) <= value < 2**63
        if not whole and (name not in FLOATS or not math.isfinite(value)):
            raise WrongFilter("cursor", "it is not one that was given here")
    return rank
