"""FaithScore's arithmetic on what people judged: its published annotation file."""

from collections.abc import Sequence
from statistics import fmean

import msgspec

from groundwatch.protocols.faithscore.annotation import AnnotatedAnswer, read_annotations
from groundwatch.protocols.tally import Result, Tally, TallyRequest
from groundwatch.statistics.intervals import Interval, Moments, mean_interval


def tally_answers(answers: Sequence[AnnotatedAnswer]) -> Result:
    """Equation 1 on people's labels: the mean over answers that have facts, None when none has."""
    moments = Moments()
    for annotated in answers:
        if annotated.facts:
            moments.add(fmean(annotated.facts.values()))
    interval = mean_interval(moments, bounds=(0.0, 1.0))
    facts = [holds for annotated in answers for holds in annotated.facts.values()]
    return {
        "faithscore": interval.value if interval else None,
        "interval": msgspec.to_builtins(interval),
        "answers": len(answers),
        "scored": moments.n,
        "unscored": len(answers) - moments.n,
        "facts": len(facts),
        "hallucinated": facts.count(False),
    }


def _compute(request: TallyRequest) -> Result:
    return tally_answers(read_annotations(request.file))


def _tell(result: Result) -> str:
    shown = "–"
    if result["interval"] is not None:
        found = msgspec.convert(result["interval"], Interval)
        shown = f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f}, n = {found.n})"
    return (
        f"faithscore {shown} over {result['scored']} of {result['answers']} answers; "
        f"{result['unscored']} without facts; {result['hallucinated']} of {result['facts']} facts "
        "not in the image"
    )


TALLY = Tally(compute=_compute, tell=_tell)
