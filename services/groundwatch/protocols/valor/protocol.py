"""VALOR as the services see it: five protocols, one for each subset, with one route and one arithmetic.

Source: VALOR-EVAL, Holistic Coverage and Faithfulness Evaluation of Large Vision-Language Models, section 4.1
and Appendices D and E. The prompts are our own words; what is compared is numbered, so that no reply can
invent a feature. One answer is one unit: features have no sub-sentences.
"""

from typing import ClassVar, Literal

import msgspec

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Label,
    Match,
    ResponseRecorded,
    SubSentence,
)
from groundwatch.protocols import written_replies
from groundwatch.protocols.base import (
    Extracted,
    ExtractionRules,
    MatchedProtocol,
    Score,
    Stage,
    load,
    read_figures,
)
from groundwatch.protocols.features import (
    ATTRIBUTE,
    OBJECT,
    RANK,
    RELATION,
    Features,
    pair_text,
    read_written,
)
from groundwatch.protocols.method import MethodSettings
from groundwatch.protocols.planted import Kind, by_kind
from groundwatch.protocols.prompts import Form, Step, numbered, read_reply
from groundwatch.protocols.valor.scoring import NUMBERED, Matched, Pairs, Subset, count, protocol_name

CATEGORIES = {
    Subset.OBJECT_EXISTENCE: OBJECT,
    Subset.ATTRIBUTE_OBJECT: ATTRIBUTE,
    Subset.ATTRIBUTE_PEOPLE: ATTRIBUTE,
    Subset.RELATION_POSITIONAL: RELATION,
    Subset.RELATION_COMPARATIVE: RANK,
}
SEES = {
    Subset.OBJECT_EXISTENCE: (Kind.OBJECT, Kind.THING),
    Subset.ATTRIBUTE_OBJECT: (Kind.COLOR, Kind.COUNT),
    Subset.ATTRIBUTE_PEOPLE: (Kind.CLOTHING,),
    Subset.RELATION_POSITIONAL: (Kind.POSITION,),
    Subset.RELATION_COMPARATIVE: (Kind.COMPARISON,),
}
_MATCHING = {
    OBJECT: "match-names",
    RANK: "match-names",
    ATTRIBUTE: "match-pairs",
    RELATION: "match-relations",
}
COUNTED = ("faithful", "generated", "covered", "reference")


class _Pair(Form, frozen=True):
    attribute: str
    object: str


class _Pairs(Form, frozen=True):
    pairs: list[_Pair]


class _Features(Form, frozen=True):
    features: list[str]


class _Counterpart(Form, frozen=True):
    described: int
    annotated: int
    kind: Literal["matched", "broader"]


class _Counterparts(Form, frozen=True):
    matches: list[_Counterpart]


class Valor(MatchedProtocol):
    """Extraction, matching with the response's reference, then equations 6 and 7.

    The reference's `objects` are the annotated features of the subset, each as one text: "sofa",
    "(red, apple)", "the cup is on the table | the table is under the cup", "ground / court". For
    comparative relations they stand from large to small. What matches nothing is hallucinated: it is in
    equation 6's denominator alone.
    """

    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.MATCHING, Stage.SCORING)
    package = __package__
    extraction_steps = 1
    headline = read_figures(__package__)

    def __init__(self, subset: Subset, *, in_order: bool = False) -> None:
        self.subset = subset
        self.in_order = in_order and subset in NUMBERED
        self.name = protocol_name(subset)
        self.category = CATEGORIES[subset]
        self.prompt_files = {Stage.EXTRACTION: (subset.value,), Stage.MATCHING: (_MATCHING[self.category],)}
        self.rules = ExtractionRules(
            from_reading=lambda response, reading: load(f"{__package__}.extraction:features")(
                response, reading, subset
            )
        )
        self.sees = by_kind({self.category: SEES[subset]})

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Faithfulness, with the coverage beside it; `Unscorable` for a response without features."""
        if not isinstance(judged, ClaimsMatched):
            raise InputError(f"{self.name} scores matched claims, not verified ones")
        counts = count(matched_of(judged), self.subset, in_order=self.in_order)
        faithfulness, coverage = counts.faithfulness, counts.coverage
        values = {name: float(getattr(counts, name)) for name in COUNTED}
        if faithfulness is None:
            # The image's features still wait to be covered.
            raise Unscorable("no_features", "nothing of this kind is said of the image", values)
        if coverage is None:
            raise Unscorable("no_reference", "the response's reference names no features")
        return Score(
            score=faithfulness, values={"faithfulness": faithfulness, "coverage": coverage, **values}
        )

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        if not response.answer.strip():
            return None
        form = _Pairs if self.category == ATTRIBUTE else _Features
        read = written_replies.pairs if form is _Pairs else written_replies.features
        question = response.prompt.strip() or "(not known)"
        step = self.ask(self.subset.value, form, read, question=question, answer=response.answer)
        return msgspec.structs.replace(step, name=f"valor-{step.name}")

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Extracted:
        """The features in the reply's order. Raises `ValueError` for an empty one."""
        answer = response.answer
        unit = SubSentence(start=0, end=len(answer), text=answer, label=Label.DESCRIPTIVE)
        if self.category == ATTRIBUTE:
            return (unit,), tuple(
                Claim(
                    text=pair_text(_clean(pair.attribute), _clean(pair.object)),
                    category=self.category,
                    parts=(pair.attribute, pair.object),
                )
                for pair in read_reply(reply, _Pairs).pairs
            )
        named = [_clean(text) for text in read_reply(reply, _Features).features]
        if self.category != RANK:
            named = list(dict.fromkeys(named))
        return (unit,), tuple(Claim(text=text, category=self.category) for text in named)

    def matching_step(self, extracted: ClaimsExtracted) -> Step:
        """The call that finds each claim's counterpart among the reference's features."""
        described, annotated = [claim.text for claim in extracted.claims], _annotated(extracted)
        return self.ask(
            _MATCHING[self.category],
            _Counterparts,
            lambda text, values: written_replies.matches(described, annotated, values),
            described=numbered(enumerate(described)),
            annotated=numbered(enumerate(annotated)),
        )

    def read_matching(self, reply: object, extracted: ClaimsExtracted) -> tuple[Match, ...]:
        """The matches in the claims' order. Raises `ValueError` for a number not listed or there twice.

        Where features are numbered, each annotated one may be taken once.
        """
        annotated = _annotated(extracted)
        matches: dict[int, Match] = {}
        taken: set[int] = set()
        for found in read_reply(reply, _Counterparts).matches:
            if not 0 <= found.described < len(extracted.claims):
                raise ValueError(f"no described item {found.described}")
            if not 0 <= found.annotated < len(annotated):
                raise ValueError(f"no annotated item {found.annotated}")
            if found.described in matches:
                raise ValueError(f"described item {found.described} has two entries")
            if self.category == ATTRIBUTE and found.annotated in taken:
                raise ValueError(f"annotated item {found.annotated} is taken twice")
            taken.add(found.annotated)
            wording = read_written(annotated[found.annotated])[0]
            matches[found.described] = Match(claim=found.described, reference=wording, kind=found.kind)
        return tuple(matches[number] for number in sorted(matches))


def _annotated(extracted: ClaimsExtracted) -> tuple[str, ...]:
    reference = extracted.response.reference
    return reference.objects if reference else ()


def _clean(text: str) -> str:
    found = " ".join(text.split())
    if not found:
        raise ValueError("a feature is empty")
    return found


PROTOCOLS = {subset: Valor(subset) for subset in Subset}


class ValorSettings(MethodSettings):
    """`in_order`: an attribute of the answer meets only the annotated one of its number (tables 14, 15)."""

    in_order: bool = False

    def protocols(self) -> tuple[Valor, ...]:
        return tuple(Valor(subset, in_order=self.in_order) for subset in Subset)


def matched_of(judged: ClaimsMatched) -> Matched:
    matched, broader = pairs_of(judged)
    return Matched(
        image_id=judged.extracted.response.id,
        generated=tuple(claim.text for claim in judged.extracted.claims),
        reference=reference_of(judged.extracted),
        matched=matched,
        broader=broader,
    )


def pairs_of(judged: ClaimsMatched) -> tuple[Pairs, Pairs]:
    """D_M and D_B."""
    claims = judged.extracted.claims
    found = [(match.kind, (claims[match.claim].text, match.reference)) for match in judged.matches]
    return (
        tuple(pair for kind, pair in found if kind == "matched"),
        tuple(pair for kind, pair in found if kind == "broader"),
    )


def reference_of(extracted: ClaimsExtracted) -> Features:
    """F_G with every wording of each feature."""
    return tuple(map(read_written, _annotated(extracted)))
