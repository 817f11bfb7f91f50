"""Tri-HE's NLI judge: a triplet holds when it is similar enough to what the scene graph says (section 3.3).

Of the reference triplets those are kept whose cosine similarity to the claim is above 0.5, or the three
most similar where none is; the claim is hallucinated when its similarity to the kept ones, joined into one
text in the graph's order, is below 0.6. No model is asked and no image is seen.

The threshold of 0.6 is for what can be seen. No scene graph states a mood or a purpose, so a triplet of the
category `inference` is decided by the probability that it is about this image and not another one: from its
similarity and that of its sub-sentence to the graph, by a logistic regression over reference answers of the
benchmark's first, third, ... image and answers borrowed from others (`validate tri-he --answers`). Between
`doubt` and `EVEN` it is undecided.

Beyond the paper, whose NLI judge gives overall rates only, a hallucinated triplet is blamed on the first of
its objects that resembles no object of the graph, else on the relation: section 3.1 by similarity.
"""

import asyncio
import math
from collections.abc import Sequence

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, Verdict
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.engines import attempt
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.triplets import INFERENCE, Part, SceneGraph, Triplet, blame, triplet_of
from groundwatch.verification.engines.base import Verification, VerificationEngine

VERSION = "2"

EVIDENCE = 300
"""Characters of the kept triplets that a verdict shows."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The paper's choices (section 3.3, appendix C); ours are `named` (how alike names of one object are) and
    `doubt`: the least probability at which an inference is not refuted. On the benchmark's odd images it is
    the largest that keeps the rate on reference answers below 0.20.

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
    """Judges triplets by similarity to the response's reference triplets.

    A response without reference triplets cannot be judged: `Unscorable("no_reference")`.
    """

    batch = 16

    def __init__(self, encoder: SentenceEmbedder | None = None, *, thresholds: Thresholds = PAPER) -> None:
        self._encoder = encoder or SentenceEmbedder()
        self._thresholds = thresholds
        self._turn = asyncio.Lock()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        limits, most = self._thresholds, "-max" if self._thresholds.maximum else ""
        numbers = limits.keep, limits.fallback, limits.holds, limits.named, limits.doubt
        version = "-".join([VERSION, *(f"{one:g}" for one in numbers)])
        return Judge(engine="similarity", model=self._encoder.name, version=version + most)

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
        found = similarities(claims, known, self._encoder, self._thresholds)
        objects = list(SceneGraph(reference.triplets, reference.objects).objects)
        texts = [event.units[one.unit].text if event.units else one.text for one in event.claims]
        graph = self._encoder.encode([f"{one}." for one in known])
        near = (self._encoder.encode(texts) @ graph.T).max(axis=1)
        chances = [probability(one.score, float(unit)) for one, unit in zip(found, near, strict=True)]
        judged = zip(event.claims, found, chances, strict=True)
        return Verification(verdicts=tuple(self._verdict(*one, known, objects) for one in judged))

    def _verdict(
        self, claim: Claim, found: Similarity, chance: float, known: Sequence[str], objects: Sequence[str]
    ) -> Verdict:
        near = "; ".join(known[at] for at in found.kept)[:EVIDENCE]
        why = f"similarity {found.score:.3f} to: {near}"
        concludes = claim.category == INFERENCE
        if found.score >= self._thresholds.holds or (concludes and chance >= EVEN):
            return Verdict(decision=Decision.SUPPORTED, probability=chance, evidence=why)
        if concludes and chance >= self._thresholds.doubt:
            return Verdict(decision=Decision.UNDECIDED, probability=chance, evidence=why)
        triplet = triplet_of(claim)
        part = wrong_part(triplet, objects, self._encoder, self._thresholds) if triplet else None
        return Verdict(decision=Decision.REFUTED, probability=chance, evidence=blame(part, why))
