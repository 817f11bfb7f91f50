"""What an answer states about a scene, read by the world's own grammar, and how much of it is true.

This is the truth that the monitor is measured against: it does not use any of the monitor's parts.
"""

import re

import msgspec

from groundwatch.miniature.language import NUMBERS, PLURALS, REMARKS
from groundwatch.miniature.statements import holds
from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIZES, Scene, Thing

_THING = re.compile(
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
        """Whether one thing of the scene has everything that is said, together."""
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
    """The answer's sentences with their full stops."""
    return [part.strip() for part in re.findall(r"[^.]+\.?", text) if part.strip()]


def read(text: str) -> Read:
    """Read an answer; facts come in its order, once each."""
    things: list[Said] = []
    facts: list[str] = []
    unread: list[str] = []
    for sentence in sentences(text):
        if sentence in _REMARKS:
            continue
        plain = sentence.rstrip(".").lower()
        row = plain.split()[2] if plain.startswith(("at the top ", "at the bottom ")) else ""
        found = list(_THING.finditer(plain))
        counts = list(_COUNT.finditer(plain)) if plain.startswith(("there is", "there are")) else []
        if found:
            for match in found:
                size, color, kind, corner, side = match.groups()
                place = corner or (f"{row} {side}" if row and side else "")
                things.append(Said(kind=kind, color=color, size=size, place=place))
                facts += [f"There is {_article(kind)} {kind}.", f"The {kind} is {size}."]
                facts += [f"The {kind} is {color}."]
                facts += [f"The {kind} is in the {place} corner."] if place else []
            rest = _THING.sub("", plain)
            for opening in _OPENINGS:
                rest = rest.removeprefix(opening)
            if re.sub(r"\b(?:and|is)\b|[\s,]", "", rest):
                unread.append(sentence)
        elif counts:
            facts += [_counted(match[1], match[2]) for match in counts]
        elif holds(_NOWHERE, sentence) is not None:
            facts.append(sentence)
        else:
            unread.append(sentence)
    return Read(things=tuple(things), facts=tuple(dict.fromkeys(facts)), unread=tuple(unread))


def _article(word: str) -> str:
    return "an" if word[0] in "aeio" else "a"


def _counted(number: str, kind: str) -> str:
    return f"There {'is' if number == 'one' else 'are'} {number} {kind}."


_NOWHERE = Scene(things=(), seed=0)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer stands to a scene: counts of facts and things."""

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
