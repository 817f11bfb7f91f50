"""Judges in a row against the known truth: the detector first, the verifier last, by the real engine.

Where the detector is believed is chosen on statements about other scenes than those that are measured. The
verifier is not asked again: what it said of each fact of the same answers when it judged alone is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, ResponseScored, Usage, Verdict
from groundwatch.miniature.language import holds
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.method import Progress
from groundwatch.runtime.settings.judges import CascadeStep
from groundwatch.verification.engines.base import Verification, VerificationEngine
from groundwatch.verification.engines.cascade import CascadeEngine, Step
from groundwatch_benchmarks.miniature.detecting import detector

if TYPE_CHECKING:
    from groundwatch_benchmarks.miniature.answers import Answered, Judged

RIGHT = 0.99
"""The least share of right verdicts beyond a bound."""

MOST = 0.20
"""The largest share of facts that may reach the last judge."""

FIRST, LAST = "detector", "triton"
BATCH = 100


class Recorded(VerificationEngine):
    """Says of each claim what a judge said of it in these outcomes. `asked`: categories of these claims."""

    batch = BATCH

    def __init__(self, outcomes: Iterable[ResponseScored], asked: Counter[str]) -> None:
        self._asked = asked
        self._said = {
            (one.id, claim.text): Verdict(decision=claim.decision, probability=claim.probability)
            for one in outcomes
            for claim in one.claims
        }

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine=LAST)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        self._asked.update(claim.category for event in extracted for claim in event.claims)
        return [
            Verification(
                verdicts=tuple(self._said[event.response.id, claim.text] for claim in event.claims),
                usage=Usage(calls=1),
            )
            for event in extracted
        ]


async def cascade_rates(
    models: Sequence[Judged],
    folder: Path,
    bounds: CascadeStep,
    protocol: EvaluationProtocol,
    progress: Progress,
) -> dict[str, Any]:
    """The share of facts that reaches the last judge, and what becomes of them at each. `folder`: the
    detector's checkpoint.

    `rate_error` is of each judge's rate over its facts against the rate by the truth of the same facts: the
    largest of all models. `error_of_answers` is against what is true of the answers, as everywhere else.
    """
    asked, facts = Counter[str](), Counter[str]()
    judges = {FIRST: Counter[str](), LAST: Counter[str]()}

    def on_step(_: str, __: int, engine: str, became: Mapping[str, int], usage: Usage) -> None:
        judges[engine].update(became)
        judges[engine]["calls"] += usage.calls

    by_model = {}
    first = detector(folder, {one.response.images[0]: one.shown for model in models for one in model.answers})
    for model in models:
        pairs = list(model.judged(protocol.name))
        last = Recorded((outcome for _, outcome in pairs), asked)
        cascade = CascadeEngine([Step(bounds, first), Step(CascadeStep(engine=LAST), last)])
        results: list[Verification | GroundwatchError] = []
        for start in range(0, len(pairs), BATCH):
            events = [_claims(*pair) for pair in pairs[start : start + BATCH]]
            results += await cascade.run(events, protocol, on_step=on_step)
            progress(f"{model.name} cascade", len(results), len(pairs))
        facts.update(claim.category for _, outcome in pairs for claim in outcome.claims)
        by_model[model.name] = _rates(pairs, list(_verdicts(results)))
    return {
        "refuted_below": bounds.refuted_below,
        "supported_above": bounds.supported_above,
        "facts": facts.total(),
        "share_last": asked.total() / facts.total(),
        "share_last_by_category": {category: asked[category] / facts[category] for category in facts},
        "judges": judges,
        "rate_error": {
            judge: max(abs(one[judge]["rate_error"]) for one in by_model.values())
            for judge in ("cascade", "last_judge")
        },
        "by_model": by_model,
    }


def rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Of a table: model, true rate, then the rate and what is wrong by the cascade and by the last judge."""
    for name, one in found["by_model"].items():
        judges = [one[judge] for judge in ("cascade", "last_judge")]
        cells = (f"{of[key]:.2%}" for of in judges for key in ("estimated", "wrong"))
        yield name, f"{one['true']:.2%}", *cells


def _claims(answered: Answered, outcome: ResponseScored) -> ClaimsExtracted:
    claims = tuple(Claim(text=one.text, category=one.category, unit=one.unit) for one in outcome.claims)
    return ClaimsExtracted(
        response=answered.response, protocol=outcome.protocol, judge=Judge(engine=""), claims=claims
    )


def _verdicts(results: Iterable[Verification | GroundwatchError]) -> Iterator[tuple[Verdict, ...]]:
    for result in results:
        if isinstance(result, GroundwatchError):
            raise result
        yield result.verdicts


def _rates(
    pairs: Sequence[tuple[Answered, ResponseScored]], verdicts: Sequence[tuple[Verdict, ...]]
) -> dict[str, Any]:
    """Of the facts of these answers that the world's grammar reads, by the cascade and by the last alone."""
    decisions: dict[str, list[Decision]] = {"cascade": [], "last_judge": []}
    false: list[bool] = []
    for (answered, outcome), several in zip(pairs, verdicts, strict=True):
        for claim, verdict in zip(outcome.claims, several, strict=True):
            if (true := holds(answered.shown, claim.text)) is not None:
                false.append(not true)
                decisions["cascade"].append(verdict.decision)
                decisions["last_judge"].append(claim.decision)
    stated = sum(answered.truth.facts for answered, _ in pairs)
    of_answers = sum(answered.truth.false_facts for answered, _ in pairs) / stated
    told: dict[str, Any] = {
        "facts": len(false),
        "true": sum(false) / len(false),
        "true_of_answers": of_answers,
    }
    for judge, said in decisions.items():
        counts = Counter(said)
        rate = counts[Decision.REFUTED] / (len(said) - counts[Decision.UNDECIDED])
        wrong = sum((one is Decision.REFUTED) != is_false for one, is_false in zip(said, false, strict=True))
        told[judge] = {
            "estimated": rate,
            "rate_error": rate - told["true"],
            "error_of_answers": rate - of_answers,
            "wrong": wrong / len(said),
        }
    return told


def believed(judged: Iterable[tuple[Verdict, bool]]) -> CascadeStep:
    """The detector with its bounds. `judged`: verdicts on statements, and whether these are true."""
    sides: dict[Decision, list[tuple[float, bool]]] = {Decision.SUPPORTED: [], Decision.REFUTED: []}
    for verdict, true in judged:
        if verdict.probability is not None and verdict.decision in sides:
            supported = verdict.decision is Decision.SUPPORTED
            sure = verdict.probability if supported else 1 - verdict.probability
            sides[verdict.decision].append((sure, supported == true))
    low, high = (bound(sides[side]) for side in (Decision.REFUTED, Decision.SUPPORTED))
    return CascadeStep(engine=FIRST, refuted_below=1 - low, supported_above=high)


def bound(verdicts: Iterable[tuple[float, bool]], right: float = RIGHT) -> float:
    """The least sureness above which such a share of verdicts was right: 0.5 where all may be believed, 1
    where none. `verdicts`: how sure each was (0.5 to 1), and whether it was right."""
    found, hits, number = 1.0, 0, 0
    levels = [
        (level, [hit for _, hit in alike])
        for level, alike in groupby(sorted(verdicts, reverse=True), itemgetter(0))
    ]
    for (_, alike), (below, _) in zip(levels, [*levels[1:], (0.5, [])], strict=False):
        hits, number = hits + sum(alike), number + len(alike)
        if hits >= right * number:
            found = below
    return found
