"""What hostile input has brought to light."""

from __future__ import annotations

from collections import Counter
from typing import Any

EXAMPLES = 6
KINDS = (
    "answers of 500",
    "not as promised",
    "unanswered",
    "slow",
    "taken",
    "tracebacks",
    "control bytes",
    "command line",
    "unbalanced",
    "memory",
    "unhealthy",
)


class Findings:
    """Counts of inputs by kind, and of everything that is forbidden, with examples."""

    def __init__(self) -> None:
        self._inputs: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._slowest: dict[str, float] = {}

    @property
    def inputs(self) -> int:
        """How many there were."""
        return self._inputs.total()

    def count(self, kind: str) -> None:
        """An input of this kind."""
        self._inputs[kind] += 1

    def status(self, status: object) -> None:
        """How one was answered."""
        self._statuses[str(status)] += 1

    def took(self, kind: str, seconds: float) -> None:
        """How long an answer took."""
        self._slowest[kind] = max(seconds, self._slowest.get(kind, 0.0))

    def add(self, kind: str, what: str) -> None:
        """Something that is forbidden."""
        self._found[kind] += 1
        if len(self._examples.setdefault(kind, [])) < EXAMPLES:
            self._examples[kind].append(what[:900])

    def told(self) -> dict[str, Any]:
        """Everything, with `ok` false when there was anything forbidden."""
        slowest = sorted(self._slowest.items(), key=lambda item: -item[1])[:8]
        return {
            "ok": not self._found,
            "inputs": self.inputs,
            "forbidden": {kind: self._found.get(kind, 0) for kind in KINDS},
            "examples": self._examples,
            "answers": dict(self._statuses.most_common()),
            "by_kind": dict(self._inputs.most_common()),
            "slowest_s": {kind: round(seconds, 2) for kind, seconds in slowest},
        }
