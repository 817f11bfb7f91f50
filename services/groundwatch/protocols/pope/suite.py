"""POPE's published questions, and the figures of a model that answered them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from groundwatch.events import KnownFact, OutcomeKind, Reference
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.pope.scoring import Confusion, cell
from groundwatch.protocols.published import json_lines
from groundwatch.protocols.suite import CATEGORY, IMAGE, Images, Pair, Question, files, interval
from groundwatch.protocols.tally import Result
from groundwatch.protocols.yes_no import Answer


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """`*_pope_STRATEGY.json`, JSON lines of question_id, image, text, label."""
    for path in files(folder, "*pope_*.json*", "POPE's question files, such as coco_pope_random.json"):
        strategy = path.name.partition(".")[0].rpartition("_")[2]
        for place, record in json_lines(path):
            number = place.take(record, "question_id", (int, str), "a number or a string")
            name = place.take(record, "image", str, "the image's file name")
            text = place.take(record, "text", str, "the question")
            label = place.take(record, "label", str, "yes or no").strip().casefold()
            if label not in ("yes", "no"):
                raise place.wrong("key 'label': expected yes or no")
            picture = images.picture(name)
            yield (
                Question(
                    id=f"{strategy}-{number}",
                    protocol=Pope.name,
                    prompt=text,
                    images=(picture,),
                    reference=Reference(facts=(KnownFact(text=text, holds=label == "yes"),)),
                    tags={CATEGORY: strategy, IMAGE: name},
                    unit=name,
                )
                if picture
                else None
            )


def figures(pairs: Sequence[Pair]) -> Result:
    groups: dict[str, list[Pair]] = defaultdict(list)
    for question, outcome in pairs:
        groups[question.tags.get(CATEGORY, "")].append((question, outcome))
    result = _confusion(pairs)
    if len(groups) > 1 or "" not in groups:
        result["by_category"] = {name: _confusion(found) for name, found in sorted(groups.items())}
    return result


def _confusion(pairs: Sequence[Pair]) -> Result:
    units: dict[str, Counter[str]] = defaultdict(Counter)
    unscored: Counter[str] = Counter()
    for question, outcome in pairs:
        if outcome.outcome is not OutcomeKind.SCORED:
            unscored[outcome.reason] += 1
            continue
        facts = question.reference.facts if question.reference else ()
        said: Answer = "yes" if outcome.claims[0].category == "yes" else "no"
        true: Answer = "yes" if facts and facts[0].holds else "no"
        units[question.unit or question.id][cell(said, true)] += 1
    counts = [Confusion(tp=one["tp"], fp=one["fp"], tn=one["tn"], fn=one["fn"]) for one in units.values()]
    names = ("accuracy", "precision", "recall", "f1", "yes_ratio")
    return {
        **_sum(counts).numbers(),
        "questions": len(pairs),
        "unscored": unscored.total(),
        "unscored_by_reason": dict(sorted(unscored.items())),
        "intervals": {name: interval(counts, _number(name)) for name in names},
    }


def _number(name: str) -> Callable[[Sequence[Confusion]], float | None]:
    def of(counts: Sequence[Confusion]) -> float | None:
        value: float | None = getattr(_sum(counts), name)
        return value

    return of


def _sum(counts: Iterable[Confusion]) -> Confusion:
    tp = fp = tn = fn = 0
    for one in counts:
        tp, fp, tn, fn = tp + one.tp, fp + one.fp, tn + one.tn, fn + one.fn
    return Confusion(tp=tp, fp=fp, tn=tn, fn=fn)
