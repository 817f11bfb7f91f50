"""FaithScore as the services see it: its route, its questions to an LLM, and its arithmetic.

Source: FAITHSCORE, Fine-grained Evaluations of Hallucinations in Large Vision-Language Models, section 3.2;
prompts in Appendix L. Where the paper has the LLM cut the answer while labelling it, the cut here is
`subsentences.split`, so that offsets are certain and every judge labels the same pieces. Replies must account
for each piece and each fact exactly once: a reply that skips or repeats one raises `ValueError`, and nothing
is guessed in its place.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from pydantic import AfterValidator, Field

from groundwatch.errors import InputError
from groundwatch.events import (
    Claim,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Label,
    ResponseRecorded,
    SubSentence,
    Verdict,
)
from groundwatch.protocols import written_replies
from groundwatch.protocols.base import (
    EvaluationProtocol,
    Extracted,
    ExtractionRules,
    Score,
    Stage,
    folded,
    read_figures,
    units_of,
)
from groundwatch.protocols.faithscore.scoring import CATEGORIES, EQUAL_WEIGHTS, score_verified
from groundwatch.protocols.method import MethodSettings
from groundwatch.protocols.planted import Kind, by_kind
from groundwatch.protocols.prompts import Form, Step, account, described, numbered, read_reply
from groundwatch.section import NotNegative


class _Labelled(Form, frozen=True):
    index: int
    label: Literal["descriptive", "analytical"]


class _Labels(Form, frozen=True):
    labels: list[_Labelled]


class _Fact(Form, frozen=True):
    sub_sentence: int
    category: Literal["entity", "relation", "color", "count", "other"]
    text: str
    hedged: bool = False


class _Facts(Form, frozen=True):
    facts: list[_Fact]


class _Judged(Form, frozen=True):
    index: int
    verdict: Literal["supported", "refuted", "undecided"]


class _Verdicts(Form, frozen=True):
    verdicts: list[_Judged]


class FaithScore(EvaluationProtocol):
    """Recognise the descriptive sub-sentences, decompose them, verify the facts; then equation 1.

    `weights` are equation 1's, per category, 1 where absent.
    """

    name = "faithscore"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules()
    verifiers = ("visual", "triton", "llm", "detector", "reference")
    sees = by_kind(
        {
            "entity": [Kind.OBJECT, Kind.THING],
            "color": [Kind.COLOR, Kind.CLOTHING],
            "count": [Kind.COUNT],
            "relation": [Kind.POSITION, Kind.ACTION],
        }
    )
    package = __package__
    prompt_files: Mapping[Stage, tuple[str, ...]] = {
        Stage.EXTRACTION: ("recognise", "decompose"),
        Stage.VERIFICATION: ("verify",),
    }
    extraction_steps = 2
    headline = read_figures(__package__)

    def __init__(self, weights: Mapping[str, float] = EQUAL_WEIGHTS) -> None:
        self._weights = {**EQUAL_WEIGHTS, **weights}
        self.bounds = (0.0, max(1.0, *self._weights.values()))

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Equation 1 and every number beside it; `InputError` for claims that were matched instead."""
        if not isinstance(judged, ClaimsVerified):
            raise InputError("faithscore scores verified claims, not matched ones")
        return score_verified(judged, self._weights)

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        """Call 0 labels the answer's sub-sentences, call 1 takes the descriptive ones apart.

        None for an answer that says nothing and when nothing in it is descriptive.
        """
        if index == 0:
            pieces = [unit.text for unit in units_of(response.answer)]
            if not pieces:
                return None
            return self.ask(
                "recognise",
                _Labels,
                lambda text, values: written_replies.labels(pieces, text),
                question=response.prompt.strip() or "(not known)",
                answer=response.answer,
                sub_sentences=numbered(enumerate(pieces)),
            )
        descriptive = [(at, units[at].text) for at in _descriptive(units)]
        if not descriptive:
            return None
        return self.ask(
            "decompose",
            _Facts,
            lambda text, values: written_replies.facts(dict(descriptive), text),
            question=response.prompt.strip() or "(not known)",
            answer=response.answer,
            descriptive=numbered(descriptive),
        )

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Extracted:
        """The labelled sub-sentences after call 0, and with the atomic facts after call 1.

        Facts come in their sub-sentences' order; one that is said twice of the same sub-sentence is kept
        once (Appendix G counts duplicates among the decomposer's errors).
        """
        if index == 0:
            return _read_labels(reply, response), ()
        return units, _read_facts(reply, units)

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        """The call that checks all facts of a response at once.

        With images the reference is left out: FaithScore is free of references, and a judge that saw one
        would not be comparable with a judge that saw none.
        """
        return self.ask(
            "verify",
            _Verdicts,
            reference=described(None if response.images else response.reference),
            facts=numbered((at, claim.text) for at, claim in enumerate(claims)),
        )

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        verdicts = read_reply(reply, _Verdicts).verdicts
        account("fact", [judged.index for judged in verdicts], len(claims))
        found = {judged.index: Decision(judged.verdict) for judged in verdicts}
        return tuple(Verdict(decision=found[at]) for at in range(len(claims)))


def _descriptive(units: tuple[SubSentence, ...]) -> list[int]:
    return [at for at, unit in enumerate(units) if unit.label is Label.DESCRIPTIVE]


def _read_labels(reply: object, response: ResponseRecorded) -> tuple[SubSentence, ...]:
    units = units_of(response.answer)
    labels = read_reply(reply, _Labels).labels
    account("sub-sentence", [labelled.index for labelled in labels], len(units))
    found = {labelled.index: Label(labelled.label) for labelled in labels}
    return tuple(msgspec.structs.replace(unit, label=found[at]) for at, unit in enumerate(units))


def _read_facts(reply: object, units: tuple[SubSentence, ...]) -> tuple[Claim, ...]:
    facts = read_reply(reply, _Facts).facts
    offered = set(_descriptive(units))
    kept: dict[tuple[int, str], Claim] = {}
    for fact in facts:
        text = " ".join(fact.text.split())
        if fact.sub_sentence not in offered:
            raise ValueError(f"sub_sentence {fact.sub_sentence} is not one of the numbered pieces")
        if not any(character.isalnum() for character in text):
            raise ValueError(f"a fact of sub_sentence {fact.sub_sentence} has no text")
        claim = Claim(text=text, category=fact.category, unit=fact.sub_sentence, hedged=fact.hedged)
        kept.setdefault((claim.unit, folded(text).rstrip(".")), claim)
    return tuple(sorted(kept.values(), key=lambda claim: claim.unit))


def _category(name: str) -> str:
    if name not in CATEGORIES:
        raise ValueError(f"no such category; there are {', '.join(CATEGORIES)}")
    return name


class FaithScoreSettings(MethodSettings):
    """Weights of equation 1 for each category; 1 where absent, as in the paper."""

    weights: dict[Annotated[str, AfterValidator(_category)], NotNegative] = Field(default_factory=dict)

    def protocols(self) -> tuple[FaithScore]:
        return (FaithScore(self.weights),)
