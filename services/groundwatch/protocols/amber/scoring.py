"""AMBER's arithmetic, over descriptions and over answers to yes/no questions. Pure.

Source: AMBER, An LLM-free Multi-dimensional Benchmark for MLLMs Hallucination Evaluation (Wang et al. 2023),
and its code (junyangwang0410/AMBER, `inference.py`): each number is a sum over all answers by another, and
"no" is the positive class. Where paper and code differ there is a number for each.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from groundwatch.events import Match
from groundwatch.protocols.amber.annotation import Annotation
from groundwatch.protocols.questions import CELLS
from groundwatch.statistics.intervals import Interval, RatioSums, bootstrap, cluster_rate

DESCRIPTION, EXISTENCE, RELATION = "description", "existence", "relation"
ATTRIBUTES = ("state", "number", "action")
KINDS = (EXISTENCE, *ATTRIBUTES, RELATION)
"""What a question is about."""

Ratios = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""By the name of a number the counts above the line and those below it."""

UNREAD = ("unread_yes", "unread_no")

GENERATIVE: Ratios = {
    "chair": (("hallucinated",), ("mentioned",)),
    "cover": (("covered",), ("annotated",)),
    "hal": (("hal",), ("answers",)),
    "cog": (("targets_named",), ("targets",)),
    "cog_by_mentions": (("target_mentions",), ("mentioned",)),
}
DISCRIMINATIVE: Ratios = {
    "accuracy": (("tp", "tn"), (*CELLS, *UNREAD)),
    "precision": (("tn",), ("tn", "fn")),
    "recall": (("tn",), ("tn", "fp", "unread_no")),
    "f1": (("tn", "tn"), ("tn", "fn", "tn", "fp", "unread_no")),
    "read": (CELLS, (*CELLS, *UNREAD)),
}


def count(nouns: Sequence[str], matches: Iterable[Match], known: Annotation) -> dict[str, int]:
    """One description: the nouns that it mentions, each as often as it is said, and those that are not wrong.

    `targets_named` counts hallucinatory targets once each, `target_mentions` how often one is said; `hal` is
    1 when any mention is wrong.
    """
    right = {match.claim: match for match in matches}
    covered = {match.reference for match in right.values() if match.kind == "matched"}
    wrong = len(nouns) - len(right)
    named = [name for name in map(known.target, nouns) if name]
    return {
        "answers": 1,
        "mentioned": len(nouns),
        "hallucinated": wrong,
        "hal": int(wrong > 0),
        "covered": len(covered),
        "annotated": len(known.truth),
        "targets_named": len(set(named)),
        "targets": len(known.hallu),
        "target_mentions": len(named),
    }


class Sums(msgspec.Struct):
    """Counts by kind and image, and why answers are in no count or were not read, by reason."""

    images: dict[str, dict[str, Counter[str]]] = {}
    reasons: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, kind: str, image: str, counts: Mapping[str, int]) -> None:
        self.images.setdefault(kind, {}).setdefault(image, Counter()).update(counts)

    def of(self, *kinds: str) -> list[Counter[str]]:
        """The counts of each image over these kinds."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for kind in kinds:
            for image, counts in self.images.get(kind, {}).items():
                found[image].update(counts)
        return list(found.values())

    def measure(self) -> dict[str, object]:
        """Every number with its interval over images, None where it does not exist."""
        groups = {EXISTENCE: (EXISTENCE,), "attribute": ATTRIBUTES, RELATION: (RELATION,)}
        groups |= {kind: (kind,) for kind in ATTRIBUTES}
        described, asked = self.of(DESCRIPTION), self.of(*KINDS)
        result: dict[str, object] = {}
        if described:
            result["generative"] = _rates(described, GENERATIVE)
        if asked:
            result["discriminative"] = {
                **_rates(asked, DISCRIMINATIVE),
                **{
                    name: _rates(found, DISCRIMINATIVE)
                    for name, of in groups.items()
                    if (found := self.of(*of))
                },
            }
        if described and asked:
            result["amber_score"] = _amber_score(self.of(DESCRIPTION, *KINDS))
        return {**result, "unscored_by_reason": dict(sorted(self.reasons.items()))}


def amber_score(chair: float, f1: float) -> float:
    """The paper's AMBER Score as a share: (100 - CHAIR + F1) / 2 of its percentages."""
    return (1 - chair + f1) / 2


def _rates(images: Sequence[Mapping[str, int]], ratios: Ratios) -> dict[str, Interval | None]:
    found = {}
    for name, ratio in ratios.items():
        sums = RatioSums()
        for counts in images:
            sums.add(*_parts(counts, ratio))
        rate = cluster_rate(sums)
        found[name] = rate and msgspec.structs.replace(rate, n=sums.clusters)
    return found


def _parts(counts: Mapping[str, int], ratio: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[int, int]:
    of, over = (sum(counts.get(name, 0) for name in names) for names in ratio)
    return of, over


def _amber_score(images: Sequence[Mapping[str, int]]) -> Interval | None:
    ratios = GENERATIVE["chair"], DISCRIMINATIVE["f1"]
    parts = [(*_parts(one, ratios[0]), *_parts(one, ratios[1])) for one in images]

    def score(drawn: Sequence[tuple[int, ...]]) -> float | None:
        wrong, mentioned, right, asked = map(sum, zip(*drawn, strict=True))
        return amber_score(wrong / mentioned, right / asked) if mentioned and asked else None

    return bootstrap(parts, score)
