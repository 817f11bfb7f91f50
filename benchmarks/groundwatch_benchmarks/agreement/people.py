"""What people say of the same items: how far they agree with each other, and how far a judge does with them.

Annotators: one JSON object a line with `item`, `annotator`, `label`. Any question with a handful of answers
fits: is this fact in the image, is this sub-sentence descriptive, which object is the same.

Verdicts: one JSON object a line, the response by `id` (and `tenant`), the `protocol`, the `claim` as its text
or as its number from 0 among the outcome's claims, and `holds`: whether it is in the image.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from groundwatch.cli.options import OnServer
from groundwatch.cli.output import table_of
from groundwatch.errors import UsageError, told_to_user
from groundwatch.events import LIVE, Decision, ResponseScored
from groundwatch.keys import home_key, response_key
from groundwatch.protocols.method import CommandResult
from groundwatch.reviews.files import PEOPLE, PersonsVerdict
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.statistics.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha
from groundwatch.statistics.intervals import Interval, RatioSums, cluster_rate
from groundwatch.system.connecting import connected
from groundwatch.terminal import Table, lines
from groundwatch.topology import OUTCOMES, is_token, subject_of
from groundwatch_benchmarks.json_files import Place, read_lines

JUDGE = tuple(decision.value for decision in Decision)


def annotators(
    file: Annotated[Path, Meta(description="Labels (JSON lines: item, annotator, label).")],
) -> CommandResult:
    """How far people agree among themselves: Fleiss' kappa and Krippendorff's alpha."""
    agreed = annotator_agreement(read_annotators(file))
    return CommandResult(numbers=msgspec.to_builtins(agreed), table=agreement_table(agreed))


async def verdicts(
    file: Annotated[Path, Meta(description="People's verdicts on claims (JSON lines).")],
    *,
    metrics_file: Annotated[Path | None, Meta(description="Also write counts here, for Prometheus.")] = None,
    settings: OnServer,
) -> CommandResult:
    """The judges of a running system against what people say of the same claims."""
    given = list(read_lines(file, PersonsVerdict))
    if not given:
        raise UsageError(f"{file} has no verdicts")
    async with connected(settings, "validate") as bus:
        found = await compare_verdicts(given, bus)
    if metrics_file is not None:
        write_metrics(metrics_file, found)
    return CommandResult(numbers={**found}, table=verdicts_table(found))


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


async def compare_verdicts(
    verdicts: Iterable[tuple[Place, PersonsVerdict]], bus: Bus
) -> dict[str, VerdictAgreement]:
    """By protocol. Raises `FileFormatError` with the line that has no outcome."""
    return verdict_agreement([(one, await _judged(bus, place, one)) for place, one in verdicts])


async def _judged(bus: Bus, place: Place, verdict: PersonsVerdict) -> Decision:
    if not is_token(verdict.protocol):
        raise place.wrong(f"no protocol '{verdict.protocol}'")
    key = home_key(response_key(verdict.tenant, verdict.id), bus.partitions)
    message = await bus.history.last(OUTCOMES, subject_of("outcome", LIVE, verdict.protocol, key))
    if message is None:
        what = f"no outcome of {verdict.protocol} for response '{verdict.id}' of tenant '{verdict.tenant}'"
        raise place.wrong(what)
    decision = decision_on(verdict, msgspec.json.decode(message.data, type=ResponseScored))
    if decision is None:
        raise place.wrong(f"key 'claim': the outcome of '{verdict.id}' has no claim {verdict.claim!r}")
    return decision


def write_metrics(path: Path, found: dict[str, VerdictAgreement]) -> None:
    """Write the counts for the textfile collector of node_exporter, or a Pushgateway."""
    collected = CollectorRegistry()
    verdicts = Gauge(
        "groundwatch_people_verdicts",
        "Verdicts of people on claims, beside what the judge said",
        ("protocol", "people", "judge"),
        registry=collected,
    )
    compared = Gauge(
        "groundwatch_people_compared_time_seconds",
        "When people's verdicts were compared, in seconds since the epoch",
        registry=collected,
    )
    compared.set(time.time())
    for protocol, agreement in found.items():
        for people, judged in agreement.counts.items():
            for judge, number in judged.items():
                verdicts.labels(protocol, people, judge).set(number)
    with told_to_user(f"{path}: cannot be written"):
        write_to_textfile(str(path), collected)


def agreement_table(found: AnnotatorAgreement) -> Table:
    title = f"Agreement of {found.annotators} annotators on {found.items} items"
    table = table_of(title, "measure", "value", "95 % interval", "items")
    for name, interval in (
        ("Fleiss' kappa", found.fleiss_kappa),
        ("Krippendorff's alpha (nominal)", found.krippendorff_alpha),
    ):
        table.add_row(name, *_cells(interval))
    told = ", ".join(f"{label} ({number})" for label, number in found.labels.items())
    notes = [f"Labels given, {found.annotations} in all: {told}."]
    if found.fleiss_items < found.items:
        notes.append(
            f"Kappa is over the {found.fleiss_items} items with {found.fleiss_labels} labels each, "
            "alpha over all with at least two."
        )
    table.caption = lines(*notes)
    return table


def _cells(interval: Interval | None) -> tuple[str, str, str]:
    if interval is None:
        return "–", "undefined", ""
    return f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}", str(interval.n)


def verdicts_table(found: dict[str, VerdictAgreement]) -> Table:
    columns = ("protocol", "verdicts", "undecided", "agreement", "95 % interval", "Cohen's kappa")
    table = table_of("Agreement of judges with people", *columns)
    for protocol, one in found.items():
        share = one.agreement
        table.add_row(
            protocol,
            f"{one.verdicts:,}",
            f"{one.undecided:,}",
            f"{share.value:.1%}" if share else "–",
            f"{share.low:.1%} to {share.high:.1%}" if share else "–",
            "–" if one.kappa is None else f"{one.kappa:.3f}",
        )
    table.caption = lines("Of claims that the judge decided; intervals are over whole responses.")
    return table
