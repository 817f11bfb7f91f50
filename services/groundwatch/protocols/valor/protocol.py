"""VALOR as the services see it: five protocols, one for each subset, with one route and one arithmetic.

Source: VALOR-EVAL, Holistic Coverage and Faithfulness Evaluation of Large Vision-Language Models.
"""

from typing import ClassVar

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, ClaimsMatched, ClaimsVerified, Reference
from groundwatch.protocols.base import ExtractionRules, Score, Stage, load
from groundwatch.protocols.features import read_written
from groundwatch.protocols.planted import by_kind
from groundwatch.protocols.valor.planted import SEES, planted_reference
from groundwatch.protocols.valor.questions import ValorQuestions
from groundwatch.protocols.valor.scoring import Matched, Pairs, Subset, count, protocol_name


class Valor(ValorQuestions):
    """Extraction, matching with the response's reference, then equations 6 and 7.

    The reference's `objects` are the annotated features of the subset, each as one text: "sofa",
    "(red, apple)", "the cup is on the table | the table is under the cup", "ground / court". For
    comparative relations they stand from large to small. What matches nothing is hallucinated: it is in
    equation 6's denominator alone.
    """

    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.MATCHING, Stage.SCORING)

    def __init__(self, subset: Subset) -> None:
        super().__init__(subset)
        self.name = protocol_name(subset)
        self.rules = ExtractionRules(from_facts=self._features)
        self.sees = by_kind({self.category: SEES[subset]})

    def _features(self, facts: tuple[Claim, ...]) -> tuple[Claim, ...]:
        features: tuple[Claim, ...] = load(f"{__package__}.extraction:features")(facts, self.subset)
        return features

    def planted_reference(self, reference: Reference) -> Reference:
        return planted_reference(reference, self.subset)

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
