"""What is said of a scene: answers in six manners.

The manner of an answer follows from the prompt, and the words from manner and scene alone, so that a model
which sees well has exactly one right answer to learn. Each manner mixes description with remarks that no
image can prove or refute, as real answers do.
"""

from collections import Counter
from itertools import pairwise

from groundwatch.miniature.world import PLACES, Scene, Thing

PLURALS = {
    "ball": "balls",
    "box": "boxes",
    "star": "stars",
    "heart": "hearts",
    "moon": "moons",
    "tree": "trees",
    "house": "houses",
    "boat": "boats",
    "object": "objects",
}
NUMBERS = ("no", "one", "two", "three", "four")

PROMPTS: tuple[tuple[str, ...], ...] = (
    (
        "Describe the image.",
        "Describe the image in detail.",
        "Please describe this image in detail.",
        "Describe all elements of the image clearly, precisely and in detail.",
    ),
    ("What do you see in this picture?", "What can you see here?", "Tell me what you see."),
    ("What is in the image?", "How many objects are there, and what are they?", "What is shown here?"),
    ("Where is everything?", "Describe where the objects are.", "What is where in this picture?"),
    ("Write a short caption.", "Give me one sentence about the image.", "Caption this image."),
    ("What may this picture be for?", "Explain the image to a child.", "What could this be used for?"),
)
"""Prompts by the manner in which they are answered."""

REMARKS = (
    ("It looks calm and simple.", "It may be a page of a picture book."),
    ("Perhaps a child has arranged them.", "They might be part of a game."),
    ("The arrangement seems playful.", "It could be a simple puzzle."),
    ("The picture feels busy but cheerful.", "It might be a poster for a school."),
)
"""What cannot be seen, by the number of things less one; the parity of the first place chooses."""


def article(words: str) -> str:
    """ "a" or "an"."""
    return "an" if words[0] in "aeio" else "a"


def phrase(thing: Thing) -> str:
    """ "a small red ball"."""
    words = f"{thing.size} {thing.color} {thing.kind}"
    return f"{article(words)} {words}"


def corner(thing: Thing) -> str:
    """ "in the top left corner"."""
    return f"in the {thing.place} corner"


def counted(kind: str, number: int) -> str:
    """ "one ball", "two balls"."""
    return f"{NUMBERS[number]} {kind if number == 1 else PLURALS[kind]}"


def enumerated(parts: list[str]) -> str:
    """ "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def mention(thing: Thing, shown: Scene) -> str | None:
    """The shortest definite phrase that only this thing of the scene fits; None when there is none."""
    alike = shown.of_kind(thing.kind)
    if len(alike) == 1:
        return f"the {thing.kind}"
    if sum(other.color == thing.color for other in alike) == 1:
        return f"the {thing.color} {thing.kind}"
    return None


def direction(first: Thing, second: Thing) -> str:
    """How the first lies to the second, sideways where they stand in different columns."""
    if first.column != second.column:
        return "to the left of" if first.column < second.column else "to the right of"
    return "above" if first.row < second.row else "below"


def sentence(words: str) -> str:
    """With a capital and a full stop."""
    return f"{words[0].upper()}{words[1:]}."


def relation(shown: Scene) -> str | None:
    """How the first thing that can be named lies to the last; None with fewer than two."""
    named = [(thing, name) for thing in shown.things if (name := mention(thing, shown))]
    if len(named) < 2:
        return None
    (first, first_name), (last, last_name) = named[0], named[-1]
    return sentence(f"{first_name} is {direction(first, last)} {last_name}")


def comparison(shown: Scene) -> str | None:
    """The first pair of neighbours that can be named and differ in size."""
    named = [(thing, name) for thing in shown.things if (name := mention(thing, shown))]
    for (first, first_name), (second, second_name) in pairwise(named):
        if first.size != second.size:
            than = "larger than" if first.size == "large" else "smaller than"
            return sentence(f"{first_name} is {than} {second_name}")
    return None


def remark(shown: Scene) -> str:
    """A sentence that nothing in the image could refute."""
    return REMARKS[len(shown.things) - 1][PLACES.index(shown.things[0].place) % 2]


def kinds_counted(shown: Scene) -> str:
    """ "two balls and one box", in order of first appearance."""
    counts = Counter(thing.kind for thing in shown.things)
    return enumerated([counted(kind, number) for kind, number in counts.items()])


def answer(shown: Scene, manner: int) -> str:
    """The right answer in one of the six manners of `PROMPTS`."""
    return " ".join(part for part in _MANNERS[manner](shown) if part)


def _in_detail(shown: Scene) -> list[str | None]:
    said: list[str | None] = []
    for at, thing in enumerate(shown.things):
        if at % 2 == 0:
            said.append(sentence(f"there is {phrase(thing)} {corner(thing)}"))
        else:
            said.append(sentence(f"{phrase(thing)} is {corner(thing)}"))
    return [*said, relation(shown), remark(shown)]


def _as_seen(shown: Scene) -> list[str | None]:
    said: list[str | None] = [sentence(f"I can see {enumerated([phrase(thing) for thing in shown.things])}")]
    for thing in shown.things[:2]:
        name = mention(thing, shown)
        said.append(sentence(f"{name} is {corner(thing)}") if name else None)
    return [*said, comparison(shown)]


def _counted(shown: Scene) -> list[str | None]:
    number = len(shown.things)
    be = "is" if number == 1 else "are"
    said: list[str | None] = [sentence(f"there {be} {counted('object', number)} in the picture")]
    first = Counter(thing.kind for thing in shown.things)[shown.things[0].kind]
    said.append(sentence(f"there {'is' if first == 1 else 'are'} {kinds_counted(shown)}"))
    for thing in shown.things:
        name = mention(thing, shown)
        if name == f"the {thing.kind}":
            said.append(sentence(f"{name} is {thing.color}"))
    return [*said, remark(shown)]


def _by_place(shown: Scene) -> list[str | None]:
    said: list[str | None] = []
    for row, where in enumerate(("at the top", "at the bottom")):
        parts = [
            f"{phrase(thing)} on the {('left', 'right')[thing.column]}"
            for thing in shown.things
            if thing.row == row
        ]
        if parts:
            said.append(sentence(f"{where} there is {' and '.join(parts)}"))
    return [*said, relation(shown)]


def _short(shown: Scene) -> list[str | None]:
    return [sentence(f"this is a picture of {enumerated([phrase(thing) for thing in shown.things])}")]


def _explained(shown: Scene) -> list[str | None]:
    return [
        "This may be a page from a book for children.",
        sentence(f"it shows {enumerated([phrase(thing) for thing in shown.things])}"),
        comparison(shown) or relation(shown),
        "The clear colors might help a child to learn.",
    ]


_MANNERS = (_in_detail, _as_seen, _counted, _by_place, _short, _explained)
