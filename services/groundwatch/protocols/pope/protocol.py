"""POPE as the services see it: one response answers one yes/no question about an image.

Source: Evaluating Object Hallucination in Large Vision-Language Models (Li et al. 2023); its numbers, section
5.1. "Yes" is the positive class: a false positive is an object that the model saw and the image has not. A
number whose denominator is 0 is None, where the published script stops with an error.

The question's truth travels in the response's reference as a known fact whose text is the question itself,
and which holds where yes is right. The claim of an answer "yes" is the question's text too, and that of "no"
the same with "No." after it; so any judge that knows the fact decides the claim by it. Without such a fact
the claim is written as a statement, which a judge can hold against objects, triplets or the image.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import msgspec

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    ResponseRecorded,
    SubSentence,
    Verdict,
)
from groundwatch.protocols.base import (
    EvaluationProtocol,
    Extracted,
    ExtractionRules,
    Score,
    Stage,
    folded,
    read_figures,
    with_article,
)
from groundwatch.protocols.prompts import Form, Step, described, numbered
from groundwatch.protocols.prompts import read_reply as read_form
from groundwatch.protocols.yes_no import UNREADABLE, Answer, read_reply

NO_TRUTH = "no_truth"

CELLS = ("tp", "fp", "tn", "fn")
RATES = ("accuracy", "precision", "recall", "f1", "yes_ratio")

_EXISTS = re.compile(r"^\s*(is|are) there (?:an? |any |some )?(.+?)\s*\??\s*$", re.IGNORECASE)
_ANSWERS: dict[str, Answer] = {"yes": "yes", "no": "no"}
_OTHER: dict[Answer, Answer] = {"yes": "no", "no": "yes"}


class _Read(Form, frozen=True):
    answer: Literal["yes", "no", "neither"]


class _Verdict(Form, frozen=True):
    verdict: Literal["supported", "refuted", "undecided"]


class Pope(EvaluationProtocol):
    """Read the reply, decide whether it is right, count it. `score` is 1 for right, 0 for wrong.

    Its mean over responses is POPE's accuracy; the sums of `tp`, `fp`, `tn` and `fn` give the other numbers.
    """

    name = "pope"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(from_answer=lambda response: ((), (read_claim(response),)))
    verifiers = ("reference", "visual", "triton", "llm")
    package = __package__
    prompt_files: Mapping[Stage, tuple[str, ...]] = {
        Stage.EXTRACTION: ("read",),
        Stage.VERIFICATION: ("verify",),
    }
    extraction_steps = 1
    headline = read_figures(__package__)

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Raises `Unscorable`: unreadable_reply without a claim, no_truth where the judge did not decide."""
        if not isinstance(judged, ClaimsVerified):
            raise InputError("pope scores verified claims, not matched ones")
        claims = judged.extracted.claims
        if not claims:
            raise Unscorable(UNREADABLE, "the reply is neither yes nor no")
        if len(claims) != 1 or len(judged.verdicts) != 1 or claims[0].category not in _ANSWERS:
            raise InputError(f"{len(claims)} claims, {len(judged.verdicts)} verdicts: pope has one yes or no")
        decision = judged.verdicts[0].decision
        if decision is Decision.UNDECIDED:
            raise Unscorable(NO_TRUTH, "nothing known of the image says what is right")
        said = _ANSWERS[claims[0].category]
        right = decision is Decision.SUPPORTED
        counted = cell(said, said if right else _OTHER[said])
        values = {name: float(name == counted) for name in ("tp", "fp", "tn", "fn")}
        return Score(
            score=float(right), values={"accuracy": float(right), "yes": float(said == "yes"), **values}
        )

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        if not response.answer.strip():
            return None
        question = response.prompt.strip() or "(not known)"
        return self.ask("read", _Read, question=question, reply=response.answer)

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Extracted:
        said = read_form(reply, _Read).answer
        return (), (claim_of(response, _ANSWERS[said]),) if said in _ANSWERS else ()

    def statement(self, response: ResponseRecorded, claim: Claim) -> str:
        """The claim without what is known of the question's truth, for that is worded into its text."""
        said = _ANSWERS.get(claim.category)
        return claim_of(msgspec.structs.replace(response, reference=None), said).text if said else claim.text

    def verification_step(self, response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
        answered = [f"{question} Answer: {said}" for claim in claims for question, said in [claim.parts[:2]]]
        return self.ask(
            "verify",
            _Verdict,
            reference=described(None if response.images else response.reference),
            answered=numbered(enumerate(answered)),
        )

    def read_verification(self, reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
        return (Verdict(decision=Decision(read_form(reply, _Verdict).verdict)),)


def read_claim(response: ResponseRecorded) -> Claim:
    """The claim of a reply, read by rule. Raises `Unscorable` with the reason why it cannot be read."""
    reading = read_reply(response.answer, response.prompt)
    if reading.answer is None:
        raise Unscorable(reading.reason, response.answer[:200])
    return claim_of(response, reading.answer)


def claim_of(response: ResponseRecorded, said: Answer) -> Claim:
    """What an answer says: `category` is yes or no, `parts` are the question and the answer."""
    question = " ".join(response.prompt.split())
    facts = response.reference.facts if response.reference else ()
    known = any(folded(fact.text) == folded(question) for fact in facts)
    exists = None if known else _EXISTS.match(question)
    if exists:
        verb, name = exists[1].casefold(), exists[2]
        thing = f"no {name}" if said == "no" else name if verb == "are" else with_article(name)
        text = f"There {verb} {thing}."
    else:
        text = question if said == "yes" else f"{question} No."
    return Claim(text=text, category=said, parts=(question, said))


def count(pairs: Iterable[tuple[Answer, Answer]]) -> Counter[str]:
    """Count (what was said, what is true) by cell; each pair is one reply, in any order."""
    return Counter(cell(said, true) for said, true in pairs)


def cell(said: Answer, true: Answer) -> str:
    return ("t" if said == true else "f") + ("p" if said == "yes" else "n")


def numbers(counts: Mapping[str, int]) -> dict[str, float | int | None]:
    """`RATES` and `CELLS` by name, from the cells of replies that were read."""
    tp, fp, tn, fn = (counts.get(name, 0) for name in CELLS)
    parts = {
        "accuracy": (tp + tn, tp + fp + tn + fn),
        "precision": (tp, tp + fp),
        "recall": (tp, tp + fn),
        "f1": (2 * tp, 2 * tp + fp + fn),
        "yes_ratio": (tp + fp, tp + fp + tn + fn),
    }
    rates = {name: part / whole if whole else None for name, (part, whole) in parts.items()}
    return {**rates, "tp": tp, "fp": fp, "tn": tn, "fn": fn}
