"""VALOR's arithmetic over a file of matched features."""

import msgspec

from groundwatch.protocols.tally import Result, Tally, TallyRequest
from groundwatch.protocols.valor.files import SUBSETS, read_matched, subset_of
from groundwatch.protocols.valor.scoring import count, pool


def _compute(request: TallyRequest) -> Result:
    subset = subset_of(request.subset or "")
    scores = pool(count(response, subset) for response in read_matched(request.file, subset))
    return {"subset": subset.value, **msgspec.to_builtins(scores)}


def _tell(result: Result) -> str:
    shown = {name: "–" if value is None else f"{value:.1%}" for name, value in _rates(result).items()}
    return (
        f"{result['subset']}: faithfulness {shown['faithfulness']}, coverage {shown['coverage']} (pooled); "
        f"{shown['faithfulness_mean']} and {shown['coverage_mean']} on average over {result['responses']} "
        f"responses; {result['unscored']} without features; {result['stray']} pairs count nowhere"
    )


def _rates(result: Result) -> dict[str, float | None]:
    names = ("faithfulness", "coverage", "faithfulness_mean", "coverage_mean")
    return {name: value if isinstance(value := result[name], float) else None for name in names}


TALLY = Tally(compute=_compute, tell=_tell, needs={"subset": f"one of {SUBSETS}"})
