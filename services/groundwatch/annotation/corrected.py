"""Corrected rates: what reviewers would find in everything that the first judges judged.

Each queue has its frame, the first judges' sums over everything that it was drawn from, and opinions that
were given with a known probability. People and models are told apart, and so are queues: of one with a
filter the rate is that of what passes it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from groundwatch.annotation.frames import Frame, Frames
from groundwatch.annotation.opinions import ALL, Opinions
from groundwatch.annotation.queues import Queues, QueueSpec
from groundwatch.events import Decision, OpinionGiven
from groundwatch.reporting.corrected import EVERY_VERSION, By, CorrectedRow
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.prediction_powered import LEAST, Labelled, Sample, corrected_rate
from groundwatch.statistics.sampling import WeightedSums, weighted_rate
from groundwatch.topology import QUEUES_BUCKET

KEY = "corrected"
MOST_SERIES = 500

NOBODY = "no opinion"
FEW = "fewer than {} opinions: these alone are told"
UNDECIDED = "no opinion decides a fact"

VersionOf = Callable[[Mapping[str, str]], str]


class CorrectedRates(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue's corrected rates, computed `at` (seconds since the epoch)."""

    at: float = 0.0
    rows: tuple[CorrectedRow, ...] = ()


async def read_corrected(bus: Bus) -> CorrectedRates:
    """Those that the annotation service wrote down last. Raises `Unavailable`."""
    return await Bucket(bus, QUEUES_BUCKET).read_as(KEY, CorrectedRates) or CorrectedRates()


async def write_corrected(bus: Bus, rates: CorrectedRates) -> bool:
    """Whether it was written: another replica may write at the same time."""
    return await Bucket(bus, QUEUES_BUCKET).replace(KEY, ENCODER.encode(rates))


async def compute_corrected(bus: Bus, version_of: VersionOf) -> tuple[CorrectedRow, ...]:
    """Of every queue, in the order of making. Raises `Unavailable`."""
    specs = await Queues(bus).list()
    if not specs:
        return ()
    by_queue: dict[str, list[OpinionGiven]] = defaultdict(list)
    for opinion in await Opinions(bus).latest():
        by_queue[opinion.queue].append(opinion)
    rows: list[CorrectedRow] = []
    for spec in specs:
        frame, _ = await Frames(bus).load(spec.name)
        rows += corrected_rows(spec, frame, by_queue[spec.name], version_of)
    return tuple(rows)


def corrected_metrics(metrics: Metrics, rows: Sequence[CorrectedRow]) -> None:
    """Show those of each queue that have a number, each under its labels alone."""
    gauges = (
        metrics.corrected_rate,
        metrics.corrected_rate_low,
        metrics.corrected_rate_high,
        metrics.corrected_judged,
        metrics.corrected_opinions,
    )
    for gauge in gauges:
        gauge.clear()
    told = [(row, row.corrected) for row in rows if row.corrected is not None]
    for row, found in told[:MOST_SERIES]:
        names = (row.queue, row.model, row.version, row.protocol, row.fingerprint, row.category, row.by)
        labels = [name.encode("utf-8", "replace").decode()[:128] for name in names]
        judged = row.judged.value if row.judged is not None else math.nan
        values = (found.value, found.low, found.high, judged, row.opinions)
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(*labels).set(value)


def corrected_rows(
    spec: QueueSpec, frame: Frame, opinions: Iterable[OpinionGiven], version_of: VersionOf
) -> list[CorrectedRow]:
    """By model, version and set of judges, and for `*` of all versions together.

    An opinion that no rule drew counts nowhere. Several of one answer count as one, their mean. Of those that
    were drawn only some may have an opinion yet: then each was less likely to have one, all alike.
    """
    populations: dict[tuple[str, str, str, str, str], WeightedSums] = {}
    for (model, version, protocol, judges, category), sums in frame.sums.items():
        for name in (version, EVERY_VERSION):
            merged = populations.setdefault((model, name, protocol, judges, category), WeightedSums())
            merged.merge(_copied(sums))
    given: dict[By, dict[tuple[str, str], list[OpinionGiven]]] = {"people": {}, "model": {}}
    for opinion in opinions:
        if opinion.probability > 0 and (opinion.facts or not opinion.judged.get(ALL, (0, 0))[1]):
            by: By = "model" if opinion.judge is not None else "people"
            given[by].setdefault((opinion.key, opinion.fingerprint), []).append(opinion)
    rows = []
    for by, answers in given.items():
        done = min(1.0, len(answers) / frame.drawn) if frame.drawn else 1.0
        for (model, version, protocol, judges, category), population in sorted(populations.items()):
            labelled = [
                _labelled(each, category, done)
                for (_, fingerprint), each in answers.items()
                if fingerprint == judges
                and each[0].model == model
                and each[0].protocol == protocol
                and version in (EVERY_VERSION, version_of(each[0].tags))
            ]
            if not labelled and by == "model":
                continue
            named = (model, version, protocol, judges, category)
            rows.append(_row(spec, named, by, Sample(population, labelled)))
    return rows


def _copied(sums: WeightedSums) -> WeightedSums:
    return msgspec.convert(msgspec.to_builtins(sums), WeightedSums)


def _row(spec: QueueSpec, named: tuple[str, str, str, str, str], by: By, sample: Sample) -> CorrectedRow:
    model, version, protocol, judges, category = named
    labelled = [one for one in sample.labelled if one.known or one.judged_known]
    found = corrected_rate(sample.population, labelled)
    reason = ""
    if found is None:
        reason = UNDECIDED if labelled else NOBODY
    elif found.opinions < LEAST:
        reason = FEW.format(LEAST)
    return CorrectedRow(
        queue=spec.name,
        model=model,
        version=version,
        protocol=protocol,
        fingerprint=judges,
        category=category,
        by=by,
        judged=weighted_rate(sample.population) if sample.population.plain.clusters else None,
        corrected=found.interval if found is not None else None,
        labels_alone=found.labels_alone if found is not None else None,
        opinions=len(labelled),
        tuning=found.tuning if found is not None else 0.0,
        for_half=found.for_half if found is not None else None,
        reason=reason,
        whole=_whole(spec),
    )


def _labelled(opinions: Sequence[OpinionGiven], category: str, done: float) -> Labelled:
    """What the reviewers of one answer say of it on average."""
    wrong = known = 0
    for opinion in opinions:
        for fact in opinion.facts:
            if fact.removed or fact.decision is Decision.UNDECIDED or category not in (ALL, fact.category):
                continue
            known += 1
            wrong += fact.decision is Decision.REFUTED
    first = opinions[0]
    judged_wrong, judged_known = first.judged.get(category, (0, 0))
    return Labelled(
        wrong=wrong / len(opinions),
        known=known / len(opinions),
        judged_wrong=judged_wrong,
        judged_known=judged_known,
        weight=first.weight,
        probability=first.probability * done,
        key=first.key,
    )


def _whole(spec: QueueSpec) -> bool:
    filters = (spec.tenant, spec.tag, spec.category, spec.verdict, spec.alarm, spec.version)
    return not any(filters)
