"""POPE's arithmetic (Li et al. 2023, section 5.1): accuracy, precision, recall, F1 and the yes-ratio.

"Yes" is the positive class: a false positive is an object that the model saw and the image has not. A
number whose denominator is 0 is None, where the published script stops with an error.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from groundwatch.protocols.yes_no import Answer


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """How many replies were right and wrong, by what they said."""

    tp: int = 0
    fp: int = 0
    tn: int = 0
    fn: int = 0

    @property
    def total(self) -> int:
        """Replies that were read."""
        return self.tp + self.fp + self.tn + self.fn

    @property
    def accuracy(self) -> float | None:
        """(TP + TN) / all."""
        return _share(self.tp + self.tn, self.total)

    @property
    def precision(self) -> float | None:
        """TP / (TP + FP)."""
        return _share(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> float | None:
        """TP / (TP + FN)."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall, as 2·TP / (2·TP + FP + FN)."""
        return _share(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def yes_ratio(self) -> float | None:
        """The share of replies that say yes."""
        return _share(self.tp + self.fp, self.total)

    def numbers(self) -> dict[str, float | int | None]:
        """All of them by name."""
        return {
            "accuracy": self.accuracy,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "yes_ratio": self.yes_ratio,
            "tp": self.tp,
            "fp": self.fp,
            "tn": self.tn,
            "fn": self.fn,
        }


def count(pairs: Iterable[tuple[Answer, Answer]]) -> Confusion:
    """Count (what was said, what is true); each pair is one reply, in any order."""
    counts = Counter(cell(said, true) for said, true in pairs)
    return Confusion(tp=counts["tp"], fp=counts["fp"], tn=counts["tn"], fn=counts["fn"])


def cell(said: Answer, true: Answer) -> str:
    """The name of the cell that a reply falls into: tp, fp, tn or fn."""
    return ("t" if said == true else "f") + ("p" if said == "yes" else "n")


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
