"""How far a matcher of objects agrees with people: the gold set of word pairs.

One JSON object a line: `generated`, `reference`, `decision` (matched, broader or none) and `half`, which is
"tune" for pairs that the engine's data may be tuned on and "test" for those that it may not.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from groundwatch.matching.engines import SemanticEngine
from groundwatch.models.embeddings import embedder
from groundwatch.protocols.method import Result
from groundwatch_benchmarks.agreement.judging import EMBEDDING_MODEL
from groundwatch_benchmarks.coefficients import f1
from groundwatch_benchmarks.json_files import read_lines

Decision = Literal["matched", "broader", "none"]
DECISIONS: tuple[str, ...] = get_args(Decision)
Half = Literal["tune", "test"]
HALVES: tuple[str, ...] = get_args(Half)


def validate(
    file: Annotated[Path, Meta(description="Pairs of names that people matched (JSON lines).")],
    *,
    embedding_model: Annotated[str, Meta(description=EMBEDDING_MODEL)] = "",
) -> Result:
    """VALOR's matching engines against pairs that people matched."""
    engine = SemanticEngine(embedder(embedding_model))
    return {"protocol": "valor", "matching": matching_accuracy(read_gold(file), engine.compare)}


class GoldPair(msgspec.Struct, frozen=True, kw_only=True):
    generated: str
    reference: str
    decision: Decision
    half: Half


def read_gold(path: Path) -> list[GoldPair]:
    return [pair for _, pair in read_lines(path, GoldPair)]


def matching_accuracy(pairs: Sequence[GoldPair], compare: Callable[[str, str], str]) -> dict[str, Any]:
    """Accuracy per half, and F1 per decision on the test half; None where there is nothing to count."""
    decided = [(pair, str(compare(pair.generated, pair.reference))) for pair in pairs]
    halves: dict[str, Any] = {}
    for half in HALVES:
        chosen = [(pair, found) for pair, found in decided if pair.half == half]
        right = sum(pair.decision == found for pair, found in chosen)
        halves[half] = {"accuracy": right / len(chosen) if chosen else None, "decisions": len(chosen)}
    test = [(pair.decision, found) for pair, found in decided if pair.half == "test"]
    return {**halves, "f1": {decision: f1(test, decision) for decision in DECISIONS}}
