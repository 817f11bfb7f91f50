"""Yes/no questions as the services see them: one response answers one question about an image.

POPE and DASH-B ask such questions. "Yes" is the positive class of a cell: `fp` is an object that the model
saw and the image has not. A number whose denominator is 0 is None.

The question's truth travels in the response's reference as a known fact whose text is the question itself,
and which holds where yes is right. The claim of an answer "yes" is the question's text too, and that of "no"
the same with "No." after it; so any judge that knows the fact decides the claim by it. Without such a fact
the claim is written as a statement, which a judge can hold against objects, triplets or the image.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    KnownFact,
    OutcomeKind,
    Reference,
    ResponseRecorded,
    SubSentence,
)
from groundwatch.protocols.base import EvaluationProtocol, ExtractionRules, Score, Stage, folded, with_article
from groundwatch.protocols.method import CATEGORY, IMAGE, Pair, Picture, Question
from groundwatch.protocols.prompts import Step
from groundwatch.protocols.yes_no import UNREADABLE, Answer, read_reply
from groundwatch.statistics.intervals import Interval, bootstrap

NO_TRUTH = "no_truth"

UNREAD = {"accuracy": 0.0}
"""The values of a reply that cannot be read: as wrong as any other, so that a refusal does not pay."""

CELLS = ("tp", "fp", "tn", "fn")
RATES = ("accuracy", "precision", "recall", "f1", "yes_ratio")

_EXISTS = re.compile(r"^\s*(is|are) there (?:an? |any |some )?([^?]*[^?\s])\s*+(?:\?.*+)?$", re.IGNORECASE)
ANSWERS: dict[str, Answer] = {"yes": "yes", "no": "no"}
_OTHER: dict[Answer, Answer] = {"yes": "no", "no": "yes"}


class YesNoProtocol(EvaluationProtocol):
    """Read the reply by rule, decide whether it is right, count it. `score` is 1 for right, 0 for wrong.

    Its mean over responses is the accuracy; the sums of `tp`, `fp`, `tn` and `fn` give the other numbers.
    """

    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)
    rules = ExtractionRules(from_answer=lambda response: ((), (read_claim(response),)))
    verifiers: ClassVar[tuple[str, ...]] = ("reference", "visual", "triton", "detector")
    labelled = True
    extraction_steps = 1

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Raises `Unscorable`: unreadable_reply without a claim, no_truth where the judge did not decide."""
        if not isinstance(judged, ClaimsVerified):
            raise InputError(f"{self.name} scores verified claims, not matched ones")
        claims = judged.extracted.claims
        if not claims:
            raise Unscorable(UNREADABLE, "the reply is neither yes nor no", UNREAD)
        if len(claims) != 1 or len(judged.verdicts) != 1 or claims[0].category not in ANSWERS:
            given = f"{len(claims)} claims, {len(judged.verdicts)} verdicts"
            raise InputError(f"{given}: {self.name} has one yes or no")
        decision = judged.verdicts[0].decision
        if decision is Decision.UNDECIDED:
            raise Unscorable(NO_TRUTH, "nothing known of the image says what is right")
        said = ANSWERS[claims[0].category]
        right = decision is Decision.SUPPORTED
        counted = cell(said, said if right else _OTHER[said])
        values = {name: float(name == counted) for name in ("tp", "fp", "tn", "fn")}
        return Score(
            score=float(right),
            values={
                "accuracy": float(right),
                "accuracy_read": float(right),
                "yes": float(said == "yes"),
                **values,
            },
        )

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        raise InputError(f"{self.name} reads replies by rule: extract with engine reader")

    def statement(self, response: ResponseRecorded, claim: Claim) -> str:
        """The claim without what is known of the question's truth, for that is worded into its text."""
        said = ANSWERS.get(claim.category)
        return claim_of(msgspec.structs.replace(response, reference=None), said).text if said else claim.text


def read_claim(response: ResponseRecorded) -> Claim:
    """The claim of a reply, read by rule. Raises `Unscorable` with the reason why it cannot be read."""
    reading = read_reply(response.answer, response.prompt)
    if reading.answer is None:
        raise Unscorable(reading.reason, response.answer[:200], UNREAD)
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


def ask(name: str) -> str:
    """POPE's template (section 4.1), with the article that the name takes."""
    return f"Is there {with_article(name)} in the image?"


def question(
    protocol: str, name: str, text: str, label: Answer, image: str, picture: Picture, category: str
) -> Question:
    return Question(
        id=name,
        protocol=protocol,
        prompt=text,
        images=(picture,),
        reference=Reference(facts=(KnownFact(text=text, holds=label == "yes"),)),
        tags={CATEGORY: category, IMAGE: image},
        unit=image,
    )


def outcome_cell(pair: Pair) -> str:
    """The cell of an answer; without one `unread_yes` or `unread_no`, by what is true."""
    asked, outcome = pair
    facts = asked.reference.facts if asked.reference else ()
    true: Answer = "yes" if facts and facts[0].holds else "no"
    if outcome.outcome is not OutcomeKind.SCORED:
        return f"unread_{true}"
    return cell("yes" if outcome.claims[0].category == "yes" else "no", true)


def unscored(pairs: Sequence[Pair]) -> dict[str, object]:
    reasons = Counter(one.reason for _, one in pairs if one.outcome is not OutcomeKind.SCORED)
    return {"unscored": reasons.total(), "unscored_by_reason": dict(sorted(reasons.items()))}


def intervals(
    units: Iterable[Mapping[str, int]],
    rates: Callable[[Mapping[str, int]], Mapping[str, float | None]],
    names: Iterable[str],
) -> dict[str, Interval | None]:
    """Each of these rates with its interval over units, which are counts by name."""
    counts = [Counter(one) for one in units]
    return {
        name: bootstrap(counts, lambda drawn, name=name: rates(sum(drawn, Counter()))[name])  # type: ignore[misc]
        for name in names
    }
