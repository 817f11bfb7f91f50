"""How far a matcher of objects agrees with people: the gold set of word pairs.

One JSON object a line: `generated`, `reference`, `decision` (matched, broader or none) and `half`, which is
"tune" for pairs that the engine's data may be tuned on and "test" for those that it may not.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from groundwatch.matching.engines.semantic import SemanticEngine
from groundwatch.models.embeddings import embedder
from groundwatch.protocols.method import EMBEDDING_MODEL
from groundwatch.protocols.published import json_lines
from groundwatch.protocols.tally import Result
from groundwatch.statistics.agreement import f1

Decision = Literal["matched", "broader", "none"]
DECISIONS: tuple[str, ...] = get_args(Decision)
HALVES = ("tune", "test")


def validate(
    file: Annotated[Path, msgspec.Meta(description="Pairs of names that people matched (JSON lines).")],
    *,
    embedding_model: Annotated[str, msgspec.Meta(description=EMBEDDING_MODEL)] = "",
) -> Result:
    """VALOR's matching engines against pairs that people matched."""
    engine = SemanticEngine(embedder(embedding_model))
    return {"protocol": "valor", "matching": matching_accuracy(read_gold(file), engine.compare)}


class GoldPair(msgspec.Struct, frozen=True, kw_only=True):
    """What people decided of one pair of names."""

    generated: str
    reference: str
    decision: str
    half: str


def read_gold(path: str | Path) -> list[GoldPair]:
    """Read a gold set; raises `FileFormatError` naming file, line and key."""
    pairs = []
    for place, record in json_lines(Path(path)):
        texts = {
            key: place.take(record, key, str, "a text")
            for key in ("generated", "reference", "decision", "half")
        }
        for key, known in (("decision", DECISIONS), ("half", HALVES)):
            if texts[key] not in known:
                raise place.wrong(f"key '{key}': expected one of {', '.join(known)}")
        pairs.append(GoldPair(**texts))
    return pairs


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
