"""Judged questions out of scored responses."""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import PurePath
from typing import Any

from groundwatch.events import Decision, OutcomeKind, ResponseScored
from groundwatch.protocols.outcomes import read_outcomes
from groundwatch.protocols.published import Place
from groundwatch.protocols.trihe.protocol import HALLUCINATED, TriHe
from groundwatch.protocols.trihe.scoring import JudgedQuestion, JudgedTriplet
from groundwatch.protocols.triplets import part_of

IMAGE_TAGS = ("image_id", "image")
"""The tags that name a response's image, the first one that is there."""


def image_of(tags: Mapping[str, str]) -> str | None:
    """The image that a response is about, without the ending of its file's name."""
    return next((PurePath(tags[name]).stem for name in IMAGE_TAGS if tags.get(name)), None)


def judged_question(outcome: ResponseScored, image: str) -> JudgedQuestion:
    """The triplets of an outcome, each with the tokens up to the end of its sub-sentence."""
    ends = list(accumulate(len(unit.text.split()) for unit in outcome.units))
    return JudgedQuestion(
        image=image,
        triplets=tuple(
            JudgedTriplet(
                hallucinated=HALLUCINATED[claim.decision],
                part=part_of(claim.evidence) if claim.decision is Decision.REFUTED else None,
                triplet=(claim.parts[0], claim.parts[1], claim.parts[2]) if len(claim.parts) == 3 else None,
                tokens=ends[claim.unit] if 0 <= claim.unit < len(ends) else None,
            )
            for claim in outcome.claims
        ),
    )


def judged_outcomes(lines: Iterable[tuple[Place, dict[str, Any]]]) -> list[JudgedQuestion]:
    """One question for each response that was judged, its image by tag, else by its own id."""
    return [
        judged_question(outcome, image_of(outcome.tags) or outcome.id)
        for _, outcome in read_outcomes(lines, TriHe.name)
        if outcome.outcome is not OutcomeKind.DECLINED
    ]
