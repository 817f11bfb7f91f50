"""FaithScore as the services see it: its route, its questions to an LLM, and its arithmetic.

Source: FAITHSCORE, Fine-grained Evaluations of Hallucinations in Large Vision-Language Models, section 3.2;
prompts in Appendix L. Where the paper has the LLM cut the answer while labelling it, the cut here is
`subsentences.split`, so that offsets are certain and every judge labels the same pieces. Replies must account
for each piece and each fact exactly once: a reply that skips or repeats one raises `ValueError`, and nothing
is guessed in its place.

The arithmetic is pure functions from judgements to numbers. Where the paper is silent, these decisions hold;
docs/faithscore.md tells them with their reasons:

- A fact that the judge left undecided is in neither numerator nor denominator; coverage is told beside.
- Only facts of descriptive sub-sentences count, as in the paper, whose decomposer sees no others.
- A descriptive sub-sentence counts in S unless it has facts of which none was decided. With a judge that
  decides everything, S is therefore the paper's: every descriptive sub-sentence.
- Nothing to verify, or nothing decided, raises `Unscorable`; it is never 0 or 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

import msgspec
from pydantic import AfterValidator, Field

from groundwatch.errors import InputError, Unscorable
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
    count_words,
    folded,
    read_figures,
    units_of,
)
from groundwatch.protocols.method import MethodSettings
from groundwatch.protocols.planted import Kind, by_kind
from groundwatch.protocols.prompts import Form, Step, account, described, numbered, read_reply
from groundwatch.section import NotNegative

CATEGORIES = ("entity", "relation", "color", "count", "other")
"""The five categories of atomic facts; a category that is none of them counts as `other`."""

NOTHING_TO_VERIFY = "nothing_to_verify"
NOTHING_DECIDED = "nothing_decided"

EQUAL_WEIGHTS: Mapping[str, float] = MappingProxyType(dict.fromkeys(CATEGORIES, 1.0))
"""The paper's choice: every fact weighs 1."""


class Fact(msgspec.Struct, frozen=True):
    """What the arithmetic needs of one atomic fact: its category, its sub-sentence, the verdict."""

    category: str
    unit: int
    decision: Decision


class _Counted:
    """Facts by number, of one category. `units` has for each of their sub-sentences the verdicts seen there,
    as a sum of `_SUPPORTED`, `_REFUTED` and `_OPEN`."""

    __slots__ = ("facts", "refuted", "undecided", "units")

    def __init__(self) -> None:
        self.facts = self.undecided = self.refuted = 0
        self.units: dict[int, int] = {}


_SUPPORTED, _REFUTED, _OPEN = 1, 2, 4


def score_facts(
    facts: Sequence[Fact], descriptive: Sequence[int], weights: Mapping[str, float] = EQUAL_WEIGHTS
) -> Score:
    """Every number that follows from the verdicts alone. Raises `Unscorable` where there is none."""
    units = dict.fromkeys(descriptive, 0)
    if not units:
        raise Unscorable(NOTHING_TO_VERIFY, "no descriptive sub-sentence")
    counted = _count(facts, units)
    if not counted:
        raise Unscorable(NOTHING_TO_VERIFY, "no atomic fact")
    number = undecided = refuted = 0
    for part in counted.values():
        number += part.facts
        undecided += part.undecided
        refuted += part.refuted
    headline = _f_hat(counted, weights)
    if headline is None:
        raise Unscorable(NOTHING_DECIDED, f"none of {number} facts was decided")
    values = {
        "faithscore": headline,
        "descriptive": float(len(units)),
        "facts": float(number),
        "decided": float(number - undecided),
        "refuted": float(refuted),
    }
    sentences = _sentence_level(units)
    if sentences is not None:
        values["sentence_level"] = sentences
    for category in CATEGORIES:
        found = counted.get(category)
        if found is None:
            values.update(_NO_FACTS[category])
            continue
        decided = found.facts - found.undecided
        values[f"facts.{category}"] = float(found.facts)
        values[f"decided.{category}"] = float(decided)
        values[f"refuted.{category}"] = float(found.refuted)
        # Within one category a weight is constant and says nothing, so these numbers go without.
        if decided:
            values[f"faithscore.{category}"] = (decided - found.refuted) / decided
        sentences = _sentence_level(found.units)
        if sentences is not None:
            values[f"sentence_level.{category}"] = sentences
    values["coverage"] = (number - undecided) / number
    return Score(score=headline, values=values)


def score_verified(judged: ClaimsVerified, weights: Mapping[str, float] = EQUAL_WEIGHTS) -> Score:
    """Score one response. Raises `Unscorable`, and `InputError` for what does not fit each other."""
    units, claims = judged.extracted.units, judged.extracted.claims
    if len(claims) != len(judged.verdicts):
        raise InputError(f"{len(judged.verdicts)} verdicts for {len(claims)} claims")
    for index, claim in enumerate(claims):
        if not 0 <= claim.unit < len(units):
            raise InputError(f"claim {index} names sub-sentence {claim.unit} of {len(units)}")
    facts = [
        Fact(claim.category if claim.category in CATEGORIES else "other", claim.unit, verdict.decision)
        for claim, verdict in zip(claims, judged.verdicts, strict=True)
    ]
    descriptive = [index for index, unit in enumerate(units) if unit.label is Label.DESCRIPTIVE]
    score = score_facts(facts, descriptive, weights)
    entities = {
        " ".join(claim.text.split()).casefold()
        for claim in claims
        if claim.category == "entity" and units[claim.unit].label is Label.DESCRIPTIVE
    }
    values = score.values
    values["entities"] = float(len(entities))
    values["answer_words"] = float(count_words(judged.extracted.response.answer))
    return score


def _count(facts: Iterable[Fact], units: dict[int, int]) -> dict[str, _Counted]:
    """Counts by category of the facts of these `units`, which are told their verdicts too.

    One pass: a replay spends more time here than anywhere else.
    """
    counted: dict[str, _Counted] = {}
    for fact in facts:
        unit, decision = fact.unit, fact.decision
        if unit not in units:
            continue
        found = counted.get(fact.category)
        if found is None:
            found = counted[fact.category] = _Counted()
        found.facts += 1
        verdict = _SUPPORTED
        if decision is Decision.UNDECIDED:
            found.undecided += 1
            verdict = _OPEN
        elif decision is Decision.REFUTED:
            found.refuted += 1
            verdict = _REFUTED
        found.units[unit] = found.units.get(unit, 0) | verdict
        units[unit] |= verdict
    return counted


def _f_hat(counted: Mapping[str, _Counted], weights: Mapping[str, float]) -> float | None:
    """Equation 1: sum of w·s over all facts, divided by the number of facts; None without a decided one.

    The denominator is the number of facts and not the sum of the weights, as printed in the paper, so
    that the result lies in [0, largest weight] and passes 1 when weights do.
    """
    total = 0
    weighed = []
    for category, found in counted.items():
        decided = found.facts - found.undecided
        total += decided
        weighed.append(weights.get(category, 1.0) * (decided - found.refuted))
    return math.fsum(weighed) / total if total else None


def _sentence_level(units: Mapping[int, int]) -> float | None:
    """1 - S_h / S over sub-sentences; S_h are those with a refuted fact. None when S is 0.

    A sub-sentence all of whose facts are undecided was not judged and is left out of S; one without any
    fact stays in, as in the paper.
    """
    judged = refuted = 0
    for verdicts in units.values():
        if verdicts != _OPEN:
            judged += 1
            if verdicts & _REFUTED:
                refuted += 1
    return 1.0 - refuted / judged if judged else None


_NO_FACTS: dict[str, dict[str, float]] = {
    category: {f"{what}.{category}": 0.0 for what in ("facts", "decided", "refuted")}
    for category in CATEGORIES
}


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
