"""Hallu_Q and Hallu_I of a published result file, overall and by kind; also of outcomes, where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from groundwatch.errors import UsageError
from groundwatch.protocols.tally import Result, Tally, TallyRequest
from groundwatch.protocols.trihe.published import read_judgements
from groundwatch.protocols.trihe.scoring import FREQUENT, JudgedQuestion, Kind, Rates, rates

if TYPE_CHECKING:
    from groundwatch.terminal import RenderableType

KINDS: tuple[Kind, ...] = ("object", "relation")


def tally_questions(questions: Sequence[JudgedQuestion]) -> Result:
    """Equations 1 and 2 as the published script computes them.

    An undecided triplet ("null") is in the denominator and not hallucinated. `by_kind` is there where some
    judgement names the part that is wrong; `part_not_named` counts hallucinations without one, which are in
    neither kind.
    """
    overall = rates(questions, undecided_count=True)
    triplets = [one for question in questions for one in question.triplets]
    wrong = [one for one in triplets if one.hallucinated]
    result: Result = {
        **msgspec.structs.asdict(overall),
        "triplets": len(triplets),
        "hallucinated": len(wrong),
        "undecided": sum(one.hallucinated is None for one in triplets),
        "without_triplets": len(questions) - overall.questions,
    }
    if any(one.part for one in wrong):
        result["by_kind"] = {kind: _both(rates(questions, kind, undecided_count=True)) for kind in KINDS}
        result["part_not_named"] = sum(one.part is None for one in wrong)
    return result


def _both(found: Rates) -> Result:
    return {"hallu_q": found.hallu_q, "hallu_i": found.hallu_i}


def _compute(request: TallyRequest) -> Result:
    if request.share is not None or request.tokens is not None:
        return _analysis(request)
    model, questions = read_judgements(request.file)
    return {"judgements": model, **tally_questions(questions)}


def _analysis(request: TallyRequest) -> Result:
    from groundwatch.protocols.trihe import analysis

    share = FREQUENT if request.share is None else request.share
    if not 0 < share <= 1:
        raise UsageError(f"share {share}: must lie above 0 and up to 1", "share")
    questions, undecided_count = analysis.read(request.file)
    ks = request.tokens or analysis.TOKENS
    return analysis.analyse(questions, share=share, ks=ks, undecided_count=undecided_count)


def _show(result: Result) -> RenderableType | None:
    if "pairs" not in result:
        return None
    from groundwatch.protocols.trihe import analysis

    return analysis.show(result)


TALLY = Tally(compute=_compute, takes=frozenset({"share", "tokens"}), tell=_show)
