"""Decides one claim from knowledge.

A claim that equals a known fact has that fact's truth. Otherwise each of its atoms is decided: one refuted
atom refutes the claim, and it is supported when everything that it asserts is. What a claim takes for
granted can only refute it. The rules for atoms are in `rules`.
"""

from typing import NamedTuple

from groundwatch.events import Decision
from groundwatch.language.statements import Statement, statement
from groundwatch.verification.engines.reference.knowledge import Knowledge
from groundwatch.verification.engines.reference.rules import Rules


class Ruling(NamedTuple):
    """A decision with the reference's item that it rests on."""

    decision: Decision
    evidence: str = ""


UNDECIDED = Ruling(Decision.UNDECIDED)
_OPPOSITE = {
    Decision.SUPPORTED: Decision.REFUTED,
    Decision.REFUTED: Decision.SUPPORTED,
    Decision.UNDECIDED: Decision.UNDECIDED,
}


def rule(text: str, known: Knowledge) -> Ruling:
    read = statement(text)
    stated = _stated(read, known)
    if stated is not None:
        return Ruling(_OPPOSITE[stated.decision], stated.evidence) if read.negated else stated
    if not read.asserted:
        return UNDECIDED
    rules = Rules(known)
    for atom in sorted(read.given, key=repr):
        decision, evidence = rules.decide(atom, given=True)
        if decision is Decision.REFUTED:
            return Ruling(decision, evidence)
    asserted = _asserted(read, rules)
    return Ruling(_OPPOSITE[asserted.decision], asserted.evidence) if read.negated else asserted


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
    together = rules.false_together(read.asserted | read.given)
    if together:
        return Ruling(Decision.REFUTED, together)
    decided = [Ruling(*rules.decide(atom, beside=read.asserted)) for atom in sorted(read.asserted, key=repr)]
    for wanted in (Decision.REFUTED, Decision.UNDECIDED):
        for ruling in decided:
            if ruling.decision is wanted:
                return ruling
    evidence = dict.fromkeys(ruling.evidence for ruling in decided if ruling.evidence)
    return Ruling(Decision.SUPPORTED, "; ".join(evidence))
