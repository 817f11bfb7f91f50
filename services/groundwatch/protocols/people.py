"""What people say of the same items: how far they agree with each other, and how far a judge does with them.

Annotators: one JSON object a line with `item`, `annotator`, `label`. Any question with a handful of answers
fits: is this fact in the image, is this sub-sentence descriptive, which object is the same.

Verdicts: one JSON object a line, the response by `id` (and `tenant`), the `protocol`, the `claim` as its text
or as its number from 0 among the outcome's claims, and `holds`: whether it is in the image.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from groundwatch.events import Decision, ResponseScored
from groundwatch.protocols.published import read_lines
from groundwatch.statistics.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha
from groundwatch.statistics.intervals import Interval, RatioSums, cluster_rate

PEOPLE = (Decision.SUPPORTED.value, Decision.REFUTED.value)
JUDGE = tuple(decision.value for decision in Decision)


class _Row(msgspec.Struct):
    item: str | int
    annotator: str | int
    label: str | int | bool


class Annotation(msgspec.Struct, frozen=True):
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
    found: list[Annotation] = []
    lines: dict[tuple[str, str], int] = {}
    for place, row in read_lines(Path(path), _Row):
        for key in ("item", "annotator"):
            if not str(getattr(row, key)).strip():
                raise place.wrong(f"key '{key}': is empty")
        label = str(row.label).lower() if isinstance(row.label, bool) else str(row.label)
        one = Annotation(str(row.item), str(row.annotator), label)
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


class PersonsVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one person says of one claim: a line of the file."""

    id: str
    tenant: str = "default"
    protocol: str
    claim: str | int
    holds: bool


class VerdictAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What `groundwatch validate verdicts` prints for one protocol.

    `agreement` is over the claims that the judge decided, with whole responses as what is drawn; `kappa` is
    Cohen's (1960), None where one answer alone was given. `counts` has people's verdict, then the judge's.
    """

    agreement: Interval | None
    kappa: float | None
    verdicts: int
    undecided: int
    counts: dict[str, dict[str, int]]


def decision_on(verdict: PersonsVerdict, outcome: ResponseScored) -> Decision | None:
    """What the judge said of the same claim; None when the outcome has no such claim."""
    if isinstance(verdict.claim, int):
        inside = 0 <= verdict.claim < len(outcome.claims)
        return outcome.claims[verdict.claim].decision if inside else None
    return next((claim.decision for claim in outcome.claims if claim.text == verdict.claim), None)


def verdict_agreement(judged: Iterable[tuple[PersonsVerdict, Decision]]) -> dict[str, VerdictAgreement]:
    counts: dict[str, Counter[tuple[str, str]]] = {}
    responses: dict[str, dict[tuple[str, str], list[bool]]] = {}
    for verdict, decision in judged:
        people = PEOPLE[0] if verdict.holds else PEOPLE[1]
        counts.setdefault(verdict.protocol, Counter())[people, decision.value] += 1
        if decision is not Decision.UNDECIDED:
            of_protocol = responses.setdefault(verdict.protocol, {})
            of_protocol.setdefault((verdict.tenant, verdict.id), []).append(people == decision.value)
    return {
        protocol: _agreement(counts[protocol], responses.get(protocol, {}).values())
        for protocol in sorted(counts)
    }


def _agreement(counts: Counter[tuple[str, str]], responses: Iterable[list[bool]]) -> VerdictAgreement:
    sums = RatioSums()
    for same in responses:
        sums.add(sum(same), len(same))
    supported, refuted = PEOPLE
    of_both = [counts[people, judge] for people in (refuted, supported) for judge in (refuted, supported)]
    kappa = cohen_kappa([(of_both[0], of_both[1], of_both[2], of_both[3])], resamples=0)
    return VerdictAgreement(
        agreement=cluster_rate(sums),
        kappa=kappa.value if kappa is not None else None,
        verdicts=counts.total(),
        undecided=sum(counts[people, Decision.UNDECIDED.value] for people in PEOPLE),
        counts={people: {judge: counts[people, judge] for judge in JUDGE} for people in PEOPLE},
    )


def likert(hallucinated: int, facts: int) -> int:
    """FaithScore's 1 to 5 (Appendix A) for an answer with `facts` facts of which some are hallucinated.

    The appendix' formulas leave out exactly half, which its words give to 3 ("half or fewer"). Raises
    `ValueError` without facts or with more hallucinated than there are.
    """
    if facts < 1 or not 0 <= hallucinated <= facts:
        raise ValueError(f"{hallucinated} hallucinated of {facts} facts")
    if hallucinated == 0:
        return 5
    if hallucinated == facts:
        return 1
    if 2 * hallucinated > facts:
        return 2
    return 3 if 3 * hallucinated >= facts else 4
