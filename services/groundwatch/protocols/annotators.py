"""What several annotators said of the same items, and how far they agree.

One JSON object a line: `item`, `annotator`, `label`. Any question with a handful of answers fits: is this
fact in the image, is this sub-sentence descriptive, which object is the same.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.protocols.published import Place, json_lines
from groundwatch.statistics.agreement import fleiss_kappa, krippendorff_alpha
from groundwatch.statistics.intervals import Interval


class Annotation(msgspec.Struct, frozen=True):
    """One annotator's label of one item."""

    item: str
    annotator: str
    label: str


class AnnotatorAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What `groundwatch validate annotators` prints.

    Fleiss' κ wants the same number of labels on every item: it is over the `fleiss_items` items that have
    `fleiss_labels` labels each, the commonest number from two up. α is over every item with at least two.
    Either is None where it is undefined. `labels` counts how often each label was given.
    """

    fleiss_kappa: Interval | None
    krippendorff_alpha: Interval | None
    items: int
    annotators: int
    annotations: int
    labels: dict[str, int]
    fleiss_items: int
    fleiss_labels: int


def read_annotators(path: str | Path) -> list[Annotation]:
    """Read the file; raises `FileFormatError` naming file, line and key.

    Items and annotators are named by text or by number; a label is a text, a whole number or true/false.
    """
    found: list[Annotation] = []
    lines: dict[tuple[str, str], int] = {}
    for place, record in json_lines(Path(path)):
        one = Annotation(
            item=_name(place, record, "item"),
            annotator=_name(place, record, "annotator"),
            label=_label(place, record),
        )
        before = lines.setdefault((one.item, one.annotator), place.line)
        if before != place.line:
            raise place.wrong(
                f"key 'annotator': '{one.annotator}' labelled item '{one.item}' in line {before} already"
            )
        found.append(one)
    return found


def annotator_agreement(
    annotations: Sequence[Annotation], *, seed: int = 0, resamples: int = 1000
) -> AnnotatorAgreement:
    """κ and α with bootstrap intervals over items. Raises `MissingExtraError` without statsmodels."""
    labels = Counter(one.label for one in annotations)
    by_item: dict[str, Counter[str]] = {}
    for one in annotations:
        by_item.setdefault(one.item, Counter())[one.label] += 1
    order = sorted(labels)
    items = [tuple(counts[label] for label in order) for counts in by_item.values()]
    sizes = Counter(size for counts in items if (size := sum(counts)) > 1)
    commonest = max(sizes, key=lambda size: (sizes[size], size), default=0)
    complete = [counts for counts in items if sum(counts) == commonest]
    return AnnotatorAgreement(
        fleiss_kappa=fleiss_kappa(complete, seed=seed, resamples=resamples),
        krippendorff_alpha=krippendorff_alpha(items, seed=seed, resamples=resamples),
        items=len(items),
        annotators=len({one.annotator for one in annotations}),
        annotations=len(annotations),
        labels={label: labels[label] for label in order},
        fleiss_items=len(complete),
        fleiss_labels=commonest,
    )


def _name(place: Place, record: dict[str, Any], key: str) -> str:
    value: object = place.take(record, key, (str, int), "a text or a number")
    if not str(value).strip():
        raise place.wrong(f"key '{key}': is empty")
    return str(value)


def _label(place: Place, record: dict[str, Any]) -> str:
    value: object = place.take(record, "label", (str, int, bool), "a text, a whole number, or true or false")
    return str(value).lower() if isinstance(value, bool) else str(value)
