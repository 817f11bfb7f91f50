"""DASH-B: whether an object is seen in images that make models see it where it is not, and where it is.

Source: DASH, Detection and Assessment of Systematic Hallucinations of VLMs (Augustin, Neuhaus and Hein, ICCV
2025). The arithmetic is that of its code (YanNeu/DASH-B, `eval_utils.py`): every question counts, and a reply
that is neither yes nor no is wrong. The question is POPE's.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from groundwatch.protocols.base import read_figures
from groundwatch.protocols.method import Images, Pair, Question, Result, files
from groundwatch.protocols.questions import Answer, YesNoProtocol
from groundwatch_benchmarks.json_files import json_document
from groundwatch_benchmarks.methods.yes_no import CELLS, ask, intervals, outcome_cell, question, unscored

PARTS: dict[str, Answer] = {"neg": "no", "pos": "yes"}
"""Files of images without the object and with it, and what is right about them."""

RATES = ("accuracy", "tnr", "tpr", "harmonic_mean")


class DashB(YesNoProtocol):
    name = "dash-b"
    headline = read_figures(__package__)


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """`dash_benchmark_neg.json` and `dash_benchmark_pos.json`: by source and object the images' file names.

    An image lies in `neg/SOURCE/OBJECT/` or `pos/SOURCE/OBJECT/`. Raises `FileFormatError`.
    """
    for part, label in PARTS.items():
        what = f"DASH-B's file dash_benchmark_{part}.json"
        (path, *_) = files(folder, f"**/dash_benchmark_{part}.json", what)
        for source, objects in json_document(path, dict[str, dict[str, list[str]]]).items():
            for name, pictures in objects.items():
                for image in pictures:
                    place = f"{part}/{source}/{name}/{image}"
                    found = images.picture(place)
                    asked = found and (DashB.name, place, ask(name), label, place, found, name)
                    yield question(*asked) if asked else None


def figures(pairs: Sequence[Pair]) -> Result:
    """`RATES` with intervals over images, and the share of replies that could be read."""
    units: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        units[pair[0].unit][outcome_cell(pair)] += 1
    total = sum(units.values(), Counter[str]())
    return {
        **rates(total),
        "read": sum(total[name] for name in CELLS) / total.total() if pairs else None,
        "questions": len(pairs),
        **unscored(pairs),
        "intervals": intervals(units.values(), rates, RATES),
    }


def rates(counts: Mapping[str, int]) -> dict[str, float | None]:
    """TPR and TNR over images with the object and without it, their harmonic mean, and accuracy over all."""
    tp, fp, tn, fn = (counts.get(name, 0) for name in CELLS)
    there, gone = tp + fn + counts.get("unread_yes", 0), tn + fp + counts.get("unread_no", 0)
    tpr, tnr = (part / whole if whole else None for part, whole in ((tp, there), (tn, gone)))
    mean = None
    if tpr is not None and tnr is not None:
        mean = 2 * tpr * tnr / (tpr + tnr) if tpr + tnr else 0.0
    accuracy = (tp + tn) / (there + gone) if there + gone else None
    return dict(zip(RATES, (accuracy, tnr, tpr, mean), strict=True))
