"""Where in judged answers the hallucinations are (Tri-HE, section 5.3)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from groundwatch.errors import UsageError
from groundwatch.language.nouns import likenesses, nouns
from groundwatch.protocols.base import folded
from groundwatch.protocols.method import Result, TallyRequest
from groundwatch.protocols.trihe.scoring import Kind
from groundwatch_benchmarks.json_files import json_lines
from groundwatch_benchmarks.methods.trihe.files import is_benchmark, judged_outcomes, read_judgements
from groundwatch_benchmarks.methods.trihe.scoring import (
    FREQUENT,
    JudgedQuestion,
    frequent_pairs,
    object_pairs,
    on_pairs,
    rates,
    trend,
)
from groundwatch_benchmarks.methods.trihe.suite import KINDS

EACH: tuple[Kind | None, ...] = (None, *KINDS)
TOKENS = (10, 20, 30, 40, 50, 75, 100, 150, 200)
"""Values of K; the paper's figure 4 begins at 10."""


def compute(request: TallyRequest) -> Result:
    share = FREQUENT if request.share is None else request.share
    if not 0 < share <= 1:
        raise UsageError(f"share {share}: must lie above 0 and up to 1", "share")
    # The works count undecided triplets in the total.
    published = is_benchmark(request.file)
    if published:
        _, questions = read_judgements(request.file)
    else:
        questions = judged_outcomes(json_lines(request.file))
    return analyse(questions, share=share, ks=request.tokens or TOKENS, undecided_count=published)


def analyse(
    questions: Sequence[JudgedQuestion],
    *,
    share: float = FREQUENT,
    ks: Sequence[int] = TOKENS,
    most: int = 10,
    undecided_count: bool = False,
) -> Result:
    """Both analyses; `by_tokens` is None where nobody knows how early a triplet is said."""
    counts = object_pairs(questions, synset)
    frequent = frequent_pairs(counts, share) if counts else frozenset()
    others = frozenset(counts) - frequent
    triplets = [one for question in questions for one in question.triplets]
    placed = any(one.tokens is not None for one in triplets)
    ranked = sorted(frequent, key=lambda pair: (-counts[pair], pair))
    return {
        "protocol": "tri-he",
        "responses": len(questions),
        "triplets": len(triplets),
        "without_parts": sum(one.triplet is None for one in triplets),
        "overall": _each(questions, undecided_count),
        "pairs": {
            "different": len(counts),
            "frequent": len(frequent),
            "share": share,
            "on_frequent": _each(on_pairs(questions, frequent, synset), undecided_count),
            "on_others": _each(on_pairs(questions, others, synset), undecided_count),
            "most_frequent": [{"pair": list(pair), "said": counts[pair]} for pair in ranked[:most]],
        },
        "by_tokens": [
            {"k": k, **msgspec.to_builtins(found)}
            for k, found in trend(questions, ks, undecided_count=undecided_count)
        ]
        if placed
        else None,
        **({} if placed else {"how_early_said": "not known from this file"}),
    }


@lru_cache(maxsize=65536)
def synset(name: str) -> str:
    """An object's name as its synset's in WordNet; its own words where WordNet does not know it."""
    found = likenesses().name(name)
    for word in (found.whole, found.head):
        if known := nouns().synset(word):
            return known
    return found.whole or folded(name)


def _each(questions: Sequence[JudgedQuestion], undecided_count: bool) -> dict[str, Any]:
    return {
        kind or "overall": msgspec.to_builtins(rates(questions, kind, undecided_count=undecided_count))
        for kind in EACH
    }
