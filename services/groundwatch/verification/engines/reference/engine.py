"""The reference judge: decides claims from what is known of the image, without a model.

In this order, the first rule that applies decides:

1. The claim equals a known fact (same words, or the same atoms through the lexicon): that fact's truth,
   flipped when just one of the two is negated. Facts that contradict each other leave it open.
2. Something that the claim takes for granted is known to be false, or is absent from a complete
   reference: refuted. "The dog is brown." needs a dog.
3. The claim says all that a false fact says: refuted.
4. Any asserted atom is refuted: refuted. Another value of the same exclusive kind (color, material, …),
   another number, an excluding relation (left and right of, sitting and standing) refute, if the
   reference can only mean the same thing by it: the only such thing, or all of them.
5. Every asserted atom follows from the reference, through synonyms, broader concepts, inverse relations
   and what one action implies of another: supported.
6. Otherwise undecided.

Only a complete reference lets absence refute. A thing is absent when neither it nor a kind of it is named,
unless the word is generic ("scene"), the thing is a part of something named ("nose") or a broader name
may mean it. A relation between two named things that the reference does not state is refuted only if the
reference states the same verb of the same living subject with another object, or of another living
subject with the same object, and nothing between the two; places and "near" stay open, for no reference
lists them all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Decision, Judge, Reference, Verdict
from groundwatch.language.lexicon import lexicon
from groundwatch.language.statements import Statement, statement
from groundwatch.models.engines import in_turn
from groundwatch.protocols.base import EvaluationProtocol, with_article
from groundwatch.protocols.triplets import Part, Triplet, blame, triplet_of
from groundwatch.verification.engines.base import Verification, VerificationEngine
from groundwatch.verification.engines.reference.knowledge import Knowledge, knowledge
from groundwatch.verification.engines.reference.rules import Rules


class Ruling(NamedTuple):
    """A decision with the reference's item that it rests on."""

    decision: Decision
    evidence: str = ""

    def negated(self) -> Ruling:
        opposite = {Decision.SUPPORTED: Decision.REFUTED, Decision.REFUTED: Decision.SUPPORTED}
        return Ruling(opposite.get(self.decision, self.decision), self.evidence)


UNDECIDED = Ruling(Decision.UNDECIDED)


def rule(text: str, rules: Rules) -> Ruling:
    read = statement(text)
    stated = _stated(read, rules.known)
    if stated is not None:
        return stated.negated() if read.negated else stated
    if not read.asserted:
        return UNDECIDED
    for atom in sorted(read.given, key=repr):
        decision, evidence = rules.decide(atom, given=True)
        if decision is Decision.REFUTED:
            return Ruling(decision, evidence)
    asserted = _asserted(read, rules)
    return asserted.negated() if read.negated else asserted


def _stated(read: Statement, known: Knowledge) -> Ruling | None:
    """The truth of a known fact that says the same thing, if the reference does not contradict itself."""
    found = known.texts.get(read.key)
    if not found and read.asserted:
        found = known.shapes.get(read.asserted)
    if not found and not read.asserted and read.words:
        found = known.bags.get(read.words)
    if not found:
        return None
    holds, evidence = min(found)
    if len({truth for truth, _ in found}) > 1:
        return Ruling(Decision.UNDECIDED, evidence)
    return Ruling(Decision.SUPPORTED if holds else Decision.REFUTED, evidence)


def _asserted(read: Statement, rules: Rules) -> Ruling:
    if rules.known.together and (together := rules.false_together(read.asserted | read.given)):
        return Ruling(Decision.REFUTED, together)
    undecided: Ruling | None = None
    supporting: dict[str, None] = {}
    for atom in sorted(read.asserted, key=repr):
        ruling = Ruling(*rules.decide(atom, beside=read.asserted))
        if ruling.decision is Decision.REFUTED:
            return ruling
        if ruling.decision is Decision.UNDECIDED:
            undecided = undecided or ruling
        elif ruling.evidence:
            supporting[ruling.evidence] = None
    return undecided or Ruling(Decision.SUPPORTED, "; ".join(supporting))


VERSION = "3"

SECONDS = 30.0
"""In which the claims of one answer are judged; the most that are taken need a tenth of it."""


class ReferenceEngine(VerificationEngine):
    """Judges claims against what the response's own reference says of the image. No model, no image.

    A response without a reference cannot be judged: its result is `Unscorable("no_reference")`.
    """

    batch = 64

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="reference", version=f"{VERSION}-{lexicon().digest}")

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        return await in_turn(_verify, extracted)


def _verify(event: ClaimsExtracted) -> Verification:
    until = time.monotonic() + SECONDS
    reference = event.response.reference
    if reference is None or reference == Reference(complete=reference.complete):
        raise Unscorable("no_reference", "the response says nothing of what is in its image")
    rules = Rules(knowledge(reference))
    verdicts = []
    for claim in event.claims:
        if time.monotonic() > until:
            raise Unscorable("took_too_long", f"its claims take longer than {SECONDS:g} s to judge")
        ruling = rule(claim.text, rules)
        evidence = ruling.evidence
        if ruling.decision is Decision.REFUTED and (triplet := triplet_of(claim)):
            evidence = blame(_wrong_part(triplet, rules), evidence)
        verdicts.append(Verdict(decision=ruling.decision, evidence=evidence))
    return Verification(verdicts=tuple(verdicts))


def _wrong_part(triplet: Triplet, rules: Rules) -> Part:
    """The first of a refuted triplet's objects that is not in the image, else its relation (section 3.1)."""
    parts: tuple[tuple[Part, str], ...] = (("object1", triplet[0]), ("object2", triplet[2]))
    absent = (
        part
        for part, name in parts
        if rule(f"There is {with_article(name)}.", rules).decision is Decision.REFUTED
    )
    return next(absent, "relation")
