"""The report over 10,000,000 archived claims: its time and what it reads.

The archive is generated, in its own format and through its own writer: a year of days, twelve models, claims
in six categories. Every report is a new session, as on the command line: it opens the archive, finds its
files and computes intervals. Bytes are those that the process read by its system calls, cached or not.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from datetime import date, timedelta
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from groundwatch.archive.outcomes import CLAIM_FIELDS, CLAIMS, SCHEMA, Archive, nested
from groundwatch.archive.query import Session, break_down
from groundwatch.archive.table import Change
from groundwatch.reporting.breakdown import Breakdown

CATEGORIES = ("entity", "relation", "color", "count", "action", "other")
MODELS = tuple(f"model-{number}" for number in range(12))
CLAIMS_EACH = 8
FIRST = date(2025, 1, 1)
NOUNS = ("dog", "ball", "table", "woman", "horse", "beach", "cup", "window", "bird", "tree")


async def measure(claims: int = 10_000_000, rounds: int = 20, days: int = 100) -> dict[str, Any]:
    """Generate, then ask `rounds` times for each report; times in seconds, the first round left out."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        archive = Archive(folder)
        began = time.perf_counter()
        generate(archive, claims // CLAIMS_EACH, days)
        generated = time.perf_counter() - began
        files = archive.snapshot().files()
        by = {
            "model_category": lambda: report(archive, ("model", "category")),
            "model": lambda: report(archive, ("model",)),
            "tag": lambda: report(archive, ("model", "strategy")),
            "month": lambda: report(archive, ("model", "category"), since=_seconds(FIRST), days=30),
        }
        found: dict[str, Any] = {name: _timed(ask, rounds) for name, ask in by.items()}
        total = check(archive)
        return {
            "claims": total,
            "outcomes": sum(file.rows for file in files),
            "files": len(files),
            "archive_bytes": sum(file.bytes for file in files),
            "generated_s": round(generated, 1),
            "p95_s": found["model_category"]["p95_s"],
            "bytes_read": found["model_category"]["bytes_read"],
            "reports": found,
        }


def report(archive: Archive, by: tuple[str, ...], since: float | None = None, days: int = 0) -> Breakdown:
    """One report as the command line makes it."""
    until = since + days * 86_400 if since is not None else None
    first = FIRST if since is not None else None
    last = FIRST + timedelta(days=days) if since is not None else None
    with Session(archive.snapshot(), since=first, until=last, run="live") as session:
        found = break_down(session, by, since=since, until=until, run="live")
    assert found.rows()
    return found


def check(archive: Archive) -> int:
    """The sums that reports rest on are those of the claims themselves. How many claims there are."""
    with Session(archive.snapshot()) as session:
        of_claims = session.ask(
            "SELECT c.model, category, sum(weight) FILTER (verdict = 'refuted'), "
            "sum(weight) FILTER (verdict <> 'undecided'), count(*) FILTER (verdict <> 'undecided'), count(*) "
            "FROM claims c JOIN outcomes USING (stream, sequence) GROUP BY ALL ORDER BY ALL"
        ).rows
    of_report = {
        (row.by["model"], row.by["category"]): row.hallucination_rate
        for row in report(archive, ("model", "category")).rows()
    }
    for model, category, refuted, decided, number, _ in of_claims:
        rate = of_report[model, category]
        assert rate is not None and rate.n == number and math.isclose(rate.value, refuted / decided)
    return sum(row[5] for row in of_claims)


def generate(archive: Archive, outcomes: int, days: int) -> None:
    """An archive of so many outcomes, evenly over `days` days."""
    random = np.random.default_rng(7)
    each = math.ceil(outcomes / days)

    def draft(change: Change) -> bool:
        for number in range(days):
            first, end = number * each, min((number + 1) * each, outcomes)
            if first < end:
                day = FIRST + timedelta(days=number)
                change.write(_day(random, day, first, end), {"day": day.isoformat()})
        return True

    archive.change(draft)


def _day(random: np.random.Generator, day: date, first: int, end: int) -> pa.Table:
    count = end - first
    total = count * CLAIMS_EACH
    model = random.integers(0, len(MODELS), count)
    category = random.integers(0, len(CATEGORIES), total)
    wrong = random.random(total) < 0.05 + 0.01 * np.repeat(model, CLAIMS_EACH)
    verdict = np.where(random.random(total) < 0.1, 2, wrong.astype(int))
    recorded = int(_seconds(day) * 1e6) + np.sort(random.integers(0, 86_400_000_000, count))
    numbers = pa.array(np.arange(first, end))
    shared = {
        "sequence": pa.array(np.arange(first + 1, end + 1)),
        "stream": pa.array(np.ones(count, dtype=np.int64)),
        "day": pa.array(np.full(count, np.datetime64(day, "D"))),
        "run": _fixed("live", count),
        "tenant": _chosen(random.integers(0, 4, count), ("a", "b", "c", "d")),
        "model": _chosen(model, MODELS),
        "version": _fixed("2", count),
        "protocol": _fixed("faithscore", count),
        "fingerprint": _fixed("0123456789ab", count),
        "outcome": _fixed("scored", count),
        "response_id": pc.binary_join_element_wise("response", numbers.cast(pa.string()), "-"),
        "key": pc.binary_join_element_wise(
            pa.array(random.integers(10**15, 10**16, count)).cast(pa.string()),
            pa.array(random.integers(10**15, 10**16, count)).cast(pa.string()),
            "",
        ),
        "recorded_at": pa.array(recorded, pa.timestamp("us", "UTC")),
        "scored_at": pa.array(recorded + 2_000_000, pa.timestamp("us", "UTC")),
        "tags": _strategies(random, count),
    }
    noun = _chosen(random.integers(0, len(NOUNS), total), NOUNS)
    claims: dict[str, pa.Array] = {
        "unit": pa.array(np.zeros(total, dtype=np.int64)),
        "category": _chosen(category, CATEGORIES),
        "verdict": _chosen(verdict, ("supported", "refuted", "undecided")),
        "probability": pa.array(random.random(total).round(4)),
        "text": pc.binary_join_element_wise("There is a", noun, "near the", noun, " "),
        "evidence": _fixed("", total),
        "place": _fixed("", total),
        "hedged": _fixed(False, total),
    }
    nothing = pa.array(np.zeros(total + 1, dtype=np.int32))
    for field in pa.struct(SCHEMA.field(CLAIMS).type.value_type):
        if pa.types.is_list(field.type):
            claims[field.name] = pa.ListArray.from_arrays(nothing, pa.array([], field.type.value_type))
        elif field.name not in claims:
            claims[field.name] = pa.nulls(total, field.type)
    columns = _empty(count) | shared | _outcomes(count, category, verdict)
    columns[CLAIMS] = nested([CLAIMS_EACH] * count, [claims[name] for name in CLAIM_FIELDS])
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def _outcomes(count: int, category: Any, verdict: Any) -> dict[str, pa.Array]:
    """What an outcome says of its claims, summed as the writer sums it."""
    place = np.repeat(np.arange(count), CLAIMS_EACH) * len(CATEGORIES) + category
    sums = [
        np.bincount(place[verdict == kind], minlength=count * len(CATEGORIES)).reshape(count, -1)
        for kind in (0, 1)
    ]
    supported, refuted = (one.sum(axis=1) for one in sums)
    decided = supported + refuted
    present = (sums[0] + sums[1]) > 0
    right, false = sums[0][present], sums[1][present]
    categories = pa.StructArray.from_arrays(
        [
            _chosen(np.nonzero(present)[1], CATEGORIES),
            pa.array(right),
            pa.array(false),
            pa.array(right / (right + false)),
        ],
        names=["category", "supported", "refuted", "score"],
    )
    offsets = pa.array(np.concatenate([[0], present.sum(axis=1).cumsum()]).astype(np.int32))
    # A quarter of them are of a stretch that was sampled.
    drawn = np.where(np.arange(count) % 4 == 0, 0.25, 1.0)
    return {
        "reason": _fixed("", count),
        "detail": _fixed("", count),
        "score": pa.array(supported / np.maximum(decided, 1)),
        "eligible": pa.array(np.full(count, CLAIMS_EACH)),
        "decided": pa.array(decided),
        "supported": pa.array(supported),
        "refuted": pa.array(refuted),
        "answer_words": pa.array(np.full(count, 60)),
        "calls": pa.array(np.full(count, 3)),
        "input_tokens": pa.array(np.full(count, 900)),
        "output_tokens": pa.array(np.full(count, 120)),
        "cost": pa.array(np.full(count, 0.0005)),
        "categories": pa.ListArray.from_arrays(offsets, categories),
        "weight": pa.array(1 / drawn),
        "drawn": pa.array(drawn),
        "drawn_lowest": pa.array(np.full(count, 0.25)),
        "stratum": _fixed("ordinary", count),
        "budget": _fixed("", count),
    }


def _empty(count: int) -> dict[str, Any]:
    """The columns of lists and maps, with nothing in them."""
    nothing = pa.array(np.zeros(count + 1, dtype=np.int32))

    def column(kind: pa.DataType) -> pa.Array:
        if pa.types.is_map(kind):
            return pa.MapArray.from_arrays(nothing, pa.array([], kind.key_type), pa.array([], kind.item_type))
        return pa.ListArray.from_arrays(nothing, pa.array([], kind.value_type))

    return {field.name: column(field.type) for field in SCHEMA if pa.types.is_nested(field.type)}


def _strategies(random: np.random.Generator, count: int) -> pa.Array:
    return pa.MapArray.from_arrays(
        pa.array(np.arange(count + 1, dtype=np.int32)),
        _fixed("strategy", count),
        _chosen(random.integers(0, 2, count), ("direct", "triplets-first")),
    )


def _chosen(places: Any, words: tuple[str, ...]) -> pa.Array:
    return pc.take(pa.array(words), pa.array(places))


def _fixed(word: str, count: int) -> pa.Array:
    return pa.repeat(word, count)


def _seconds(day: date) -> float:
    return (day - date(1970, 1, 1)).days * 86_400.0


def _timed(ask: Any, rounds: int) -> dict[str, Any]:
    ask()
    process = psutil.Process()
    times, read, cpu = [], [], []
    for _ in range(rounds):
        used = time.process_time()
        before, began = process.io_counters().read_chars, time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        read.append(process.io_counters().read_chars - before)
    times.sort()
    return {
        "median_s": round(statistics.median(times), 3),
        "p95_s": round(statistics.quantiles(times, n=20, method="inclusive")[-1], 3),
        "cpu_s": round(statistics.median(cpu), 3),
        "bytes_read": round(statistics.median(read)),
    }
