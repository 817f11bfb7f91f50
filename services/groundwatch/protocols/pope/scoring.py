"""POPE's arithmetic (Li et al. 2023, section 5.1): accuracy, precision, recall, F1 and the yes-ratio.

"Yes" is the positive class: a false positive is an object that the model saw and the image has not. A
number whose denominator is 0 is None, where the published script stops with an error.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from groundwatch.protocols.yes_no import Answer

CELLS = ("tp", "fp", "tn", "fn")
RATES = ("accuracy", "precision", "recall", "f1", "yes_ratio")


def count(pairs: Iterable[tuple[Answer, Answer]]) -> Counter[str]:
    """Count (what was said, what is true) by cell; each pair is one reply, in any order."""
    return Counter(cell(said, true) for said, true in pairs)


def cell(said: Answer, true: Answer) -> str:
    return ("t" if said == true else "f") + ("p" if said == "yes" else "n")


def numbers(counts: Mapping[str, int]) -> dict[str, float | int | None]:
    """`RATES` and `CELLS` by name, from the cells of replies that were read."""
    tp, fp, tn, fn = (counts.get(name, 0) for name in CELLS)
    parts = {
        "accuracy": (tp + tn, tp + fp + tn + fn),
        "precision": (tp, tp + fp),
        "recall": (tp, tp + fn),
        "f1": (2 * tp, 2 * tp + fp + fn),
        "yes_ratio": (tp + fp, tp + fp + tn + fn),
    }
    rates = {name: part / whole if whole else None for name, (part, whole) in parts.items()}
    return {**rates, "tp": tp, "fp": fp, "tn": tn, "fn": fn}
