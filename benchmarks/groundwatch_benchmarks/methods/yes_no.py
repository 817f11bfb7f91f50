"""Yes/no questions in benchmarks: the cells of answers, and rates of them with intervals over images."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from groundwatch.events import KnownFact, OutcomeKind, Reference
from groundwatch.protocols.base import with_article
from groundwatch.protocols.method import CATEGORY, IMAGE, Pair, Picture, Question
from groundwatch.protocols.questions import Answer, cell
from groundwatch.statistics.intervals import Interval, bootstrap

CELLS = ("tp", "fp", "tn", "fn")
RATES = ("accuracy", "precision", "recall", "f1", "yes_ratio")


def read_as_published(reply: str) -> Answer:
    """How the published script (AoiDragon/POPE, evaluate.py) reads a reply: never fails.

    Of the text before the first full stop, without commas and cut at spaces: no if one piece is exactly
    `No`, `no` or `not`, else yes. So an empty reply, a refusal and "Nope" are yes, and "not sure" is no.
    """
    words = reply.split(".")[0].replace(",", "").split(" ")
    return "no" if not {"No", "not", "no"}.isdisjoint(words) else "yes"


def count(pairs: Iterable[tuple[Answer, Answer]]) -> Counter[str]:
    """Count (what was said, what is true) by cell; each pair is one reply, in any order."""
    return Counter(cell(said, true) for said, true in pairs)


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


def ask(name: str) -> str:
    """POPE's template (section 4.1), with the article that the name takes."""
    return f"Is there {with_article(name)} in the image?"


def question(
    protocol: str, name: str, text: str, label: Answer, image: str, picture: Picture, category: str
) -> Question:
    return Question(
        id=name,
        protocol=protocol,
        prompt=text,
        images=(picture,),
        reference=Reference(facts=(KnownFact(text=text, holds=label == "yes"),)),
        tags={CATEGORY: category, IMAGE: image},
        unit=image,
    )


def outcome_cell(pair: Pair) -> str:
    """The cell of an answer; without one `unread_yes` or `unread_no`, by what is true."""
    asked, outcome = pair
    facts = asked.reference.facts if asked.reference else ()
    true: Answer = "yes" if facts and facts[0].holds else "no"
    if outcome.outcome is not OutcomeKind.SCORED:
        return f"unread_{true}"
    return cell("yes" if outcome.claims[0].category == "yes" else "no", true)


def unscored(pairs: Sequence[Pair]) -> dict[str, object]:
    reasons = Counter(one.reason for _, one in pairs if one.outcome is not OutcomeKind.SCORED)
    return {"unscored": reasons.total(), "unscored_by_reason": dict(sorted(reasons.items()))}


def intervals(
    units: Iterable[Mapping[str, int]],
    rates: Callable[[Mapping[str, int]], Mapping[str, float | None]],
    names: Iterable[str],
) -> dict[str, Interval | None]:
    """Each of these rates with its interval over units, which are counts by name."""
    counts = [Counter(one) for one in units]
    return {
        name: bootstrap(counts, lambda drawn, name=name: rates(sum(drawn, Counter()))[name])  # type: ignore[misc]
        for name in names
    }
