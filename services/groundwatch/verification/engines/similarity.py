"""Tri-HE's NLI judge (`similarity`), and what is made of it here (`calibrated`).

A triplet holds when it is similar enough to what the scene graph says (section 3.3).

Of the reference triplets those are kept whose cosine similarity to the claim is above 0.5, or the three
most similar where none is; the claim is hallucinated when its similarity to the kept ones, joined into one
text in the graph's order, is below 0.6. No model is asked and no image is seen. That is all that
`similarity` does, with any encoder.

`calibrated` is fitted to the benchmark. The threshold of 0.6 is for what can be seen. No scene graph states
a mood or a purpose, so a triplet of the category `inference` is decided by the probability that it is about
this image and not another one: from its similarity and that of its sub-sentence to the graph, by a logistic
regression over reference answers of the benchmark's first, third, ... image and answers borrowed from others
(`validate tri-he --answers`). Between `doubt` and `EVEN` it is undecided. A described triplet above 0.6 one
of whose objects resembles no object of the graph is undecided too: the graph does not show it. Likeness says
nothing of a denial: where the graph has neither it nor what it denies, it is undecided. Nor does it of
numbers, colors and other values of which a thing has one, nor of relations that exclude each other, such as
left and right: what the graph's own words exclude, by the rules of the judge `reference`, is refuted, and a
described value that they do not give is not supported. What words decide carries no probability.

Beyond the paper, whose NLI judge gives overall rates only, a hallucinated triplet is blamed on the first of
its objects that resembles none, else on the relation: section 3.1 by similarity.
"""

import asyncio
import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Decision, Judge, Reference, Verdict
from groundwatch.language import statements
from groundwatch.language.lexicon import Lexicon, lexicon
from groundwatch.language.statements import Atom, Has, Number
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.engines import attempt
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.triplets import INFERENCE, Part, SceneGraph, Triplet, blame, triplet_of
from groundwatch.verification.engines.base import Verification, VerificationEngine
from groundwatch.verification.engines.reference import Rules, Ruling, knowledge, rule_on

EVIDENCE = 300
"""Characters of the kept triplets that a verdict shows."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The paper's choices (section 3.3, appendix C); ours are `named` (how alike names of one object are) and
    `doubt`: the least probability at which an inference is not refuted. On the benchmark's odd images it
    keeps the rate on reference answers at 0.20.

    With `maximum` the three most similar are no fallback: the larger of both similarities counts, as in the
    published code.
    """

    keep: float = 0.5
    fallback: int = 3
    holds: float = 0.6
    named: float = 0.55
    doubt: float = 0.35
    maximum: bool = False


EVEN = 0.5
"""The probability from which an inference is supported: likelier of this image than of another one."""

INTERCEPT, OF_TRIPLET, OF_UNIT = -4.7, 6.0, 6.3
"""The logistic regression's coefficients, fitted on answers to the benchmark's odd images."""

PAPER = Thresholds()
PUBLISHED_CODE = Thresholds(maximum=True)


class Similarity(msgspec.Struct, frozen=True, kw_only=True):
    """A claim's similarity to the reference triplets that were kept for it, given by their indexes."""

    score: float
    kept: tuple[int, ...]


def similarities(
    claims: Sequence[str], reference: Sequence[str], encoder: SentenceEmbedder, thresholds: Thresholds = PAPER
) -> list[Similarity]:
    """Compare each claim with the reference, both as texts. Raises `ValueError` for an empty reference."""
    import numpy as np

    if not reference:
        raise ValueError("no reference triplet to compare with")
    if not claims:
        return []
    known = [f"{text}." for text in reference]
    said = encoder.encode(claims)
    each = said @ encoder.encode(known).T
    choices: list[list[tuple[int, ...]]] = []
    for row in each:
        nearest = tuple(int(at) for at in np.argsort(-row, kind="stable")[: thresholds.fallback])
        kept = tuple(int(at) for at in np.flatnonzero(row > thresholds.keep)) or nearest
        choices.append([kept, nearest] if thresholds.maximum and kept != nearest else [kept])
    texts = [" ".join(known[at] for at in indexes) for several in choices for indexes in several]
    joined = iter(encoder.encode(texts))
    found = []
    for vector, several in zip(said, choices, strict=True):
        graded = [Similarity(score=float(vector @ next(joined)), kept=indexes) for indexes in several]
        found.append(max(graded, key=lambda one: one.score))
    return found


def wrong_part(
    triplet: Triplet, objects: Sequence[str], encoder: SentenceEmbedder, thresholds: Thresholds = PAPER
) -> Part:
    """Which part of a hallucinated triplet is wrong, given the names of all objects of the graph."""
    first, _, second = triplet
    known = encoder.encode([name.casefold() for name in objects])
    alike = encoder.encode([first.casefold(), second.casefold()]) @ known.T
    if alike[0].max(initial=-1.0) < thresholds.named:
        return "object1"
    return "object2" if alike[1].max(initial=-1.0) < thresholds.named else "relation"


def probability(triplet: float, unit: float) -> float:
    """That a triplet is about this image, by the similarities of it and of its sub-sentence to the graph."""
    return 1.0 / (1.0 + math.exp(-(INTERCEPT + OF_TRIPLET * triplet + OF_UNIT * unit)))


class SimilarityEngine(VerificationEngine):
    """The paper's judge, pure: the larger similarity decides, and no part is blamed.

    A response without reference triplets cannot be judged: `Unscorable("no_reference")`.
    """

    name = "similarity"
    version = "3"
    batch = 16

    def __init__(self, encoder: SentenceEmbedder | None = None, *, thresholds: Thresholds = PAPER) -> None:
        self._encoder = encoder or SentenceEmbedder()
        self._thresholds = thresholds
        self._turn = asyncio.Lock()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        limits, most = self._thresholds, "-max" if self._thresholds.maximum else ""
        numbers = limits.keep, limits.fallback, limits.holds, *self._own_numbers()
        version = "-".join([self.version, *(f"{one:g}" for one in numbers)])
        return Judge(engine=self.name, model=self._encoder.name, version=version + most)

    def _own_numbers(self) -> tuple[float, ...]:
        return ()

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        async with self._turn:
            return await asyncio.to_thread(lambda: [attempt(self._verify, event) for event in extracted])

    async def warm_up(self) -> None:
        await asyncio.to_thread(self._encoder.encode, ["warm-up"])

    def _verify(self, event: ClaimsExtracted) -> Verification:
        reference = event.response.reference
        if reference is None or not reference.triplets:
            raise Unscorable("no_reference", "the similarity judge needs reference triplets")
        known = [" ".join(triplet) for triplet in dict.fromkeys(reference.triplets)]
        claims = [" ".join(claim.parts) if claim.parts else claim.text for claim in event.claims]
        compared = similarities(claims, known, self._encoder, self._thresholds)
        return Verification(verdicts=tuple(self._verdicts(event, reference, known, compared)))

    def _verdicts(
        self,
        event: ClaimsExtracted,
        reference: Reference,
        known: Sequence[str],
        compared: Sequence[Similarity],
    ) -> Iterator[Verdict]:
        for similarity in compared:
            holds = similarity.score >= self._thresholds.holds
            yield Verdict(
                decision=Decision.SUPPORTED if holds else Decision.REFUTED,
                evidence=_evidence(similarity, known),
            )


class CalibratedEngine(SimilarityEngine):
    """The paper's judge with what is fitted to the benchmark: see the module."""

    name = "calibrated"
    version = "5"

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        known = super().judge(protocol)
        return msgspec.structs.replace(known, version=f"{known.version}-{lexicon().digest}")

    def _own_numbers(self) -> tuple[float, ...]:
        return self._thresholds.named, self._thresholds.doubt

    def _verdicts(
        self,
        event: ClaimsExtracted,
        reference: Reference,
        known: Sequence[str],
        compared: Sequence[Similarity],
    ) -> Iterator[Verdict]:
        objects = SceneGraph(reference.triplets, reference.objects).objects
        words = Words(reference)
        texts = [event.units[one.unit].text if event.units else one.text for one in event.claims]
        graph = self._encoder.encode([f"{one}." for one in known])
        near = (self._encoder.encode(texts) @ graph.T).max(axis=1) if texts else ()
        for claim, similarity, unit in zip(event.claims, compared, near, strict=True):
            chance = probability(similarity.score, float(unit))
            concludes, triplet = claim.category == INFERENCE, triplet_of(claim)
            part = wrong_part(triplet, objects, self._encoder, self._thresholds) if triplet else None
            decision = self._decide(similarity.score, chance, concludes, part)
            if triplet and (ruled := words.rule(triplet)):
                denied = denies(triplet)
                if ruled.decision is not Decision.UNDECIDED:
                    part = "relation" if denied else part
                    yield _verdict(ruled.decision, part, f"the graph says: {ruled.evidence}")
                    continue
                if not concludes and (denied or decision is Decision.SUPPORTED):
                    decision = Decision.UNDECIDED
            yield _verdict(decision, part, _evidence(similarity, known), chance)

    def _decide(self, similarity: float, chance: float, concludes: bool, part: Part | None) -> Decision:
        if similarity >= self._thresholds.holds:
            shown = concludes or part not in ("object1", "object2")
            return Decision.SUPPORTED if shown else Decision.UNDECIDED
        if not concludes or chance < self._thresholds.doubt:
            return Decision.REFUTED
        return Decision.SUPPORTED if chance >= EVEN else Decision.UNDECIDED


class Words:
    """What a graph's own words say of a triplet where likeness says nothing."""

    def __init__(self, graph: Reference) -> None:
        affirmed = tuple(one for one in graph.triplets if not denies(one))
        self._rules = Rules(knowledge(Reference(triplets=affirmed, objects=graph.objects)))
        self._has_denials = len(affirmed) < len(graph.triplets)
        self._triplets = graph.triplets

    def rule(self, triplet: Triplet) -> Ruling | None:
        """None where likeness decides; undecided for a denial, and for a value of which a thing has one,
        that the graph neither gives nor excludes."""
        if denies(triplet):
            return self._in_same_words(triplet)
        if self._has_denials and (same := self._in_same_words(triplet)).decision is Decision.REFUTED:
            return same
        read = statements.triplet(*triplet)
        ruling = rule_on(read, self._rules)
        if ruling.decision is Decision.REFUTED:
            return ruling
        values = read.asserted and all(_is_exclusive(atom, self._rules.lexicon) for atom in read.asserted)
        return ruling if ruling.decision is Decision.UNDECIDED and values else None

    def _in_same_words(self, triplet: Triplet) -> Ruling:
        """By what the graph says in these words, denied or not, if it does not say both."""
        said = _affirmed(triplet)
        found = {denies(one): " ".join(one) for one in self._triplets if _affirmed(one) == said}
        if len(found) != 1:
            return Ruling(Decision.UNDECIDED)
        ((denied, evidence),) = found.items()
        return Ruling(Decision.SUPPORTED if denied == denies(triplet) else Decision.REFUTED, evidence)


def _verdict(decision: Decision, part: Part | None, why: str, chance: float | None = None) -> Verdict:
    why = blame(part, why) if decision is Decision.REFUTED else why
    return Verdict(decision=decision, probability=chance, evidence=why)


def _is_exclusive(atom: Atom, words: Lexicon) -> bool:
    """Whether it gives a value of a kind of which a thing has only one."""
    if isinstance(atom, Has):
        kind = words.attributes.kinds.get(atom.attribute.kind)
        return kind is not None and kind.exclusive
    return isinstance(atom, Number) and atom.exact


_DENIAL = re.compile(r"n['’]t\b|\b(?:not|never|no|cannot)\b", re.IGNORECASE)


def denies(triplet: Triplet) -> bool:
    """Whether it does by its relation, or as ("boat", "does", "not float")."""
    return _DENIAL.search(f"{triplet[1]} {triplet[2].partition(' ')[0]}") is not None


def _affirmed(triplet: Triplet) -> tuple[str, str]:
    from groundwatch.reading.inflection import base_words
    from groundwatch.reading.names import bare

    first, relation, second = triplet
    return bare(first), base_words(_DENIAL.sub(" ", f"{relation} {bare(second)}"))


def _evidence(similarity: Similarity, known: Sequence[str]) -> str:
    near = "; ".join(known[at] for at in similarity.kept)[:EVIDENCE]
    return f"similarity {similarity.score:.3f} to: {near}"
