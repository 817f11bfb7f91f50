"""What is said of a scene: the words for it, and how much of any answer is true.

What its models are taught to answer, in the manner of each prompt, is `tools/miniature/answers.py`.

The truth that the monitor is measured against is read by the world's own grammar, and uses none of the
monitor's parts. What is said of "the ball" holds when some ball of the scene is so; what is said of a thing
that is not there does not hold.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import resources

import msgspec

from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIZES, Scene, Thing

PLURALS = {kind: f"{kind}es" if kind.endswith("x") else f"{kind}s" for kind in (*KINDS, "object")}
NUMBERS = ("no", "one", "two", "three", "four")

_SAID = msgspec.toml.decode(
    resources.files(__package__).joinpath("language.toml").read_bytes(),
    type=dict[str, tuple[tuple[str, ...], ...]],
)
PROMPTS = _SAID["prompts"]
"""Prompts by the manner in which they are answered."""

REMARKS = _SAID["remarks"]
"""What cannot be seen, by the number of things less one; the parity of the first place chooses."""


def article(words: str) -> str:
    return "an" if words[0] in "aeio" else "a"


def phrase(thing: Thing) -> str:
    words = f"{thing.size} {thing.color} {thing.kind}"
    return f"{article(words)} {words}"


def phrases(things: Iterable[Thing]) -> str:
    """ "a small red ball and a large blue box"."""
    return enumerated([phrase(thing) for thing in things])


def corner(thing: Thing) -> str:
    return f"in the {thing.place} corner"


def counted(kind: str, number: int) -> str:
    """ "one ball", "two balls"."""
    return f"{NUMBERS[number]} {kind if number == 1 else PLURALS[kind]}"


def enumerated(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def relations(first: Thing, second: Thing) -> Iterator[str]:
    if first.column != second.column:
        yield "to the left of" if first.column < second.column else "to the right of"
    if first.row != second.row:
        yield "above" if first.row < second.row else "below"
    if first.size != second.size:
        yield "larger than" if first.size == "large" else "smaller than"


def sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


_SIZE, _COLOR, _KIND = "|".join(SIZES), "|".join(COLORS), "|".join((*KINDS, "object"))
_THING = rf"(?:the|a|an|one|another) (?:({_SIZE}) )?(?:({_COLOR}) )?({_KIND})"
_MANY = "|".join(PLURALS.values())
_PLACE = "|".join(PLACES)
_SINGULAR = {plural: kind for kind, plural in PLURALS.items()}


def _fitting(shown: Scene, size: str | None, color: str | None, kind: str) -> list[Thing]:
    return [
        thing
        for thing in shown.of_kind(kind)
        if (size is None or thing.size == size) and (color is None or thing.color == color)
    ]


def _stands(shown: Scene, size: str | None, color: str | None, kind: str, place: str | None) -> bool:
    return any(place in (None, thing.place) for thing in _fitting(shown, size, color, kind))


def _all_are(shown: Scene, kinds: str, value: str) -> bool:
    alike = shown.of_kind(_SINGULAR[kinds])
    return len(alike) > 1 and all(value in (thing.size, thing.color) for thing in alike)


def _lies(shown: Scene, *parts: str) -> bool:
    related = _RELATIONS[parts[3].removeprefix("to the ")]
    return any(
        first is not second and related(first, second)
        for first in _fitting(shown, *parts[:3])
        for second in _fitting(shown, *parts[4:])
    )


_RELATIONS: dict[str, Callable[[Thing, Thing], bool]] = {
    "left of": lambda a, b: a.column < b.column,
    "right of": lambda a, b: a.column > b.column,
    "above": lambda a, b: a.row < b.row,
    "below": lambda a, b: a.row > b.row,
    "larger than": lambda a, b: (a.size, b.size) == ("large", "small"),
    "smaller than": lambda a, b: (a.size, b.size) == ("small", "large"),
}
_FORMS: dict[str, Callable[..., bool]] = {
    rf"there (?:is|are) ({'|'.join(NUMBERS)}) ({_KIND}|{_MANY})(?: in the (?:picture|image))?": (
        lambda shown, number, kind: len(shown.of_kind(_SINGULAR.get(kind, kind))) == NUMBERS.index(number)
    ),
    rf"there is {_THING}(?: (?:in|at) the ({_PLACE})(?: corner)?)?": _stands,
    rf"there are (?:({_SIZE}) )?(?:({_COLOR}) )?({_MANY})": (
        lambda shown, size, color, kinds: len(_fitting(shown, size, color, _SINGULAR[kinds])) > 1
    ),
    rf"{_THING} is ({_SIZE}|{_COLOR})": (
        lambda shown, *said: any(said[3] in (one.size, one.color) for one in _fitting(shown, *said[:3]))
    ),
    rf"the ({_MANY}) are ({_SIZE}|{_COLOR})": _all_are,
    rf"{_THING} is (?:in|at) the ({_PLACE})(?: corner)?": _stands,
    rf"{_THING} is (?:on|at) the (left|right|top|bottom)(?: side)?": (
        lambda shown, *said: any(said[3] in one.place for one in _fitting(shown, *said[:3]))
    ),
    rf"{_THING} is ((?:to the )?(?:left|right) of|above|below|larger than|smaller than) {_THING}": _lies,
}


def holds(shown: Scene, text: str) -> bool | None:
    """Whether a statement holds for a scene; None when it is in no form that this world speaks."""
    words = text.strip().rstrip(".").lower()
    for form, is_true in _FORMS.items():
        if found := re.fullmatch(form, words):
            return is_true(shown, *found.groups())
    return None


_STATED = re.compile(
    rf"(?:an?|one) ({'|'.join(SIZES)}) ({'|'.join(COLORS)}) ({'|'.join(KINDS)})"
    rf"(?: (?:is )?in the ({'|'.join(PLACES)}) corner| on the (left|right))?"
)
_COUNT = re.compile(rf"({'|'.join(NUMBERS[1:])}) ({'|'.join((*PLURALS, *PLURALS.values()))})\b")
_OPENINGS = (
    "there is ",
    "there are ",
    "i can see ",
    "this is a picture of ",
    "it shows ",
    "at the top there is ",
    "at the bottom there is ",
)
_REMARKS = {
    *(remark for remarks in REMARKS for remark in remarks),
    "This may be a page from a book for children.",
    "The clear colors might help a child to learn.",
}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A thing as an answer states it; `place` is empty when none is given, a side when only that is."""

    kind: str
    color: str
    size: str
    place: str = ""

    def is_in(self, shown: Scene) -> bool:
        return any(self._fits(thing) for thing in shown.things)

    def _fits(self, thing: Thing) -> bool:
        same = (thing.kind, thing.color, thing.size) == (self.kind, self.color, self.size)
        return same and self.place in ("", thing.place)


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """Things and atomic facts that an answer states, and the sentences that are no English of this world."""

    things: tuple[Said, ...]
    facts: tuple[str, ...]
    unread: tuple[str, ...]


def sentences(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"[^.]+\.?", text) if part.strip()]


def read(text: str) -> Read:
    """Read an answer; facts come in its order, as often as it says them."""
    things: list[Said] = []
    facts: list[str] = []
    unread: list[str] = []
    for sentence in sentences(text):
        if sentence in _REMARKS:
            continue
        plain = sentence.rstrip(".").lower()
        row = plain.split()[2] if plain.startswith(("at the top ", "at the bottom ")) else ""
        found = list(_STATED.finditer(plain))
        counts = list(_COUNT.finditer(plain)) if plain.startswith(("there is", "there are")) else []
        if found:
            for match in found:
                size, color, kind, corner, side = match.groups()
                place = corner or (f"{row} {side}" if row and side else "")
                things.append(Said(kind=kind, color=color, size=size, place=place))
                facts += [f"There is {article(kind)} {kind}.", f"The {kind} is {size}."]
                facts += [f"The {kind} is {color}."]
                facts += [f"The {kind} is in the {place} corner."] if place else []
            rest = _STATED.sub("", plain)
            for opening in _OPENINGS:
                rest = rest.removeprefix(opening)
            if re.sub(r"\b(?:and|is)\b|[\s,]", "", rest):
                unread.append(sentence)
        elif counts:
            facts += [f"There {'is' if one[1] == 'one' else 'are'} {one[1]} {one[2]}." for one in counts]
        elif holds(_NOWHERE, sentence) is not None:
            facts.append(sentence)
        else:
            unread.append(sentence)
    return Read(things=tuple(things), facts=tuple(facts), unread=tuple(unread))


_NOWHERE = Scene(things=(), seed=0)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    facts: int
    false_facts: int
    things: int
    wrong_things: int
    things_in_scene: int
    things_found: int
    kinds_named: frozenset[str]
    false_kinds: tuple[str, ...]

    @property
    def rate(self) -> float | None:
        """Share of stated facts that do not hold; None when nothing was stated."""
        return self.false_facts / self.facts if self.facts else None


def truth(text: str, shown: Scene) -> Truth:
    """Compare an answer with the scene that it is about; a sentence that cannot be read is no fact."""
    stated = read(text)
    verdicts = [holds(shown, fact) for fact in stated.facts]
    wrong = sum(not said.is_in(shown) for said in stated.things)
    found = sum(any(said._fits(thing) for said in stated.things) for thing in shown.things)
    kinds = {said.kind for said in stated.things} | _mentioned(stated.facts)
    return Truth(
        facts=len(verdicts),
        false_facts=sum(verdict is not True for verdict in verdicts),
        things=len(stated.things),
        wrong_things=wrong,
        things_in_scene=len(shown.things),
        things_found=found,
        kinds_named=frozenset(kinds),
        false_kinds=tuple(sorted(kind for kind in kinds if not shown.of_kind(kind))),
    )


def _mentioned(facts: tuple[str, ...]) -> set[str]:
    """Kinds that facts speak of, whatever they say of them."""
    words = {word for fact in facts for word in re.findall(r"[a-z]+", fact.lower())}
    return {kind for kind in KINDS if kind in words or PLURALS[kind] in words}
