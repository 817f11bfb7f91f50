"""VALOR as the services see it: five protocols, one for each subset, with one route and one arithmetic.

Source: VALOR-EVAL, Holistic Coverage and Faithfulness Evaluation of Large Vision-Language Models.
"""

from __future__ import annotations

from typing import ClassVar

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Match,
    ResponseRecorded,
    SubSentence,
)
from groundwatch.protocols.base import ExtractionRules, MatchedProtocol, Score, Stage, Step, load
from groundwatch.protocols.valor import questions
from groundwatch.protocols.valor.features import read_written
from groundwatch.protocols.valor.scoring import Matched, Pairs, Subset, count, protocol_name


class Valor(MatchedProtocol):
    """Extraction, matching with the response's reference, then equations 6 and 7.

    The reference's `objects` are the annotated features of the subset, each as one text: "sofa",
    "(red, apple)", "the cup is on the table | the table is under the cup", "ground / court". For
    comparative relations they stand from large to small. What matches nothing is hallucinated: it is in
    equation 6's denominator alone.
    """

    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.MATCHING, Stage.SCORING)

    def __init__(self, subset: Subset) -> None:
        self.subset = subset
        self.name = protocol_name(subset)
        self.rules = ExtractionRules(from_facts=self._features)

    def _features(self, facts: tuple[Claim, ...]) -> tuple[Claim, ...]:
        found: tuple[Claim, ...] = load("groundwatch.extraction.engines.linguistic.features:features")(
            facts, self.subset
        )
        return found

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Faithfulness, with the coverage beside it; `Unscorable` for a response without features."""
        if not isinstance(judged, ClaimsMatched):
            raise InputError(f"{self.name} scores matched claims, not verified ones")
        counts = count(matched_of(judged), self.subset)
        faithfulness, coverage = counts.faithfulness, counts.coverage
        if faithfulness is None:
            raise Unscorable("no_features", "nothing of this kind is said of the image")
        if coverage is None:
            raise Unscorable("no_reference", "the response's reference names no features")
        return Score(
            score=faithfulness,
            values={
                "faithfulness": faithfulness,
                "coverage": coverage,
                "faithful": counts.faithful,
                "generated": counts.generated,
                "covered": counts.covered,
                "reference": counts.reference,
            },
        )

    def prompt_digest(self, stage: Stage) -> str:
        return questions.prompt_digest(self.subset, stage)

    def extraction_steps(self) -> int:
        return questions.EXTRACTION_STEPS

    def extraction_step(
        self, index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> Step | None:
        return questions.extraction_step(self.subset, response)

    def read_extraction(
        self, index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
    ) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
        return questions.read_extraction(self.subset, reply, response)

    def matching_step(self, extracted: ClaimsExtracted) -> Step:
        return questions.matching_step(self.subset, extracted)

    def read_matching(self, reply: object, extracted: ClaimsExtracted) -> tuple[Match, ...]:
        return questions.read_matching(self.subset, reply, extracted)


PROTOCOLS = {subset: Valor(subset) for subset in Subset}


def matched_of(judged: ClaimsMatched) -> Matched:
    """The response as the arithmetic takes it."""
    matched, broader = pairs_of(judged)
    return Matched(
        image_id=judged.extracted.response.id,
        generated=tuple(claim.text for claim in judged.extracted.claims),
        reference=reference_of(judged.extracted),
        matched=matched,
        broader=broader,
    )


def pairs_of(judged: ClaimsMatched) -> tuple[Pairs, Pairs]:
    """D_M and D_B."""
    claims = judged.extracted.claims
    found = [(match.kind, (claims[match.claim].text, match.reference)) for match in judged.matches]
    return (
        tuple(pair for kind, pair in found if kind == "matched"),
        tuple(pair for kind, pair in found if kind == "broader"),
    )


def reference_of(extracted: ClaimsExtracted) -> tuple[tuple[str, ...], ...]:
    """F_G with every wording of each feature."""
    reference = extracted.response.reference
    return tuple(read_written(text) for text in reference.objects) if reference else ()
