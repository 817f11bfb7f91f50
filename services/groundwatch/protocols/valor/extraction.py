"""VALOR's features from what was read of an answer (section 4.1, in the place of an LLM).

What the answer names and does not deny is an object, its colors are (attribute, object) pairs, as often as
the answer counts that very thing; where a thing lies is a positional relation. Sizes are ranked by the words
that compare them, by the numbers of a list, and else in the order of speech, as the paper's prompt has it for
answers that do not say more (table 12).
"""

import bisect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

from groundwatch.events import Claim, ResponseRecorded
from groundwatch.language.lexicon import lexicon
from groundwatch.language.nouns import DIRECTIONS, NEARNESS, Likeness, compare, likenesses, read_relation
from groundwatch.protocols.features import ATTRIBUTE, OBJECT, RANK, RELATION, pair_text
from groundwatch.protocols.valor.scoring import Subset
from groundwatch.reading.graph import Fact, Kind, Reading, Thing
from groundwatch.reading.inflection import is_plural

MOST_ALIKE = 50
"""A count beyond this gives no more features: "hundreds of birds" is not a hundred annotations."""

WORN = ("clothing", "footwear", "accessory", "hat", "bag", "glove", "scarf", "glasses", "jewelry")

NOTIONS = frozenset(
    re.findall(
        r"\w+",
        """activity anything area atmosphere background bottom center centre color day enthusiasm environment
        event everything excitement foreground front game group image item left middle moment nothing number
        object one order overall photo picture plot position right scene sense setting side size something
        sport surrounding surroundings thing time top total variety view""",
    )
)
"""What table 8's prompt leaves out: notions, moods and places in the picture."""

_BE = re.compile(r"(?:is|are) ")
_BY = re.compile(r"\w(?:ed|en) by\b", re.IGNORECASE)
_IN_PICTURE = re.compile(
    r"\b(?:the )?((?:(?:far|top|bottom|upper|lower) )?"
    r"(?:left|right|cent(?:er|re)|middle|top|bottom|background|foreground)(?: side| corner)?)(?: of)?$"
)
_LARGER, _SMALLER = r"larger|bigger|taller|longer|wider|huger", r"smaller|tinier|shorter|narrower"
_COMPARES = re.compile(rf"\b(?:({_LARGER})|{_SMALLER})\b(?: in size)? than\b", re.IGNORECASE)
_SUPERLATIVE = re.compile(
    r"(?<!from )(?<!to )(?<!from the )(?<!to the )"
    r"\b(?:(second|third|fourth|fifth|2nd|3rd|4th|5th)[- ])?(?:(largest|biggest|tallest)|smallest|tiniest)\b",
    re.IGNORECASE,
)
_PLACES = {"": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "fifth": 5, "5th": 5}
_ASCENDING = re.compile(
    r"\b(?:smallest|small|smaller) to (?:the )?(?:largest|large|larger|biggest|big|bigger)\b"
    r"|\b(?:ascending|increasing) (?:order|size)",
    re.IGNORECASE,
)
_NOT = re.compile(r"n['’]t\b|\b(?:not?|never)\b", re.IGNORECASE)
_BEFORE_COMPARISON = re.compile(r"\s(?:(?:is|are)(?:n['’]t)?|looks?|appears?|seems?)\b.*$", re.IGNORECASE)
_NUMBERED = re.compile(r"(?<!\S)(\d{1,3})[.)](?=\s)")
_CLAUSE = re.compile(r"[.!?;:\n]|, | and | but | while ")


def features(response: ResponseRecorded, reading: Reading, subset: Subset) -> tuple[Claim, ...]:
    """The features of an answer; what it says twice is one: features are what there is, not what is said."""
    return tuple(_READERS[subset](reading, response.answer))


def _objects(reading: Reading, _: str) -> Iterator[Claim]:
    return _named(reading.things, OBJECT)


def _named(things: Iterable[Thing], category: str) -> Iterator[Claim]:
    seen = set()
    for thing in things:
        name = "" if thing.denied else _name(thing.name)
        if name and name not in seen:
            seen.add(name)
            yield Claim(
                text=name,
                category=category,
                unit=thing.unit,
                parts=(name,),
                span=thing.span,
                hedged=thing.hedged,
            )


def _pairs(reading: Reading, *, worn: bool) -> Iterator[Claim]:
    """Of a thing in two colors one pair has both, but of several things each color is a pair."""
    colors: dict[tuple[int, int], list[Fact]] = defaultdict(list)
    for fact in reading.facts:
        if fact.kind is Kind.COLOR and not fact.denied:
            colors[fact.thing].append(fact)
    counts = _Counts(reading.facts)
    seen = set()
    for facts in colors.values():
        name = _name(facts[0].subject)
        if not name or _is_a(WORN, name) is not worn or _is_person(name):
            continue
        words = list(dict.fromkeys(_BE.sub("", fact.words, count=1) for fact in facts))
        together = len(words) > 1 and "are" not in facts[0].words.split()[:1]
        for fact, color in zip(facts, [" and ".join(words)] if together else words, strict=False):
            parts = (color, name.removeprefix(f"{color} "))
            if parts in seen:
                continue
            seen.add(parts)
            claim = Claim(
                text=pair_text(*parts),
                category=ATTRIBUTE,
                unit=fact.unit,
                parts=parts,
                span=fact.span,
                hedged=fact.hedged,
            )
            yield from [claim] * counts.of(fact)


class _Counts:
    """How many there are: of the very thing that is counted, else by its name where one number is given."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._by_thing: dict[tuple[int, int], int] = {}
        self._by_name: dict[str, set[int]] = defaultdict(set)
        for fact in facts:
            low, high = (lexicon().number(fact.words) or (0, 0)) if fact.kind is Kind.COUNT else (0, 0)
            if low == high and low and not fact.denied:
                self._by_thing[fact.thing] = min(low, MOST_ALIKE)
                self._by_name[_name(fact.subject)].add(min(low, MOST_ALIKE))

    def of(self, fact: Fact) -> int:
        first = fact.subject.partition(" ")[0]
        low, high = lexicon().number(first) or (0, 0)
        if low == high and low:  # "The two cups" of five.
            return min(low, MOST_ALIKE)
        numbers = self._by_name.get(_name(fact.subject), set())
        many = fact.words.startswith("are ") and len(numbers) == 1
        return self._by_thing.get(fact.thing) or (min(numbers) if many else 1)


def _relations(reading: Reading, _: str) -> Iterator[Claim]:
    """Where things lie, said in an unusual way too: what contradicts an image is unusual."""
    seen = set()
    for fact in sorted((*reading.facts, *reading.doubtful), key=lambda fact: fact.span):
        if fact.kind not in (Kind.RELATION, Kind.QUALITY) or fact.denied or _BY.search(fact.text):
            continue
        text = _placed(fact)
        read = read_relation(text)
        if read is None or read[1] not in DIRECTIONS | NEARNESS - {"with", "along"} or text in seen:
            continue
        if read[1] == "in" and _is_a(WORN, _name(read[2])):
            continue
        seen.add(text)
        yield Claim(
            text=text, category=RELATION, unit=fact.unit, parts=read, span=fact.span, hedged=fact.hedged
        )


def _placed(fact: Fact) -> str:
    """ "The bottles are lined up under the shelves": they are under the shelves."""
    text = _IN_PICTURE.sub(r"the \1 of the image", fact.text.rstrip("."))
    if fact.kind is not Kind.RELATION or text != fact.text.rstrip("."):
        return text
    words = fact.words.split()
    place = next((" ".join(words[at:]) for at in range(len(words)) if _is_place(words[at:])), "")
    start = text.find(f" {fact.words} ")
    if not place or start < 0:
        return text
    be = "are" if words[0] == "are" or (words[0] != "is" and is_plural(fact.subject)) else "is"
    return f"{text[:start]} {be} {place} {text[start + len(fact.words) + 2 :]}"


def _is_place(words: Sequence[str]) -> bool:
    return " ".join(words) in lexicon().prepositions


def _ranked(reading: Reading, answer: str) -> Iterator[Claim]:
    """From large to small: as the words compare, else by the list's numbers, else in the order of speech."""
    number = _item_numbers(answer)
    things = sorted(reading.things, key=lambda thing: (number(thing.span[0]), thing.span))
    ranks = list(_named(things, RANK))
    if _ASCENDING.search(answer):
        ranks.reverse()
    by_name = {claim.text: claim for claim in ranks}
    larger: dict[str, set[str]] = {name: set() for name in by_name}
    """The names that stand before each."""

    def above(name: str) -> set[str]:
        reached: set[str] = set()
        open_ = [name]
        while open_:
            more = larger[open_.pop()] - reached
            reached |= more
            open_ += more
        return reached

    # What is said last holds where two comparisons contradict each other.
    for large, small in reversed(
        [*_superlatives(reading, answer, list(by_name)), *_comparisons(reading, answer)]
    ):
        if large in by_name and small in by_name and large != small and small not in above(large):
            larger[small].add(large)
    left = list(by_name)
    while left:
        largest = next(name for name in left if larger[name].isdisjoint(left))
        left.remove(largest)
        yield by_name[largest]


def _item_numbers(answer: str) -> Callable[[int], int]:
    """Of a character the number of the list's item in which it stands, 0 for what stands in none."""
    lines = ((at + 1, 0) for at, letter in enumerate(answer) if letter == "\n")
    marks = sorted([(0, 0), *lines, *((one.end(), int(one[1])) for one in _NUMBERED.finditer(answer))])
    return lambda at: marks[bisect.bisect_right(marks, at, key=itemgetter(0)) - 1][1]


def _comparisons(reading: Reading, answer: str) -> Iterator[tuple[str, str]]:
    """Pairs of names, the larger first, in the order of speech: by the facts, and where none was read by the
    words around the comparison."""
    relations = [fact for fact in (*reading.facts, *reading.doubtful) if fact.kind is Kind.RELATION]
    for found in _COMPARES.finditer(answer):
        fact = next((one for one in relations if one.span[0] <= found.start() < one.span[1]), None)
        denied = fact.denied if fact else _NOT.search(answer, max(0, found.start() - 12), found.start())
        before, behind = _clause(answer, found.start(), found.end())
        pair = _name(fact.subject if fact else before), _name(fact.object if fact else behind)
        # What is not larger is ranked below.
        yield pair if bool(found[1]) != bool(denied) else (pair[1], pair[0])


def _clause(answer: str, start: int, end: int) -> tuple[str, str]:
    """What stands before "is larger than" and behind it in its clause."""
    begin = max((one.end() for one in _CLAUSE.finditer(answer, max(0, start - 200), start)), default=0)
    stop = next((one.start() for one in _CLAUSE.finditer(answer, end, end + 200)), len(answer))
    return _BEFORE_COMPARISON.sub("", answer[begin:start]), answer[end : min(stop, end + 200)].strip()


def _superlatives(reading: Reading, answer: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """ "The second largest is the car": it stands before all but the largest."""
    largest: dict[int, str] = {}
    smallest: dict[int, str] = {}
    for found in _SUPERLATIVE.finditer(answer):
        name = _superlative(reading, answer, found)
        if name:
            (largest if found[2] else smallest).setdefault(_PLACES[(found[1] or "").casefold()], name)
    top = [largest[place] for place in sorted(largest)]
    end = [smallest[place] for place in sorted(smallest, reverse=True)]
    rest = [name for name in names if name not in (*top, *end)]
    for at, name in enumerate(top):
        yield from ((name, other) for other in (*top[at + 1 :], *rest, *end))
    for at, name in enumerate(end):
        yield from ((other, name) for other in (*rest, *end[:at]))


_IS_BEFORE = re.compile(r"\b(?:is|are)(?: also)? (?:the|one of the)? ?$", re.IGNORECASE)
_IS_BEHIND = re.compile(r"[^.!?\n]{0,60}?\b(?:is|are|being)\b|[ \w]{0,30}:", re.IGNORECASE)


def _superlative(reading: Reading, answer: str, found: re.Match[str]) -> str:
    """Of what "the largest" is told: of what stands before "is the largest", or behind "the largest is"."""
    if _IS_BEFORE.search(answer[max(0, found.start() - 30) : found.start()]):
        first = max(0, found.start() - 200)
        begin = max((one.end() for one in _CLAUSE.finditer(answer, first, found.start())), default=first)
        named = (one for one in reading.things if begin <= one.span[0] and one.span[1] <= found.start())
    elif behind := _IS_BEHIND.match(answer, found.end()):
        named = (one for one in reading.things if one.span[0] >= behind.end())
    else:
        named = (one for one in reading.things if one.span[0] <= found.start() < one.span[1])
    return next((name for one in named if (name := _name(one.name))), "")


def _name(text: str) -> str:
    """A thing's name in the singular, without articles; empty for what is no thing in the picture."""
    name = likenesses().name(_SUPERLATIVE.sub("", text)).whole
    return "" if name.rpartition(" ")[2] in NOTIONS or name.count(" ") > 4 else name


def _is_a(kinds: Iterable[str], name: str) -> bool:
    return any(compare(kind, name) is not Likeness.NONE for kind in kinds)


def _is_person(name: str) -> bool:
    """By our own lexicon: WordNet has persons called bus, speaker and stroller."""
    return any(
        lexicon().is_a(lexicon().concept(words), "person")
        for words in (tuple(name.split()), (name.rpartition(" ")[2],))
    )


_READERS: dict[Subset, Callable[[Reading, str], Iterator[Claim]]] = {
    Subset.OBJECT_EXISTENCE: _objects,
    Subset.ATTRIBUTE_OBJECT: lambda reading, _: _pairs(reading, worn=False),
    Subset.ATTRIBUTE_PEOPLE: lambda reading, _: _pairs(reading, worn=True),
    Subset.RELATION_POSITIONAL: _relations,
    Subset.RELATION_COMPARATIVE: _ranked,
}
