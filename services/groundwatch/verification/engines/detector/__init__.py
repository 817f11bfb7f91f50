"""Verification by an open-vocabulary detector on Triton, without an LLM, as OVFact and UniHD let one check.

It decides what boxes show: whether things are there, how many, where, and of what color. All else stays
undecided, with the reason: that is for the next judge of a cascade. The boxes are the verdict's evidence.

Every atom of the statement is decided by itself. One that is refuted refutes the statement, one that boxes do
not tell of leaves it open; a denial is the other way round. What is said of "the ball" holds when it holds of
some ball that was detected, of "the balls" when it does of all.
"""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import combinations, product
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from PIL import Image as Pixels

from groundwatch.errors import Unscorable
from groundwatch.events import Box, ClaimsExtracted, Decision, Judge, Usage, Verdict
from groundwatch.image_files import READERS
from groundwatch.keys import digest
from groundwatch.language.lexicon import DETERMINERS, Attribute, lexicon
from groundwatch.language.nouns import nouns
from groundwatch.language.statements import (
    Atom,
    Exists,
    Has,
    Number,
    Relates,
    Statement,
    about,
    statement,
)
from groundwatch.language.tokens import plain_words
from groundwatch.models.engines import LoadImage
from groundwatch.models.replies import Detection, Image
from groundwatch.models.settings import DetectorSettings
from groundwatch.orientation import upright
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import ServedEngine

if TYPE_CHECKING:
    from groundwatch.models.triton import TritonModels

LARGEST = 1024
"""Pixels of the longer side at which colors are looked at."""

SIDE = 24
"""A crop is sampled on a grid of so many places to a side."""

INNER = 0.6
"""The share of a box's width and height in its middle whose pixels count: its corners are mostly no part."""

AROUND = 0.15
"""So far beyond the box, in shares of its width and height, lies what is around it."""

FILLED = 0.25
"""The least share of the inner part that must not have the color around the box."""

DOMINANT = 0.6
"""The least share of that which has one color."""

COLORLESS, PALE, DARK = 0.002, 39, 50
"""An image is gray with so small a share of pixels of so much saturation and value (HSV, up to 255)."""


class _Color(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    hue: tuple[float, float] = (0.0, 360.0)
    saturation: tuple[float, float] = (0.0, 1.0)
    value: tuple[float, float] = (0.0, 1.0)

    def holds(self, hue: float, saturation: float, value: float) -> bool:
        first, last = self.hue
        within = first <= hue <= last if first <= last else hue >= first or hue <= last
        low, high = self.saturation
        return within and low <= saturation <= high and self.value[0] <= value <= self.value[1]


class Palette:
    """Names of pixels. `digest` is of all that decides them."""

    def __init__(self, data: bytes) -> None:
        self.digest = digest(
            data.decode(), repr((SIDE, INNER, AROUND, FILLED, DOMINANT, COLORLESS, PALE, DARK))
        )[:12]
        self._colors = msgspec.toml.decode(data, type=dict[str, list[_Color]])["colors"]
        self.name = cache(self._name)

    def _name(self, pixel: tuple[int, int, int]) -> str:
        """The name of a pixel in HSV, each part from 0 to 255; empty for one that has none."""
        hue, saturation, value = pixel[0] * 360 / 255, pixel[1] / 255, pixel[2] / 255
        return next((one.name for one in self._colors if one.holds(hue, saturation, value)), "")


@cache
def palette() -> Palette:
    return Palette(resources.files(__package__ or "").joinpath("colors.toml").read_bytes())


class Photograph:
    """An image as colors are read off it: upright, and no larger than they need."""

    def __init__(self, data: bytes) -> None:
        """Raises `Unscorable` for what cannot be decoded."""
        try:
            with Pixels.open(io.BytesIO(data), formats=READERS) as opened:
                # This first: a photograph of 40 megapixels is decoded at a part of its size where it can be.
                opened.thumbnail((LARGEST, LARGEST), Pixels.Resampling.NEAREST)
                image = upright(opened).convert("RGB").convert("HSV")
        except Exception as error:
            # Pillow's decoders raise whatever their format's parser raised.
            raise Unscorable("unreadable_image", f"the image cannot be decoded: {error}") from error
        self._image = image
        _, saturation, value = image.split()
        # Of what is not dark: there the least noise is a color.
        counts = saturation.histogram(value.point(lambda one: 255 * (one > DARK)))
        self.gray = sum(counts[PALE:]) <= COLORLESS * image.width * image.height

    def color(self, box: Box) -> tuple[str, str]:
        """The color of what is in the box, empty where none dominates, and the color around it."""
        wide, high = box.x1 - box.x0, box.y1 - box.y0
        outer = (
            box.x0 - AROUND * wide,
            box.y0 - AROUND * high,
            box.x1 + AROUND * wide,
            box.y1 + AROUND * high,
        )
        edge = [
            pixel
            for at, pixel in enumerate(self._pixels(*(min(1.0, max(0.0, one)) for one in outer)))
            if not {at % SIDE, at // SIDE}.isdisjoint({0, SIDE - 1})
        ]
        around = _dominant(map(palette().name, edge))
        inset = (1 - INNER) / 2
        inside = self._pixels(
            box.x0 + inset * wide, box.y0 + inset * high, box.x1 - inset * wide, box.y1 - inset * high
        )
        left = [name for name in map(palette().name, inside) if name != around]
        return (_dominant(left) if len(left) >= FILLED * SIDE * SIDE else ""), around

    def _pixels(self, x0: float, y0: float, x1: float, y1: float) -> Sequence[tuple[int, int, int]]:
        width, height = self._image.size
        place = (x0 * width, y0 * height, x1 * width, y1 * height)
        sample = self._image.resize((SIDE, SIDE), Pixels.Resampling.NEAREST, box=place)
        data = sample.tobytes()
        return list(zip(data[::3], data[1::3], data[2::3], strict=True))


def _dominant(names: Iterator[str] | Sequence[str]) -> str:
    counts = Counter(names)
    ((name, number),) = counts.most_common(1) or [("", 0)]
    return name if number >= DOMINANT * counts.total() else ""


SURE = 0.98
"""The probability of what boxes show plainly, such as which of two centers is further left."""

EVEN = 0.5

NOTHING = 0.01
"""The score of what was not detected: a detector leaves out what is below its least score."""

MOST = 20
"""More things than these are not counted."""

MOST_BOXES = 20
"""So many boxes at most stand in a verdict."""

OBJECTS, ANY = frozenset({"object", "item", "thing", "something"}), frozenset({"a", "an", "something"})
"""ANY of these is there where anything is; boxes tell whether there are OBJECTS, and not how many."""

WORDS = 5
"""A name of more words is none: something was misread."""


class Sight(NamedTuple):
    """Something detected: where, and the probability that it is what its label says."""

    box: Box
    chance: float


class Ruling(NamedTuple):
    """A decision, the probability that it rests on where there is one, and why."""

    decision: Decision
    chance: float | None = None
    why: str = ""
    boxes: tuple[Box, ...] = ()

    def negated(self) -> Ruling:
        opposite = {Decision.SUPPORTED: Decision.REFUTED, Decision.REFUTED: Decision.SUPPORTED}
        chance = None if self.chance is None else 1 - self.chance
        return self._replace(decision=opposite.get(self.decision, self.decision), chance=chance)

    def verdict(self) -> Verdict:
        boxes = tuple(dict.fromkeys(self.boxes))[:MOST_BOXES]
        return Verdict(decision=self.decision, probability=self.chance, evidence=self.why, boxes=boxes)


def left_open(why: str, *boxes: Box) -> Ruling:
    return Ruling(Decision.UNDECIDED, None, f"undecided: {why}", boxes)


def all_of(rulings: Sequence[Ruling]) -> Ruling:
    """Whether all of it holds: as likely as the least likely part, for the parts lean on the same boxes."""
    refuted = [one for one in rulings if one.decision is Decision.REFUTED]
    if refuted:
        return min(refuted, key=lambda one: one.chance or 0.0)
    kept = [one for one in rulings if one.decision is Decision.UNDECIDED] or list(rulings)
    chances = [one.chance for one in kept if one.chance is not None]
    whys = dict.fromkeys(one.why for one in kept if one.why)
    boxes = tuple(box for one in rulings for box in one.boxes)
    chance = min(chances) if len(chances) == len(kept) else None
    return Ruling(kept[0].decision, chance, "; ".join(whys), boxes)


def counts(chances: Iterable[float]) -> list[float]:
    """The probability of each number, from 0, of independent things that are there with these chances."""
    found = [1.0]
    for chance in chances:
        found = [a * (1 - chance) + b * chance for a, b in zip([*found, 0.0], [0.0, *found], strict=True)]
    return found


Intervals = tuple[tuple[float, float], ...]


class _Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    x: Intervals = ()
    y: Intervals = ()


class _Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    margin: float
    others: frozenset[str]
    shapeless: frozenset[str]
    bodies: frozenset[str]
    words: dict[str, _Place]
    digest: str = ""


@cache
def places() -> _Places:
    data = resources.files(__package__ or "").joinpath("places.toml").read_bytes()
    read = msgspec.toml.decode(data, type=_Places)
    return msgspec.structs.replace(read, digest=digest(data.decode())[:12])


def within(value: float, intervals: Intervals) -> float:
    """The probability that a coordinate from 0 to 1 lies in one of the intervals. Their ends at the image's
    own edge are no borders."""
    if not intervals:
        return SURE
    depth = max(
        min(value - low if low > 0 else 1.0, high - value if high < 1 else 1.0) for low, high in intervals
    )
    return _by_margin(depth, places().margin)


def _by_margin(depth: float, margin: float) -> float:
    return SURE if depth >= margin else 1 - SURE if depth <= -margin else EVEN


_ORDERED = {"left": (0, 1.0), "right": (0, -1.0), "above": (1, 1.0), "under": (1, -1.0)}
"""Prepositions that say on which side of another thing one lies: the axis, and the sign of the difference."""

_PLACED = frozenset({"in", "on", "at", "to", *_ORDERED})
"""Those before a place in the image, such as "on the left"."""

ColorOf = Callable[[Box], tuple[str, str]]
"""The color of what is in a box and the color around it, empty where none dominates."""


def names(read: Statement, attributes: Collection[str] = ()) -> frozenset[str]:
    """What a detector has to be asked for, so that the statement can be decided.

    `attributes`: kinds of property that are asked for together with the thing.
    """
    atoms = (*read.asserted, *read.given)
    concepts = {about(one) for one in atoms} | {one.object for one in atoms if isinstance(one, Relates)}
    # Whatever is there is an object.
    anything = () if OBJECTS.isdisjoint(concepts) else ("object",)
    return frozenset((*filter(is_thing, concepts), *phrases(read.asserted, attributes).values(), *anything))


def phrases(asserted: Iterable[Atom], attributes: Collection[str]) -> dict[str, str]:
    """ "small ball" for a ball of which nothing but such properties and colors is said, by its name."""
    values: dict[str, list[str]] = {}
    for atom in sorted(asserted, key=repr):
        if isinstance(atom, Has) and atom.attribute.kind != "color" and is_thing(atom.concept):
            known = atom.attribute.kind in attributes
            values.setdefault(atom.concept, []).append(atom.attribute.value if known else "")
    return {concept: " ".join([*said, concept]) for concept, said in values.items() if all(said)}


def is_thing(concept: str) -> bool:
    """Whether a box can be drawn around it: no "kitchen", which is all of the image, no "side", no "it"."""
    words = lexicon()
    before, _, head = concept.rpartition(" ")
    # A verb at the end is a sign that the sentence was misread.
    misread = concept.count(" ") >= WORDS or (before and head not in words.known and words.verb(head))
    shapeless = concept in words.nouns.settings or concept in places().shapeless
    return not (misread or shapeless or words.is_vague(concept) or not concept)


@cache
def has_body(concept: str) -> bool:
    """Whether it is something to be seen, so that where it is not seen it is not there: no "celebration"."""
    several = {concept, concept.rpartition(" ")[2]}
    bodies = places().bodies
    if not several.isdisjoint(lexicon().known | bodies):
        return True
    return any(nouns().steps(name, body) for name in several for body in bodies)


class Boxes:
    """Decides statements from what was detected in all images of a response."""

    def __init__(
        self,
        seen: Mapping[str, Sequence[Sight]],
        settings: DetectorSettings,
        color_of: ColorOf,
        *,
        images: int = 1,
    ) -> None:
        """`seen` has what was detected by the names that were asked for: a name without any is absent."""
        self._seen = seen
        self._settings = settings
        self._color_of = color_of
        self._images = images
        self._words = lexicon()

    def decide(self, text: str) -> Verdict:
        read = statement(text)
        asserted = read.asserted
        if read.negated:
            # "There are no balls" denies one ball, too.
            asserted = frozenset(one for one in asserted if not _is_plural(one))
        if not asserted:
            return left_open("not understood").verdict()
        if read.negated and len({about(one) for one in asserted}) > 1:
            return left_open("a denial of several things").verdict()
        attributes = self._settings.attributes
        question = _question(text, asserted, read.given, attributes)
        # "At the top" needs no box of a top.
        places_only = question.regions - {about(one) for one in asserted}
        if unknown := names(read, attributes) - self._seen.keys() - places_only:
            return left_open(f"the detector takes no name like '{min(unknown)}'").verdict()
        said = all_of([self._atom(one, question) for one in sorted(asserted, key=repr)])
        needed = sorted({one.concept for one in read.given if isinstance(one, Exists)})
        given = [
            self._exists(one, self._seen[one], one)
            for one in needed
            # What the lexicon does not know may be no thing at all.
            if one in self._words.known and is_thing(one) and one not in question.regions
        ]
        return all_of([*given, said.negated() if read.negated else said]).verdict()

    def _atom(self, atom: Atom, question: _Question) -> Ruling:
        ruling = self._decided(atom, question)
        if ruling.decision is Decision.REFUTED:
            concepts = {about(atom), atom.object if isinstance(atom, Relates) else about(atom)}
            for concept in sorted(filter(is_thing, concepts)):
                if not self._seen.get(concept) and not has_body(concept):
                    return left_open(f"'{concept}' may be nothing that a box is drawn around")
        return ruling

    def _decided(self, atom: Atom, question: _Question) -> Ruling:
        concept = about(atom)
        several = isinstance(atom, Exists) and concept in question.several
        if concept in OBJECTS and (several or _is_plural(atom)):
            return self._several_things()
        if isinstance(atom, Exists) and concept in OBJECTS and not ANY.isdisjoint(plain_words(question.text)):
            return self._anything()
        if not is_thing(concept):
            return left_open(f"no box is drawn around '{concept}'")
        if isinstance(atom, Relates):
            return self._relation(atom, question)
        if isinstance(atom, Number):
            return self._number(atom, question)
        color = question.colors.get(concept)
        name = question.phrases.get(concept, concept)
        if isinstance(atom, Has):
            if color == atom.attribute:
                if concept in question.plural:
                    return self._all_are(concept, atom.attribute)
            elif name == concept or concept in question.plural:
                return left_open(f"boxes do not tell whether '{concept}' is {atom.attribute.value}")
        what = f"{color.value} {name}" if color else name
        return self._exists(concept, self._fitting(concept, question), what)

    def _anything(self) -> Ruling:
        """Whatever is seen is an object; without any, something that nobody asked for may be there."""
        ruling = self._best([one for sights in self._seen.values() for one in sights], "something")
        return ruling if ruling.decision is Decision.SUPPORTED else left_open("nothing that is named is seen")

    def _several_things(self) -> Ruling:
        """Two boxes apart from each other, whatever they are of, are several objects."""
        sights = [one for several in self._seen.values() for one in several]
        pairs = (pair for pair in combinations(sights, 2) if _are_apart(*(one.box for one in pair)))
        pair = max(pairs, key=lambda pair: min(one.chance for one in pair), default=())
        ruling = self._ruled(min((one.chance for one in pair), default=0.0), "several things", pair)
        return (
            ruling
            if ruling.decision is Decision.SUPPORTED
            else left_open("nothing else that is named is seen")
        )

    def _exists(self, concept: str, sights: Sequence[Sight], what: str) -> Ruling:
        """Parts of things and what has no border ("hand", "road") may be there though no box is."""
        ruling = self._best(sights, what)
        words = self._words
        spread = concept in words.nouns.places and not words.is_a(concept, "building")
        if ruling.decision is Decision.REFUTED and not sights and (spread or concept in words.parts):
            return left_open(f"detectors overlook '{concept}'")
        return ruling

    def _best(self, sights: Sequence[Sight], what: str) -> Ruling:
        """Whether one of them is there: as likely as the likeliest."""
        best = max(sights, key=lambda one: one.chance, default=None)
        chance = best.chance if best else self._settings.probability(NOTHING)
        shown = [best] if best and chance >= self._settings.lower else sights
        return self._ruled(chance, what, shown)

    def _all_are(self, concept: str, color: Attribute) -> Ruling:
        """Of several: all have the color, and there are two at least."""
        chances, mixed = [], 1.0
        sights = [one for one in self._seen[concept] if one.chance >= self._settings.lower]
        for one in sights:
            share = self._is_color(one, color)
            chances.append(one.chance * share)
            mixed *= 1 - one.chance * (1 - share)
        return self._ruled(mixed * (1 - sum(counts(chances)[:2])), f"all {concept} {color.value}", sights)

    def _number(self, atom: Number, question: _Question) -> Ruling:
        counted = [one for one in self._fitting(atom.concept, question) if one.chance >= self._settings.lower]
        odds = counts(one.chance for one in counted)
        likely = max(range(len(odds)), key=odds.__getitem__)
        what = f"{likely} {atom.concept}"
        more = 0.0 if atom.high is None else sum(odds[atom.high + 1 :])
        if self._images > 1:
            what = f"{what} in several images"
        elif likely <= MOST and (atom.exact or more < self._settings.lower):
            return self._ruled(max(0.0, 1 - sum(odds[: atom.low]) - more), what, counted)
        return left_open(f"{what} tell no number", *(one.box for one in counted))

    def _relation(self, atom: Relates, question: _Question) -> Ruling:
        what = " ".join(filter(None, (atom.subject, atom.verb, atom.preposition, atom.object)))
        unseen = left_open(f"boxes do not tell '{what}'")
        if atom.verb or atom.preposition not in _PLACED or atom.subject in question.several:
            return unseen
        if self._words.is_vague(atom.object) or atom.object in question.regions:
            return self._placed(atom.subject, question)
        if atom.preposition not in _ORDERED or not is_thing(atom.object):
            return unseen
        axis, sign = _ORDERED[atom.preposition]
        best, pair = self._settings.probability(NOTHING), list[Sight]()
        for one, other in product(*(self._fitting(name, question) for name in (atom.subject, atom.object))):
            if one.box.image == other.box.image and _center(one.box) != _center(other.box):
                apart = sign * (_center(other.box)[axis] - _center(one.box)[axis])
                chance = min(one.chance, other.chance, _by_margin(apart, self._settings.margin))
                if not pair or chance > best:
                    best, pair = chance, [one, other]
        return self._ruled(best, what, pair)

    def _placed(self, concept: str, question: _Question) -> Ruling:
        """Where in the image: by all words of the statement that name a place, if it is of nothing else."""
        known = places()
        tokens = plain_words(question.text)
        words = [token for token in tokens if token in known.words]
        if not words or any(self._is_else(token, concept) for token in tokens):
            return left_open(f"which place is meant for '{concept}'")
        fitting = self._fitting(concept, question)
        there = [one._replace(chance=min(one.chance, _inside(one.box, words))) for one in fitting]
        return self._best(there, " ".join([concept, *words]))

    def _is_else(self, token: str, concept: str) -> bool:
        """Whether a word is neither of the thing nor about its place, which is then that of another thing."""
        words, known = self._words, places()
        return not (
            token in known.words
            or token in known.others
            or token in DETERMINERS
            or token in words.relations.copulas
            or token in words.relations.adverbs
            or words.attribute(token)
            or words.concept((token,)) in (concept, *concept.split())
            or words.verb(token) in words.relations.weak
        )

    def _fitting(self, concept: str, question: _Question) -> list[Sight]:
        """What was detected under this name, each as likely as it is that and of the color that is said."""
        color, sights = question.colors.get(concept), self._seen[question.phrases.get(concept, concept)]
        if color is None:
            return list(sights)
        return [one._replace(chance=one.chance * self._is_color(one, color)) for one in sights]

    def _is_color(self, sight: Sight, wanted: Attribute) -> float:
        if sight.chance < self._settings.lower:
            return EVEN
        found, around = self._color_of(sight.box)
        named = Attribute("color", found)
        if not found or around == wanted.value:
            return EVEN
        if self._words.entails_value(named, wanted):
            return SURE
        return 1 - SURE if self._words.conflicting_values(named, wanted) else EVEN

    def _ruled(self, chance: float, what: str, sights: Iterable[Sight]) -> Ruling:
        lower, upper = self._settings.lower, self._settings.upper
        boxes = tuple(one.box for one in sights if one.box.score >= lower)
        if chance >= upper:
            return Ruling(Decision.SUPPORTED, chance, f"seen: {what}", boxes)
        if chance < lower:
            return Ruling(Decision.REFUTED, chance, f"not seen: {what}", boxes)
        return left_open(f"perhaps {what}", *boxes)._replace(chance=chance)


class _Question(NamedTuple):
    """The statement's text, the color of each thing that has one, and which things it speaks of as several;
    `plural` are those of them that it takes for granted ("the balls"). `regions` are its words for places in
    the image, as the lexicon reads them: a "top" is a shirt, too. `phrases`: what a thing is sought as."""

    text: str
    colors: Mapping[str, Attribute]
    several: frozenset[str]
    plural: frozenset[str]
    regions: frozenset[str]
    phrases: Mapping[str, str]


def _question(
    text: str, asserted: Collection[Atom], given: Iterable[Atom], attributes: Collection[str]
) -> _Question:
    colors: dict[str, set[Attribute]] = {}
    for atom in asserted:
        if isinstance(atom, Has) and atom.attribute.kind == "color":
            colors.setdefault(atom.concept, set()).add(atom.attribute)
    single = {concept: one for concept, (one, *others) in colors.items() if not others}
    plural = frozenset(one.concept for one in given if isinstance(one, Number))
    several = plural | {one.concept for one in asserted if isinstance(one, Number)}
    words = frozenset(lexicon().concept((one,)) for one in plain_words(text) if one in places().words)
    return _Question(text, single, several, plural, words, phrases(asserted, attributes))


def _is_plural(atom: Atom) -> bool:
    return isinstance(atom, Number) and (atom.low, atom.high, atom.exact) == (2, None, False)


def _center(box: Box) -> tuple[float, float]:
    return (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2


def _are_apart(box: Box, other: Box) -> bool:
    return (
        box.image != other.image
        or box.x1 < other.x0
        or other.x1 < box.x0
        or box.y1 < other.y0
        or other.y1 < box.y0
    )


def _inside(box: Box, words: Iterable[str]) -> float:
    """The probability that the center of a box lies where all of the words say."""
    said = [places().words[word] for word in words]
    x, y = _center(box)
    return min(within(at, bounds) for one in said for at, bounds in ((x, one.x), (y, one.y)))


OF_SOME_NAMES = ("prompt_too_long", "judge_rejected_request")
"""Reasons that one name, or their number, may be to blame for: the others are then asked for without it."""


class DetectorVerificationEngine(ServedEngine):
    """Decides claims by what the served detector finds, with one request for each image of a response.

    Every thing that the response's claims name is asked for by its bare name: its color is read off the
    pixels, for detectors tell colors apart badly. Other properties are asked for ("small ball") where the
    settings say that this detector tells them apart. No reference is read.
    """

    def __init__(
        self, models: TritonModels, load_image: LoadImage, settings: DetectorSettings | None = None
    ) -> None:
        super().__init__(models, load_image, models.settings.detector)
        self._settings = settings or DetectorSettings()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        numbers = (f"{one:g}" for one in self._settings.model_dump(exclude={"attributes"}).values())
        data = (lexicon().digest, nouns().digest, palette().digest, places().digest)
        parts = (*numbers, *(one[:6] for one in data), *self._settings.attributes)
        version = "-".join([self.version, *parts])
        return Judge(engine="detector", model=self._models.label(self._served), version=version)

    async def _decide(
        self, event: ClaimsExtracted, images: Sequence[Image], protocol: EvaluationProtocol
    ) -> Verification:
        texts = [protocol.statement(event.response, claim) for claim in event.claims]
        attributes = self._settings.attributes
        asked = sorted({name for text in texts for name in names(statement(text), attributes)})
        found = await asyncio.gather(*(self._detect(data, asked) for data, _ in images))
        seen: dict[str, list[Sight]] = {}
        for at, by_name in enumerate(found):
            for name, several in by_name.items():
                sights = (_sight(one, name, at, self._settings) for one in several)
                seen.setdefault(name, []).extend(filter(None, sights))
        pictures = [data for data, _ in images]
        verdicts = await asyncio.to_thread(_decided, texts, seen, pictures, self._settings)
        return Verification(verdicts=verdicts, usage=Usage(calls=len(images) if asked else 0))

    async def _detect(self, image: bytes, asked: Sequence[str]) -> Mapping[str, Sequence[Detection]]:
        """What was detected by name; a name that the detector does not take is absent."""
        try:
            found = await self._models.detect(image, asked)
        except Unscorable as error:
            if error.reason not in OF_SOME_NAMES:
                raise
            if len(asked) == 1:
                return {}
            halves = asked[: len(asked) // 2], asked[len(asked) // 2 :]
            first, second = [await self._detect(image, half) for half in halves]
            return {**first, **second}
        return {name: [one for one in found if one.text == at] for at, name in enumerate(asked)}


def _sight(found: Detection, name: str, image: int, settings: DetectorSettings) -> Sight | None:
    """As it is in the image; None for what is outside of it, or nowhere."""
    chance = settings.probability(found.score)
    x0, y0, x1, y1 = (min(1.0, max(0.0, edge)) for edge in found.box)
    try:
        return Sight(Box(x0=x0, y0=y0, x1=x1, y1=y1, score=chance, label=name, image=image), chance)
    except ValueError:
        return None


def _decided(
    texts: Sequence[str],
    seen: Mapping[str, Sequence[Sight]],
    images: Sequence[bytes],
    settings: DetectorSettings,
) -> tuple[Verdict, ...]:
    """Decodes an image once, and only where a color is asked for."""
    opened = cache(lambda at: Photograph(images[at]))

    @cache
    def color_of(box: Box) -> tuple[str, str]:
        photograph = opened(box.image)
        return ("", "") if photograph.gray else photograph.color(box)

    boxes = Boxes(seen, settings, color_of, images=len(images))
    return tuple(map(boxes.decide, texts))
