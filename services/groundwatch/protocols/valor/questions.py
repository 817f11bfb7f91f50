"""VALOR's questions to an LLM: features of an answer, and their counterparts (section 4.1; Appendices D, E).

The prompts are our own words; what is compared is numbered, so that no reply can invent a feature. One
answer is one unit: features have no sub-sentences.
"""

from typing import Literal

import msgspec

from groundwatch.events import Claim, ClaimsExtracted, Label, Match, ResponseRecorded, SubSentence
from groundwatch.protocols.base import Extracted, MatchedProtocol, Stage
from groundwatch.protocols.features import ATTRIBUTE, OBJECT, RANK, RELATION, pair_text, read_written
from groundwatch.protocols.prompts import Form, Step, load, numbered, read_reply
from groundwatch.protocols.valor.features import CATEGORIES
from groundwatch.protocols.valor.scoring import Subset

_MATCHING = {
    OBJECT: "match-names",
    RANK: "match-names",
    ATTRIBUTE: "match-pairs",
    RELATION: "match-relations",
}


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


class ValorQuestions(MatchedProtocol):
    """One call that finds the subset's features, and one that matches them."""

    package = __package__
    extraction_steps = 1

    def __init__(self, subset: Subset) -> None:
        self.subset = subset
        self.category = CATEGORIES[subset]
        self.prompt_files = {
            Stage.EXTRACTION: (subset.value,),
            Stage.MATCHING: (_MATCHING[self.category],),
        }

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        """None for an answer without a word."""
        if not response.answer.strip():
            return None
        form = _Pairs if self.category == ATTRIBUTE else _Features
        step = load(self.package, self.subset.value).step(form, answer=response.answer)
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
        return load(self.package, _MATCHING[self.category]).step(
            _Counterparts,
            described=numbered(enumerate(claim.text for claim in extracted.claims)),
            annotated=numbered(enumerate(_annotated(extracted))),
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
