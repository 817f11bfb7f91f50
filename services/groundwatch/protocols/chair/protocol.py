"""CHAIR: objects by a list of words, matched by the same list; its arithmetic.

Source: Object Hallucination in Image Captioning (Rohrbach et al. 2018), as VALOR's section 5.3 uses it. The
list is of our own making, in `coco.json`: COCO's 80 classes and the words for them. A caption is read from
left to right, the longest phrase first. `instead` names phrases that hold a class's word and mean something
else ("train station"), with the class that is really there, if any.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import ClassVar

import msgspec

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    Match,
)
from groundwatch.language.lexicon import singular
from groundwatch.protocols.base import (
    Extracted,
    ExtractionRules,
    MatchedProtocol,
    Score,
    Stage,
    read_figures,
    units_of,
)
from groundwatch.protocols.planted import Kind, by_kind
from groundwatch.reading.graph import Thing

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_PAUSE = re.compile(r"[.,;:!?()\n]+")


class Mention(msgspec.Struct, frozen=True):
    """A COCO object that a caption speaks of: its class, the words that said so, and where they stand."""

    name: str
    words: str
    span: tuple[int, int]


class _Data(msgspec.Struct, frozen=True):
    classes: dict[str, list[str]]
    instead: dict[str, str]
    colours: frozenset[str]
    after_a_thing: frozenset[str]


class Vocabulary:
    """The words for each class, ready to be looked up."""

    def __init__(self, data: _Data) -> None:
        self.classes = tuple(data.classes)
        self._names: dict[tuple[str, ...], str] = {}
        for name, synonyms in data.classes.items():
            for phrase in (name, *synonyms):
                self._names[tuple(phrase.split())] = name
        self._names.update({tuple(phrase.split()): name for phrase, name in data.instead.items()})
        self._colours = data.colours
        self._after_a_thing = data.after_a_thing
        self._longest = max(map(len, self._names))

    def mentions(self, text: str) -> list[Mention]:
        """Every COCO object in a text, in order, as often as it is said."""
        pieces: list[list[re.Match[str]]] = [[]]
        end = 0
        for word in _WORD.finditer(text.replace("’", "'")):
            if _PAUSE.search(text, end, word.start()):
                pieces.append([])
            pieces[-1].append(word)
            end = word.end()
        return [mention for piece in pieces for mention in self._mentions(piece)]

    def kind(self, name: str) -> str | None:
        """The class of an annotated thing by the longest end of its name: a "red umbrella" is an umbrella.

        None for another thing, and for what only ends like one ("train station" holds no class).
        """
        words = tuple(_WORD.findall(name.casefold()))
        for start in range(max(0, len(words) - self._longest), len(words)):
            found = self._look_up(words[start:])
            if found is not None:
                return found or None
        return None

    def _mentions(self, piece: Sequence[re.Match[str]]) -> Iterator[Mention]:
        words = [word[0].casefold() for word in piece]
        at = 0
        while at < len(words):
            size, name = self._at(words, at)
            if name and not self._is_colour(words, at, size):
                span = piece[at].start(), piece[at + size - 1].end()
                yield Mention(name, " ".join(words[at : at + size]), span)
            at += size

    def _at(self, words: list[str], at: int) -> tuple[int, str]:
        for size in range(min(self._longest, len(words) - at), 0, -1):
            name = self._look_up(tuple(words[at : at + size]))
            if name is not None:
                return size, name
        return 1, ""

    def _look_up(self, words: tuple[str, ...]) -> str | None:
        if not words:
            return None
        name = self._names.get(words)
        return self._names.get(tuple(singular(" ".join(words)).split())) if name is None else name

    def _is_colour(self, words: list[str], at: int, size: int) -> bool:
        """Whether a word such as "orange" stands before what it colours: "an orange cat"."""
        if size != 1 or words[at] not in self._colours or at + 1 == len(words):
            return False
        return words[at + 1] not in self._after_a_thing


@cache
def vocabulary() -> Vocabulary:
    """COCO's vocabulary, read once."""
    return Vocabulary(msgspec.json.decode(_shipped(), type=_Data))


@cache
def list_digest() -> str:
    """Twelve hex digits over the list: numbers by another list are other numbers."""
    return hashlib.sha256(_shipped()).hexdigest()[:12]


def classes_of(names: Iterable[str]) -> set[str]:
    """The COCO classes among annotated object names; other things have none and fall away."""
    return {found for name in names if (found := vocabulary().kind(name))}


def _shipped() -> bytes:
    return resources.files("groundwatch.protocols").joinpath("coco.json").read_bytes()


class Caption(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a caption mentions and those that are in the image, by class."""

    mentioned: frozenset[str]
    present: frozenset[str]

    @property
    def hallucinated(self) -> frozenset[str]:
        """What is mentioned and not there."""
        return self.mentioned - self.present


def chair(captions: Iterable[Caption]) -> dict[str, float | None]:
    """CHAIR over a corpus, in any order; a number that does not exist is None.

    `chair_s` is the share of captions with a hallucinated object, `chair_i` the share of mentioned objects
    that are hallucinated; `faithfulness` is 1 - chair_i, `coverage` the share of present objects that are
    mentioned (the columns F. and C. of VALOR's table 6). An object counts once in a caption.
    """
    each = list(captions)
    mentioned = sum(len(one.mentioned) for one in each)
    hallucinated = sum(len(one.hallucinated) for one in each)
    sentence = _share(sum(bool(one.hallucinated) for one in each), len(each))
    instance = _share(hallucinated, mentioned)
    covered = sum(len(one.mentioned & one.present) for one in each)
    return {
        "chair_i": instance,
        "chair_s": sentence,
        "faithfulness": None if instance is None else 1 - instance,
        "sentence_level": None if sentence is None else 1 - sentence,
        "mentioned": mentioned,
        "hallucinated": hallucinated,
        "coverage": _share(covered, sum(len(one.present) for one in each)),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


OBJECT = "object"
"""The category of every claim."""

VERSION = "1"

NO_LIST = "chair finds objects by its list of words: extract with engine reader"


class ChairProtocol(MatchedProtocol):
    """A claim is a COCO class that the answer mentions; the reference's `objects` say which are there.

    No LLM has a part in it. The score is 1 - CHAIR_i, so that more is better, as for every protocol here.
    """

    name = "chair"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.MATCHING, Stage.SCORING)
    rules = ExtractionRules(from_reading=lambda response, reading: read(response.answer, reading.things)[1])
    extraction_steps = 1
    sees = by_kind({OBJECT: [Kind.OBJECT]})
    headline = read_figures(__package__)

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Every number of CHAIR for one response; `Unscorable` when it mentions no COCO class.

        `sentence_level` is 1 - CHAIR_s, named as in FaithScore's reports; its mean over responses is that
        of the corpus.
        """
        if not isinstance(judged, ClaimsMatched):
            raise InputError("chair scores matched claims, not verified ones")
        claims = judged.extracted.claims
        reference = judged.extracted.response.reference
        mentioned = frozenset(map(_class, claims))
        there = frozenset(_class(claims[match.claim]) for match in judged.matches)
        annotated = classes_of(reference.objects) if reference else set()
        found = chair([Caption(mentioned=mentioned, present=there | (annotated - mentioned))])
        values = {name: value for name, value in found.items() if value is not None}
        if "faithfulness" not in values:
            raise Unscorable("nothing_to_verify", "the answer mentions no COCO class", values)
        return Score(score=values["faithfulness"], values=values)

    def matching_judge(self) -> Judge:
        return Judge(engine=self.name, version=f"{VERSION}-{list_digest()}")

    def match(self, extracted: ClaimsExtracted) -> tuple[Match, ...]:
        """Each class with the first annotated name for it; `Unscorable("no_reference")` without any name.

        Raises `InputError` for claims that were not found by the list.
        """
        reference = extracted.response.reference
        if reference is None or not reference.objects:
            raise Unscorable("no_reference", "the response's reference names no objects")
        there: dict[str, str] = {}
        for name in reference.objects:
            there.setdefault(vocabulary().kind(name) or "", name)
        return tuple(
            Match(claim=index, reference=there[_class(claim)])
            for index, claim in enumerate(extracted.claims)
            if _class(claim) in there
        )


def read(answer: str, things: Iterable[Thing] = ()) -> Extracted:
    """An answer's sub-sentences, and a claim for each class where it is first mentioned.

    `parts` is the class, the text is the answer's own word for it. No sub-sentence is left out: CHAIR does
    not tell description from analysis. Of the `things` of the answer, what is denied is not mentioned, and
    what is guessed is marked so.
    """
    units = units_of(answer)
    things = tuple(things)
    guesses = [thing.span for thing in things if thing.hedged and not thing.denied]
    for start, end in (thing.span for thing in things if thing.denied):
        answer = answer[:start] + "." * (end - start) + answer[end:]
    claims: dict[str, Claim] = {}
    for number, unit in enumerate(units):
        for mention in vocabulary().mentions(answer[unit.start : unit.end]):
            first, last = (unit.start + place for place in mention.span)
            claim = Claim(
                text=mention.words,
                category=OBJECT,
                unit=number,
                parts=(mention.name,),
                span=(first, last),
                hedged=any(start < last and first < end for start, end in guesses),
            )
            claims.setdefault(mention.name, claim)
    return units, tuple(claims.values())


def _class(claim: Claim) -> str:
    if not claim.parts:
        raise InputError(NO_LIST)
    return claim.parts[0]
