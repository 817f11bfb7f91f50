"""AMBER's protocols: `amber` for descriptions, and one for each dimension of its yes/no questions."""

from typing import ClassVar

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    Match,
)
from groundwatch.language.nouns import likenesses
from groundwatch.protocols.base import ExtractionRules, MatchedProtocol, Score, Stage, load, read_figures
from groundwatch.protocols.questions import YesNoProtocol
from groundwatch_benchmarks.methods.amber.scoring import annotation_of, count

VERSION = "1"

NO_LIST = "amber finds nouns by its lists of words: extract with engine reader"


class Amber(MatchedProtocol):
    """A claim is a listed noun, as often as the description says it; a match is an object that it names.

    No LLM has a part in it. The score is 1 - CHAIR, so that more is better, as for every protocol here.
    """

    name = "amber"
    route: ClassVar[tuple[Stage, ...]] = (Stage.EXTRACTION, Stage.MATCHING, Stage.SCORING)
    rules = ExtractionRules(
        from_reading=lambda response, reading: load(f"{__package__}.extraction:read")(response, reading)
    )
    extraction_steps = 1
    headline = read_figures(__package__)

    def score(self, judged: ClaimsVerified | ClaimsMatched) -> Score:
        """Every count of one description; `Unscorable` with them when it mentions nothing that is listed."""
        if not isinstance(judged, ClaimsMatched):
            raise InputError("amber scores matched claims, not verified ones")
        known = annotation_of(judged.extracted.response)
        counts = count(_nouns(judged.extracted), judged.matches, known)
        values = {name: float(number) for name, number in counts.items()}
        if not counts["mentioned"]:
            # It hallucinates nothing, and covers nothing of what is there.
            raise Unscorable("nothing_to_verify", "the answer mentions no listed object", values)
        return Score(score=1 - counts["hallucinated"] / counts["mentioned"], values=values)

    def matching_judge(self) -> Judge:
        return Judge(engine=self.name, version=f"{VERSION}-{likenesses().digest}")

    def match(self, extracted: ClaimsExtracted) -> tuple[Match, ...]:
        """Raises `Unscorable` without a reference, `InputError` for claims that the lists did not find."""
        return annotation_of(extracted.response).matches(_nouns(extracted))


def _nouns(extracted: ClaimsExtracted) -> list[str]:
    if not all(claim.parts for claim in extracted.claims):
        raise InputError(NO_LIST)
    return [claim.parts[0] for claim in extracted.claims]


class Questions(YesNoProtocol):
    """Only the known truth decides: what is asked is no statement that a judge could hold up to an image."""

    verifiers: ClassVar[tuple[str, ...]] = ("reference",)
    headline = read_figures(__package__, "questions")


class Existence(Questions):
    name = "amber-existence"
    verifiers = YesNoProtocol.verifiers


class Attribute(Questions):
    name = "amber-attribute"


class Relation(Questions):
    name = "amber-relation"


PROTOCOLS = (Amber(), Existence(), Attribute(), Relation())
