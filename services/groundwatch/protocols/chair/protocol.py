"""CHAIR as the services see it: objects by a list of words, matched by the same list, then its arithmetic.

Source: Object Hallucination in Image Captioning (Rohrbach et al. 2018), as VALOR's section 5.3 uses it.
"""

from typing import ClassVar

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    Label,
    Match,
    Reference,
    ResponseRecorded,
    SubSentence,
)
from groundwatch.language.subsentences import split
from groundwatch.protocols.base import ExtractionRules, MatchedProtocol, Score, Stage
from groundwatch.protocols.chair.scoring import Caption, chair
from groundwatch.protocols.coco import classes_of, list_digest, vocabulary
from groundwatch.protocols.planted import Kind, by_kind, named_things
from groundwatch.protocols.prompts import Step

OBJECT = "object"
"""The category of every claim."""

VERSION = "1"

NO_LIST = "chair finds objects by its list of words: extract with engine linguistic"


class ChairProtocol(MatchedProtocol):
    """A claim is a COCO class that the answer mentions; the reference's `objects` say which are there.

    No LLM has a part in it. The score is 1 - CHAIR_i, so that more is better, as for every protocol here.
    """

    name = "chair"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.MATCHING, Stage.SCORING)
    rules = ExtractionRules(from_answer=lambda response: read(response.answer))
    extraction_steps = 1
    sees = by_kind({OBJECT: [Kind.OBJECT]})

    def planted_reference(self, reference: Reference) -> Reference:
        return named_things(reference)

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
        if found.chair_i is None or found.chair_s is None:
            raise Unscorable("nothing_to_verify", "the answer mentions no COCO class")
        values = {
            "chair_i": found.chair_i,
            "chair_s": found.chair_s,
            "faithfulness": 1 - found.chair_i,
            "sentence_level": 1 - found.chair_s,
            "mentioned": found.mentioned,
            "hallucinated": found.hallucinated,
        }
        if found.coverage is not None:
            values["coverage"] = found.coverage
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

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        raise InputError(NO_LIST)


def read(answer: str) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
    """An answer's sub-sentences, and a claim for each class where it is first mentioned.

    `parts` is the class, the text is the answer's own word for it. No sub-sentence is left out: CHAIR does
    not tell description from analysis.
    """
    units = tuple(
        SubSentence(
            start=span.start, end=span.end, text=answer[span.start : span.end], label=Label.DESCRIPTIVE
        )
        for span in split(answer)
    )
    claims: dict[str, Claim] = {}
    for number, unit in enumerate(units):
        for mention in vocabulary().mentions(unit.text):
            claims.setdefault(
                mention.name, Claim(text=mention.words, category=OBJECT, unit=number, parts=(mention.name,))
            )
    return units, tuple(claims.values())


def _class(claim: Claim) -> str:
    if not claim.parts:
        raise InputError(NO_LIST)
    return claim.parts[0]
