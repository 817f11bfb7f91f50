"""VALOR's second step without an LLM: lemma, synonym, sentence similarity; hypernyms for broader concepts.

A claim meets the reference by its category: objects by name, attributes as "(attribute, object)", relations
from either side, ranked objects by name with their alternatives. Numbered claims (attributes) and ranked ones
take a feature each; several objects may mean the same one (Appendix E).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Literal

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Judge, Match
from groundwatch.language.nouns import Likeness, compare_pair, compare_relation, likenesses
from groundwatch.matching.engines.base import Matching, MatchingEngine, annotated, head
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.engines import attempt
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.features import (
    ATTRIBUTE,
    RANK,
    RELATION,
    Features,
    attribute_pairs,
    plain,
    read_written,
)

VERSION = "2"

SIMILAR = 0.7
"""Cosine from which two names mean the same where the lexicons know no relation; tuned on the gold set."""

LONGEST = 200
"""Names are compared up to so many characters: what is longer is no name."""

MOST = 2_000
"""Features on either side; more are no annotation of one image."""

Grade = Literal[0, 1, 2, 3, 4]
EXACT: Grade = 4
SAME: Grade = 3
LIKE: Grade = 2
BROADER: Grade = 1
NOTHING: Grade = 0


class SemanticEngine(MatchingEngine):
    """Matches on the CPU.

    The embedding model is loaded at the first pair of names that the lexicons leave open.
    """

    batch = 16

    def __init__(self, embedder: SentenceEmbedder | None = None) -> None:
        self._embedder = embedder or SentenceEmbedder()
        self._graded = lru_cache(maxsize=65536)(self._grade)
        self._turn = asyncio.Lock()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        version = f"{VERSION}-{likenesses().digest}-{SIMILAR}"
        version += "-in-order" if protocol.in_order else ""
        return Judge(engine="semantic", model=self._embedder.name, version=version)

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        async with self._turn:
            match = partial(self._match, in_order=protocol.in_order)
            return await asyncio.to_thread(lambda: [attempt(match, event) for event in extracted])

    def compare(self, generated: str, reference: str) -> Likeness:
        """How one object's name relates to another: the decision that the gold set checks."""
        grade = self._graded(plain(generated)[:LONGEST], plain(reference)[:LONGEST])
        return Likeness.SAME if grade >= LIKE else Likeness.BROADER if grade else Likeness.NONE

    def _match(self, event: ClaimsExtracted, *, in_order: bool) -> Matching:
        objects = annotated(event)
        if max(len(event.claims), len(objects)) > MOST:
            raise Unscorable("too_many_features", f"at most {MOST} are matched with each other")
        features = tuple(read_written(text) for text in objects)
        by_category: dict[str, list[tuple[int, Claim]]] = {}
        for number, claim in enumerate(event.claims):
            by_category.setdefault(claim.category, []).append((number, claim))
        grades = {ATTRIBUTE: self._grade_pair, RELATION: self._grade_relation}
        matches: list[Match] = []
        for category, claims in by_category.items():
            shared = category not in (ATTRIBUTE, RANK)
            grade = grades.get(category, self._grade_object)
            matches += _assign(claims, features, grade, shared=shared, in_order=in_order)
        return Matching(matches=tuple(sorted(matches, key=lambda match: match.claim)))

    def _grade_object(self, claim: Claim, wording: str) -> Grade:
        return self._graded(plain(head(claim))[:LONGEST], plain(wording)[:LONGEST])

    def _grade_pair(self, claim: Claim, wording: str) -> Grade:
        if plain(claim.text) == plain(wording):
            return EXACT
        one, other = attribute_pairs(claim.text), attribute_pairs(wording)
        return _grade_of(compare_pair(one[0], other[0], self.compare)) if one and other else NOTHING

    def _grade_relation(self, claim: Claim, wording: str) -> Grade:
        if plain(claim.text) == plain(wording):
            return EXACT
        return _grade_of(compare_relation(claim.text, wording, self.compare))

    def _grade(self, generated: str, reference: str) -> Grade:
        if not generated or not reference:
            return NOTHING
        if generated == reference:
            return EXACT
        found = likenesses().compare(generated, reference)
        if found is Likeness.NONE and likenesses().open(generated, reference):
            first, second = self._embedder.encode([generated, reference])
            return LIKE if float(first @ second) >= SIMILAR else NOTHING
        return _grade_of(found)


def _assign(
    claims: Sequence[tuple[int, Claim]],
    features: Features,
    grade: Callable[[Claim, str], Grade],
    *,
    shared: bool,
    in_order: bool,
) -> list[Match]:
    """The best feature for each claim, the surest pairs first; only that of its number if `in_order`.

    Where features are not `shared`, each is taken once; the best is then what is left.
    """
    wishes = []
    for order, (number, claim) in enumerate(claims):
        for feature, wordings in enumerate(features):
            if in_order and feature != number:
                continue
            graded = ((grade(claim, one), one) for one in wordings)
            best, wording = max(graded, key=itemgetter(0), default=(0, ""))
            if best:
                wishes.append((-best, order, feature, number, wording))
    taken: set[int] = set()
    done: set[int] = set()
    matches = []
    for worth, _, feature, number, wording in sorted(wishes):
        if number in done or (not shared and feature in taken):
            continue
        done.add(number)
        taken.add(feature)
        kind: Literal["broader", "matched"] = "broader" if -worth == BROADER else "matched"
        matches.append(Match(claim=number, reference=wording, kind=kind))
    return matches


def _grade_of(likeness: Likeness) -> Grade:
    return SAME if likeness is Likeness.SAME else BROADER if likeness is Likeness.BROADER else NOTHING
