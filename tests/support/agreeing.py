"""What the annotation service writes down of a queue: corrected rates, and who agrees with whom."""

from __future__ import annotations

from groundwatch.reporting.corrected import CorrectedRow
from groundwatch.reviews.agreement import (
    Agreement,
    JudgeAgreement,
    JudgeDrift,
    ReviewerAgreement,
    write_agreement,
)
from groundwatch.reviews.corrected import CorrectedRates, write_corrected
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.statistics.intervals import Interval

JUDGES = "0f3a9c1b77de"
CATEGORIES = ("all", "color", "entity", "relation")


def _judges(protocol: str, category: str, kappa: Interval | None) -> JudgeAgreement:
    share = Interval(0.81, 0.74, 0.87, 120)
    return JudgeAgreement(
        protocol=protocol,
        fingerprint=JUDGES,
        category=category,
        answers=212,
        facts=1_048,
        kappa=kappa,
        f1=share,
        precision=share if kappa else None,
        recall=share,
    )


async def write_down(bus: Bus, queue: str) -> None:
    """Of two models, one without enough opinions; a category whose agreement is not known; a judge that
    drifts."""
    kappa = Interval(0.62, 0.53, 0.71, 212)
    judges = [_judges("faithscore", one, kappa if one != "relation" else None) for one in CATEGORIES]
    judges.append(_judges("valor", "all", Interval(-0.02, -0.2, 0.17, 9)))
    reviewers = [
        ReviewerAgreement(
            protocol="faithscore",
            category=one,
            facts=88,
            reviewers=2,
            fleiss=kappa if at else None,
            alpha=kappa,
        )
        for at, one in enumerate(CATEGORIES)
    ]
    drift = JudgeDrift(
        protocol="faithscore",
        fingerprint=JUDGES,
        queue=queue,
        before=Interval(0.8, 0.75, 0.84, 400),
        latest=Interval(0.48, 0.38, 0.58, 200),
    )
    await write_agreement(
        bus, Agreement(at=1.0, judges=tuple(judges), reviewers=tuple(reviewers), drift=(drift,))
    )
    rate = Interval(0.12, 0.1, 0.14, 90)
    rows = [
        CorrectedRow(
            queue=queue,
            model=model,
            version="*",
            protocol="faithscore",
            fingerprint=JUDGES,
            category=category,
            by="people",
            judged=Interval(0.2, 0.19, 0.21, 9_000),
            corrected=rate if model == "heron-7b" else None,
            labels_alone=rate,
            opinions=90,
            for_half=400 if category == "all" else None,
            reason="" if model == "heron-7b" else "no opinion decides a fact",
        )
        for model in ("heron-7b", "osprey-13b-a-model-with-a-long-name")
        for category in CATEGORIES
    ]
    await write_corrected(bus, CorrectedRates(at=1.0, rows=tuple(rows)))
