"""Corrected rates: what reviewers would find in everything that the first judges judged.

Each queue has its frame, the first judges' sums over everything that it was drawn from, and opinions that
were given with a known probability. People and models are told apart, and so are queues: of one with a
filter the rate is that of what passes it.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from groundwatch.events import OpinionGiven
from groundwatch.reporting.corrected import By, CorrectedRow
from groundwatch.reviews.frames import Frame, Group
from groundwatch.reviews.queues import QueueSpec
from groundwatch.reviews.samples import QueueSamples, VersionOf, counted, read_samples
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.prediction_powered import LEAST, Sample, corrected_rate
from groundwatch.statistics.sampling import weighted_rate
from groundwatch.topology import QUEUES_BUCKET

KEY = "corrected"
MOST_SERIES = 500

NOBODY = "no opinion"
FEW = "fewer than {} opinions: these alone are told"
UNDECIDED = "no opinion decides a fact"


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
    return tuple(row for queue in await read_samples(bus, version_of) for row in rows_of(queue))


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
    return rows_of(QueueSamples(spec, frame, opinions, version_of))


def rows_of(queue: QueueSamples) -> list[CorrectedRow]:
    """By model, version and set of judges, and for `*` of all versions together."""
    rows = []
    bys: tuple[By, ...] = ("people", "model")
    for by in bys:
        for group in sorted(queue.populations):
            sample = queue.sample(by, group)
            if sample.labelled or by == "people":
                rows.append(_row(queue.spec, group, by, sample))
    return rows


def _row(spec: QueueSpec, named: Group, by: By, sample: Sample) -> CorrectedRow:
    model, version, protocol, judges, category = named
    labelled = counted(sample.labelled)
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


def _whole(spec: QueueSpec) -> bool:
    filters = (spec.tenant, spec.tag, spec.category, spec.verdict, spec.alarm, spec.version)
    return not any(filters)
